"""What keeping long jobs off a cluster when they come is worth, against Slurm's federation race.

A *hold-back* is a cluster and a running time: a job that is expected to run longer, and may run elsewhere too,
does not wait at that cluster until it has waited four hours. All else is the race with the same priority. Of the
mixed fleet it is the small fast cluster, which jobs are tied to, and one hour (found on seeds 21 to 30); of openb
each cluster in turn.

    python benchmarks/hold_backs.py [--data DIRECTORY --cases mixed openb] [--loads 0.7 0.85] [--days 8]
    [--seeds 1 2 3 4 5 6 7 8 9 10] [--over 3600]

Cases are those of layer1_online.py; only openb needs DIRECTORY. Shares of the race's average, of its worst 1 % of
waits and of its maximum: geometric means over the seeds, the standard error of the first one's logarithm and its
worst seed. Ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1])]

from layer1_online import PRIORITY, Case, mixed, openb

from slurm_evo.optimize.hold_backs import HoldBack, held_race
from slurm_evo.policy import Policy
from slurm_evo.sim.metrics import measure
from slurm_evo.sim.replay import replay
from slurm_evo.sim.rules import Race, Rules

FAST = 0
"""The mixed fleet's small fast cluster."""
OPENB_CLUSTERS = 6


@dataclass(frozen=True, slots=True)
class Task:
    """One replay; without a hold-back it is the race."""

    case: str
    load: float
    seed: int
    days: float
    data: Path | None
    held: HoldBack | None


def outcome(task: Task) -> list[float]:
    """Weighted average wait, mean of the worst 1 % of the waits, maximum, utilization, and jobs never started."""
    case: Case = openb(task.data, task.seed) if task.data is not None else mixed(task.days, task.seed, task.load)
    jobs = case.jobs
    how = Race() if task.held is None else held_race(jobs, case.fleet, [task.held])
    done = replay(jobs, case.fleet, Policy.parse(PRIORITY), how, Rules.every_event())
    ran = done.start >= 0
    window = (0, max(int(jobs.submit[-1]), 1))
    found = measure(
        submit_s=jobs.submit[ran], start_s=done.start[ran], end_s=done.end[ran], gpus=jobs.gpus[ran],
        weight=jobs.weight[ran], window_s=window, available_gpu_s=case.fleet.available_gpu_seconds(*window),
    )  # fmt: skip
    waits = np.sort((done.start - jobs.submit)[ran] * jobs.weight[ran])
    tail = float(waits[-max(round(0.01 * len(waits)), 1) :].mean())
    never = float((~ran).sum())
    return [found.average_wait_s, tail, found.maximum_wait_s, found.utilization, never]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cases", nargs="+", choices=["mixed", "openb"], default=["mixed"])
    parser.add_argument("--loads", nargs="+", type=float, default=[0.7, 0.85], help="of mixed")
    parser.add_argument("--days", type=float, default=8, help="of mixed")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(1, 11)))
    parser.add_argument("--over", type=float, default=3600, help="seconds")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    if "openb" in args.cases and args.data is None:
        parser.error("openb needs --data DIRECTORY")
    asked: list[tuple[str, float, Path | None, int]] = []
    if "mixed" in args.cases:
        asked += [("mixed", load, None, FAST) for load in args.loads]
    if "openb" in args.cases:
        asked += [("openb", 0.9, args.data, cluster) for cluster in range(OPENB_CLUSTERS)]
    table = []
    with ProcessPoolExecutor(args.workers) as pool:
        for case, load, data, cluster in asked:
            held = HoldBack(cluster, args.over)
            tasks = [
                Task(case, load, seed, args.days, data, which) for seed in args.seeds for which in (None, held)
            ]
            rows = np.array(list(pool.map(outcome, tasks))).reshape(len(args.seeds), 2, -1)
            shares = np.log(rows[:, 1, :3] / np.maximum(rows[:, 0, :3], 1.0))
            error = float(shares[:, 0].std(ddof=1) / len(shares) ** 0.5) if len(shares) > 1 else None
            average, tail, maximum = np.exp(shares.mean(axis=0)).tolist()
            table.append({
                "case": case, "load": load, "held_back": asdict(held), "seeds": args.seeds,
                "average": average, "tail": tail, "maximum": maximum,
                "average_error": error,
                "average_worst": float(np.exp(shares[:, 0].max())),
                "averages": np.exp(shares[:, 0]).tolist(), "maxima": np.exp(shares[:, 2]).tolist(),
                "utilization_change": float((rows[:, 1, 3] - rows[:, 0, 3]).mean()),
                "never_started": rows[:, :, 4].sum(axis=0).tolist(),
            })  # fmt: skip
            shown = {key: value for key, value in table[-1].items() if not isinstance(value, list | dict)}
            print(f"cluster {cluster}: " + json.dumps(shown), flush=True)
    print(json.dumps({"benchmark": "hold_backs", "runs": table}))


if __name__ == "__main__":
    main()
