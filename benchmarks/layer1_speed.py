"""How fast layer 1 decides, how much memory it takes, and what its generations cost next to pymoo's own operators.

Made-up fleets whose GPUs are all busy, with 10,000 pending jobs on 16 clusters and 100,000 on 63. A decision
is all of layer 1: the queue out of the view, the search, the choice. As many of the jobs as the optimizer weighs
at once compete; the others are further back in the order.

Generations: the same problem (10,000 jobs to 16 clusters; makespan, spread, cost; population 100), the same
evaluation and pymoo's NSGA-II, once with the operators its documentation gives for integers (SBX and PM with
rounding, duplicates eliminated), once with ours. A forecast costs more than either; it is told apart.

Plan quality: gain over «change nothing» of the greedy seed and of the search at the same budget.

    python benchmarks/layer1_speed.py [--sizes 10000x16 100000x63] [--budget 0.6]

Ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

sys.path.insert(0, str(Path(__file__).parents[1]))

from slurm_evo.config import Settings
from slurm_evo.model import (
    ClusterName,
    ClusterView,
    ControllerFacts,
    FleetView,
    Job,
    JobState,
    Node,
    Partition,
)
from slurm_evo.optimize import propose, queue_from
from slurm_evo.optimize.choices import Choices, choices
from slurm_evo.optimize.evaluate import Judge, gains
from slurm_evo.optimize.search import search_of
from slurm_evo.optimize.seeds import seeds

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
OBJECTIVES = Settings().objectives.as_mapping()


def fleet_of(pending: int, clusters: int, seed: int) -> FleetView:
    """Clusters of 8 to 64 nodes, busy; a job waits at one to three clusters, and may use all."""
    rng = np.random.default_rng(seed)
    names = [ClusterName(f"c{number:02d}") for number in range(clusters)]
    sizes = rng.choice([8, 16, 32, 64], clusters)
    records: dict[ClusterName, list[Job]] = {name: [] for name in names}
    number = 0
    for name, size in zip(names, sizes, strict=True):
        for node in range(size):
            number += 1
            hours = float(rng.lognormal(0.5, 1.0))
            records[name].append(_job(number, name, (name,), 8, hours, JobState.RUNNING, f"{name}n{node}"))
    for _ in range(pending):
        number += 1
        # As many jobs come to a small cluster as to a large one, and half of them may run nowhere else yet.
        home = int(rng.integers(0, clusters))
        more = rng.integers(0, clusters, int(rng.choice([0, 1, 2], p=[0.5, 0.25, 0.25])))
        viable = tuple(sorted({names[home], *(names[c] for c in more)}))
        gpus, hours = (
            int(rng.choice([1, 2, 4, 8, 16], p=[0.5, 0.15, 0.15, 0.15, 0.05])),
            float(rng.lognormal(0, 1.2)),
        )
        for where in {names[home], *viable}:
            records[where].append(_job(number, where, viable, gpus, hours, JobState.PENDING, origin=names[home]))
    return FleetView(
        NOW,
        tuple(_cluster(name, records[name], int(size), names) for name, size in zip(names, sizes, strict=True)),
    )


def _job(
    number: int, where: ClusterName, viable: tuple[ClusterName, ...], gpus: int, hours: float, state: JobState,
    node: str = "", origin: ClusterName | None = None,
) -> Job:  # fmt: skip
    return Job(
        cluster=where, id=number, name="job", user=f"u{number % 97}", account=f"a{number % 11}",
        partitions=("gpu",), qos="normal", state=state, reason="Priority", gpus=gpus,
        limit_s=int(hours * 3600) + 600,
        submitted=NOW - timedelta(minutes=number % 600), started=NOW - timedelta(minutes=5) if node else None,
        nodelist=(node,) if node else (), site_factor=0, origin=origin or where, viable=viable, active=viable,
    )  # fmt: skip


def _cluster(name: ClusterName, jobs: list[Job], size: int, members: list[ClusterName]) -> ClusterView:
    nodes = tuple(
        Node(
            name=f"{name}n{number}", gpu_type="a100", gpus=8, gpus_used=8, cpus=64, cpus_used=0, memory_mb=512_000,
            memory_used_mb=0, up=True, state="ALLOCATED", partitions=("gpu",),
        )
        for number in range(size)
    )  # fmt: skip
    facts = ControllerFacts(
        version="26.05.5", priority_type="priority/multifactor", federation="fed",
        federation_clusters=tuple(members), federation_state="ACTIVE",
    )  # fmt: skip
    partition = Partition(
        name="gpu", up=True, default=True, limit_s=7 * 86_400, nodes=tuple(node.name for node in nodes)
    )
    return ClusterView(
        cluster=name, seen_at=NOW, facts=facts, nodes=nodes, partitions=(partition,), jobs=tuple(jobs)
    )


def peak_mib() -> float:
    """Of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def decision(pending: int, clusters: int, budget_s: float, seed: int) -> dict[str, Any]:
    """Time of one decision, and its gain against the greedy seed's."""
    view = fleet_of(pending, clusters, seed)
    before = peak_mib()
    began = time.perf_counter()
    waiting = [found for found in view.jobs.values() if found.pending]
    joined = time.perf_counter()
    scores = {found.key: -float(found.job.gpus * found.job.limit_s) for found in waiting}
    everywhere = frozenset(ClusterName(f"c{number:02d}") for number in range(clusters))
    queue_began = time.perf_counter()
    queue = queue_from(
        view, scores=scores, runtimes={}, weights={}, movable=dict.fromkeys(scores, everywhere), now=NOW
    )
    built = time.perf_counter()
    plan = propose(
        queue, objectives=OBJECTIVES, margin=0.0, max_moves=1_000_000, rng=np.random.default_rng(seed),
        budget_s=budget_s, clock=time.perf_counter,
    )  # fmt: skip
    done = time.perf_counter()
    judge = Judge(queue)
    start = judge.nothing
    seeded = judge(choices(queue).decode(queue, seeds(queue, choices(queue), judge)))
    chosen = np.array([[plan.chosen.average_wait_s, plan.chosen.maximum_wait_s, 1 - plan.chosen.utilization]])
    return {
        "jobs": pending,
        "clusters": clusters,
        "seed": seed,
        "weighed": len(queue.keys),
        "join_s": joined - began,
        "queue_s": built - queue_began,
        "propose_s": done - built,
        "decide_s": done - queue_began,
        "peak_mib": peak_mib(),
        "view_mib": before,
        "changes": len(plan.changes),
        "gain": _gain(chosen, start.means),
        "gain_of_greedy": float(gains(seeded.values, start.values[0], OBJECTIVES).max()),
        "why": plan.why,
    }


def _gain(chosen: Any, nothing: Any) -> float:
    values = np.concatenate([chosen, np.zeros((1, 1))], axis=1)
    return float(gains(values[:, None, :], nothing, OBJECTIVES)[0])


@njit(cache=True)
def sums(genomes: Any, work: Any, cost: Any) -> Any:
    """Load of each cluster and cost, of each plan."""
    load = np.zeros((genomes.shape[0], cost.shape[1]))
    paid = np.zeros(genomes.shape[0])
    for p in range(genomes.shape[0]):
        for j in range(genomes.shape[1]):
            load[p, genomes[p, j]] += work[j]
            paid[p] += cost[j, genomes[p, j]]
    return load, paid


class Toy:
    """10,000 jobs to 16 clusters by three sums: cheap, so that operators are what is measured."""

    def __init__(self, jobs: int, clusters: int) -> None:
        rng = np.random.default_rng(0)
        self.work = rng.choice([1.0, 2.0, 4.0, 8.0], jobs) * rng.lognormal(6, 1.5, jobs)
        self.cost = rng.random((jobs, clusters))
        self.clusters = clusters
        self.every = np.arange(jobs)

    def __call__(self, genomes: Any) -> Any:
        """(p, 3) of (p, jobs) clusters."""
        load, cost = sums(genomes, self.work, self.cost)
        return np.column_stack([load.max(axis=1), load.std(axis=1), cost])


def documented(toy: Toy, generations: int) -> tuple[float, float, Any]:
    """Seconds, of it evaluating, best of each objective: pymoo as its page on discrete variables has it."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.pm import PM
    from pymoo.operators.repair.rounding import RoundingRepair
    from pymoo.operators.sampling.rnd import IntegerRandomSampling
    from pymoo.optimize import minimize

    spent = 0.0

    class Assign(Problem):  # type: ignore[misc]
        def _evaluate(self, x: Any, out: Any, *_: Any, **__: Any) -> None:
            nonlocal spent
            began = time.perf_counter()
            out["F"] = toy(np.ascontiguousarray(x, np.int64))
            spent += time.perf_counter() - began

    problem = Assign(n_var=toy.every.size, n_obj=3, xl=0, xu=toy.clusters - 1, vtype=int)
    algorithm = NSGA2(
        pop_size=100,
        sampling=IntegerRandomSampling(),
        crossover=SBX(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
        mutation=PM(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
        eliminate_duplicates=True,
    )
    began = time.perf_counter()
    found = minimize(problem, algorithm, ("n_gen", generations), seed=1, verbose=False, copy_algorithm=False)
    return time.perf_counter() - began, spent, found.F.min(axis=0)


def ours(toy: Toy, generations: int) -> tuple[float, float, Any]:
    """The same with our mating and duplicate test, from a start drawn at random."""
    jobs = toy.every.size
    rng = np.random.default_rng(1)
    masks = np.broadcast_to(np.uint64(1) << np.arange(toy.clusters).astype(np.uint64), (jobs, toy.clusters))
    choice = Choices(toy.every, masks, np.full(jobs, toy.clusters))
    urgent = np.linspace(1 / jobs, 1.0, jobs)
    start = rng.integers(0, toy.clusters, (100, jobs)).astype(np.int16)
    spent, best = 0.0, np.full(3, np.inf)
    began = time.perf_counter()
    algorithm = search_of(choice, start, urgent, rng, objectives=3)
    for _ in range(generations):
        asked = algorithm.ask()
        before = time.perf_counter()
        values = toy(np.asarray(asked.get("X"), np.int16))
        spent += time.perf_counter() - before
        best = np.minimum(best, values.min(axis=0))
        asked.set("F", values)
        algorithm.tell(infills=asked)
    return time.perf_counter() - began, spent, best


def operators(generations: int) -> dict[str, Any]:
    """Milliseconds of a generation, evaluation taken out and not."""
    toy = Toy(10_000, 16)
    documented(toy, 2), ours(toy, 2)
    theirs_s, theirs_eval, theirs_best = documented(toy, generations)
    ours_s, ours_eval, ours_best = ours(toy, generations)
    return {
        "pymoo_ms": 1000 * theirs_s / generations,
        "pymoo_without_evaluation_ms": 1000 * (theirs_s - theirs_eval) / generations,
        "ours_ms": 1000 * ours_s / generations,
        "ours_without_evaluation_ms": 1000 * (ours_s - ours_eval) / generations,
        "ratio": theirs_s / ours_s,
        "ratio_without_evaluation": (theirs_s - theirs_eval) / (ours_s - ours_eval),
        "best_of_theirs": theirs_best.tolist(),
        "best_of_ours": ours_best.tolist(),
    }


def main() -> None:
    """Measure, print, end with a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["10000x16", "100000x63"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--budget", type=float, default=0.5, help="seconds of search")
    parser.add_argument("--generations", type=int, default=50)
    given = parser.parse_args()
    decision(200, 4, 0.2, 0)  # compiles, or loads what was compiled before
    rows = []
    for size in given.sizes:
        jobs, clusters = map(int, size.split("x"))
        for seed in given.seeds:
            row = decision(jobs, clusters, given.budget, seed)
            rows.append(row)
            print(
                f"{jobs} x {clusters}, seed {seed}: decided in {row['decide_s']:.2f} s "
                f"(queue {row['queue_s']:.2f}, "
                f"search and choice {row['propose_s']:.2f}; joining records before that {row['join_s']:.2f}), "
                f"{row['weighed']} weighed, peak {row['peak_mib']:.0f} MiB of which view {row['view_mib']:.0f}, "
                f"{row['changes']} changes, gain {row['gain']:.1%}, greedy seed {row['gain_of_greedy']:.1%}",
                flush=True,
            )
    told = operators(given.generations)
    print(
        f"a generation of 100 plans of 10,000 jobs: pymoo as documented {told['pymoo_ms']:.1f} ms, ours "
        f"{told['ours_ms']:.1f} ms, {told['ratio']:.1f} times; without evaluation "
        f"{told['pymoo_without_evaluation_ms']:.1f} and {told['ours_without_evaluation_ms']:.1f} ms, "
        f"{told['ratio_without_evaluation']:.1f} times"
    )
    print(json.dumps({"decisions": rows, "generation": told}))


if __name__ == "__main__":
    main()
