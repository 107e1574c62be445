"""The main job in fast time: the real daemon cycle on simulated clusters, against what a site has without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName
from slurm_evo.policy import Policy
from slurm_evo.sim.metrics import Metrics
from slurm_evo.slurm.simulated import (
    Arrival,
    FleetSpec,
    SimulatedFleet,
    SimulatedPort,
    judge,
    results,
    run,
    sample_fleet,
    sample_workload,
    without_federation,
)
from slurm_evo.store import Journal
from slurm_evo_daemon.cycle import Surroundings, cycle
from slurm_evo_daemon.report import CycleReport

CYCLE_S = 300
BUDGET_S = 0.03
"""Of real time for the search in each of hundreds of cycles; a daemon that has 30 s between two takes more."""
HIGH_WEIGHT = 4.0
"""What a job of QOS high counts in the demonstration."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to run the same workload on the same clusters."""

    name: str
    metrics: Metrics
    unstarted: int
    moves: int = 0
    """Viable sets changed."""
    updates: int = 0
    """SiteFactors set."""


def contest(
    settings: Settings,
    policy: Policy,
    *,
    jobs: int,
    days: float,
    load: float,
    seed: int,
    progress: Callable[[str, float], None],
) -> Iterator[Contestant]:
    """Run the workload without slurm-evo (first come first served; plain federation) and with it.

    Args:
        settings: objectives, margins and limits; the sample fleet and a journal in memory are used.
        policy: ranks.
        jobs: how many arrive.
        days: over how long.
        load: GPU time asked for by GPU time there is.
        seed: of the workload and of the search.
        progress: told the contestant's name and the share of its simulated time that has passed.
    """
    spec = sample_fleet()
    arrivals = sample_workload(np.random.default_rng(seed), spec, jobs=jobs, days=days, load=load)
    plain, alone = without_federation(spec, arrivals)
    yield _run("clusters alone, FIFO", plain, alone, days, progress)
    yield _run("plain federation", spec, arrivals, days, progress)
    yield _with_daemon(settings, policy, spec, arrivals, days, seed, progress)


def _run(
    name: str,
    spec: FleetSpec,
    arrivals: tuple[Arrival, ...],
    days: float,
    progress: Callable[[str, float], None],
    on_cycle: Callable[[SimulatedFleet], None] | None = None,
) -> Contestant:
    fleet = SimulatedFleet(spec)

    def tick(running: SimulatedFleet) -> None:
        progress(name, min(running.elapsed_s / (days * 86_400), 1.0))
        if on_cycle is not None:
            on_cycle(running)

    run(fleet, arrivals, every_s=CYCLE_S, on_cycle=tick)
    done = results(fleet, {"high": HIGH_WEIGHT})
    return Contestant(name, judge(done, spec), done.unstarted)


def _with_daemon(
    settings: Settings,
    policy: Policy,
    spec: FleetSpec,
    arrivals: tuple[Arrival, ...],
    days: float,
    seed: int,
    progress: Callable[[str, float], None],
) -> Contestant:
    name = "slurm-evo"
    fast = settings.model_copy(
        update={
            "weights": settings.weights.model_copy(update={"qos": {"high": HIGH_WEIGHT}}),
            "optimizer": settings.optimizer.model_copy(update={"budget_s": BUDGET_S}),
        }
    )
    totals = {"sets_changed": 0, "site_factors_set": 0}
    with Journal.open("sqlite://") as journal:

        def on_cycle(fleet: SimulatedFleet) -> None:
            for field, value in _cycle(fleet, journal, fast, policy, seed).counts.items():
                if field in totals:
                    totals[field] += value

        done = _run(name, spec, arrivals, days, progress, on_cycle)
    return Contestant(name, done.metrics, done.unstarted, totals["sets_changed"], totals["site_factors_set"])


def _cycle(fleet: SimulatedFleet, journal: Journal, settings: Settings, policy: Policy, seed: int) -> CycleReport:
    """One pass of the real cycle at the fleet's present."""

    def clock() -> datetime:
        return fleet.now

    ports = {ClusterName(name): SimulatedPort(fleet, name) for name in fleet.controllers}
    rng = np.random.default_rng((seed, fleet.elapsed_s))
    around = Surroundings(ports, journal, clock, time.monotonic, rng)
    lease = journal.acquire("demo", now=fleet.now, length_s=2 * CYCLE_S)
    report, _ = cycle(around, settings, policy, lease)
    return report
