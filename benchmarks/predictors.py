"""Running-time predictors on logs that have users and limits: ours, the limit, the user's last two, boosting.

    python benchmarks/predictors.py --data DIRECTORY

DIRECTORY holds ubhpc/workload_week.events.gz and swf_hpc/{CTC-SP2-1996-3.1-cln,HPC2N-2002-2.2-cln}.swf.gz. Each
job is predicted from jobs that ended before it was submitted; the last quarter of each log is judged. Boosting
(scikit-learn's histogram gradient boosting, absolute error of the logarithm) is trained once on jobs that ended
before the judged part began, with the user's last two running times and our own prediction among its features.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "gp_training")]

from slurm_evo.predict import Asked, Predictor
from slurm_evo.predict.backtest import accuracy, as_it_was, user_last_two
from slurm_evo_training.boosting import boosted

Log = tuple[list[Asked], np.ndarray, np.ndarray, np.ndarray]


def swf(file: Path) -> Log:
    """Standard Workload Format, the cleaned logs of the Parallel Workloads Archive."""
    with gzip.open(file, "rt", errors="replace") as lines:
        rows = np.array([line.split()[:18] for line in lines if line[:1] != ";" and line.strip()], np.float64)
    rows = rows[(rows[:, 3] >= 0) & (rows[:, 8] > 0) & (rows[:, 4] > 0)]
    jobs = [
        Asked(user=str(int(row[11])), name=str(int(row[13])), limit_s=int(row[8]), cpus=int(row[4]))
        for row in rows
    ]
    return jobs, rows[:, 1], rows[:, 1] + np.maximum(rows[:, 2], 0) + rows[:, 3], rows[:, 3]


def ubhpc(file: Path) -> Log:
    """A week of UB-HPC; it holds no starts, so a job is taken to end a running time after its submission."""
    jobs, submit, ran = [], [], []
    with gzip.open(file, "rt") as lines:
        for line in lines:
            fields = dict(re.findall(r"(?:^|\s)--?([\w-]+)[= ]\s*([^\s|-][^\s|]*)", line))
            days, _, clock = fields["t"].rpartition("-")
            hours, minutes, seconds = (int(part) for part in clock.split(":"))
            limit = int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds
            jobs.append(
                Asked(
                    user=fields["uid"], name=fields.get("q", ""), limit_s=max(limit, 60), cpus=int(fields["n"]),
                    gpus=int(re.search(r"gpu:(\d+)", line).group(1)) if "gpu:" in line else 0,
                )
            )  # fmt: skip
            submit.append(float(fields["dt"]))
            ran.append(float(fields["sim-walltime"]))
    at, took = np.array(submit), np.array(ran)
    return jobs, at, at + took, took


def compare(name: str, log: Log) -> dict[str, dict[str, float]]:
    """Print and return the table of one log."""
    jobs, submit, end, ran = log
    judged = submit >= np.quantile(submit, 0.75)
    limits = np.array([float(job.limit_s) for job in jobs])
    began = time.perf_counter()
    ours = as_it_was(jobs, submit, end, ran, Predictor())
    seconds = time.perf_counter() - began
    two = user_last_two(jobs, submit, end, ran)
    ways: dict[str, Callable[[], np.ndarray]] = {
        "limit": lambda: limits,
        "user's last two": lambda: two,
        "ours": lambda: ours,
        "boosting": lambda: boosted(
            jobs, submit, end, ran, since_s=float(submit[judged].min()), hints=(two, ours)
        ),
    }
    print(
        f"{name}: {len(jobs)} jobs, {int(judged.sum())} judged; ours took {seconds / len(jobs) * 1e6:.0f} us a job"
    )
    table = {}
    for way, predict in ways.items():
        table[way] = accuracy(predict()[judged], np.minimum(ran, limits)[judged])
        row = ", ".join(f"{key} {value:.3f}" for key, value in table[way].items())
        print(f"  {way:16s} {row}", flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    logs: dict[str, Callable[[], Log]] = {
        "ub-hpc": lambda: ubhpc(args.data / "ubhpc/workload_week.events.gz"),
        "CTC-SP2": lambda: swf(args.data / "swf_hpc/CTC-SP2-1996-3.1-cln.swf.gz"),
        "HPC2N": lambda: swf(args.data / "swf_hpc/HPC2N-2002-2.2-cln.swf.gz"),
    }
    found = {name: compare(name, read()) for name, read in logs.items()}
    print(json.dumps({"benchmark": "predictors", **found}))


if __name__ == "__main__":
    main()
