"""Actions: written down before they are done, settled when their answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from slurm_evo.model import (
    Action,
    ClusterName,
    JobKey,
    Outcome,
    SetClusters,
    SetSiteFactor,
    StoreError,
    Unpin,
)
from slurm_evo.store.database import Database, chunks
from slurm_evo.store.lease import fence
from slurm_evo.store.records import ActionState, Intent, JournaledAction, Lease
from slurm_evo.store.tables import ActionRow

_OPEN = (ActionState.INTENDED, ActionState.UNKNOWN)
_SETTLE = (
    update(ActionRow)
    .where(ActionRow.id == bindparam("key"))
    .values(state=bindparam("state_to"), message=bindparam("message_to"), settled_at=bindparam("at"))
)


class Actions(Database):
    """Every change ever asked of Slurm, with what was before and what became of it."""

    def intend(self, cycle: int, intents: Sequence[Intent], *, lease: Lease, now: datetime) -> tuple[int, ...]:
        """Write down what is about to be done; on disk when this returns.

        Returns:
            One id for each intent, in order.

        Raises:
            LeaseLost: another daemon may act now, or the lease has run out: do nothing.
            StoreError: the journal failed: do nothing.
        """
        with self._write() as session:
            fence(session, lease, now)
            if not intents:
                return ()
            rows = [_row(cycle, intent, now) for intent in intents]
            ids = session.scalars(insert(ActionRow).returning(ActionRow.id, sort_by_parameter_order=True), rows)
            return tuple(ids)

    def settle(self, ids: Sequence[int], outcomes: Sequence[Outcome], *, now: datetime) -> None:
        """Write down what became of actions. Needs no lease: what has been done is true whoever did it.

        An action settled as unknown may be settled again when a later look tells.

        Args:
            ids: from `intend`.
            outcomes: one for each id, in order.
            now: aware.

        Raises:
            StoreError: an id is not open, or the journal failed; then none is settled.
        """
        changes = {
            id_: {"key": id_, "state_to": str(outcome.answer), "message_to": outcome.message, "at": now}
            for id_, outcome in zip(ids, outcomes, strict=True)
        }
        if not changes:
            return
        with self._write() as session:
            wanted = sorted(changes)
            found: set[int] = set()
            for some in chunks(wanted):
                query = select(ActionRow.id).where(ActionRow.id.in_(some), ActionRow.state.in_(_OPEN))
                found.update(session.scalars(query))
            if len(found) != len(ids):
                closed = sorted(set(wanted) - found)
                raise StoreError(f"The journal {self.url} has no open action with id {closed or 'given twice'}")
            session.connection().execute(_SETTLE, list(changes.values()))

    def open_actions(self) -> tuple[JournaledAction, ...]:
        """Intended but not settled, oldest first: what a crash left. Each may or may not have been done."""
        query = select(ActionRow).where(ActionRow.state == ActionState.INTENDED).order_by(ActionRow.id)
        with self._read() as session:
            return tuple(_action(row) for row in session.scalars(query))

    def history(self, *, limit: int = 100, job: JobKey | None = None) -> tuple[JournaledAction, ...]:
        """Actions, newest first; of one job or of all."""
        query = select(ActionRow).order_by(ActionRow.id.desc()).limit(limit)
        if job is not None:
            query = query.where(ActionRow.job_cluster == job.cluster, ActionRow.job == job.id)
        with self._read() as session:
            return tuple(_action(row) for row in session.scalars(query))

    def actions_of(self, cycle: int) -> tuple[JournaledAction, ...]:
        """The actions of one cycle, in the order they were intended."""
        query = select(ActionRow).where(ActionRow.cycle == cycle).order_by(ActionRow.id)
        with self._read() as session:
            return tuple(_action(row) for row in session.scalars(query))


def _row(cycle: int, intent: Intent, now: datetime) -> dict[str, Any]:
    action = intent.action
    parameters = asdict(action)
    del parameters["job"]
    return {
        "cycle": cycle,
        "job_cluster": action.job.cluster,
        "job": action.job.id,
        "cluster": intent.cluster or action.job.cluster,
        "kind": action.kind,
        "parameters": parameters,
        "seen_before": dict(intent.before),
        "reason": intent.reason,
        "state": ActionState.INTENDED.value,
        "message": "",
        "intended_at": now,
    }


def _action(row: ActionRow) -> JournaledAction:
    return JournaledAction(
        id=row.id,
        cycle=row.cycle,
        cluster=ClusterName(row.cluster),
        action=_rebuilt(row.kind, JobKey(ClusterName(row.job_cluster), row.job), row.parameters),
        before=row.seen_before,
        reason=row.reason,
        state=ActionState(row.state),
        message=row.message,
        intended_at=row.intended_at,
        settled_at=row.settled_at,
    )


def _rebuilt(kind: str, job: JobKey, parameters: dict[str, Any]) -> Action:
    match kind:
        case "set_clusters":
            return SetClusters(job, tuple(map(ClusterName, parameters["clusters"])))
        case "set_site_factor":
            return SetSiteFactor(job, parameters["value"])
        case "unpin":
            return Unpin(job, parameters["nice"], parameters["site_factor"])
        case _:
            raise StoreError(f"The journal has an action of kind {kind!r}, unknown to this slurm-evo")
