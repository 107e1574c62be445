"""Layer 1 against what cannot be beaten: every candidate of small queues, an exact solver on medium ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from slurm_evo.model import ClusterName, JobKey, Scores
from slurm_evo.optimize import Queue
from slurm_evo.optimize.evaluate import Judge
from slurm_evo.optimize.search import evolve
from slurm_evo.sim.forecast import Devices, Releases, Waiting

SLOT_S = 600.0
CLOSE = 0.02


def queue_of(
    *, runs: Any, gpus: Any, allowed: Any, busy_until: Any, nodes: int, weight: Any = 1.0, single: bool = False
) -> Queue:
    """Clusters of 8-GPU nodes that are busy until an instant each; every job waits at the first it may use."""
    n, clusters = len(runs), len(busy_until)
    runs, gpus, allowed = (np.asarray(each) for each in (runs, gpus, allowed))
    limit = runs * SLOT_S
    gpu = np.full(clusters * nodes, 8)
    none = np.full(clusters * nodes, 64)
    names = tuple(ClusterName(f"c{number}") for number in range(clusters))
    ends = np.repeat(np.asarray(busy_until, float) * SLOT_S, nodes)
    return Queue(
        clusters=names,
        keys=tuple(JobKey(names[0], number) for number in range(n)),
        devices=Devices(
            cluster=np.repeat(np.arange(clusters), nodes), kind=np.zeros(clusters * nodes, np.int64), gpus=gpu,
            free_gpus=np.zeros_like(gpu), free_cpus=none, clusters=clusters,
        ),
        releases=Releases(
            node=np.arange(clusters * nodes), gpus=gpu, cpus=np.zeros_like(gpu), end_s=ends, limit_s=ends
        ),
        waiting=Waiting(
            gpus=gpus, kind=np.full(n, -1), nodes=np.ones(n, np.int64), cpus=np.zeros(n, np.int64),
            runtime_s=limit, limit_s=limit,
        ),
        weight=np.broadcast_to(np.asarray(weight, float), (n,)),
        waited_s=np.zeros(n),
        viable=(allowed & -allowed).astype(np.uint64),
        allowed=allowed.astype(np.uint64),
        movable=np.ones(n, np.bool_),
        single=np.full(n, single),
        user=np.zeros(n, np.int64),
        account=np.zeros(n, np.int64),
    )  # fmt: skip


def front_of(queue: Queue, judge: Judge, generations: int) -> list[Scores]:
    rng = np.random.default_rng(5)
    return evolve(queue, judge, rng=rng, stop=lambda generation, _: generation >= generations).scores


def best_of(scores: list[Scores]) -> tuple[float, float, float]:
    """Average, maximum, one less utilization."""
    return (
        min(each.average_wait_s for each in scores),
        min(each.maximum_wait_s for each in scores),
        1.0 - max(each.utilization for each in scores),
    )


def assert_close(found: tuple[float, ...], best: tuple[float, ...]) -> None:
    for mine, optimum in zip(found, best, strict=True):
        assert mine <= optimum + CLOSE * abs(optimum) + 1e-9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("single", [False, True], ids=["any set", "one cluster each"])
def test_eight_jobs_on_three_clusters_against_every_candidate(seed: int, single: bool) -> None:
    """Federated jobs may wait on either of two clusters or on both, others on one of three: 6,561 candidates."""
    rng = np.random.default_rng(seed)
    queue = queue_of(
        runs=rng.integers(1, 30, 8),
        gpus=rng.choice([1, 2, 4, 8, 16], 8),
        allowed=np.full(8, 0b111) if single else rng.choice([0b011, 0b101, 0b110], 8),
        busy_until=rng.integers(0, 12, 3),
        nodes=2,
        weight=rng.choice([1, 2, 4], 8),
        single=single,
    )
    judge = Judge(queue)
    options = [
        [mask for mask in range(1, 8) if mask & ~allowed == 0 and (not single or mask.bit_count() == 1)]
        for allowed in queue.allowed.tolist()
    ]
    every = np.array(list(itertools.product(*options)), np.uint64)
    assert len(every) == 3**8
    best = best_of(judge(every).scores)
    assert_close(best_of(front_of(queue, judge, 200)), best)


def least(jobs: Any, allowed: Any, busy_until: Any, costs: Any, *, worst: bool = False) -> float:
    """The least sum, or the least worst, of the costs of starts, by integer programming (HiGHS).

    A variable for each job, cluster and slot says that it starts there and then (Dyer & Wolsey 1990,
    doi:10.1016/0166-218X(90)90104-K); a cluster runs one job at a time.
    """
    n, clusters = len(jobs), len(busy_until)
    slots = int(jobs.sum() / clusters * 1.6) + int(max(busy_until))
    places = [
        (j, c, t)
        for j, c in itertools.product(range(n), range(clusters))
        if allowed[j] >> c & 1
        for t in range(int(busy_until[c]), slots)
    ]
    rows = n + clusters * slots + (n if worst else 0)
    table = lil_matrix((rows, len(places) + worst))
    low, high = np.concatenate([np.ones(n), np.full(rows - n, -np.inf)]), np.ones(rows)
    for place, (j, c, t) in enumerate(places):
        table[j, place] = 1
        for slot in range(t, min(t + jobs[j], slots)):
            table[n + c * slots + slot, place] = 1
        if worst:
            table[n + clusters * slots + j, place] = costs(j, t)
    objective = np.array([0.0 if worst else costs(j, t) for j, _, t in places] + [1.0] * worst)
    if worst:
        high[-n:] = 0
        table[rows - n :, len(places)] = -1
    found = milp(
        objective,
        constraints=LinearConstraint(table.tocsr(), low, high),
        integrality=np.concatenate([np.ones(len(places)), np.zeros(int(worst))]),
        bounds=Bounds(0, np.concatenate([np.ones(len(places)), np.full(int(worst), np.inf)])),
        options={"time_limit": 30, "mip_rel_gap": 1e-4},
    )
    assert found.x is not None
    return float(found.mip_dual_bound)


class Medium:
    """Thirty whole-node jobs on four clusters, in a given order: where they run is all there is to choose."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.runs, self.weight = rng.integers(1, 7, 30), rng.choice([1, 2, 4], 30)
        self.allowed, self.busy_until = rng.integers(1, 16, 30), rng.integers(0, 4, 4)

    def in_order(self, key: Any) -> None:
        order = np.argsort(key, kind="stable")
        self.runs, self.weight, self.allowed = self.runs[order], self.weight[order], self.allowed[order]

    def front(self, weight: Any) -> tuple[Judge, tuple[float, float, float]]:
        queue = queue_of(
            runs=self.runs, gpus=np.full(30, 8), allowed=self.allowed, busy_until=self.busy_until, nodes=1,
            weight=weight,
        )  # fmt: skip
        judge = Judge(queue, samples=0)
        return judge, best_of(front_of(queue, judge, 100))

    def least(self, costs: Any, *, worst: bool = False) -> float:
        return least(self.runs, self.allowed, self.busy_until, costs, worst=worst)


@pytest.mark.parametrize("seed", range(3))
def test_thirty_jobs_on_four_clusters_have_the_least_average_an_exact_solver_finds(seed: int) -> None:
    medium = Medium(seed)
    # Shortest first for the weight (Smith 1956): no other order has a lower average.
    medium.in_order(medium.runs / medium.weight)
    _, (average, _, _) = medium.front(medium.weight)
    heavy = medium.weight
    best = medium.least(lambda j, t: heavy[j] * t) * SLOT_S / heavy.sum()
    assert best - 1e-6 <= average <= best * (1 + CLOSE)


def test_thirty_jobs_on_four_clusters_have_the_least_maximum_an_exact_solver_finds() -> None:
    medium = Medium(2)
    # Shortest first: the longest starts last, so no other order has an earlier last start.
    medium.in_order(medium.runs)
    _, (_, maximum, _) = medium.front(np.ones(30))
    best = medium.least(lambda _, t: t, worst=True) * SLOT_S
    assert best - 1e-6 <= maximum <= best * (1 + CLOSE)


@pytest.mark.parametrize("seed", [0, 2])
def test_thirty_jobs_on_four_clusters_use_as_many_gpus_as_an_exact_solver(seed: int) -> None:
    medium = Medium(seed)
    medium.in_order(medium.runs)
    judge, (_, _, idle) = medium.front(np.ones(30))
    horizon, runs = judge.horizon_s / SLOT_S, medium.runs
    busy = float(np.minimum(medium.busy_until, horizon).sum())
    busy -= medium.least(lambda j, t: -(min(t + runs[j], horizon) - min(t, horizon)))
    best = busy / (4 * horizon)
    assert best * (1 - CLOSE) <= 1 - idle <= best + 1e-6
