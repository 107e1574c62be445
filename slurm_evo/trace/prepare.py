"""From a trace to what the simulator runs: choices made, fields filled in, and every one of them said."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl

from slurm_evo.model import TraceError
from slurm_evo.predict import Asked, Predictor
from slurm_evo.predict.backtest import as_it_was
from slurm_evo.sim.workload import FOREVER, Ints, Workload
from slurm_evo.trace.capacity import Capacity, device_column
from slurm_evo.trace.reading import cut_list
from slurm_evo.trace.table import Trace

DAY = 86_400


class Knows(StrEnum):
    """What a policy is told as ``runtime``."""

    LIMIT = "limit"
    """The user's time limit: all that Slurm knows."""
    NOISY = "noisy"
    """The true running time times a log-normal error, sigma 0.8: a middling predictor."""
    PREDICTED = "predicted"
    """What a predictor says that learns from this trace as its jobs end, and never sees the future."""
    TRUE = "true"
    """The true running time: nobody has it."""


class Weights(StrEnum):
    """What a second of waiting costs."""

    EQUAL = "equal"
    DRAWN = "drawn"
    """1, 2 or 4 with probability 0.6, 0.3, 0.1: for logs that say nothing about importance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """How a trace is turned into a workload."""

    knows: Knows = Knows.LIMIT
    weights: Weights = Weights.EQUAL
    most_devices: int | None = None
    """Larger jobs are left out."""
    longest_s: int | None = None
    """Longer running times are cut to it."""
    cores: bool | None = None
    """Devices are cores; False: GPUs, jobs without any are left out; None: cores if most jobs ask for no GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A workload, and what was done to get it."""

    jobs: Workload
    rows: Ints
    """(n,) rows of the trace."""
    said: tuple[str, ...] = field(default=())
    """One sentence for each choice that a reader of the figures must know."""


def prepare(trace: Trace, fleet: Capacity, *, seed: int, choices: Choices | None = None) -> Prepared:
    """Turn a trace into a workload for a fleet. Deterministic for a seed.

    Jobs that never started and jobs that fit nowhere are left out. Missing limits are drawn: running time ×
    exp(|N(0, 1.5)|) × 1.05 + 60 s, rounded up to hours, at most 7 days, never below the running time.
    Times count from the first job kept.

    Raises:
        TraceError: no job is left.
    """
    choices = choices or Choices()
    rng = np.random.default_rng(seed)
    said: list[str] = []
    jobs = trace.jobs.with_row_index("row").filter(pl.col("runtime").is_not_null())
    if len(jobs) < len(trace):
        said.append(f"{len(trace) - len(jobs)} jobs that never started are left out")
    column = device_column(jobs, choices.cores)
    if column == "cpus":
        said.append("devices are cores" + ("" if choices.cores else ": most jobs ask for no GPU"))
    elif choices.cores is False:
        _say(said, int((jobs["gpus"] == 0).sum()), "jobs that ask for no GPU are left out")
        jobs = jobs.filter(pl.col("gpus") > 0)
    size = np.maximum(jobs[column].to_numpy(), 1)
    if choices.most_devices is not None:
        keep = size <= choices.most_devices
        _say(said, int((~keep).sum()), f"jobs of more than {choices.most_devices} devices are left out")
        jobs, size = jobs.filter(keep), size[keep]
    if not len(jobs):
        raise TraceError("no job is left to simulate", file=trace.name)
    runtime = np.minimum(jobs["runtime"].to_numpy(), FOREVER // 4)
    if choices.longest_s is not None:
        _say(said, int((runtime > choices.longest_s).sum()), f"running times are cut to {choices.longest_s} s")
        runtime = np.minimum(runtime, choices.longest_s)
    limit = _limits(jobs, runtime, rng, said)
    clusters = _clusters(jobs, fleet, said)
    prepared = Workload(
        submit=jobs["submit"].to_numpy() - int(jobs["submit"][0]),
        runtime=runtime,
        limit=limit,
        estimate=_estimates(choices.knows, jobs, runtime, limit, rng, said),
        gpus=size,
        nodes=jobs["nodes"].to_numpy() * (len(fleet.shape.nodes) > 1),
        gpu_type=_one_type(jobs["gpu_type"], fleet),
        user=_codes(jobs["user"]),
        account=_codes(jobs["account"]),
        qos=_codes(jobs["qos"]),
        partition=_partitions(jobs["partition"], fleet, said),
        weight=_weights(choices.weights, len(jobs), rng, said),
        clusters=clusters,
        home=_homes(jobs["cluster"], clusters, fleet, rng, said),
    )
    return Prepared(jobs=prepared, rows=jobs["row"].to_numpy().astype(np.int64), said=tuple(said))


def _say(said: list[str], count: int, what: str) -> None:
    if count:
        said.append(f"{count} {what}" if not what.startswith("running") else f"{what} ({count} jobs)")


def _limits(jobs: pl.DataFrame, runtime: Ints, rng: np.random.Generator, said: list[str]) -> Ints:
    known = jobs["limit"].is_not_null().to_numpy()
    drawn = runtime * np.exp(np.abs(rng.normal(0, 1.5, len(jobs)))) * 1.05 + 60
    drawn = np.maximum(np.minimum(np.ceil(drawn / 3600) * 3600, 7 * DAY), runtime)
    _say(said, int((~known).sum()), "time limits are drawn, since the log has none")
    limit = np.where(known, jobs["limit"].fill_null(1).to_numpy(), drawn)
    return np.clip(limit, 1, FOREVER // 4).astype(np.int64)


def _estimates(
    knows: Knows, jobs: pl.DataFrame, runtime: Ints, limit: Ints, rng: np.random.Generator, said: list[str]
) -> Ints:
    error = np.exp(rng.normal(0, 0.8, len(runtime)))
    if knows is Knows.LIMIT:
        return limit
    if knows is Knows.PREDICTED:
        said.append("policies know what a predictor says that learns from the jobs ended before")
        guess: npt.NDArray[np.float64] = predicted(jobs, runtime, limit)
    else:
        said.append(f"policies know the {'true' if knows is Knows.TRUE else 'noisy (sigma 0.8)'} running time")
        guess = runtime * (error if knows is Knows.NOISY else np.ones(len(runtime)))
    return np.clip(np.round(np.minimum(guess, limit)), 1, FOREVER // 4).astype(np.int64)


def asked_of(jobs: pl.DataFrame, limit: Ints) -> list[Asked]:
    """What was known of each job when it was submitted."""
    columns = jobs.with_columns(pl.Series("limit", limit)).select("user", "name", "limit", "gpus", "cpus")
    return [
        Asked(user=user, name=name, limit_s=seconds, gpus=gpus, cpus=cpus)
        for user, name, seconds, gpus, cpus in columns.iter_rows()
    ]


def predicted(jobs: pl.DataFrame, runtime: Ints, limit: Ints) -> npt.NDArray[np.float64]:
    """What a predictor would have said at each submission, (n,) seconds; it learns as jobs end, as recorded."""
    submit = jobs["submit"].to_numpy().astype(np.float64)
    end = submit + jobs["wait"].to_numpy() + runtime
    return as_it_was(asked_of(jobs, limit), submit, end, runtime.astype(np.float64), Predictor())


def _weights(weights: Weights, n: int, rng: np.random.Generator, said: list[str]) -> npt.NDArray[np.float64]:
    drawn = rng.choice([1.0, 2.0, 4.0], size=n, p=[0.6, 0.3, 0.1])
    if weights is Weights.EQUAL:
        return np.ones(n)
    said.append("weights are drawn: 1, 2 or 4 with probability 0.6, 0.3, 0.1")
    return drawn


def _codes(column: pl.Series) -> Ints:
    return column.rank("dense").to_numpy().astype(np.int64) - 1


def _partitions(column: pl.Series, fleet: Capacity, said: list[str]) -> Ints:
    """Only a fleet that names partitions keeps jobs to them."""
    if fleet.partitions == ("",):
        return np.zeros(len(column), dtype=np.int64)
    index = {name: place for place, name in enumerate(fleet.partitions)}
    # A job that names several, as Slurm allows, is taken at its first.
    found = [index.get(name.split(",")[0], -1) for name in column.to_list()]
    _say(said, found.count(-1), f"jobs name a partition the fleet has not; {fleet.partitions[0]} is taken")
    return np.maximum(np.array(found, dtype=np.int64), 0)


def _one_type(column: pl.Series, fleet: Capacity) -> Ints:
    """A type that binds a job to nodes: where exactly one is asked for and the fleet has it."""
    index = {name: place for place, name in enumerate(fleet.gpu_types) if name}
    return np.array([index.get(text, -1) for text in column.to_list()], dtype=np.int64)


def _clusters(jobs: pl.DataFrame, fleet: Capacity, said: list[str]) -> Ints:
    """Bits of the clusters that have a GPU type and the features a job asks for; all, if none has."""
    everywhere = (1 << len(fleet.names)) - 1
    types = [{fleet.gpu_types[node.gpu_type] for node in nodes} for nodes in fleet.shape.clusters]
    features = fleet.features or (frozenset(),) * len(fleet.names)
    bits: dict[tuple[str, str], int] = {}
    unknown = 0
    result = np.empty(len(jobs), dtype=np.int64)
    for place, asked in enumerate(jobs.select("gpu_type", "constraint").iter_rows()):
        if asked not in bits:
            bits[asked] = _bits(cut_list(asked[0]), types) & _bits(cut_list(asked[1]), list(features))
        unknown += not bits[asked]
        result[place] = bits[asked] or everywhere
    _say(said, unknown, "jobs ask for a GPU type or feature no cluster has; they may run anywhere")
    return result


def _bits(asked: list[str], offered: list[set[str]] | list[frozenset[str]]) -> int:
    """Clusters that offer one of these alternatives; all if nothing is asked, or nobody offers any."""
    if not asked or not any(any(each) for each in offered):
        return (1 << len(offered)) - 1
    return sum(1 << place for place, each in enumerate(offered) if not each.isdisjoint(asked))


def _homes(column: pl.Series, clusters: Ints, fleet: Capacity, rng: np.random.Generator, said: list[str]) -> Ints:
    """Where a job was submitted; drawn by size, among those that may run it, where the log does not say."""
    index = {name: place for place, name in enumerate(fleet.names)}
    home = np.array([index.get(name, -1) for name in column.to_list()], dtype=np.int64)
    unknown = home < 0
    if len(fleet.names) > 1 or bool((column.filter(unknown) != "").any()):
        _say(said, int(unknown.sum()), "jobs have no cluster of the fleet; one is drawn by size")
    allowed = (clusters[:, None] >> np.arange(len(fleet.names))) & 1
    share = allowed * np.maximum(fleet.shape.gpus, 1)
    edge = np.cumsum(share, axis=1)
    drawn = (rng.random(len(column))[:, None] * edge[:, -1:] >= edge).sum(axis=1)
    return np.where(unknown, drawn, home).astype(np.int64)


__all__ = ["Choices", "Knows", "Prepared", "Weights", "prepare"]
