"""The contract tests' world, simulated."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_evo.model import ClusterPort, JobState
from slurm_evo.slurm.simulated import Reservation, SimulatedFleet, SimulatedPort, Submission, sample_fleet

DAY_S = 86_400


class SimulatedWorld:
    """A World on the sample fleet; ``settle`` jumps."""

    def __init__(self) -> None:
        self.fleet = SimulatedFleet(sample_fleet())

    def port(self, cluster: str) -> ClusterPort:
        return SimulatedPort(self.fleet, cluster)

    def submit(
        self,
        cluster: str,
        *,
        user: str = "ada",
        gpus: int = 1,
        gpu_type: str | None = None,
        nodes: int = 1,
        limit_min: int = 60,
        seconds: int = 600,
        clusters: Sequence[str] | None = None,
        partition: str | None = None,
        qos: str | None = None,
        nice: int | None = None,
        hold: bool = False,
        array: str | None = None,
        dependency: str | None = None,
        comment: str | None = None,
        het: bool = False,
        begin: str | None = None,
        name: str = "story",
        reservation: str | None = None,
    ) -> int:
        if reservation is not None:
            self._reserve(cluster, reservation, user)
        asked = Submission(
            user=user,
            run_s=seconds,
            limit_s=limit_min * 60,
            gpus=gpus,
            gpu_type=gpu_type,
            nodes=nodes,
            partitions=(partition,) if partition else (),
            qos=qos or "normal",
            nice=nice or 0,
            held=hold,
            tasks=_tasks(array),
            dependency=dependency or "",
            begin_s=_seconds(begin),
            name=name,
            reservation=reservation or "",
            comment=comment or "",
            clusters=tuple(clusters or ()),
            components=(Submission(user=user, run_s=seconds, limit_s=limit_min * 60, gpus=gpus),) if het else (),
        )
        return self.fleet.submit(cluster, asked).id

    def fill(self, cluster: str) -> list[int]:
        controller = self.fleet.controllers[cluster]
        pinned = (cluster,) if cluster in self.fleet.spec.members else ()
        week = Submission(user="cyd", run_s=7 * DAY_S, limit_s=7 * DAY_S, name="filler", clusters=pinned)
        jobs = [self.fleet.submit(cluster, week).id for _ in range(sum(controller.free.gpus))]
        self.settle(60)
        return [job for job in jobs if controller.records[job].state is JobState.RUNNING]

    def hold(self, cluster: str, job: int) -> None:
        self.fleet.hold(cluster, job)

    def release(self, cluster: str, job: int) -> None:
        self.fleet.release(cluster, job)

    def cancel(self, cluster: str, job: int) -> None:
        self.fleet.cancel(cluster, job)

    def settle(self, seconds: float) -> None:
        self.fleet.advance_to_s(self.fleet.elapsed_s + max(1, round(seconds)))

    def _reserve(self, cluster: str, name: str, user: str) -> None:
        start_s = self.fleet.elapsed_s + 30 * DAY_S
        node = self.fleet.spec.cluster(cluster).nodes[0].name
        self.fleet.reserve(
            cluster,
            Reservation(name=name, nodes=(node,), start_s=start_s, end_s=start_s + DAY_S, users=(user,)),
        )


def _tasks(array: str | None) -> int:
    """How many tasks ``--array=FIRST-LAST`` makes."""
    if array is None:
        return 0
    first, last = array.split("-")
    return int(last) - int(first) + 1


def _seconds(begin: str | None) -> int:
    """Seconds of ``--begin=now+N[minutes|hours]`` (sbatch(1))."""
    if begin is None:
        return 0
    text = begin.removeprefix("now+")
    units = {"minutes": 60, "minute": 60, "hours": 3600, "hour": 3600}
    for unit, length_s in units.items():
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * length_s
    return int(text)
