"""Moves between simulated clusters that share no federation: the same seam as on real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from slurm_evo.model import Answer, ClusterError, ClusterName, ClusterRefused, ClusterUnreachable, JobKey, JobState
from slurm_evo.slurm.simulated.fleet import SimulatedFleet
from slurm_evo.slurm.simulated.record import Record
from slurm_evo.slurm.simulated.spec import Submission
from slurm_evo.slurm.transfer.image import (
    COPY,
    FROM,
    MOVING,
    TO,
    JobImage,
    NotMovable,
    fingerprint,
    mark_of,
    marked,
    moved_by_another,
    of_another,
    unmarked,
)
from slurm_evo.slurm.transfer.machine import Copy, Life, Original
from slurm_evo.slurm.transfer.port import Replied

US = "slurm-evo"


class SimulatedTransfers:
    """TransferPort of one cluster of a simulated fleet, with the rights of its SlurmUser.

    Args:
        fleet: the fleet.
        cluster: the cluster's name.
    """

    def __init__(self, fleet: SimulatedFleet, cluster: str) -> None:
        self._fleet = fleet
        self._name = ClusterName(cluster)

    @property
    def name(self) -> ClusterName:
        """The cluster's ClusterName."""
        return self._name

    def image(self, job: int) -> JobImage:
        """See TransferPort."""
        record = self._record(job)
        if record is None or not record.pending:
            raise NotMovable("it no longer waits")
        return JobImage(
            key=JobKey(self._name, job),
            user=record.asked.user,
            uid=1000,
            gid=1000,
            script=f"#!/bin/sh\n# {record.asked.name}\n",
            environment=(f"USER={record.asked.user}",),
            argv=(),
            fields=_fields(record),
            admin_comment=record.admin_comment,
        )

    def original(self, job: int, move: str) -> Original:
        """See TransferPort."""
        record = self._record(job) or self._fleet.accounted[self._name, job]
        left = record.eligible - self._fleet.elapsed_s
        ours = not moved_by_another(record.admin_comment, move, left)
        went = mark_of(record.admin_comment, TO) is not None
        put_off = ours and (went or mark_of(record.admin_comment, MOVING))
        return Original(
            life=_life(record),
            hold=record.hold,
            deferred_s=float(left) if put_off and left > 0 else None,
            fields=fingerprint(_fields(record)),
            ours=ours,
            cancelled_by_us=went and not of_another(record.admin_comment, move) and record.cancelled_by == US,
        )

    def copies(self, of: JobKey, image: JobImage | None, known: int | None, move: str) -> tuple[Copy, ...]:
        """See TransferPort."""
        del image  # the simulated fleet has one numbering of users
        self._answer()
        found = []
        records = dict(self._fleet.controllers[self._name].records)
        past = self._fleet.accounted.get((self._name, known or 0))
        if past is not None:
            records.setdefault(past.id, past)
        for record in records.values():
            final = mark_of(record.admin_comment, FROM) == str(of)
            is_one = final or mark_of(record.admin_comment, COPY) == str(of)
            if is_one and not of_another(record.admin_comment, move):
                found.append(Copy(id=record.id, life=_life(record), final=final))
        return tuple(found)

    def test(self, image: JobImage) -> Replied:
        """See TransferPort."""

        def ask() -> None:
            words = self._fleet.controllers[self._name].rejection(_submission(image))
            if words:
                raise ClusterRefused(self._name, words)

        return self._ask(ask)

    def defer(self, job: int, to: ClusterName, seconds: float, move: str) -> Replied:
        """See TransferPort."""

        def ask() -> None:
            self._not_of_another(job, move)
            self._fleet.defer(self._name, job, int(seconds))
            self._mark(job, MOVING, to, move)

        return self._ask(ask)

    def restore(self, job: int, move: str) -> Replied:
        """See TransferPort."""

        def ask() -> None:
            self._not_of_another(job, move)
            self._fleet.defer(self._name, job, 0)
            record = self._record(job)
            if record is not None:
                record.admin_comment = unmarked(record.admin_comment)

        return self._ask(ask)

    def submit(self, image: JobImage, move: str) -> Replied:
        """See TransferPort."""
        comment = marked(image.admin_comment, COPY, image.key, move)
        return self._ask(
            lambda: self._fleet.submit_copy(self._name, _submission(image), image.key, image.key.id, comment)
        )

    def cancel(self, job: int, to: JobKey | None, move: str) -> Replied:
        """See TransferPort."""

        def ask() -> None:
            record = self._record(job)
            if record is not None and record.pending:
                if to is not None:
                    self._not_of_another(job, move)
                    self._mark(job, TO, to, move)
                self._fleet.cancel(self._name, job, by=US)

        return self._ask(ask)

    def release(self, copy: int, of: JobKey, *, move: str, site_factor: int, held: bool = False) -> Replied:
        """See TransferPort."""

        def ask() -> None:
            record = self._record(copy)
            if record is None:
                raise ClusterRefused(self._name, "Invalid job id specified")
            self._mark(copy, FROM, of, move)
            nice = record.nice
            if not held:
                self._fleet.release(self._name, copy)
            self._fleet.update(self._name, copy, nice=nice, site_factor=site_factor)

        return self._ask(ask)

    def close(self) -> None:
        """Nothing is held open."""

    # -- inside ---------------------------------------------------------------------------------------

    def _record(self, job: int) -> Record | None:
        self._answer()
        return self._fleet.record(self._name, job)

    def _answer(self) -> None:
        if self._name in self._fleet.faults.unreachable or not self._fleet.controllers[self._name].up:
            raise ClusterUnreachable(self._name, "the simulated controller does not answer; is it stopped?")

    def _ask(self, change: Callable[[], Any]) -> Replied:
        try:
            self._answer()
            change()
        except ClusterUnreachable as failure:
            return Replied(Answer.UNKNOWN, failure.message)
        except ClusterError as failure:
            return Replied(Answer.REFUSED, failure.message)
        if self._name in self._fleet.faults.half_answers:
            return Replied(Answer.UNKNOWN, "the answer breaks off")
        return Replied(Answer.DONE)

    def _mark(self, job: int, mark: str, value: object, move: str) -> None:
        record = self._record(job)
        if record is not None:
            record.admin_comment = marked(record.admin_comment, mark, value, move)

    def _not_of_another(self, job: int, move: str) -> None:
        record = self._record(job)
        if record is None:
            return
        if moved_by_another(record.admin_comment, move, record.eligible - self._fleet.elapsed_s):
            raise ClusterRefused(self._name, "another slurm-evo is moving it")


def _life(record: Record) -> Life:
    if record.state is JobState.DONE:
        return Life.ENDED
    return Life.WAITING if record.pending else Life.STARTED


def _fields(record: Record) -> dict[str, Any]:
    fields = asdict(record.asked)
    for lost in ("begin_s", "held"):
        del fields[lost]
    fields |= {"nice": record.nice, "limit_s": record.limit_s}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def _submission(image: JobImage) -> Submission:
    given = dict(image.fields)
    for name in ("partitions", "components", "clusters"):
        given[name] = tuple(given[name])
    return Submission(**given)
