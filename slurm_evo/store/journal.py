"""The journal: what slurm-evo did, why, and what it must not forget."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, select

from slurm_evo.store.actions import Actions
from slurm_evo.store.cycles import Cycles, last_number
from slurm_evo.store.database import changed
from slurm_evo.store.lease import Leases
from slurm_evo.store.memory import JobMemories
from slurm_evo.store.policies import Policies
from slurm_evo.store.records import ActionState
from slurm_evo.store.tables import ActionRow, CycleRow, JobRow, TransferRow
from slurm_evo.store.transfers import Transfers


class Journal(Cycles, Actions, JobMemories, Policies, Leases, Transfers):
    """All of it in one database; `Journal.open` connects. Every failure is a StoreError.

    Threads may share one. Processes open their own: readers see what was committed, writers take turns.
    """

    def prune(self, *, older_than: datetime) -> int:
        """Drop old cycles with their plans, actions and refusals, and jobs not seen since.

        The last cycle and those with unsettled actions stay.

        Returns:
            How many cycles were dropped.
        """
        with self._write() as session:
            last = last_number(session)
            unsettled = select(ActionRow.cycle).where(ActionRow.state == ActionState.INTENDED)
            dropped = changed(
                session,
                delete(CycleRow).where(
                    CycleRow.started < older_than,
                    CycleRow.number != last,
                    CycleRow.number.not_in(unsettled),
                ),
            )
            changed(session, delete(JobRow).where(JobRow.seen_at < older_than))
            past = TransferRow.closed.is_(True), TransferRow.phase_since < older_than
            changed(session, delete(TransferRow).where(*past))
            return dropped
