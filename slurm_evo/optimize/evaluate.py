"""Scores of candidates: the objectives over their forecasts, many candidates at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slurm_evo.model import Scores
from slurm_evo.optimize.futures import Future, Sample, masks_of_coming, sample
from slurm_evo.optimize.queue import Queue
from slurm_evo.sim.forecast import FloatArray, IntArray, MaskArray, forecast_many

LEAST_HORIZON_S = 3600.0
AVERAGE, MAXIMUM, IDLE, MOVES = range(4)
"""Columns of `Judged.values`; less is better in each."""
CHUNK_ROWS = 6_000
"""Jobs times candidates judged in one call, so that a search looks at its clock several times a second."""


@dataclass(frozen=True, slots=True)
class Judged:
    """p candidates with their forecasts in f futures."""

    masks: MaskArray
    """(p, n) uint64."""
    starts_s: FloatArray
    """(p, f, n) seconds from now, the expected future first; infinite where the job does not start."""
    where: IntArray
    """(p, n) index of the cluster in the expected future, -1 where none."""
    values: FloatArray
    """(p, f, 4): average and maximum weighted wait [s], 1 - utilization, jobs changed."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def means(self) -> FloatArray:
        """(p, 4) values, each the mean over the futures."""
        means: FloatArray = self.values.mean(axis=1)
        return means

    @property
    def moves(self) -> IntArray:
        """(p,) how many jobs change."""
        return self.values[:, 0, MOVES].astype(np.int64)

    def only(self, rows: slice | NDArray[np.int64]) -> Judged:
        """Some of them: indices or a slice."""
        return Judged(self.masks[rows], self.starts_s[rows], self.where[rows], self.values[rows])

    def one(self, row: int) -> Judged:
        """One of them, still as a batch."""
        return self.only(slice(row, row + 1))

    def and_also(self, other: Judged) -> Judged:
        """These and those."""
        return Judged(
            np.concatenate((self.masks, other.masks)),
            np.concatenate((self.starts_s, other.starts_s)),
            np.concatenate((self.where, other.where)),
            np.concatenate((self.values, other.values)),
        )

    @property
    def scores(self) -> list[Scores]:
        """The means by name."""
        return [
            Scores(average, maximum, 1.0 - idle, round(moves))
            for average, maximum, idle, moves in self.means.tolist()
        ]


@dataclass(slots=True)
class Judge:
    """Evaluates candidates of one queue.

    Jobs rarely run to their limits, and nobody knows how long they will: a plan that is good only if all do
    is no good plan. So each candidate meets the same few futures: one in which every running time is as
    expected, and others in which each is a random share of the limit.

    The horizon for utilization, and the wait of a job that never starts, are taken from «change nothing», so
    that all candidates are measured alike.
    """

    queue: Queue
    depth: int = 200
    samples: int = 2
    """Futures besides the expected one."""
    seed: int = 0
    evaluations: int = 0
    """Candidates judged so far."""
    nothing: Judged = field(init=False)
    horizon_s: float = field(init=False, default=LEAST_HORIZON_S)
    _sample: Sample = field(init=False)

    def __post_init__(self) -> None:
        self._sample = sample(self.queue, self.samples, np.random.default_rng(self.seed))
        masks = self.queue.viable[None, :]
        starts, _ = self._forecast(masks, self._sample.futures[0])
        started = starts[np.isfinite(starts)]
        if started.size:
            self.horizon_s = max(float(np.quantile(started, 0.9)), LEAST_HORIZON_S)
        self.nothing = self(masks)

    def __call__(self, masks: MaskArray) -> Judged:
        """Judge p candidates: (p, n) masks, or (n,) for one."""
        masks = np.atleast_2d(masks)
        self.evaluations += len(masks)
        told = [self._forecast(masks, future) for future in self._sample.futures]
        values = [
            self._values(starts, where >= 0, future)
            for (starts, where), future in zip(told, self._sample.futures, strict=True)
        ]
        stacked = np.stack(values, axis=1)
        stacked[..., MOVES] = (masks != self.queue.viable).sum(axis=1)[:, None]
        pending = self._sample.pending
        every = np.stack([starts[:, pending] for starts, _ in told], axis=1)
        return Judged(masks, every, told[0][1][:, pending], stacked)

    def look(self, masks: MaskArray) -> tuple[FloatArray, IntArray]:
        """(n,) starts and clusters in the expected future, of sets that need not be a candidate."""
        starts, where = self._forecast(masks[None, :], self._sample.futures[0])
        return starts[0, self._sample.pending], where[0, self._sample.pending]

    @property
    def ideal(self) -> FloatArray:
        """(1, f, 4): as if every job started now; no candidate can be better in any objective."""
        starts = self._sample.at_s[None, :]
        runs = np.ones(starts.shape, np.bool_)
        return np.stack([self._values(starts, runs, future) for future in self._sample.futures], axis=1)

    @property
    def chunk(self) -> int:
        """How many candidates to judge in one call where time is short."""
        return max(1, CHUNK_ROWS // max(1, len(self.queue.keys)))

    def _forecast(self, masks: MaskArray, future: Future) -> tuple[FloatArray, IntArray]:
        queue, told = self.queue, self._sample
        # A job without federation is submitted anew at its new cluster.
        ready = np.where(queue.single & ((masks & ~queue.viable) != 0), queue.move_s, 0.0)
        starting = masks if queue.closed is None else masks & ~queue.closed
        if told.coming.size:
            shape = (len(masks), told.at_s.size)
            wide, late = np.empty(shape, np.uint64), np.empty(shape)
            wide[:, told.pending], wide[:, told.coming] = starting, masks_of_coming(queue, told, masks)
            late[:, told.pending], late[:, told.coming] = ready, told.at_s[told.coming]
            starting, ready = wide, late
        return forecast_many(
            queue.devices,
            future.releases,
            future.waiting,
            starting,
            caps=queue.caps,
            ready_s=ready,
            depth=self.depth,
        )

    def _values(self, starts: FloatArray, runs: NDArray[np.bool_], future: Future) -> FloatArray:
        """(p, 4), without the moves."""
        queue = self.queue
        values = np.zeros((len(starts), 4))
        values[:, IDLE] = 1.0 - self._busy_share(starts, runs, future)
        if not queue.weight.size:
            return values
        never = 2 * self.horizon_s + float(queue.waiting.limit_s.max())
        wait = np.where(runs, starts, never) - self._sample.at_s
        wait[:, self._sample.pending] += queue.waited_s
        weight = self._sample.weight
        weighted = weight * wait
        values[:, AVERAGE] = weighted.sum(axis=1) / weight.sum()
        values[:, MAXIMUM] = weighted.max(axis=1) / weight.mean()
        return values

    def _busy_share(self, starts: FloatArray, runs: NDArray[np.bool_], future: Future) -> FloatArray:
        """GPU-seconds used over GPU-seconds there are, from now to the horizon, at most all; (p,)."""
        horizon = self.horizon_s
        there = float(self.queue.devices.gpus.sum()) * horizon
        if not there:
            return np.zeros(len(starts))
        running = float((np.minimum(future.releases.end_s, horizon) * future.releases.gpus).sum())
        begun = np.minimum(starts, horizon)
        ended = np.minimum(begun + future.waiting.runtime_s, horizon)
        used = ((ended - begun) * runs) @ future.waiting.gpus.astype(np.float64)
        share: FloatArray = np.minimum((running + used) / there, 1.0)
        return share


def gains(values: FloatArray, nothing: FloatArray, objectives: Mapping[str, float]) -> FloatArray:
    """How much better than «change nothing», as a share: 0.1 is ten percent; negative is worse.

    In each future the weighted mean of the relative improvements of average_wait, maximum_wait and
    utilization. Over the futures the mean; of the worst loss in any of them, half is taken off again.

    Args:
        values: (p, f, 4) of candidates.
        nothing: (f, 4) of «change nothing».
        objectives: weights by name; all zero: nothing is a gain.

    Returns:
        (p,)
    """
    found = np.zeros(values.shape[:2])
    total = sum(objectives.values())
    if not total:
        return np.zeros(len(values))
    for name, column in (("average_wait", AVERAGE), ("maximum_wait", MAXIMUM)):
        before = nothing[:, column]
        less = np.divide(before - values[..., column], before, out=np.zeros(found.shape), where=before > 0)
        found += objectives.get(name, 0.0) * less
    busy = 1.0 - nothing[:, IDLE]
    more = np.divide(nothing[:, IDLE] - values[..., IDLE], busy, out=np.zeros(found.shape), where=busy > 0)
    found += objectives.get("utilization", 0.0) * more
    overall: FloatArray = (found.mean(axis=1) + np.minimum(found.min(axis=1), 0.0) / 2) / total
    return overall
