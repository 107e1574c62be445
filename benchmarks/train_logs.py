"""Training on public logs other than Philly, one table, whatever it says.

    python benchmarks/train_logs.py --data DIRECTORY [--logs openb ub-hpc CTC-SP2 HPC2N] [--seeds 1 2]
    [--minutes 10]

The same windows and rules as `slurm-evo train` (EASY at every event): first half trains, next quarter chooses,
last quarter judges, once. CTC-SP2 and HPC2N are one cluster of processors each, cut to some months. openb keeps
one node of each GPU model, its jobs come 2.1 times as fast, and it has no users, limits or queue of its own:
limits and estimates are drawn. ub-hpc is one pool of cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "gp_training")]

from slurm_evo.model import SlurmEvoError
from slurm_evo.policy import Policy
from slurm_evo.sim.rules import Rules
from slurm_evo.trace import Trace, read
from slurm_evo.trace.capacity import load, pool
from slurm_evo.trace.prepare import Choices, Knows
from slurm_evo_training.choose import WEIGHTS
from slurm_evo_training.island import Recipe
from slurm_evo_training.material import gather, parts
from slurm_evo_training.training import run


@dataclass(frozen=True)
class Log:
    """One log: where it is, what it runs on."""

    trace: str
    fleet: str = ""
    cores: int = 0
    divide: float = 1.0
    skip_days: float = 0.0
    days: float = 10_000.0
    predicts: bool = True
    hurry: float = 1.0
    """Times faster jobs come than they did: the log's own fleet was never full."""


LOGS = {
    "openb": Log(
        "alibaba_openb2023/openb_pod_list_default.csv.gz", "alibaba_openb2023/openb_node_list_gpu_node.csv",
        divide=1000, skip_days=117, predicts=False, hurry=2.1,
    ),
    "ub-hpc": Log("ubhpc/workload_week.events.gz", cores=7904),
    "CTC-SP2": Log("swf_hpc/CTC-SP2-1996-3.1-cln.swf.gz", cores=338, skip_days=60, days=60),
    "HPC2N": Log("swf_hpc/HPC2N-2002-2.2-cln.swf.gz", cores=240, skip_days=400, days=90),
}  # fmt: skip


def train(log: Log, data: Path, seed: int, args: argparse.Namespace) -> dict[str, object]:
    trace = read(data / log.trace).trace
    first = trace.begins + timedelta(days=log.skip_days)
    trace = trace.between(first, first + timedelta(days=log.days))
    begins = int(first.timestamp())
    hurried = begins + ((pl.col("submit") - begins) / log.hurry).cast(pl.Int64)
    trace = Trace.of(trace.jobs.with_columns(submit=hurried), trace.name)
    fleet = load(data / log.fleet).divided(log.divide, least=1) if log.fleet else pool(log.cores)
    choices = Choices(knows=Knows.LIMIT if log.predicts else Knows.NOISY, most_devices=int(fleet.shape.gpus.max()))
    material = gather(trace, fleet, choices=choices, seed=seed, predicts=log.predicts, cores=bool(log.cores))
    recipe = replace(Recipe(), **{"seed": seed, "minutes": args.minutes, **json.loads(args.recipe)})
    trained = run(
        material, parts(material, Rules.every_event()), recipe,
        incumbent=Policy.default(), weights=WEIGHTS, provenance={}, now=trace.ends, workers=args.workers,
    )  # fmt: skip
    means = {name: value.mean(axis=0) for name, value in trained.judged.items()}
    by_hand = {name: row for name, row in means.items() if name not in ("chosen", "in force")}
    best = min(by_hand, key=lambda name: float(by_hand[name][0]))
    chosen = means["chosen"]
    return {
        "seed": seed,
        "jobs": len(material.jobs),
        "seconds": round(trained.evolved.seconds),
        "chosen": trained.shown.text,
        "by_hand": trained.shown.by_hand,
        "admitted": trained.chosen is not None,
        "best_average_by_hand": best,
        "average_ratio": float(chosen[0] / by_hand[best][0]),
        "maximum_ratio": float(chosen[1] / by_hand[best][1]),
        "dominated_by": [name for name, row in by_hand.items() if bool((row[:2] < chosen[:2]).all())],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--logs", nargs="+", choices=list(LOGS), default=list(LOGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--minutes", type=float, default=10.0, help="of one training")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--recipe", default="{}", help="other settings of the recipe, as JSON")
    args = parser.parse_args()
    found: dict[str, list[dict[str, object]]] = {}
    for name in args.logs:
        for seed in args.seeds:
            try:
                row = train(LOGS[name], args.data, seed, args)
            except SlurmEvoError as failure:
                row = {"seed": seed, "refused": str(failure)}
            found.setdefault(name, []).append(row)
            print(name, json.dumps(row), flush=True)
    ratios = [row["average_ratio"] for rows in found.values() for row in rows if "average_ratio" in row]
    mean = float(np.exp(np.mean(np.log(np.array(ratios, float))))) if ratios else None
    print(json.dumps({"benchmark": "train_logs", "logs": found, "mean_average_ratio": mean}))


if __name__ == "__main__":
    main()
