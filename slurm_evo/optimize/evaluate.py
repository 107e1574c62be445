"""Scores of candidates: the objectives over their forecasts, many candidates at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slurm_evo.model import Scores
from slurm_evo.optimize.queue import Queue
from slurm_evo.sim.forecast import FloatArray, IntArray, MaskArray, forecast_many

LEAST_HORIZON_S = 3600.0
AVERAGE, MAXIMUM, IDLE, MOVES = range(4)
"""Columns of `Judged.values`; less is better in each."""
CHUNK_ROWS = 20_000
"""Jobs times candidates forecast in one call, so that a search looks at its clock several times a second."""


@dataclass(frozen=True, slots=True)
class Judged:
    """p candidates with their forecasts."""

    masks: MaskArray
    """(p, n) uint64."""
    starts_s: FloatArray
    """(p, n) seconds from now; infinite where the job does not start."""
    where: IntArray
    """(p, n) index of the cluster, -1 where none."""
    values: FloatArray
    """(p, 4): average and maximum weighted wait [s], 1 - utilization, jobs changed."""

    def __len__(self) -> int:
        return len(self.values)

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

    def scores(self, row: int = 0) -> Scores:
        """One candidate's objectives by name."""
        average, maximum, idle, moves = self.values[row].tolist()
        return Scores(average, maximum, 1.0 - idle, int(moves))

    @property
    def moves(self) -> int:
        """How many jobs the first candidate changes."""
        return int(self.values[0, MOVES])


@dataclass(slots=True)
class Judge:
    """Evaluates candidates of one queue.

    The horizon for utilization, and the wait of a job that never starts, are taken from «change nothing», so
    that all candidates are measured alike.
    """

    queue: Queue
    depth: int = 200
    evaluations: int = 0
    nothing: Judged = field(init=False)
    horizon_s: float = field(init=False, default=LEAST_HORIZON_S)

    def __post_init__(self) -> None:
        masks = self.queue.viable[None, :]
        starts, where = self._forecast(masks)
        started = starts[np.isfinite(starts)]
        if started.size:
            self.horizon_s = max(float(np.quantile(started, 0.9)), LEAST_HORIZON_S)
        self.nothing = Judged(masks, starts, where, self._values(masks, starts, where))

    def __call__(self, masks: MaskArray) -> Judged:
        """Judge candidates: (p, n) masks, or (n,) for one."""
        masks = np.atleast_2d(masks)
        starts, where = self._forecast(masks)
        return Judged(masks, starts, where, self._values(masks, starts, where))

    @property
    def chunk(self) -> int:
        """How many candidates to judge in one call where time is short."""
        return max(1, CHUNK_ROWS // max(1, len(self.queue.keys)))

    def _forecast(self, masks: MaskArray) -> tuple[FloatArray, IntArray]:
        self.evaluations += len(masks)
        queue = self.queue
        return forecast_many(queue.devices, queue.releases, queue.waiting, masks, depth=self.depth)

    def _values(self, masks: MaskArray, starts: FloatArray, where: IntArray) -> FloatArray:
        queue = self.queue
        values = np.zeros((len(masks), 4))
        values[:, IDLE] = 1.0 - self._busy_share(starts, where)
        if not queue.weight.size:
            return values
        never = 2 * self.horizon_s + float(queue.waiting.limit_s.max())
        weighted = queue.weight * (queue.waited_s + np.where(np.isfinite(starts), starts, never))
        values[:, AVERAGE] = weighted.sum(axis=1) / queue.weight.sum()
        values[:, MAXIMUM] = weighted.max(axis=1) / queue.weight.mean()
        values[:, MOVES] = (masks != queue.viable).sum(axis=1)
        return values

    def _busy_share(self, starts: FloatArray, where: IntArray) -> FloatArray:
        """GPU-seconds used over GPU-seconds there are, from now to the horizon; (p,)."""
        queue, horizon = self.queue, self.horizon_s
        there = float(queue.devices.gpus.sum()) * horizon
        if not there:
            return np.zeros(len(starts))
        running = float((np.minimum(queue.releases.end_s, horizon) * queue.releases.gpus).sum())
        begun = np.minimum(starts, horizon)
        ended = np.minimum(begun + queue.waiting.runtime_s, horizon)
        used = ((ended - begun) * (where >= 0)) @ queue.waiting.gpus.astype(np.float64)
        return (running + used) / there


def gains(values: FloatArray, nothing: FloatArray, objectives: Mapping[str, float]) -> FloatArray:
    """How much better than «change nothing», as a share: 0.1 is ten percent; negative is worse.

    The weighted mean of the relative improvements of average_wait, maximum_wait and utilization.

    Args:
        values: (p, 4) of candidates.
        nothing: (4,) of «change nothing».
        objectives: weights by name; all zero: nothing is a gain.

    Returns:
        (p,)
    """
    total = sum(objectives.values())
    if not total:
        return np.zeros(len(values))
    found = np.zeros(len(values))
    for name, column in (("average_wait", AVERAGE), ("maximum_wait", MAXIMUM)):
        if nothing[column] > 0:
            found += objectives.get(name, 0.0) * (1.0 - values[:, column] / nothing[column])
    busy = 1.0 - nothing[IDLE]
    if busy > 0:
        found += objectives.get("utilization", 0.0) * ((1.0 - values[:, IDLE]) / busy - 1.0)
    return found / total
