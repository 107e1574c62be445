"""What a search may choose from: for each movable job a short list of viable sets worth trying."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from slurm_evo.optimize.queue import Queue
from slurm_evo.sim.forecast import FloatArray, MaskArray

Genomes = NDArray[np.int16]
"""(p, m): for each candidate and movable job a place in its list."""


@dataclass(frozen=True, slots=True)
class Choices:
    """For m movable jobs the viable sets worth trying; the first of each is the one it has."""

    jobs: NDArray[np.int64]
    """(m,) rows of the queue."""
    masks: MaskArray
    """(m, k) uint64; unused places repeat the first."""
    counts: NDArray[np.int64]
    """(m,) how many of the k are used."""

    def decode(self, queue: Queue, genomes: Genomes) -> MaskArray:
        """(p, n) masks of the whole queue."""
        masks = np.repeat(queue.viable[None, :], len(genomes), axis=0)
        masks[:, self.jobs] = self.masks[np.arange(self.jobs.size), genomes]
        return masks

    def nearest(self, masks: MaskArray) -> NDArray[np.int16]:
        """(m,) the place of each job's mask in its list; 0, what it has, where it is not in the list."""
        hit = self.masks == masks[:, None]
        return np.where(hit.any(axis=1), hit.argmax(axis=1), 0).astype(np.int16)

    @property
    def combinations(self) -> float:
        """About how many candidates there are, at most 1e308."""
        return float(np.exp2(min(np.log2(self.counts).sum(), 1023.0)))

    def every(self) -> Genomes:
        """All of them; for few."""
        lists = [np.arange(count) for count in self.counts]
        return np.stack(np.meshgrid(*lists, indexing="ij"), axis=-1).reshape(-1, self.jobs.size).astype(np.int16)


def choices(queue: Queue) -> Choices:
    """The lists of the jobs that have more than one choice."""
    clusters = len(queue.clusters)
    lists: list[tuple[int, ...]] = []
    rows = []
    for row in np.flatnonzero(queue.movable):
        has, may = int(queue.viable[row]), int(queue.allowed[row])
        worth = _one_place(clusters, has, may) if queue.single[row] else _worth_trying(clusters, has, may)
        if len(worth) > 1:
            rows.append(row)
            lists.append(worth)
    width = max((len(some) for some in lists), default=1)
    masks = np.array([some + (some[0],) * (width - len(some)) for some in lists], np.uint64).reshape(-1, width)
    return Choices(np.array(rows, np.int64), masks, np.array([len(some) for some in lists], np.int64))


@cache
def _one_place(clusters: int, has: int, may: int) -> tuple[int, ...]:
    """What it has, and each single cluster."""
    return tuple(dict.fromkeys([has, *(1 << bit for bit in range(clusters) if may >> bit & 1)]))


@cache
def _worth_trying(clusters: int, has: int, may: int) -> tuple[int, ...]:
    """What it has, everything allowed, one more, one less, only one, all but one; never an empty set."""
    singles = [1 << bit for bit in range(clusters) if may >> bit & 1]
    wanted = [has, may]
    wanted += [has | single for single in singles]
    wanted += [has & ~single for single in singles]
    wanted += singles
    wanted += [may & ~single for single in singles]
    return tuple(dict.fromkeys(mask for mask in wanted if mask))


def urgency(weighted_s: FloatArray) -> FloatArray:
    """Where changes are tried first: (m,) cumulative chances by how long a job would wait, all of them some."""
    share = weighted_s / weighted_s.sum() if weighted_s.sum() > 0 else np.zeros(weighted_s.size)
    chance: FloatArray = np.cumsum(0.75 * share + 0.25 / max(weighted_s.size, 1))
    chance /= chance[-1]
    return chance
