"""A few futures of one queue: nobody knows how long jobs will run, nor which will come."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurm_evo.optimize.queue import Coming, Queue
from slurm_evo.sim.forecast import FloatArray, IntArray, MaskArray, Releases, Waiting

MEDIAN_SHARE, SPREAD = 0.3, 1.0
"""Of a limit that a job runs, where no more is known: log-normal, as limits far above running times are in
public GPU traces."""
ERROR = 0.8
"""Of a predicted running time: sigma of its logarithm."""
LONG_S = 3600.0
"""Jobs that long are a kind of their own: what they take is gone for long."""
SHUT = 0.5
"""A job that comes is kept from a cluster from which more than this share of its like is kept."""


@dataclass(frozen=True, slots=True)
class Future:
    """How long everything that runs, waits and comes will run."""

    releases: Releases
    waiting: Waiting
    """m jobs: the n pending ones and those that come, in the order in which they run."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The futures all candidates of a queue meet."""

    futures: tuple[Future, ...]
    """The expected one first."""
    pending: IntArray
    """(n,) where the pending jobs stand among the m."""
    coming: IntArray
    """(a,) where those that come stand."""
    at_s: FloatArray
    """(m,) seconds from now at which each is there."""
    weight: FloatArray
    """(m,)"""
    kind_of_pending: IntArray
    """(n,) which of the kinds (may run on the same clusters; long or short) each is of; -1: none such comes."""
    kind_of_coming: IntArray
    """(a,)"""
    kind_sizes: IntArray
    """Pending jobs of each kind."""


def sample(queue: Queue, count: int, rng: np.random.Generator) -> Sample:
    """The expected future and ``count`` others drawn at random."""
    n = len(queue.keys)
    waiting, pending, coming = queue.waiting, np.arange(n), np.zeros(0, np.int64)
    at_s, weight = np.zeros(n), queue.weight
    if queue.coming is not None and queue.coming.at_s.size:
        extra = queue.coming
        pending = np.arange(n) + np.searchsorted(extra.before, np.arange(n), side="right")
        coming = np.setdiff1d(np.arange(n + extra.at_s.size), pending)
        waiting = _merged(queue.waiting, extra, pending, coming)
        at_s, weight = np.zeros(coming.size + n), np.empty(coming.size + n)
        at_s[coming], weight[coming], weight[pending] = extra.at_s, extra.weight, queue.weight
    found = [Future(queue.releases, waiting)]
    for _ in range(count):
        ends, limits = queue.releases.end_s, queue.releases.limit_s
        # The parts of one job on several nodes end together: they share a limit, and so a draw.
        _, first, part = np.unique(limits, return_index=True, return_inverse=True)
        drawn = _drawn(rng, ends[first], limits[first])[part] if limits.size else ends
        runtime = np.maximum(_drawn(rng, waiting.runtime_s, waiting.limit_s), np.minimum(1.0, waiting.limit_s))
        found.append(Future(replace(queue.releases, end_s=drawn), replace(waiting, runtime_s=runtime)))
    allowed = np.zeros(0, np.uint64) if queue.coming is None else queue.coming.allowed
    # Long jobs and short ones that may run on the same clusters are two kinds.
    bits, kind_of_coming = np.unique(allowed, return_inverse=True)
    place = np.searchsorted(bits, queue.allowed)
    known = np.flatnonzero(queue.movable & (place < bits.size))
    known = known[bits[place[known]] == queue.allowed[known]]
    kind_of_pending = np.full(n, -1)
    kind_of_pending[known] = 2 * place[known] + (queue.waiting.runtime_s[known] >= LONG_S)
    kind_of_coming = 2 * kind_of_coming.reshape(-1) + (waiting.runtime_s[coming] >= LONG_S)
    sizes = np.bincount(kind_of_pending[known], minlength=2 * bits.size)
    return Sample(tuple(found), pending, coming, at_s, weight, kind_of_pending, kind_of_coming, sizes)


def _merged(waiting: Waiting, extra: Coming, pending: IntArray, coming: IntArray) -> Waiting:
    columns = {}
    for name in ("gpus", "kind", "nodes", "cpus", "runtime_s", "limit_s", "holder"):
        here, there = getattr(waiting, name), getattr(extra.waiting, name)
        if here is None or there is None:
            continue
        column = np.empty(pending.size + coming.size, here.dtype)
        column[pending], column[coming] = here, there
        columns[name] = column
    return Waiting(**columns)


def _drawn(rng: np.random.Generator, expected: FloatArray, limit: FloatArray) -> FloatArray:
    """Times around a prediction; where that is only the limit, a share of it."""
    normal = rng.normal(0.0, 1.0, expected.size)
    share = limit * MEDIAN_SHARE * np.exp(SPREAD * normal)
    told = np.where(expected < limit, expected * np.exp(ERROR * normal), share)
    return np.minimum(told, limit)


def masks_of_coming(queue: Queue, told: Sample, masks: MaskArray) -> MaskArray:
    """(p, a) where jobs that come may run under each candidate: where those like them may, that wait now."""
    from slurm_evo.optimize.coming_kernel import shut_clusters

    assert queue.coming is not None  # noqa: S101 - asked only then
    shut = shut_clusters(masks, told.kind_of_pending, told.kind_sizes, len(queue.clusters), SHUT)
    shut = shut[:, told.kind_of_coming]
    open_left: MaskArray = queue.coming.allowed & ~shut
    # With nowhere left it is as if nobody had spoken of it.
    return np.where(open_left == 0, queue.coming.allowed, open_left)
