"""A candidate's scores: the objectives over one forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from slurm_evo.model import Scores
from slurm_evo.optimize.queue import Queue
from slurm_evo.sim.forecast import FloatArray, IntArray, MaskArray, forecast

LEAST_HORIZON_S = 3600.0


@dataclass(frozen=True, slots=True)
class Judged:
    """One candidate with its forecast."""

    masks: MaskArray
    starts_s: FloatArray
    """Seconds from now; infinite where the job does not start."""
    where: IntArray
    scores: Scores


@dataclass(slots=True)
class Judge:
    """Evaluates candidates of one queue; equal candidates once.

    The horizon for utilization, and the wait of a job that never starts, are taken from «change nothing», so
    that all candidates are measured alike.
    """

    queue: Queue
    depth: int = 200
    evaluations: int = 0
    nothing: Judged = field(init=False)
    horizon_s: float = field(init=False, default=LEAST_HORIZON_S)
    _known: dict[bytes, Judged] = field(default_factory=dict)

    def __post_init__(self) -> None:
        starts, _ = self._forecast(self.queue.viable)
        started = starts[np.isfinite(starts)]
        if started.size:
            self.horizon_s = max(float(np.quantile(started, 0.9)), LEAST_HORIZON_S)
        self.nothing = self(self.queue.viable)

    def __call__(self, masks: MaskArray) -> Judged:
        """Judge a candidate."""
        key = masks.tobytes()
        if key not in self._known:
            starts, where = self._forecast(masks)
            self._known[key] = Judged(masks, starts, where, self._scores(masks, starts, where))
        return self._known[key]

    def _forecast(self, masks: MaskArray) -> tuple[FloatArray, IntArray]:
        self.evaluations += 1
        queue = self.queue
        return forecast(queue.devices, queue.releases, queue.waiting, masks, depth=self.depth)

    def _scores(self, masks: MaskArray, starts: FloatArray, where: IntArray) -> Scores:
        queue = self.queue
        if not starts.size:
            return Scores(0.0, 0.0, self._busy_share(starts, where))
        never = 2 * self.horizon_s + float(queue.waiting.limit_s.max())
        wait = queue.waited_s + np.where(np.isfinite(starts), starts, never)
        weighted = queue.weight * wait
        return Scores(
            average_wait_s=float(weighted.sum() / queue.weight.sum()),
            maximum_wait_s=float(weighted.max() / queue.weight.mean()),
            utilization=self._busy_share(starts, where),
            moves=int((masks != queue.viable).sum()),
        )

    def _busy_share(self, starts: FloatArray, where: IntArray) -> float:
        """GPU-seconds used over GPU-seconds there are, from now to the horizon."""
        queue, horizon = self.queue, self.horizon_s
        running = np.minimum(queue.releases.end_s, horizon) * queue.releases.gpus
        begun = np.minimum(starts, horizon)
        ended = np.minimum(np.where(np.isfinite(starts), starts + queue.waiting.runtime_s, horizon), horizon)
        there = float(queue.devices.gpus.sum()) * horizon
        used = float(running.sum() + ((ended - begun) * queue.waiting.gpus)[where >= 0].sum())
        return used / there if there else 0.0


def gain(candidate: Scores, nothing: Scores, objectives: Mapping[str, float]) -> float:
    """How much better than «change nothing», as a share: 0.1 is ten percent; negative is worse.

    The weighted mean of the relative improvements of average_wait, maximum_wait and utilization.
    """
    total = sum(objectives.values())
    if not total:
        return 0.0

    def less(after: float, before: float) -> float:
        return (before - after) / before if before > 0 else 0.0

    parts = {
        "average_wait": less(candidate.average_wait_s, nothing.average_wait_s),
        "maximum_wait": less(candidate.maximum_wait_s, nothing.maximum_wait_s),
        "utilization": -less(candidate.utilization, nothing.utilization),
    }
    return sum(objectives[name] * value for name, value in parts.items()) / total
