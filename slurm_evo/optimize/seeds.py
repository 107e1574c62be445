"""Where the search begins: plans that people would try, each for a reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_evo.optimize.choices import Choices, Genomes
from slurm_evo.optimize.evaluate import Judge
from slurm_evo.optimize.futures import LONG_S
from slurm_evo.optimize.queue import Queue
from slurm_evo.sim.forecast import FloatArray, IntArray, MaskArray

CLEARLY_S, CLEARLY_SHARE = 60.0, 0.7
"""A move pays where the job starts this much earlier and in at most this share of the time: forecasts err."""
MOST_SHUT, MOST_LARGE = 8, 2


def seeds(queue: Queue, choice: Choices, judge: Judge, also: MaskArray | None = None) -> Genomes:
    """Change nothing; the race; bind late; bind at once; leave clusters to those in need; drain for a large job.

    Distinct genomes, «change nothing» first.
    """
    starts, where = judge.look(queue.allowed)
    nothing = judge.nothing.starts_s[0, 0]
    bound = bind_late(queue, nothing, starts, where)
    wide = np.where(queue.single, bound, queue.allowed)
    greedy = np.where(queue.single, bound, queue.viable | bound)
    bit = np.uint64(1) << np.maximum(where, 0).astype(np.uint64)
    plans = [queue.viable, wide, greedy, np.where(queue.movable & queue.single & (where >= 0), bit, queue.viable)]
    if also is not None:
        plans.append(also)
    for shut in _scarce(queue):
        plans += [_keep_free(queue, wide, shut), _keep_free(queue, wide, shut, LONG_S)]
    plans += _drained(queue, wide, nothing)
    return distinct([choice.nearest(masks[choice.jobs]) for masks in plans])


def distinct(genomes: Sequence[Genomes]) -> Genomes:
    """Each once, in their order."""
    stacked = np.array(genomes, np.int16)
    _, first = np.unique(stacked, axis=0, return_index=True)
    once: Genomes = stacked[np.sort(first)]
    return once


def bind_late(queue: Queue, nothing: FloatArray, starts: FloatArray, where: IntArray) -> MaskArray:
    """Each job to the cluster where the race would start it, if that is soon and clearly earlier.

    Later is early enough: until then a better place may turn up, and a move costs.

    Args:
        queue: n jobs.
        nothing: (n,) starts if nothing changes.
        starts: (n,) starts if every job waited on all clusters it may use.
        where: (n,) and the clusters that would start them.
    """
    soon = starts <= np.where(queue.single, queue.soon_s, np.inf)
    pays = (starts + CLEARLY_S < nothing) & (starts <= CLEARLY_SHARE * nothing)
    bit = np.uint64(1) << np.maximum(where, 0).astype(np.uint64)
    bound: MaskArray = np.where(queue.movable & (where >= 0) & soon & pays, bit, queue.viable)
    return bound


def _scarce(queue: Queue) -> list[int]:
    """Clusters that some jobs cannot do without and others can; those most asked for first."""
    allowed = [queue.allowed] if queue.coming is None else [queue.allowed, queue.coming.allowed]
    kinds, counts = np.unique(np.concatenate(allowed), return_counts=True)
    if kinds.size < 2:
        return []
    found: dict[int, int] = {}
    for c in range(len(queue.clusters)):
        bit = np.uint64(1 << c)
        here = (kinds & bit) != 0
        for small in np.flatnonzero(here):
            others = kinds[here & ((kinds & kinds[small]) == kinds[small]) & (kinds != kinds[small])]
            if others.size:
                found[c] = found.get(c, 0) + int(counts[small])
    return sorted(found, key=lambda c: -found[c])[:MOST_SHUT]


def _keep_free(queue: Queue, masks: MaskArray, cluster: int, longer_s: float = 0.0) -> MaskArray:
    """Those who may run elsewhere, longer than this, leave a cluster to the jobs with fewest choices."""
    bit = np.uint64(1 << cluster)
    choices = np.bitwise_count(queue.allowed)
    asks = (queue.allowed & bit) != 0
    fewest = int(choices[asks].min()) if asks.any() else 64
    if queue.coming is not None:
        theirs = np.bitwise_count(queue.coming.allowed)[(queue.coming.allowed & bit) != 0]
        fewest = min(fewest, int(theirs.min()) if theirs.size else 64)
    leave = queue.movable & ~queue.single & asks & (choices > fewest) & (queue.waiting.runtime_s >= longer_s)
    kept: MaskArray = np.where(leave, masks & ~bit, masks)
    return kept


def _drained(queue: Queue, masks: MaskArray, nothing: FloatArray) -> list[MaskArray]:
    """For the jobs that wait at most weight and are larger than a node: all others leave one of their clusters."""
    largest = queue.devices.gpus.max(initial=1)
    large = np.flatnonzero((queue.waiting.gpus >= largest) & (nothing > 0))
    cost = queue.weight[large] * (queue.waited_s[large] + np.minimum(nothing[large], 1e9))
    plans: list[MaskArray] = []
    for job in large[np.argsort(-cost, kind="stable")[:MOST_LARGE]]:
        places = [c for c in range(len(queue.clusters)) if int(queue.allowed[job]) >> c & 1]
        sizes = [int(queue.devices.gpus[queue.devices.cluster == c].sum()) for c in places]
        for _, c in sorted(zip(sizes, places, strict=True))[:MOST_LARGE]:
            bit = np.uint64(1 << c)
            leave = queue.movable & ~queue.single & ((masks & ~bit) != 0)
            leave[job] = False
            plans.append(np.where(leave, masks & ~bit, masks))
    return plans
