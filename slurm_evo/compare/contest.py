"""Replays of one trace under many policies, allocations and seeds, all else equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

import numpy as np

from slurm_evo.model import ConfigError, PolicyError
from slurm_evo.optimize.hold_backs import HoldBack, held_race
from slurm_evo.optimize.in_simulation import LayerOneInReplay
from slurm_evo.policy import Policy
from slurm_evo.sim import baselines
from slurm_evo.sim.bounds import clairvoyant, lower_bound
from slurm_evo.sim.metrics import Metrics, measure
from slurm_evo.sim.priorities import Priority
from slurm_evo.sim.replay import End, Replayed, replay
from slurm_evo.sim.rules import Allocation, Backfill, Fixed, LayerOne, Race, Rules
from slurm_evo.sim.workload import Workload
from slurm_evo.trace.capacity import Capacity
from slurm_evo.trace.prepare import Prepared

ALLOCATIONS: Mapping[str, Allocation] = MappingProxyType(
    {
        "home": Fixed.HOME,
        "round-robin": Fixed.ROUND_ROBIN,
        "least-loaded": Fixed.LEAST_LOADED,
        "earliest-start": Fixed.EARLIEST_START,
        "race": Race(),
    }
)
"""How jobs come to clusters. ``race`` is Slurm's federation, the others bind a job when it is submitted."""

LAYER_ONE = "layer-1"
"""A job waits at its home until layer 1, every minute, lets it run elsewhere too: the daemon's own decision."""
CYCLE_S = 60

HELD = "hold-back"
"""The race, with jobs kept off clusters as told."""

SCHEDULERS = ("slurm", "easy", "none")
"""Slurm's passes and backfill with its defaults; EASY at every event, as the literature has it; no backfill."""

CLAIRVOYANT = "clairvoyant"
BOUND = "lower bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One replay to make. ``policy`` is a baseline's name, an expression, or ``name=expression``."""

    policy: str
    allocation: str
    seed: int

    @property
    def title(self) -> str:
        """The policy's name in tables."""
        name, equals, _ = self.policy.partition("=")
        return name.strip() if equals else self.policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one replay gave."""

    run: Run
    metrics: Metrics
    unstarted: int
    """Jobs that waited to the end, or fit nowhere."""
    mean_queue: float


@dataclass(frozen=True, slots=True)
class Contest:
    """All replays, and what bounds them."""

    figures: tuple[Figures, ...]
    bounds: Mapping[int, float]
    """By seed: no schedule has a lower average weighted wait, seconds."""


def rules_of(scheduler: str) -> Rules:
    """The rules behind a name of ``SCHEDULERS``.

    Raises:
        ConfigError: there is no such scheduler.
    """
    if scheduler == "slurm":
        return Rules()
    if scheduler == "easy":
        return Rules.every_event(Backfill.EASY)
    if scheduler == "none":
        return Rules.every_event(Backfill.NONE)
    raise ConfigError(f"no scheduler {scheduler!r}; there are {', '.join(SCHEDULERS)}")


def priority_of(policy: str, jobs: Workload, devices: int) -> Priority:
    """A baseline by name, else an expression, with a name before ``=`` if wanted.

    Raises:
        PolicyError: neither.
    """
    if policy in baselines.NAMES:
        return baselines.baseline(policy, jobs, devices)
    text = policy.partition("=")[2] or policy
    try:
        return Policy.parse(text)
    except PolicyError as error:
        names = ", ".join(baselines.NAMES)
        raise PolicyError(f"{policy!r} is no expression ({error}) and none of the baselines: {names}") from error


def runs_of(
    policies: Sequence[str], allocations: Sequence[str], seeds: Sequence[int], *, held: bool = False
) -> list[Run]:
    """Every combination; with ``held`` also of ``hold-back``.

    Raises:
        ConfigError: an allocation that does not exist, or nothing to compare.
    """
    allocations = [*allocations, *([HELD] if held else [])]
    for name in allocations:
        if name not in (*ALLOCATIONS, LAYER_ONE) and not (held and name == HELD):
            raise ConfigError(f"no allocation {name!r}; there are {', '.join((*ALLOCATIONS, LAYER_ONE))}")
    runs = [
        Run(policy=policy, allocation=allocation, seed=seed)
        for seed, allocation, policy in product(seeds, allocations, policies)
    ]
    if not runs:
        raise ConfigError("nothing to compare: name a policy, an allocation and a seed")
    return runs


def schedule(run: Run, jobs: Workload, fleet: Capacity, rules: Rules, held: Sequence[HoldBack] = ()) -> Replayed:
    """Make one replay; ``held`` is what the allocation ``hold-back`` keeps jobs off.

    Raises:
        PolicyError: the policy is none.
        ConfigError: the allocation is none.
    """
    if run.policy == CLAIRVOYANT:
        return clairvoyant(jobs, fleet.shape)
    priority = priority_of(run.policy, jobs, int(fleet.shape.gpus.sum()))
    if run.allocation == HELD:
        return replay(jobs, fleet.shape, priority, held_race(jobs, fleet.shape, held), rules)
    if run.allocation != LAYER_ONE:
        return replay(jobs, fleet.shape, priority, ALLOCATIONS[run.allocation], rules)
    if not isinstance(priority, Policy):
        raise ConfigError(f"{run.title} is no expression, and layer 1 forecasts by one; leave it out")
    decide = LayerOneInReplay(jobs, fleet.shape, priority, seed=run.seed)
    allocation = LayerOne(decide=decide, cycle=CYCLE_S, entry=1 << jobs.home)
    return replay(jobs, fleet.shape, priority, allocation, rules)


def figures_of(run: Run, jobs: Workload, fleet: Capacity, done: Replayed) -> Figures:
    """Measure one replay: waits of all jobs that started, utilization while jobs arrive."""
    ran = done.start >= 0
    window = (0, max(int(jobs.submit[-1]), 1))
    return Figures(
        run=run,
        metrics=measure(
            submit_s=jobs.submit[ran],
            start_s=done.start[ran],
            end_s=done.end[ran],
            gpus=jobs.gpus[ran],
            weight=jobs.weight[ran],
            window_s=window,
            available_gpu_s=fleet.shape.available_gpu_seconds(*window),
        ),
        unstarted=int(np.isin(done.state, (End.WAITING, End.REJECTED)).sum()),
        mean_queue=done.counts.mean_queue,
    )


def contest(
    runs: Sequence[Run],
    prepare: Callable[[int], Prepared],
    fleet: Capacity,
    rules: Rules,
    *,
    threads: int,
    held: Sequence[HoldBack] = (),
    reference: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Contest:
    """Make all replays, several at a time: the engine runs without the interpreter's lock.

    Args:
        runs: what to replay; figures come in the same order.
        prepare: the workload of a seed; called once for each.
        fleet: the clusters.
        rules: each cluster's scheduler.
        threads: replays at a time.
        held: for the allocation ``hold-back``.
        reference: also a schedule that knows the running times, and the lower bound, for each seed.
        progress: told how many of how many are done.

    Raises:
        PolicyError, ConfigError, TraceError: something cannot be run.
    """
    seeds = list(dict.fromkeys(run.seed for run in runs))
    workloads = {seed: prepare(seed).jobs for seed in seeds}
    wanted = list(runs)
    if reference:
        wanted += [Run(policy=CLAIRVOYANT, allocation="race", seed=seed) for seed in seeds]
    for run in wanted:
        if run.policy != CLAIRVOYANT:
            priority_of(run.policy, workloads[run.seed], 1)

    def one(run: Run) -> Figures:
        jobs = workloads[run.seed]
        return figures_of(run, jobs, fleet, schedule(run, jobs, fleet, rules, held))

    with ThreadPoolExecutor(threads) as pool:
        waiting = [pool.submit(one, run) for run in wanted]
        try:
            for done in _as_they_end(waiting):
                if progress is not None:
                    progress(done, len(waiting))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    bounds = {seed: lower_bound(jobs, fleet.shape).average_wait_s for seed, jobs in workloads.items()}
    return Contest(tuple(each.result() for each in waiting), bounds if reference else {})


def _as_they_end(waiting: Sequence[Future[Figures]]) -> Iterator[int]:
    left = set(waiting)
    yield 0
    while left:
        ended, left = wait(left, return_when=FIRST_COMPLETED)
        for each in ended:
            each.result()
        yield len(waiting) - len(left)


__all__ = [
    "ALLOCATIONS",
    "BOUND",
    "CLAIRVOYANT",
    "HELD",
    "LAYER_ONE",
    "SCHEDULERS",
    "Contest",
    "Figures",
    "Run",
    "contest",
    "figures_of",
    "priority_of",
    "rules_of",
    "runs_of",
    "schedule",
]
