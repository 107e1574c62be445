"""What must not be forgotten about jobs that wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import delete, select

from slurm_evo.model import ClusterName, JobKey
from slurm_evo.store.database import Database, changed, chunks
from slurm_evo.store.records import JobMemory
from slurm_evo.store.tables import JobRow


class JobMemories(Database):
    """One row for each job that waits."""

    def jobs(self, keys: Iterable[JobKey] | None = None) -> Mapping[JobKey, JobMemory]:
        """The memories of these jobs, or of all; jobs never seen are missing."""
        with self._read() as session:
            if keys is None:
                return {memory.key: memory for memory in map(_memory, session.scalars(select(JobRow)))}
            by_cluster: dict[str, list[int]] = {}
            for key in keys:
                by_cluster.setdefault(key.cluster, []).append(key.id)
            rows = (
                row
                for cluster, ids in by_cluster.items()
                for some in chunks(ids)
                for row in session.scalars(select(JobRow).where(JobRow.cluster == cluster, JobRow.job.in_(some)))
            )
            return {memory.key: memory for memory in map(_memory, rows)}

    def remember(self, memories: Iterable[JobMemory]) -> None:
        """Keep these, in place of what was known of the same jobs, in one transaction.

        Raises:
            StoreError: the journal failed; then none is kept.
        """
        with self._write() as session:
            self._upsert(session, JobRow, [_row(memory) for memory in memories])

    def forget(self, *, unseen_since: datetime) -> int:
        """Drop jobs last seen before an instant: they have left the queues.

        Returns:
            How many.
        """
        with self._write() as session:
            return changed(session, delete(JobRow).where(JobRow.seen_at < unseen_since))


def _row(memory: JobMemory) -> dict[str, Any]:
    return {
        "cluster": memory.key.cluster,
        "job": memory.key.id,
        "submitted": memory.submitted,
        "asked": sorted(memory.asked),
        "seen_at": memory.seen_at,
        "site_factor": memory.site_factor,
        "age_lost_s": memory.age_lost_s,
        "age_points": memory.age_points,
        "moved_at": memory.moved_at,
        "moves": memory.moves,
        "wanted": None if memory.wanted is None else sorted(memory.wanted),
        "widening_since": memory.widening_since,
        "stranded_since": memory.stranded_since,
        "healed_at": memory.healed_at,
        "nice_owed": memory.nice_owed,
        "refusing": {cluster: until.isoformat() for cluster, until in memory.refusing.items()},
    }


def _memory(row: JobRow) -> JobMemory:
    return JobMemory(
        key=JobKey(ClusterName(row.cluster), row.job),
        submitted=row.submitted,
        asked=frozenset(map(ClusterName, row.asked)),
        seen_at=row.seen_at,
        site_factor=row.site_factor,
        age_lost_s=row.age_lost_s,
        age_points=row.age_points,
        moved_at=row.moved_at,
        moves=row.moves,
        wanted=None if row.wanted is None else frozenset(map(ClusterName, row.wanted)),
        widening_since=row.widening_since,
        stranded_since=row.stranded_since,
        healed_at=row.healed_at,
        nice_owed=row.nice_owed,
        refusing={ClusterName(name): datetime.fromisoformat(until) for name, until in row.refusing.items()},
    )
