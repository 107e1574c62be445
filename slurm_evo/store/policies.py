"""Known policies, and the stack of those put in force."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from slurm_evo.model import StoreError
from slurm_evo.store.database import Database
from slurm_evo.store.records import StoredPolicy
from slurm_evo.store.tables import PolicyRow


class Policies(Database):
    """Policies by id; the one promoted last is in force."""

    def add_policy(
        self, id_: str, text: str, *, source: str, now: datetime, provenance: Mapping[str, Any] | None = None
    ) -> StoredPolicy:
        """Keep a policy, without putting it in force. The same one again is no error and changes nothing.

        Raises:
            StoreError: the id is known with another text, or the journal failed.
        """
        with self._write() as session:
            known = session.get(PolicyRow, id_)
            if known is None:
                known = PolicyRow(
                    id=id_,
                    text=text,
                    source=source,
                    created=now,
                    provenance=json.dumps(dict(provenance)) if provenance else None,
                )
                session.add(known)
                session.flush()
            elif known.text != text:
                raise StoreError(f"The journal {self.url} has policy {id_} with another text: choose another id")
            return _policy(known)

    def policies(self) -> tuple[StoredPolicy, ...]:
        """All that are known, newest first."""
        query = select(PolicyRow).order_by(PolicyRow.created.desc(), PolicyRow.id)
        with self._read() as session:
            return tuple(_policy(row) for row in session.scalars(query))

    def active_policy(self) -> StoredPolicy | None:
        """The one in force; None until one is promoted."""
        with self._read() as session:
            row = _top(session)
            return None if row is None else _policy(row)

    def promote(self, id_: str, *, now: datetime) -> StoredPolicy:
        """Put a known policy in force, on top of the present one.

        Raises:
            StoreError: it is not known, or the journal failed.
        """
        with self._write() as session:
            row = session.get(PolicyRow, id_)
            if row is None:
                raise StoreError(f"The journal {self.url} knows no policy {id_}: add it first")
            highest = session.scalars(select(func.max(PolicyRow.promotion))).one() or 0
            if row.promotion is None or row.promotion != highest:
                row.promotion, row.promoted_at = highest + 1, now
            return _policy(row)

    def rollback(self) -> StoredPolicy | None:
        """Take the policy in force off the stack.

        Returns:
            The one in force now; None if it was the only one.

        Raises:
            StoreError: none was in force, or the journal failed.
        """
        with self._write() as session:
            row = _top(session)
            if row is None:
                raise StoreError(f"The journal {self.url} has no promoted policy to roll back")
            row.promotion, row.promoted_at = None, None
            session.flush()
            row = _top(session)
            return None if row is None else _policy(row)


def _top(session: Session) -> PolicyRow | None:
    query = select(PolicyRow).where(PolicyRow.promotion.is_not(None)).order_by(PolicyRow.promotion.desc())
    return session.scalars(query.limit(1)).one_or_none()


def _policy(row: PolicyRow) -> StoredPolicy:
    return StoredPolicy(
        id=row.id,
        text=row.text,
        source=row.source,
        created=row.created,
        promoted_at=row.promoted_at,
        provenance=json.loads(row.provenance) if row.provenance else {},
    )
