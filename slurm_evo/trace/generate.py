"""Made-up histories with the habits of real GPU clusters, for examples, tests and first trials.

Calibrated to published figures, not to any one site:

* sizes: most jobs take one GPU (93 % in Philly, Jeon et al., ATC'19; median 1 and mean 3.7 in Helios, Hu et
  al., SC'21), few take many;
* running times: heavy-tailed, minutes at the median and hours in the mean (Philly: median 1,144 s, 90 % below
  11,266 s, 99 % below 254,884 s; Helios: median 206 s, mean 6,652 s);
* ends: 62 % complete, 22 % cancelled, 15 % failed (Helios, GPU jobs);
* users: few submit most, each with typical sizes, job names, running times and time limits far above them;
* arrivals: by day more than by night, on weekdays more than at weekends, in sweeps of one user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from slurm_evo.model import TraceError
from slurm_evo.sim.workload import Ints
from slurm_evo.trace.capacity import Capacity
from slurm_evo.trace.table import SCHEMA, Trace

Row = dict[str, Any]
DAY = 86_400
SIZES = (1, 2, 4, 8, 16, 32, 64)
SHARES = (0.70, 0.10, 0.08, 0.08, 0.025, 0.012, 0.003)
MEDIAN_S = 500.0
"""Of running times; between Helios and Philly."""
SPREAD_OF_USERS, SPREAD_OF_NAMES, SPREAD_OF_RUNS = 1.1, 1.4, 1.2
"""Sigma of the logarithm; together 2.15, which gives the mean and the tail above."""
LONGEST_S = 7 * DAY
LIMITS = tuple(hours * 3600 for hours in (1, 2, 4, 8, 12, 24, 48, 72, 168))
"""What users write, rather than what they need."""
MONDAY = 1_767_571_200
"""2026-01-05 00:00 UTC: the first day of every generated history."""


@dataclass(frozen=True, slots=True)
class _Name:
    """A kind of job that one user runs again and again."""

    user: int
    stem: str
    gpus: int
    median_s: float
    limit_factor: float
    gpu_type: str


def generate(fleet: Capacity, *, days: float, load: float, users: int = 120, seed: int = 1) -> Trace:
    """A history for a fleet. Deterministic for a seed.

    Args:
        fleet: whose GPUs are to be used; nobody asks for more than half of the cluster they submit to.
        days: from a Monday on.
        load: GPU-seconds asked over GPU-seconds there are; above 1 the queue grows.
        users: how many there are.
        seed: of everything.

    Raises:
        TraceError: nothing could be generated from these numbers.
    """
    gpus = fleet.shape.gpus
    if not (0 < days <= 3650 and 0 < load <= 10 and 1 <= users <= 100_000) or not gpus.sum():
        raise TraceError("needs a fleet with GPUs, 0 to 3,650 days, a load of 0 to 10, and a user")
    rng = np.random.default_rng(seed)
    homes = rng.choice(len(gpus), size=users, p=gpus / gpus.sum())
    names = _names(fleet, homes, rng)
    popularity = rng.permutation((np.arange(len(names)) + 1.0) ** -0.9)
    goal = load * float(gpus.sum()) * days * DAY
    rows: list[Row] = []
    work = 0.0
    while work < goal:
        sweep = _sweep(
            names[rng.choice(len(names), p=popularity / popularity.sum())], fleet, homes, len(rows), rng
        )
        rows += sweep
        work += sum(row["gpus"] * row["runtime"] for row in sweep)
    _set_arrivals(rows, days, rng)
    schema = {name: kind for name, kind in SCHEMA.items() if name in rows[0]}
    table = pl.DataFrame(rows, schema=schema)
    missing = [pl.lit("").alias(name) for name in SCHEMA if name not in schema]
    table = table.with_columns(missing).filter(pl.col("submit") < MONDAY + round(days * DAY))
    if not len(table):
        raise TraceError("no job fits into so short a time")
    return Trace.of(table, f"generated-{seed}")


def _names(fleet: Capacity, homes: Ints, rng: np.random.Generator) -> list[_Name]:
    types = [name for name in fleet.gpu_types if name]
    names: list[_Name] = []
    for user, home in enumerate(homes.tolist()):
        sizes = [size for size in SIZES if size <= max(int(fleet.shape.gpus[home]) // 2, 1)]
        share = np.array(SHARES[: len(sizes)]) / sum(SHARES[: len(sizes)])
        pace = MEDIAN_S * np.exp(rng.normal(0, SPREAD_OF_USERS))
        caution = 1.0 + np.exp(rng.normal(2.0, 1.0))
        bound = str(rng.choice(types)) if len(types) > 1 and rng.random() < 0.15 else ""
        names.extend(
            _Name(
                user=user,
                stem=f"{rng.choice(['train', 'eval', 'sweep', 'prep', 'test'])}{number}",
                gpus=int(rng.choice(sizes, p=share)),
                median_s=float(pace * np.exp(rng.normal(0, SPREAD_OF_NAMES))),
                limit_factor=float(caution),
                gpu_type=bound,
            )
            for number in range(1 + rng.geometric(0.35))
        )
    return names


def _sweep(
    name: _Name,
    fleet: Capacity,
    homes: Ints,
    first: int,
    rng: np.random.Generator,
) -> list[Row]:
    """Jobs of one kind that a user submits together; long ones alone, now and then as an array."""
    count = 1 if name.median_s > 6 * 3600 or rng.random() < 0.6 else int(rng.geometric(0.15))
    runs = np.clip(name.median_s * np.exp(rng.normal(0, SPREAD_OF_RUNS, count)), 5, LONGEST_S)
    limit = next((each for each in LIMITS if each >= name.median_s * name.limit_factor), LIMITS[-1])
    array = str(first + 1) if count > 2 and rng.random() < 0.5 else None
    rows: list[Row] = []
    for place, run in enumerate(runs):
        end = rng.choice(["COMPLETED", "CANCELLED", "FAILED"], p=[0.63, 0.22, 0.15])
        # Whoever cancels has seen enough, and what fails mostly fails early.
        runtime = int(
            run * (1.0 if end == "COMPLETED" else rng.beta(1.5, 1.5) if end == "CANCELLED" else rng.beta(1, 3))
        )
        if runtime >= limit:
            runtime, end = limit, "TIMEOUT"
        rows.append(
            {
                "job": f"{array}_{place}" if array else str(first + 1 + place),
                "cluster": fleet.names[int(homes[name.user])],
                "user": f"user{name.user:03d}",
                "account": f"group{name.user % 9}",
                "qos": "high" if name.user % 11 == 0 else "normal",
                "name": f"{name.stem}-{place}" if count > 1 and not array else name.stem,
                "gpu_type": name.gpu_type,
                "submit": 0,
                "wait": 0,
                "runtime": max(runtime, 1),
                "limit": limit,
                "gpus": name.gpus,
                "nodes": 0,
                "cpus": 8 * name.gpus,
                "memory": 65_536 * name.gpus,
                "state": str(end),
                "array": array,
            }
        )
    rows[0]["sweep"] = count
    return rows


def _set_arrivals(rows: list[Row], days: float, rng: np.random.Generator) -> None:
    """Give every sweep its moment, by hour and weekday; its jobs follow within seconds."""
    hours = np.arange(int(np.ceil(days * 24)))
    rate = (1 + 0.7 * np.sin(2 * np.pi * (hours % 24 - 9) / 24)) * np.where(hours // 24 % 7 >= 5, 0.55, 1.0)
    edge = np.concatenate([[0.0], np.cumsum(rate)]) / rate.sum()
    place = 0
    while place < len(rows):
        count = rows[place].pop("sweep")
        moment = float(np.interp(rng.random(), edge, np.arange(len(edge)) * 3600.0))
        gaps = np.cumsum(rng.exponential(4.0, count))
        together = rows[place]["array"] is not None
        for offset in range(count):
            rows[place + offset]["submit"] = MONDAY + int(moment + (0 if together else gaps[offset]))
        place += count


__all__ = ["generate"]
