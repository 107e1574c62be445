"""A candidate's scores: the objectives over one forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from slurm_evo.model import Scores
from slurm_evo.optimize.queue import Queue
from slurm_evo.sim.forecast import FloatArray, IntArray, MaskArray, Releases, Waiting, forecast

LEAST_HORIZON_S = 3600.0


@dataclass(frozen=True, slots=True)
class Judged:
    """One candidate with its forecasts."""

    masks: MaskArray
    starts_s: FloatArray
    """Seconds from now in the first future; infinite where the job does not start."""
    where: IntArray
    futures: tuple[Scores, ...]
    """Its scores in each future."""
    every_start_s: tuple[FloatArray, ...]
    """Its start times in each future, the first among them."""

    @property
    def scores(self) -> Scores:
        """The mean over the futures."""
        count = len(self.futures)
        return Scores(
            sum(scores.average_wait_s for scores in self.futures) / count,
            sum(scores.maximum_wait_s for scores in self.futures) / count,
            sum(scores.utilization for scores in self.futures) / count,
            self.futures[0].moves,
        )


@dataclass(slots=True)
class Judge:
    """Evaluates candidates of one queue; equal candidates once.

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
    nothing: Judged = field(init=False)
    horizon_s: float = field(init=False, default=LEAST_HORIZON_S)
    _futures: list[tuple[Releases, Waiting]] = field(init=False)
    _known: dict[bytes, Judged] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._futures = futures(self.queue, self.samples, np.random.default_rng(self.seed))
        starts, _ = self._forecast(self.queue.viable, 0)
        started = starts[np.isfinite(starts)]
        if started.size:
            self.horizon_s = max(float(np.quantile(started, 0.9)), LEAST_HORIZON_S)
        self.nothing = self(self.queue.viable)

    def __call__(self, masks: MaskArray) -> Judged:
        """Judge a candidate."""
        key = masks.tobytes()
        if key not in self._known:
            told = [self._forecast(masks, future) for future in range(len(self._futures))]
            scores = tuple(
                self._scores(masks, starts, where, future) for future, (starts, where) in enumerate(told)
            )
            self._known[key] = Judged(masks, *told[0], scores, tuple(starts for starts, _ in told))
        return self._known[key]

    def _forecast(self, masks: MaskArray, future: int) -> tuple[FloatArray, IntArray]:
        self.evaluations += 1
        releases, waiting = self._futures[future]
        return forecast(self.queue.devices, releases, waiting, masks, depth=self.depth)

    def _scores(self, masks: MaskArray, starts: FloatArray, where: IntArray, future: int) -> Scores:
        queue = self.queue
        if not starts.size:
            return Scores(0.0, 0.0, self._busy_share(starts, where, future))
        never = 2 * self.horizon_s + float(queue.waiting.limit_s.max())
        wait = queue.waited_s + np.where(np.isfinite(starts), starts, never)
        weighted = queue.weight * wait
        return Scores(
            average_wait_s=float(weighted.sum() / queue.weight.sum()),
            maximum_wait_s=float(weighted.max() / queue.weight.mean()),
            utilization=self._busy_share(starts, where, future),
            moves=int((masks != queue.viable).sum()),
        )

    def _busy_share(self, starts: FloatArray, where: IntArray, future: int) -> float:
        """GPU-seconds used over GPU-seconds there are, from now to the horizon."""
        horizon = self.horizon_s
        releases, waiting = self._futures[future]
        running = np.minimum(releases.end_s, horizon) * releases.gpus
        begun = np.minimum(starts, horizon)
        ended = np.minimum(np.where(np.isfinite(starts), starts + waiting.runtime_s, horizon), horizon)
        there = float(self.queue.devices.gpus.sum()) * horizon
        used = float(running.sum() + ((ended - begun) * waiting.gpus)[where >= 0].sum())
        return used / there if there else 0.0


MEDIAN_SHARE, SPREAD = 0.3, 1.0
"""Of a limit that a job runs: log-normal, as limits far above running times are in public GPU traces."""


def futures(queue: Queue, samples: int, rng: np.random.Generator) -> list[tuple[Releases, Waiting]]:
    """The expected future, and others drawn at random; the same for all candidates of a queue."""
    found = [(queue.releases, queue.waiting)]
    for _ in range(samples):
        ends, limits = queue.releases.end_s, queue.releases.limit_s
        share = np.exp(rng.normal(np.log(MEDIAN_SHARE), SPREAD, limits.size))
        # The parts of one job on several nodes end together: they share a limit, and so a draw.
        _, part = np.unique(limits, return_inverse=True)
        drawn = np.minimum(limits * share[part], limits) if limits.size else ends
        waiting_share = np.exp(rng.normal(np.log(MEDIAN_SHARE), SPREAD, queue.waiting.limit_s.size))
        runtime = np.clip(queue.waiting.limit_s * waiting_share, 1.0, queue.waiting.limit_s)
        found.append((replace(queue.releases, end_s=drawn), replace(queue.waiting, runtime_s=runtime)))
    return found


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
