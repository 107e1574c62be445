"""What keeping long jobs off a cluster when they come is worth: learned on some days, judged on later ones.

A *hold-back* is a cluster and a running time: a job that is expected to run longer, and may run elsewhere too,
does not wait at that cluster until it has waited four hours. Everything else is Slurm's federation race, with
the same priority. Which hold-backs, if any, is found on the first half of the days: one after the other is added
that gains most by the default weights (average, worst 1 % of the waits, idle GPUs) in three copies of these days,
shaken by minutes, and gains in each of them; none is a possible answer. Jobs of the second half, submitted after
it was found, are judged once: ratios to the race.

    python benchmarks/hold_backs.py [--data DIRECTORY --cases mixed openb] [--loads 0.7 0.8 0.9] [--days 8]
    [--seeds 1 2 3 4 5]

Cases are those of layer1_online.py; only openb needs DIRECTORY. Nothing of this is in the daemon. Ends with one
line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "gp_training")]

from layer1_online import PRIORITY, Case, mixed, openb

from slurm_evo.policy import Policy
from slurm_evo.sim.metrics import measure
from slurm_evo.sim.replay import replay
from slurm_evo.sim.rules import LayerOne, Rules, Waiting
from slurm_evo.sim.tables import feasible
from slurm_evo.sim.workload import Ints
from slurm_evo_training.windows import only, shaken

OVER_S = (900, 1800, 3600, 7200, 14_400)
UNTIL_S = 4 * 3600
CYCLE_S = 300
MOST = 3
COPIES = 3
WEIGHTS = np.array([1.0, 0.5, 0.5]) / 2
HoldBack = tuple[int, int]
"""A cluster and seconds."""


def entry(case: Case, held: tuple[HoldBack, ...]) -> Ints:
    """(n,) bits: where new jobs wait; never nowhere."""
    may = feasible(case.jobs, case.fleet)
    for cluster, over_s in held:
        less = may & ~(1 << cluster)
        may = np.where((less != 0) & (case.jobs.estimate > over_s), less, may)
    return may


def outcome(case: Case, held: tuple[HoldBack, ...], since: int = 0) -> dict[str, float]:
    """The objectives, of jobs submitted from an instant on."""
    jobs = case.jobs

    def decide(seen: Waiting) -> Ints:
        long = seen.now - jobs.submit[seen.jobs] >= UNTIL_S
        return np.where(long, seen.feasible, seen.clusters)

    # Without any it is the race, cycles or not.
    allocation = LayerOne(decide=decide, cycle=CYCLE_S, entry=entry(case, held))
    done = replay(jobs, case.fleet, Policy.parse(PRIORITY), allocation, Rules.every_event())
    counted = (done.start >= 0) & (jobs.submit >= since)
    window = (since, max(int(jobs.submit[-1]), since + 1))
    found = measure(
        submit_s=jobs.submit[counted], start_s=done.start[counted], end_s=done.end[counted],
        gpus=jobs.gpus[counted], weight=jobs.weight[counted], window_s=window,
        available_gpu_s=case.fleet.available_gpu_seconds(*window),
    )  # fmt: skip
    weighted = np.sort((done.start - jobs.submit)[counted] * jobs.weight[counted])
    tail = weighted[-max(round(0.01 * len(weighted)), 1) :].mean()
    return {
        "average": found.average_wait_s, "tail": float(tail), "maximum": found.maximum_wait_s,
        "utilization": found.utilization, "unstarted": float((done.start < 0).sum()),
    }  # fmt: skip


def cost(case: Case, held: tuple[HoldBack, ...]) -> float:
    """The weighted mean of logarithms; smaller is better."""
    found = outcome(case, held)
    row = np.maximum([found["average"], found["tail"], 1 - found["utilization"]], 1e-3)
    return float(np.log(row) @ WEIGHTS)


def learn(copies: list[Case], margin: float) -> tuple[HoldBack, ...]:
    """Add what gains most, as long as it gains the margin on average and something in every copy."""
    held: tuple[HoldBack, ...] = ()
    now = np.array([cost(copy, held) for copy in copies])
    clusters = range(len(copies[0].fleet.clusters))
    while len(held) < MOST:
        best, best_costs = None, now - margin
        for one in ((cluster, over_s) for cluster in clusters for over_s in OVER_S):
            first = cost(copies[0], (*held, one))
            if first >= now[0]:
                continue
            costs = np.array([first, *(cost(copy, (*held, one)) for copy in copies[1:])])
            if (costs < now).all() and costs.mean() < best_costs.mean():
                best, best_costs = one, costs
        if best is None:
            break
        held, now = (*held, best), best_costs
    return held


def run(name: str, load: float, days: float, seed: int, data: Path | None, margin: float) -> dict[str, object]:
    """Learn on the first half, judge on the second."""
    case = mixed(days, seed, load) if data is None else openb(data, seed)
    half = int(case.jobs.submit[-1]) // 2
    early = only(case.jobs, case.jobs.submit < half)
    held = learn([Case(shaken(early, copy), case.fleet) for copy in range(COPIES)], margin)
    race, ours = outcome(case, (), half), outcome(case, held, half)
    return {
        "case": name, "load": load, "seed": seed, "jobs": len(case.jobs), "held_back": held,
        "race": race, "with": ours,
        **{f"{what}_ratio": ours[what] / max(race[what], 1.0) for what in ("average", "tail", "maximum")},
        "utilization_change": ours["utilization"] - race["utilization"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cases", nargs="+", choices=["mixed", "openb"], default=["mixed"])
    parser.add_argument("--loads", nargs="+", type=float, default=[0.7, 0.8, 0.9], help="of mixed")
    parser.add_argument("--days", type=float, default=8, help="of mixed")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--margin", type=float, default=0.02)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    if "openb" in args.cases and args.data is None:
        parser.error("openb needs --data DIRECTORY")
    cases: list[tuple[str, float, Path | None]] = []
    if "mixed" in args.cases:
        cases += [("mixed", load, None) for load in args.loads]
    if "openb" in args.cases:
        cases.append(("openb", 0.9, args.data))
    table = []
    with ProcessPoolExecutor(args.workers) as pool:
        for name, load, data in cases:
            work = [pool.submit(run, name, load, args.days, seed, data, args.margin) for seed in args.seeds]
            rows = [job.result() for job in work]
            for row in rows:
                print(
                    f"{name} {load:g} seed {row['seed']}: {row['held_back']}  average {row['average_ratio']:.3f}  "
                    f"maximum {row['maximum_ratio']:.3f}  utilization {row['utilization_change']:+.4f}",
                    flush=True,
                )
            table += rows
            summary = {
                what: float(np.exp(np.mean(np.log([float(row[what]) for row in rows]))))  # type: ignore[arg-type]
                for what in ("average_ratio", "tail_ratio", "maximum_ratio")
            }
            print(f"{name} {load:g}, geometric means: {json.dumps(summary)}", flush=True)
    print(json.dumps({"benchmark": "hold_backs", "runs": table}))


if __name__ == "__main__":
    main()
