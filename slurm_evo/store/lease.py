"""One row says which daemon may act. Taken by compare-and-set, with an epoch that only rises."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from slurm_evo.model import LeaseLost
from slurm_evo.store.database import Database, changed
from slurm_evo.store.records import Lease
from slurm_evo.store.tables import LeaseRow


class Leases(Database):
    """The journal's lease."""

    def acquire(self, holder: str, *, now: datetime, length_s: float) -> Lease | None:
        """Take the lease if nobody holds it, or if ``holder`` does (its former self is fenced off).

        Clocks of competing hosts must agree to well within ``length_s``; even where they do not, the
        epoch keeps a former holder from journaling, and what is not journaled is not done.

        Args:
            holder: unique among daemons that may compete, such as ``host:state_dir``.
            now: aware.
            length_s: how long it is valid without renewal, seconds.

        Returns:
            The lease, or None if another holds it: `lease` tells who.

        Raises:
            StoreError: the journal failed.
        """
        until = now + timedelta(seconds=length_s)
        with self._write() as session:
            taken = changed(
                session,
                update(LeaseRow)
                .where(or_(LeaseRow.ends <= now, LeaseRow.holder == holder))
                .values(holder=holder, epoch=LeaseRow.epoch + 1, ends=until),
            )
            if taken != 1:
                return None
            return Lease(holder=holder, epoch=session.scalars(select(LeaseRow.epoch)).one(), until=until)

    def renew(self, lease: Lease, *, now: datetime, length_s: float) -> Lease:
        """Hold it longer; never shorter than it was.

        One that ran out is renewed all the same if nobody took it: nobody acted meanwhile.

        Raises:
            LeaseLost: another daemon, or this one's successor, has it.
            StoreError: the journal failed; the lease stays valid until its end.
        """
        with self._write() as session:
            row = session.scalars(select(LeaseRow).with_for_update()).one()
            if (row.holder, row.epoch) != (lease.holder, lease.epoch):
                raise lost(session, lease)
            # The row counts as well: an older copy of the lease must not cut off what a newer one promises.
            until = max(row.ends, lease.until, now + timedelta(seconds=length_s))
            row.ends = until
        return Lease(holder=lease.holder, epoch=lease.epoch, until=until)

    def release(self, lease: Lease, *, now: datetime) -> None:
        """Let another take it at once; nothing happens if it was lost already."""
        with self._write() as session:
            changed(
                session,
                update(LeaseRow)
                .where(LeaseRow.holder == lease.holder, LeaseRow.epoch == lease.epoch)
                .values(ends=now),
            )

    def lease(self) -> Lease | None:
        """The lease as it stands, valid or not; None if none was ever taken."""
        with self._read() as session:
            row = session.scalars(select(LeaseRow)).one()
            return _lease(row) if row.epoch else None


def fence(session: Session, lease: Lease, now: datetime) -> None:
    """Refuse, inside a transaction that writes, whoever may no longer act.

    The row stays locked until the transaction ends, so nobody can take the lease in between.

    Raises:
        LeaseLost: the lease has run out or is another's.
    """
    row = session.scalars(select(LeaseRow).with_for_update()).one()
    if (row.holder, row.epoch) != (lease.holder, lease.epoch):
        raise lost(session, lease)
    if now >= row.ends:
        raise LeaseLost(
            f"The lease {lease.epoch} of {lease.holder} ran out at {row.ends:%H:%M:%S} UTC; renew it before acting"
        )


def lost(session: Session, lease: Lease) -> LeaseLost:
    """The error that says who has it now."""
    row = session.scalars(select(LeaseRow)).one()
    return LeaseLost(
        f"{lease.holder} held lease {lease.epoch}, but {row.holder} took lease {row.epoch}: "
        "only one daemon may act on a fleet"
    )


def _lease(row: LeaseRow) -> Lease:
    return Lease(holder=row.holder, epoch=row.epoch, until=row.ends)
