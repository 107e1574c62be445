"""Cycles, their plans, and why jobs were left alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from slurm_evo.model import ClusterName, JobKey, Placement, Plan, Scores, StoreError
from slurm_evo.store.database import Database, changed
from slurm_evo.store.lease import fence
from slurm_evo.store.records import CycleRecord, Lease, Mode, PlacementRecord, PlanRecord, Refusal
from slurm_evo.store.tables import CycleRow, PlacementRow, PlanRow, RefusalRow


class Cycles(Database):
    """What each pass of the loop decided, and why."""

    def begin_cycle(self, *, now: datetime, lease: Lease | None) -> int:
        """Open a cycle: a live one under a valid lease, a dry one without.

        Returns:
            Its number, larger than any before.

        Raises:
            LeaseLost: another daemon may act now.
            StoreError: the journal failed.
        """
        mode = Mode.DRY if lease is None else Mode.LIVE
        with self._write() as session:
            if lease is not None:
                fence(session, lease, now)
            row = CycleRow(
                mode=mode,
                started=now,
                epoch=lease.epoch if lease else None,
                seconds={},
                counts={},
                sentence="",
            )
            session.add(row)
            session.flush()
            return row.number

    def end_cycle(
        self,
        number: int,
        *,
        now: datetime,
        seconds: Mapping[str, float],
        counts: Mapping[str, int],
        sentence: str,
    ) -> None:
        """Close a cycle with its figures and its one sentence.

        Raises:
            StoreError: there is no such cycle, or the journal failed.
        """
        with self._write() as session:
            ended = changed(
                session,
                update(CycleRow)
                .where(CycleRow.number == number)
                .values(ended=now, seconds=dict(seconds), counts=dict(counts), sentence=sentence),
            )
            if ended != 1:
                raise StoreError(f"The journal {self.url} has no cycle {number}")

    def last_cycle(self) -> CycleRecord | None:
        """The newest cycle, finished or not."""
        return next(iter(self.cycles(limit=1)), None)

    def cycles(self, *, limit: int = 20) -> tuple[CycleRecord, ...]:
        """The newest cycles, newest first."""
        with self._read() as session:
            rows = session.scalars(select(CycleRow).order_by(CycleRow.number.desc()).limit(limit))
            return tuple(_cycle(row) for row in rows)

    def record_plan(self, cycle: int, plan: Plan, *, weights: Mapping[str, float]) -> None:
        """Keep what was decided.

        Changed placements are kept as history; unchanged ones of the newest plan only, for ``explain``:
        3,000 waiting jobs twice a minute would make nine million rows a day.

        Raises:
            StoreError: there is no such cycle, it has a plan already, or the journal failed.
        """
        with self._write() as session:
            changed(
                session,
                delete(PlacementRow).where(PlacementRow.changed.is_(False), PlacementRow.cycle < cycle),
            )
            session.add(
                PlanRow(
                    cycle=cycle,
                    chosen=asdict(plan.chosen),
                    unchanged=asdict(plan.nothing),
                    front=[asdict(scores) for scores in plan.front],
                    why=plan.why,
                    weights=dict(weights),
                )
            )
            session.flush()
            if plan.placements:
                session.execute(insert(PlacementRow), [_placement_row(cycle, one) for one in plan.placements])

    def plan(self, cycle: int | None = None) -> PlanRecord | None:
        """The plan of a cycle, or the newest one; its placements are those still kept."""
        query = select(PlanRow).order_by(PlanRow.cycle.desc()).limit(1)
        if cycle is not None:
            query = query.where(PlanRow.cycle == cycle)
        with self._read() as session:
            row = session.scalars(query).one_or_none()
            if row is None:
                return None
            placements = session.scalars(
                select(PlacementRow)
                .where(PlacementRow.cycle == row.cycle)
                .order_by(PlacementRow.cluster, PlacementRow.job)
            )
            plan = Plan(
                placements=tuple(_placement(one) for one in placements),
                chosen=_scores(row.chosen),
                nothing=_scores(row.unchanged),
                front=tuple(_scores(scores) for scores in row.front),
                why=row.why,
            )
            return PlanRecord(cycle=row.cycle, plan=plan, weights=row.weights)

    def placements(self, job: JobKey, *, limit: int = 20) -> tuple[PlacementRecord, ...]:
        """What plans wanted for one job, newest first."""
        query = (
            select(PlacementRow, CycleRow.started)
            .join(CycleRow, CycleRow.number == PlacementRow.cycle)
            .where(PlacementRow.cluster == job.cluster, PlacementRow.job == job.id)
            .order_by(PlacementRow.cycle.desc())
            .limit(limit)
        )
        with self._read() as session:
            return tuple(
                PlacementRecord(cycle=row.cycle, at=started, placement=_placement(row))
                for row, started in session.execute(query)
            )

    def record_refusals(self, cycle: int, refusals: Mapping[JobKey, Iterable[str]]) -> None:
        """Keep why jobs were left alone in this cycle, in place of what was said of them before.

        Raises:
            StoreError: there is no such cycle, or the journal failed.
        """
        rows = [
            {"cluster": job.cluster, "job": job.id, "cycle": cycle, "reasons": list(reasons)}
            for job, reasons in refusals.items()
        ]
        with self._write() as session:
            self._upsert(session, RefusalRow, rows)

    def refusal(self, job: JobKey) -> Refusal | None:
        """Why a job was last left alone: still true if its cycle is the last one."""
        with self._read() as session:
            row = session.get(RefusalRow, (job.cluster, job.id))
            if row is None:
                return None
            return Refusal(job=job, reasons=tuple(row.reasons), cycle=row.cycle)

    def refusals(self, cycle: int) -> Mapping[JobKey, tuple[str, ...]]:
        """The jobs whose latest refusal is of this cycle."""
        with self._read() as session:
            rows = session.scalars(select(RefusalRow).where(RefusalRow.cycle == cycle))
            return {JobKey(ClusterName(row.cluster), row.job): tuple(row.reasons) for row in rows}


def last_number(session: Session) -> int | None:
    """The newest cycle's number."""
    return session.scalars(select(CycleRow.number).order_by(CycleRow.number.desc()).limit(1)).one_or_none()


def _cycle(row: CycleRow) -> CycleRecord:
    return CycleRecord(
        number=row.number,
        mode=Mode(row.mode),
        started=row.started,
        ended=row.ended,
        epoch=row.epoch,
        seconds=row.seconds,
        counts=row.counts,
        sentence=row.sentence,
    )


def _scores(values: Mapping[str, float]) -> Scores:
    return Scores(
        average_wait_s=values["average_wait_s"],
        maximum_wait_s=values["maximum_wait_s"],
        utilization=values["utilization"],
        moves=int(values["moves"]),
    )


def _placement_row(cycle: int, placement: Placement) -> dict[str, object]:
    return {
        "cycle": cycle,
        "cluster": placement.job.cluster,
        "job": placement.job.id,
        "clusters": sorted(placement.clusters),
        "clusters_before": sorted(placement.before),
        "changed": placement.changed,
        "expected_cluster": placement.expected_cluster,
        "expected_start_s": placement.expected_start_s,
        "expected_start_before_s": placement.expected_start_before_s,
        "reason": placement.reason,
    }


def _placement(row: PlacementRow) -> Placement:
    return Placement(
        job=JobKey(ClusterName(row.cluster), row.job),
        clusters=frozenset(map(ClusterName, row.clusters)),
        before=frozenset(map(ClusterName, row.clusters_before)),
        expected_cluster=None if row.expected_cluster is None else ClusterName(row.expected_cluster),
        expected_start_s=row.expected_start_s,
        expected_start_before_s=row.expected_start_before_s,
        reason=row.reason,
    )
