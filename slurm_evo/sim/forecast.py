"""What Slurm would do with a standing queue from now on: one forecast of a candidate in array code.

Every cluster ranks the jobs whose viable set names it by the policy's score, starts what fits in that order,
gives the first blocked job a reservation by time limits (EASY backfill) and lets later jobs pass if they do
not delay it. Among clusters the first to start a job wins, as in a Slurm federation. GPUs are packed by node
as select/cons_tres does: a job of at most a node's devices on one node, larger ones on whole nodes. A job at a
limit of its association, QOS or the like does not start there until enough that counts against it has ended, and
holds nobody up meanwhile.

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
    """(k,) a job's running time is divided by its slowest node's; None: all alike. Limits stay as they are.

    A job without GPUs is as fast everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Limits on what runs at one time on one cluster: m of them, met by h holders.

    A holder is what jobs have in common for which the same limits hold, such as a user, an account and a QOS.
    """

    left: IntArray
    """(m,) how much more may begin now; negative where a limit was lowered."""
    by_gpus: NDArray[np.bool_]
    """(m,) counts GPUs; else as ``times`` says."""
    of: IntArray
    """(h, clusters, l) the limits that a holder meets on a cluster; -1 after the last."""
    times: IntArray
    """(h, clusters, l) what a job takes of a limit that does not count GPUs: 1 job, or so many licences."""


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
    holder: IntArray | None = None
    """Whose `Caps` get something back at the end; -1 for none and for all but one row of a job."""
    size: IntArray | None = None
    """GPUs of the whole job."""


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
    holder: IntArray | None = None
    """Whose `Caps` it meets; -1 for none."""


def forecast(
    devices: Devices,
    releases: Releases,
    waiting: Waiting,
    masks: MaskArray,
    *,
    caps: Caps | None = None,
    ready_s: FloatArray | None = None,
    depth: int = 200,
) -> tuple[FloatArray, IntArray]:
    """Start times of the pending jobs under one candidate; see `forecast_many`.

    Returns:
        (n,) seconds from now, infinite where the job never starts; (n,) cluster index, -1 where none.
    """
    late = None if ready_s is None else ready_s[None, :]
    starts, where = forecast_many(devices, releases, waiting, masks[None, :], caps=caps, ready_s=late, depth=depth)
    return starts[0], where[0]


def forecast_many(
    devices: Devices,
    releases: Releases,
    waiting: Waiting,
    masks: MaskArray,
    *,
    caps: Caps | None = None,
    ready_s: FloatArray | None = None,
    depth: int = 200,
) -> tuple[FloatArray, IntArray]:
    """Start times of the pending jobs under each of p candidates.

    Args:
        devices: the nodes.
        releases: what running jobs give back.
        waiting: n pending jobs in priority order, which is the same everywhere.
        masks: (p, n) uint64; bit c set where cluster c may start the job.
        caps: limits on what runs at one time; None: there are none.
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
    speed = np.ones(devices.gpus.size) if devices.speed is None else devices.speed
    met = _NO_CAPS if caps is None else caps
    first = np.searchsorted(devices.cluster, np.arange(devices.clusters + 1)).astype(np.int64)
    starts, where = np.full(shape, np.inf), np.full(shape, -1, np.int64)
    # Every job and node at the same time, at worst.
    parts = np.minimum(np.maximum(np.maximum(waiting.gpus, waiting.nodes), 1), max(devices.gpus.size, 1))
    room = releases.node.size + int(parts.sum())
    run(
        first, devices.kind, devices.gpus, devices.free_gpus, devices.free_cpus, speed,
        releases.node, releases.gpus, releases.cpus, releases.end_s, releases.limit_s,
        _or(releases.holder, releases.node, -1), _or(releases.size, releases.node, 0),
        waiting.gpus, waiting.kind, waiting.nodes, waiting.cpus, waiting.runtime_s, waiting.limit_s,
        _or(waiting.holder, waiting.gpus, -1), met.left, met.by_gpus, met.of, met.times,
        np.ascontiguousarray(masks), ready, depth, room, starts, where,
    )  # fmt: skip
    return starts, where


_NO_CAPS = Caps(
    left=np.zeros(0, np.int64),
    by_gpus=np.zeros(0, np.bool_),
    of=np.zeros((0, 0, 0), np.int64),
    times=np.zeros((0, 0, 0), np.int64),
)


def _or(column: IntArray | None, like: IntArray, otherwise: int) -> IntArray:
    """The column, or one that says nothing."""
    return np.full(like.size, otherwise, np.int64) if column is None else column
