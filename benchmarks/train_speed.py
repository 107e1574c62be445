"""How fast training evaluates: simulations a second, with one process and with two; what is spent beside them.

    python benchmarks/train_speed.py [--days 5] [--load 0.85] [--generations 6]

The history is generated: four clusters, 144 GPUs, users with habits. Printed are

* simulations and simulated jobs a second with one and with two processes, and their ratio;
* the same ratio for two trainings side by side that share nothing: what this machine's two processors allow;
* the share of one process's time that is not simulation (operators, caches, sorting, checks);
* scores a second of gplearn's own ``execute`` against our evaluator for the same programs on a queue of so many
  jobs as the history's mean queue: the simulator is compiled and cannot call ``execute``, so this is the ratio of
  one ranking, not of a replay.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "gp_training")]

from slurm_evo.policy import Policy
from slurm_evo.sim.replay import replay
from slurm_evo.sim.rules import Race, Rules
from slurm_evo.trace.capacity import sample
from slurm_evo.trace.generate import generate
from slurm_evo_training import fitness
from slurm_evo_training.evolution import evolve
from slurm_evo_training.fitness import REFERENCE, Problem, probe_rows
from slurm_evo_training.gplearn_port import Breeder, execute
from slurm_evo_training.island import Recipe
from slurm_evo_training.material import gather, parts


def simulations_a_second(problem: Problem, recipe: Recipe, workers: int) -> tuple[float, int]:
    """From the second exchange on: processes have started and code is compiled by then."""
    marks: list[tuple[float, int]] = []
    evolve(problem, recipe, workers=workers, progress=lambda now: marks.append((now.seconds, now.simulations)))
    (began, before), (ended, after) = marks[0], marks[-1]
    return (after - before) / (ended - began), after - before


def side_by_side(problem: Problem, recipe: Recipe) -> float:
    """Simulations a second of two trainings, each in a process of its own, that know nothing of each other."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        runs = [pool.submit(simulations_a_second, problem, replace(recipe, seed=seed), 1) for seed in (1, 2)]
        return sum(run.result()[0] for run in runs)


def beside_simulation(problem: Problem, recipe: Recipe) -> float:
    """Share of one process's time outside `fitness.outcome`."""
    spent = 0.0
    plain = fitness.outcome

    def timed(*args: object) -> tuple[float, float, float]:
        nonlocal spent
        began = time.perf_counter()
        try:
            return plain(*args)  # type: ignore[arg-type]
        finally:
            spent += time.perf_counter() - began

    fitness.outcome = timed  # type: ignore[assignment]
    try:
        began = time.perf_counter()
        evolve(problem, recipe)
        return 1 - spent / (time.perf_counter() - began)
    finally:
        fitness.outcome = plain


def scoring_ratio(problem: Problem, count: int) -> float:
    """Time of `execute` over time of our evaluator, the same 50 programs on the same rows."""
    table = np.ascontiguousarray(probe_rows(problem.scenes[0].jobs, count))
    breeder = Breeder(np.random.RandomState(1), depth=(3, 4))
    programs = [breeder.grow() for _ in range(50)]
    times = []
    for score in (lambda policy: execute(policy, table), lambda policy: policy.scores(table)):
        with np.errstate(all="ignore"):
            for policy in programs:
                score(policy)
            began = time.perf_counter()
            for _ in range(20):
                for policy in programs:
                    score(policy)
        times.append(time.perf_counter() - began)
    return times[0] / times[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=5.0)
    parser.add_argument("--load", type=float, default=0.85)
    parser.add_argument("--generations", type=int, default=6)
    args = parser.parse_args()
    fleet = sample()
    trace = generate(fleet, days=args.days, load=args.load, users=60, seed=1)
    problem = parts(gather(trace, fleet), Rules.every_event()).train
    recipe = replace(
        Recipe(), generations=args.generations, migrate_every=2, population=16, children=16, refined=0, minutes=60
    )
    jobs = np.mean([len(scene.jobs) for scene in problem.scenes])
    one, counted = simulations_a_second(problem, recipe, 1)
    two, _ = simulations_a_second(problem, recipe, 2)
    print(f"one process  {one:7.2f} simulations/s of {jobs:.0f} jobs ({counted} simulations)", flush=True)
    print(f"two processes{two:7.2f} simulations/s: {two / one:.2f} times one", flush=True)
    apart = side_by_side(problem, recipe)
    print(f"two apart    {apart:7.2f} simulations/s: {apart / one:.2f} times one: the bound", flush=True)
    beside = beside_simulation(problem, recipe)
    print(f"beside simulation: {100 * beside:.1f} % of one process's time", flush=True)
    long = problem.scenes[-1]
    queue = replay(long.jobs, problem.fleet, Policy.parse(REFERENCE), Race(), problem.rules).counts.mean_queue
    ratio = scoring_ratio(problem, max(int(queue), 8))
    print(f"one ranking of {queue:.0f} jobs: gplearn's execute takes {ratio:.1f} times as long as ours")
    print(
        json.dumps(
            {
                "benchmark": "train_speed",
                "simulations_per_second": one,
                "jobs_per_simulation": float(jobs),
                "two_processes_ratio": two / one,
                "two_apart_ratio": apart / one,
                "beside_simulation": beside,
                "mean_queue": queue,
                "execute_ratio": ratio,
            }
        )
    )


if __name__ == "__main__":
    main()
