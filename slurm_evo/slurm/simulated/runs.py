"""Run a simulated fleet through a workload, and judge how long its users waited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from slurm_evo.model import JobKey
from slurm_evo.sim.metrics import Metrics, measure
from slurm_evo.slurm.simulated.fleet import SimulatedFleet
from slurm_evo.slurm.simulated.spec import Arrival, FleetSpec

Cycle = Callable[[SimulatedFleet], None]
"""Called at each cycle of simulated time: the place for a daemon's one pass, or for a progress bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What became of every job that ran; arrays of shape (n,), times in seconds after the fleet's start."""

    keys: tuple[JobKey, ...]
    submit_s: npt.NDArray[np.int64]
    start_s: npt.NDArray[np.int64]
    end_s: npt.NDArray[np.int64]
    gpus: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    users: tuple[str, ...]
    clusters: tuple[str, ...]
    """Where each ran."""
    unstarted: int
    """Jobs that never ran: cancelled, or still waiting."""


def without_federation(fleet: FleetSpec, arrivals: Iterable[Arrival]) -> tuple[FleetSpec, tuple[Arrival, ...]]:
    """The same clusters on their own, first come first served, each job where its user sent it.

    That is the cluster it was submitted at, or the first of the user's own ``-M``. Backfill stays on, so
    that only the order and the allocation differ from a federation.
    """
    plain = tuple(replace(cluster, federated=False, weights={}) for cluster in fleet.clusters)
    return replace(fleet, clusters=plain), tuple(_at_its_cluster(arrival) for arrival in arrivals)


def _at_its_cluster(arrival: Arrival) -> Arrival:
    chosen = arrival.submission.clusters
    cluster = arrival.cluster if not chosen or arrival.cluster in chosen else chosen[0]
    return replace(arrival, cluster=cluster, submission=replace(arrival.submission, clusters=()))


def run(
    fleet: SimulatedFleet,
    arrivals: Iterable[Arrival],
    *,
    every_s: int = 300,
    on_cycle: Cycle | None = None,
    until_s: int | None = None,
) -> None:
    """Submit a workload and let time pass until every job is done.

    Args:
        fleet: at its start or later.
        arrivals: the workload.
        every_s: seconds of simulated time between two calls of ``on_cycle``.
        on_cycle: called then, while jobs are waiting, running or still to come.
        until_s: stop at this second at the latest.

    A fleet in which nothing will ever happen again is left as it is, its stuck jobs waiting.
    """
    fleet.arrive(arrivals)
    while fleet.busy and (until_s is None or fleet.elapsed_s < until_s):
        upcoming = fleet.next_event_s()
        if upcoming is None and on_cycle is None:
            return
        target = fleet.elapsed_s + every_s
        if on_cycle is None and upcoming is not None:
            target = max(target, upcoming)
        fleet.advance_to_s(target if until_s is None else min(target, until_s))
        if on_cycle is not None:
            on_cycle(fleet)


def results(fleet: SimulatedFleet, weights: Mapping[str, float]) -> Results:
    """What became of the jobs so far.

    Args:
        fleet: the fleet; jobs that still run count as ending now.
        weights: by QOS; a QOS that is not named weighs 1.
    """
    ran = [job for job in fleet.jobs.values() if job.started is not None]
    now = fleet.elapsed_s

    def whole(values: Iterable[int | None]) -> npt.NDArray[np.int64]:
        return np.array([now if value is None else value for value in values], dtype=np.int64)

    return Results(
        keys=tuple(job.key for job in ran),
        submit_s=whole(job.submitted for job in ran),
        start_s=whole(job.started for job in ran),
        end_s=whole(job.ended for job in ran),
        gpus=whole(job.asked.gpus for job in ran),
        weight=np.array([weights.get(job.asked.qos, 1.0) for job in ran], dtype=np.float64),
        users=tuple(job.asked.user for job in ran),
        clusters=tuple(job.cluster or "" for job in ran),
        unstarted=len(fleet.jobs) - len(ran),
    )


def judge(done: Results, fleet: FleetSpec) -> Metrics:
    """The metrics of a run; utilization over the window in which jobs arrived.

    Raises:
        ValueError: fewer than two instants of arrival, so there is no window.
    """
    if not len(done.submit_s) or done.submit_s.min() == done.submit_s.max():
        raise ValueError("utilization needs jobs that arrive over some time")
    window = (float(done.submit_s.min()), float(done.submit_s.max()))
    gpus = sum(cluster.gpus for cluster in fleet.clusters)
    return measure(
        submit_s=done.submit_s,
        start_s=done.start_s,
        end_s=done.end_s,
        gpus=done.gpus,
        weight=done.weight,
        window_s=window,
        available_gpu_s=gpus * (window[1] - window[0]),
    )
