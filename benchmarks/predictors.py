"""How well running times are foretold: the limit, the user's last two jobs, our groups, gradient boosting.

    python benchmarks/predictors.py LOG [LOG ...]        # sacct, SWF, UB-HPC: logs with users

Every prediction is made at the job's submission from jobs that had ended by then. Judged on the later half of the
jobs by |log(predicted / true)| (0.69 is a factor of two); gradient boosting is fitted once, on the earlier half,
with the same knowledge: user, kind, limit, size, hour, and the other predictors' words. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict, deque
from pathlib import Path

import numpy as np
import polars as pl

from slurm_evo.predict.groups import stem
from slurm_evo.trace import read
from slurm_evo.trace.prepare import predicted


def last_two(jobs: pl.DataFrame, runtime: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Mean of the user's two jobs that ended last (Tsafrir et al., 2007); the limit before there are any."""
    submit, users = jobs["submit"].to_numpy(), jobs["user"].to_list()
    end = submit + jobs["wait"].to_numpy() + runtime
    order = np.argsort(end, kind="stable")
    seen: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=2))
    guess, ended = np.empty(len(jobs)), 0
    for job in range(len(jobs)):
        while ended < len(order) and end[order[ended]] <= submit[job]:
            seen[users[order[ended]]].append(int(runtime[order[ended]]))
            ended += 1
        times = seen[users[job]]
        guess[job] = min(sum(times) / len(times), limit[job]) if times else limit[job]
    return guess


def boosted(jobs: pl.DataFrame, runtime: np.ndarray, others: list[np.ndarray], half: int) -> np.ndarray:
    """scikit-learn's histogram gradient boosting of the logarithm, least absolute error."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    kinds = pl.Series([stem(name) for name in jobs["name"].to_list()]).rank("dense").to_numpy()
    columns = [jobs["user"].rank("dense").to_numpy(), kinds, jobs["gpus"].to_numpy(), jobs["cpus"].to_numpy()]
    columns += [jobs["submit"].to_numpy() % 86_400 // 3600, *(np.log1p(other) for other in others)]
    table = np.stack(columns, axis=1).astype(float)
    model = HistGradientBoostingRegressor(loss="absolute_error", random_state=1)
    model.fit(table[:half], np.log1p(runtime[:half]))
    return np.expm1(model.predict(table))


def judge(file: Path) -> dict[str, object]:
    """All predictors on one log."""
    jobs = read(file).trace.jobs.filter(pl.col("runtime").is_not_null())
    runtime = jobs["runtime"].to_numpy()
    limit = jobs["limit"].fill_null(86_400).to_numpy().astype(float)
    half = len(jobs) // 2
    guesses = {"limit": limit, "last two": last_two(jobs, runtime, limit)}
    began = time.perf_counter()
    guesses["groups"] = np.minimum(predicted(jobs, runtime), limit)
    seconds = time.perf_counter() - began
    guesses["boosting"] = np.minimum(boosted(jobs, runtime, list(guesses.values()), half), limit)
    print(
        f"\n{file.name}: {len(jobs)} jobs, judged on {len(jobs) - half};"
        f" groups: {seconds / len(jobs) * 1e6:.0f} us a job"
    )
    print(f"{'':12}{'mean |log|':>12}{'median |log|':>14}{'too short':>11}{'mean error':>12}")
    rows = {}
    for name, guess in guesses.items():
        error = np.log(np.maximum(guess, 1) / np.maximum(runtime, 1))[half:]
        row = {
            "mean_log": float(np.abs(error).mean()),
            "median_log": float(np.median(np.abs(error))),
            "too_short": float((error < -0.01).mean()),
            "mean_error_s": float(np.abs(guess - runtime)[half:].mean()),
        }
        rows[name] = row
        print(
            f"{name:12}{row['mean_log']:12.3f}{row['median_log']:14.3f}{row['too_short']:11.0%}"
            f"{row['mean_error_s']:10.0f} s"
        )
    return {"log": file.name, "jobs": len(jobs), "predictors": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path)
    print("\n" + json.dumps([judge(file) for file in parser.parse_args().logs]))


if __name__ == "__main__":
    main()
