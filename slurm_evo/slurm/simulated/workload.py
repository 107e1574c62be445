"""A sample workload for a simulated fleet: users with habits, a working week, one crowded cluster.

Synthetic on purpose: nobody's log, and no claim to be one. The shapes are those of public GPU traces:
heavy-tailed running times, mostly small jobs, limits far above what is used, days and nights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slurm_evo.slurm.simulated.spec import Arrival, ClusterSpec, FleetSpec, Submission

HOUR_S = 3600
DAY_S = 86_400
LIMITS_S = tuple(hours * HOUR_S for hours in (1, 2, 4, 8, 12, 24, 48, 96, 168))
"""Limits people type."""
_BY_HOUR = np.array([2, 1, 1, 1, 1, 1, 2, 3, 6, 9, 10, 9, 8, 9, 10, 10, 9, 8, 6, 5, 4, 4, 3, 2], dtype=float)
_SATURDAY, _WEEKEND = 5, 0.35
_BY_HABIT = 0.5
"""Share of jobs whose limit is what the user always types, if that is enough."""
_RUNS_OUT = 0.02
"""Share of the jobs with a limit of half a day or less that run into it."""
_SHORTEST_S, _LONGEST_S = 30, 36 * HOUR_S
_SIZES = (1, 2, 4, 8, 16)
_CROWDED = 0.5
"""Share of users at home on the first cluster."""
_CROWD = 1.5
"""The first cluster is asked for this times its fair part of the load."""
_CROWD_MOST = 0.8
"""But never for more than this part of all."""


@dataclass(frozen=True, slots=True)
class _Habit:
    """What one user usually does."""

    user: str
    home: ClusterSpec
    activity: float
    log_run: float
    spread: float
    sizes: tuple[float, ...]
    limit_s: int
    names_type: float
    stays_home: float
    high_qos: float


def sample_workload(
    rng: np.random.Generator, fleet: FleetSpec, *, jobs: int = 2000, days: float = 7.0, load: float = 0.85
) -> tuple[Arrival, ...]:
    """Draw a workload, the same for the same state of ``rng``.

    Args:
        rng: where chance comes from.
        fleet: whose clusters, users and QOS it is for; every job can run where it is submitted.
        jobs: how many.
        days: over how long they arrive, from second 0 (a Monday's midnight in the fleet's time).
        load: GPU-seconds asked by all over GPU-seconds the fleet has in that time.

    Raises:
        ValueError: no job, no time or no load.
    """
    if jobs < 1 or days <= 0 or load <= 0:
        raise ValueError(f"a workload needs jobs, days and load, not {jobs}, {days} and {load}")
    habits = _habits(rng, fleet)
    share = np.array([habit.activity for habit in habits])
    who = rng.choice(len(habits), size=jobs, p=share / share.sum())
    at = _arrival_times(rng, jobs, days)
    shapes = [_shape(rng, habits[index]) for index in who]
    runs = np.array([run for _, _, run in shapes])
    gpus = np.array([size for size, _, _ in shapes])
    home = np.array([habits[index].home.name for index in who])
    for name, part in _parts(fleet).items():
        there = home == name
        runs[there] = _scaled(runs[there], gpus[there], load * days * DAY_S * part)
    return tuple(
        Arrival(
            int(second),
            habits[index].home.name,
            _submission(rng, habits[index], gpus=size, nodes=nodes, run_s=int(run), fleet=fleet),
        )
        for second, index, (size, nodes, _), run in zip(at, who, shapes, runs, strict=True)
    )


def _habits(rng: np.random.Generator, fleet: FleetSpec) -> list[_Habit]:
    users = fleet.clusters[0].users
    others = fleet.clusters[1:] or fleet.clusters
    crowded = round(_CROWDED * len(users))
    habits = []
    for number, user in enumerate(users):
        home = fleet.clusters[0] if number < crowded else others[(number - crowded) % len(others)]
        habits.append(
            _Habit(
                user=user.name,
                home=home,
                activity=float(rng.lognormal(0.0, 0.6)),
                log_run=float(rng.normal(np.log(1500.0), 0.8)),
                spread=float(rng.uniform(1.0, 1.7)),
                sizes=tuple(rng.dirichlet((6.0, 2.0, 1.5, 1.0, 0.2))),
                limit_s=int(rng.choice(LIMITS_S[3:8])),
                names_type=float(rng.uniform(0.0, 0.7)),
                stays_home=float(rng.choice((0.02, 0.1, 0.4), p=(0.6, 0.3, 0.1))),
                high_qos=float(rng.choice((0.0, 0.1, 0.3), p=(0.5, 0.3, 0.2))),
            )
        )
    return habits


def _arrival_times(rng: np.random.Generator, jobs: int, days: float) -> npt.NDArray[np.int64]:
    """Sorted seconds with working hours and weekends."""
    hours = np.arange(max(1, int(np.ceil(days * 24))))
    rate = _BY_HOUR[hours % 24] * np.where(hours // 24 % 7 >= _SATURDAY, _WEEKEND, 1.0)
    hour = rng.choice(hours, size=jobs, p=rate / rate.sum())
    second = hour * HOUR_S + rng.integers(0, HOUR_S, size=jobs)
    return np.sort(np.minimum(second, int(days * DAY_S) - 1)).astype(np.int64)


def _shape(rng: np.random.Generator, habit: _Habit) -> tuple[int, int, float]:
    """GPUs, nodes and running time in seconds of one job, able to run at home."""
    per_node = max(node.gpus for node in habit.home.nodes)
    largest = per_node * max(1, len(habit.home.nodes) // 2)
    size = min(int(rng.choice(_SIZES, p=habit.sizes)), largest)
    run = float(np.clip(rng.lognormal(habit.log_run, habit.spread), _SHORTEST_S, _LONGEST_S))
    return size, -(-size // per_node), run


def _parts(fleet: FleetSpec) -> dict[str, float]:
    """GPUs' worth of work submitted at each cluster: more than its own at the first, less elsewhere."""
    first, *others = fleet.clusters
    every = sum(cluster.gpus for cluster in fleet.clusters)
    crowd = float(every) if not others else min(_CROWD * first.gpus, _CROWD_MOST * every)
    left = every - crowd
    rest = every - first.gpus
    return {first.name: crowd} | {other.name: left * other.gpus / rest for other in others}


def _scaled(runs: npt.NDArray[np.float64], gpus: npt.NDArray[np.int64], wanted: float) -> npt.NDArray[np.float64]:
    """Running times stretched until they ask for ``wanted`` GPU-seconds, inside their bounds."""
    if not len(runs):
        return runs
    for _ in range(20):
        runs = np.clip(runs * (wanted / float(np.dot(runs, gpus))), _SHORTEST_S, _LONGEST_S)
    return np.floor(runs)


def _submission(
    rng: np.random.Generator, habit: _Habit, *, gpus: int, nodes: int, run_s: int, fleet: FleetSpec
) -> Submission:
    guess_s = run_s * float(np.exp(abs(rng.normal(0.0, 1.0)))) * 1.05 + 60
    limit_s = next((limit for limit in LIMITS_S if limit >= guess_s), LIMITS_S[-1])
    if rng.random() < _BY_HABIT:
        limit_s = max(limit_s, habit.limit_s)
    if rng.random() < _RUNS_OUT and limit_s <= DAY_S // 2:
        run_s = max(run_s, limit_s + 1)
    home = habit.home
    has_high = any(qos.name == "high" for qos in home.qos)
    high = rng.random() < habit.high_qos
    pinned = rng.random() < habit.stays_home
    typed = rng.random() < habit.names_type
    return Submission(
        user=habit.user,
        name=f"{habit.user}-{gpus}g",
        run_s=run_s,
        limit_s=limit_s,
        gpus=gpus,
        gpu_type=home.nodes[0].gpu_type if typed else None,
        nodes=nodes,
        cpus=4 * max(1, gpus),
        memory_mb=16_000 * max(1, gpus),
        qos="high" if high and has_high else "normal",
        clusters=(home.name,) if pinned and home.name in fleet.members else (),
    )
