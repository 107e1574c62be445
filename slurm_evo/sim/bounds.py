"""How much is left to gain: a schedule by one who knows the future, and a bound no schedule can beat."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from slurm_evo.policy import Policy
from slurm_evo.sim.fleet import FleetShape
from slurm_evo.sim.replay import Replayed, replay
from slurm_evo.sim.rules import Backfill, Race, Rules
from slurm_evo.sim.workload import Workload

CLAIRVOYANT = "weight * (wait + 60) / (runtime * max(gpus, 1))"


def clairvoyant(jobs: Workload, fleet: FleetShape, policy: Policy | None = None) -> Replayed:
    """A strong schedule by a scheduler that knows true running times: a reference, not an optimum.

    The federation race with EASY backfill at every event; limits and estimates are the true running times,
    and a job that its limit would have killed still ends there.
    """
    speed = fleet.thousandths
    truth = np.maximum(np.minimum(-(-jobs.runtime * 1000 // speed.min()), jobs.limit), 1)
    runtime = np.minimum(jobs.runtime, truth * speed.max() // 1000)
    knows = replace(jobs, limit=truth, estimate=truth, runtime=runtime)
    return replay(knows, fleet, policy or Policy.parse(CLAIRVOYANT), Race(), Rules.every_event(Backfill.EASY))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What no schedule can beat."""

    average_wait_s: float
    """Lower bound of the average weighted queuing time, seconds; see ``lower_bound``."""


def lower_bound(jobs: Workload, fleet: FleetShape) -> Bound:
    """A lower bound of Σ weight × wait / Σ weight over these jobs: leave out those that never ran.

    All GPUs are one pool, jobs may be stopped and resumed at no cost and spread over any number of GPUs,
    and running times are known. Serving the most weight for the GPU-seconds first then gives the least
    Σ weight × mean busy time of all schedules (Goemans 1997, for release dates and preemption on one
    machine). A job that runs without a break starts half its running time before its mean busy time.
    Jobs without GPUs count as not waiting; time out of service is not counted. Where clusters differ in speed
    the pool is as fast as all of them, and a job is as long as on the slowest.

    O(n log n).
    """
    speed = fleet.thousandths / 1000
    pool = max(float(fleet.gpus @ speed), 1.0)
    runs = np.minimum(jobs.runtime / speed.min(), jobs.limit)
    work = (runs * speed.min() * jobs.gpus / pool).astype(np.float64)
    busy = _mean_busy_times(jobs.submit.astype(np.float64), work, jobs.weight)
    waits = np.where(work > 0, busy - runs / 2 - jobs.submit, 0.0)
    total = float(np.dot(waits, jobs.weight))
    return Bound(average_wait_s=max(total, 0.0) / max(float(jobs.weight.sum()), 1e-300))


def _mean_busy_times(
    submit: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    work: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    weight: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """When, on average, each job is served, if the most weight for the work always goes first, preempting."""
    n = len(submit)
    left = work.copy()
    moment = np.where(work > 0, 0.0, submit)
    ready: list[tuple[float, int]] = []
    now = 0.0
    following = 0
    while following < n or ready:
        if not ready:
            now = max(now, float(submit[following]))
        while following < n and submit[following] <= now:
            if work[following] > 0:
                heapq.heappush(ready, (-weight[following] / work[following], following))
            following += 1
        if not ready:
            continue
        job = ready[0][1]
        served = float(left[job])
        if following < n:
            served = min(served, float(submit[following]) - now)
        moment[job] += served * (now + served / 2) / work[job]
        left[job] -= served
        now += served
        if left[job] <= work[job] * 1e-12:
            heapq.heappop(ready)
    return moment


__all__ = ["CLAIRVOYANT", "Bound", "clairvoyant", "lower_bound"]
