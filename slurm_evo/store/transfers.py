"""Moves between clusters that share no federation: each step is on disk before it is asked."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import insert, or_, select, update
from sqlalchemy.orm import Session

from slurm_evo.model import ClusterName, JobKey, StoreError
from slurm_evo.store.database import Database, changed
from slurm_evo.store.lease import fence
from slurm_evo.store.records import Lease, TransferRecord
from slurm_evo.store.tables import TransferRow


class Transfers(Database):
    """One row for each move, the last state of it."""

    def write_transfer(self, record: TransferRecord, *, lease: Lease, now: datetime) -> TransferRecord:
        """Keep a move's new state; on disk when this returns.

        Returns:
            The same with its id.

        Raises:
            LeaseLost: another daemon may act now: ask nothing.
            StoreError: the journal failed, or there is no such move: ask nothing.
        """
        with self._write() as session:
            fence(session, lease, now)
            if not record.id:
                return replace(record, id=self._begin(session, record))
            statement = update(TransferRow).where(TransferRow.id == record.id).values(_row(record))
            if changed(session, statement) != 1:
                raise StoreError(f"The journal {self.url} has no move {record.id}")
            return record

    def _begin(self, session: Session, record: TransferRecord) -> int:
        under_way = session.scalar(
            select(TransferRow.id).where(
                TransferRow.cluster == record.job.cluster,
                TransferRow.job == record.job.id,
                TransferRow.closed.is_(False),
            )
        )
        if under_way is not None:
            raise StoreError(f"The journal {self.url} has a move of {record.job} under way already")
        begun = session.scalar(insert(TransferRow).values(_row(record)).returning(TransferRow.id))
        return int(begun or 0)

    def open_transfers(self) -> tuple[TransferRecord, ...]:
        """Those with something left to do, oldest first."""
        query = select(TransferRow).where(TransferRow.closed.is_(False)).order_by(TransferRow.id)
        with self._read() as session:
            return tuple(_record(row) for row in session.scalars(query))

    def latest_transfers(self, limit: int) -> tuple[TransferRecord, ...]:
        """The moves begun last, newest first."""
        query = select(TransferRow).order_by(TransferRow.id.desc()).limit(limit)
        with self._read() as session:
            return tuple(_record(row) for row in session.scalars(query))

    def transfers_of(self, job: JobKey) -> tuple[TransferRecord, ...]:
        """Every move that this job came from or went to, oldest first."""
        query = (
            select(TransferRow)
            .where(
                or_(
                    (TransferRow.cluster == job.cluster) & (TransferRow.job == job.id),
                    (TransferRow.destination == job.cluster) & (TransferRow.copy == job.id),
                )
            )
            .order_by(TransferRow.id)
        )
        with self._read() as session:
            return tuple(_record(row) for row in session.scalars(query))

    def transfers_done(self, since: datetime, until: datetime) -> tuple[TransferRecord, ...]:
        """Completed moves that ended after ``since`` and not after ``until``, oldest first."""
        query = (
            select(TransferRow)
            .where(TransferRow.phase == "done", TransferRow.phase_since > since, TransferRow.phase_since <= until)
            .order_by(TransferRow.phase_since, TransferRow.id)
        )
        with self._read() as session:
            return tuple(_record(row) for row in session.scalars(query))


def _row(record: TransferRecord) -> dict[str, Any]:
    return {
        "cluster": record.job.cluster,
        "job": record.job.id,
        "destination": record.to,
        "copy": record.copy,
        "phase": record.phase,
        "closed": record.closed,
        "began": record.began,
        "phase_since": record.phase_since,
        "fields": record.fields,
        "image": None if record.image is None else dict(record.image),
        "site_factor": record.site_factor,
        "why": record.why,
        "owner": record.owner,
    }


def _record(row: TransferRow) -> TransferRecord:
    return TransferRecord(
        id=row.id,
        job=JobKey(ClusterName(row.cluster), row.job),
        to=ClusterName(row.destination),
        copy=row.copy,
        phase=row.phase,
        closed=row.closed,
        began=row.began,
        phase_since=row.phase_since,
        fields=row.fields,
        image=row.image,
        site_factor=row.site_factor,
        why=row.why,
        owner=row.owner,
    )
