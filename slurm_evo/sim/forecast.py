"""What Slurm would do with a standing queue from now on: one forecast of a candidate in array code.

Every cluster ranks the jobs whose viable set names it by the policy's score, starts what fits in that order,
gives the first blocked job a reservation by time limits (EASY backfill) and lets later jobs pass if they do
not delay it. Among clusters the first to start a job wins, as in a Slurm federation. GPUs are packed by node
as select/cons_tres does: a job of at most a node's devices on one node, larger ones on whole nodes.

`tests/twins/plain_forecast.py` is the slow, obvious twin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
MaskArray = NDArray[np.uint64]
MAX_CLUSTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The fleet's nodes at one instant; k nodes, ordered by cluster."""

    cluster: IntArray
    """(k,) index of each node's cluster, non-decreasing."""
    kind: IntArray
    """(k,) index of the GPU type; -1 for none."""
    gpus: IntArray
    """(k,) devices in all."""
    free_gpus: IntArray
    """(k,)"""
    free_cpus: IntArray
    """(k,)"""
    clusters: int
    speed: FloatArray | None = None
    """(clusters,) a job's running time is divided by it; None: all alike. Time limits stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """What running jobs will give back; r rows, one for each job and node."""

    node: IntArray
    gpus: IntArray
    cpus: IntArray
    end_s: FloatArray
    """Expected end, seconds from now, at least 0."""
    limit_s: FloatArray
    """Latest end by the time limit, seconds from now; not before ``end_s``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The pending jobs, n rows, the one that runs first leading."""

    gpus: IntArray
    kind: IntArray
    """GPU type asked for; -1 for any."""
    nodes: IntArray
    """Least number of nodes; 1 where one will do."""
    cpus: IntArray
    runtime_s: FloatArray
    """Expected; at most the limit."""
    limit_s: FloatArray


def forecast(
    devices: Devices,
    releases: Releases,
    waiting: Waiting,
    masks: MaskArray,
    *,
    ready_s: FloatArray | None = None,
    depth: int = 200,
) -> tuple[FloatArray, IntArray]:
    """Start times of the pending jobs under one candidate; see `forecast_many`.

    Returns:
        (n,) seconds from now, infinite where the job never starts; (n,) cluster index, -1 where none.
    """
    late = None if ready_s is None else ready_s[None, :]
    starts, where = forecast_many(devices, releases, waiting, masks[None, :], ready_s=late, depth=depth)
    return starts[0], where[0]


def forecast_many(
    devices: Devices,
    releases: Releases,
    waiting: Waiting,
    masks: MaskArray,
    *,
    ready_s: FloatArray | None = None,
    depth: int = 200,
) -> tuple[FloatArray, IntArray]:
    """Start times of the pending jobs under each of p candidates.

    Args:
        devices: the nodes.
        releases: what running jobs give back.
        waiting: n pending jobs in priority order, which is the same everywhere.
        masks: (p, n) uint64; bit c set where cluster c may start the job.
        ready_s: (p, n) seconds from now before which a job cannot start, for one that is moved or is yet to
            be submitted; None: all are there.
        depth: a pass looks at this many of a cluster's jobs behind the first blocked one (Slurm's
            bf_max_job_test).

    Returns:
        (p, n) seconds from now, infinite where the job never starts; (p, n) cluster index, -1 where none.
    O(events × clusters × (depth + nodes)) for each candidate where most jobs do not fit; memory is taken once.
    """
    from slurm_evo.sim.forecast_kernel import run

    shape = masks.shape
    ready = np.zeros(shape) if ready_s is None else np.ascontiguousarray(np.broadcast_to(ready_s, shape))
    speed = np.ones(devices.clusters) if devices.speed is None else devices.speed
    first = np.searchsorted(devices.cluster, np.arange(devices.clusters + 1)).astype(np.int64)
    starts, where = np.full(shape, np.inf), np.full(shape, -1, np.int64)
    # Every job and node at the same time, at worst.
    parts = np.minimum(np.maximum(np.maximum(waiting.gpus, waiting.nodes), 1), max(devices.gpus.size, 1))
    room = releases.node.size + int(parts.sum())
    run(
        first, devices.kind, devices.gpus, devices.free_gpus, devices.free_cpus,
        releases.node, releases.gpus, releases.cpus, releases.end_s, releases.limit_s,
        waiting.gpus, waiting.kind, waiting.nodes, waiting.cpus, waiting.runtime_s, waiting.limit_s,
        speed, np.ascontiguousarray(masks), ready, depth, room, starts, where,
    )  # fmt: skip
    return starts, where
