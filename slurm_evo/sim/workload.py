"""The jobs of a replay, as frozen integer arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from slurm_evo.model import TraceError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FOREVER = 2**31 - 2
"""The largest instant and duration the engine knows, in seconds: 68 years after the origin."""

MAX_CLUSTERS = 62
MAX_PARTITIONS = 62
"""Sets of clusters and of partitions are bits of one signed 64-bit integer."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """n jobs, sorted by submit time; all arrays have shape (n,). Ids are dense and count from 0.

    A field that is left out gets its default for every job. Array tasks are jobs of their own that share
    an ``array`` id, as Slurm starts each by itself.
    """

    submit: Ints
    """Seconds from the origin of the trace, not decreasing."""
    runtime: Ints
    """Seconds it would run if nobody killed it."""
    limit: Ints
    """Time limit, seconds; the job is killed there (slurm.conf(5), OverTimeLimit=0)."""
    gpus: Ints
    """Whole devices, all nodes together."""
    estimate: Ints = None  # type: ignore[assignment]  # filled below; default: the limit
    """Predicted running time, seconds: what a policy knows as ``runtime``."""
    nodes: Ints = None  # type: ignore[assignment]  # filled below
    """Nodes asked for; 0 lets the scheduler choose as few as can be."""
    cpus: Ints = None  # type: ignore[assignment]  # filled below
    """Cores, all nodes together."""
    memory: Ints = None  # type: ignore[assignment]  # filled below
    """MiB, all nodes together."""
    gpu_type: Ints = None  # type: ignore[assignment]  # filled below
    """-1: any."""
    user: Ints = None  # type: ignore[assignment]  # filled below
    account: Ints = None  # type: ignore[assignment]  # filled below
    partition: Ints = None  # type: ignore[assignment]  # filled below
    qos: Ints = None  # type: ignore[assignment]  # filled below
    weight: Floats = None  # type: ignore[assignment]  # filled below; default 1
    """What a second of waiting costs; positive."""
    clusters: Ints = None  # type: ignore[assignment]  # filled below; default: all
    """Bit c is set where the job may run on cluster c."""
    home: Ints = None  # type: ignore[assignment]  # filled below
    """The cluster it was submitted to."""
    cancel: Ints = None  # type: ignore[assignment]  # filled below
    """When its owner gives up if it still waits then; -1: never."""
    array: Ints = None  # type: ignore[assignment]  # filled below
    """-1: no array task."""

    def __post_init__(self) -> None:
        """Fill defaults, freeze, and refuse what no scheduler could have seen."""
        n = len(self.submit)
        defaults = {"estimate": self.limit, "gpu_type": -1, "cancel": -1, "array": -1, "weight": 1.0}
        defaults["clusters"] = (1 << MAX_CLUSTERS) - 1
        for field in fields(self):
            given: Any = getattr(self, field.name)
            if given is None:
                given = np.broadcast_to(np.asarray(defaults.get(field.name, 0)), (n,))
            kind = np.float64 if field.name == "weight" else np.int64
            column = np.array(given, dtype=kind)
            if column.shape != (n,):
                raise TraceError(f"{column.shape} values for {n} jobs", field=field.name)
            column.setflags(write=False)
            object.__setattr__(self, field.name, column)
        self._check()

    def __len__(self) -> int:
        """The number of jobs."""
        return len(self.submit)

    def _check(self) -> None:
        if not len(self):
            return
        if (np.diff(self.submit) < 0).any():
            raise TraceError("jobs must be sorted by submit time", field="submit")
        least = {"submit": 0, "runtime": 0, "limit": 1, "estimate": 0, "gpus": 0, "nodes": 0, "cpus": 0}
        least |= {"memory": 0, "gpu_type": -1, "user": 0, "account": 0, "partition": 0, "qos": 0, "home": 0}
        for name, bound in least.items():
            column = getattr(self, name)
            _refuse_first(name, (column < bound) | (column > FOREVER), f"must be {bound} to {FOREVER}")
        _refuse_first("cpus", (self.gpus == 0) & (self.cpus == 0), "a job without GPUs must ask for a core")
        _refuse_first("weight", ~(np.isfinite(self.weight) & (self.weight > 0)), "must be positive")
        _refuse_first("partition", self.partition >= MAX_PARTITIONS, f"must be below {MAX_PARTITIONS}")
        _refuse_first("clusters", self.clusters <= 0, "must allow a cluster")
        _refuse_first("cancel", (self.cancel >= 0) & (self.cancel < self.submit), "is before the submit time")
        if int(self.submit[-1]) + int(self.runtime.sum(dtype=np.float64)) >= FOREVER * max(len(self), 1):
            raise TraceError("times reach beyond 68 years", field="runtime")


def _refuse_first(name: str, bad: npt.NDArray[np.bool_], why: str) -> None:
    if bad.any():
        raise TraceError(f"job {int(bad.argmax())} {why}", field=name)
