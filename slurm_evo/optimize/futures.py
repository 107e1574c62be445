"""A few futures of one queue: nobody knows how long jobs will run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slurm_evo.optimize.queue import Queue
from slurm_evo.sim.forecast import FloatArray, Releases, Waiting

MEDIAN_SHARE, SPREAD = 0.3, 1.0
"""Of a limit that a job runs: log-normal, as limits far above running times are in public GPU traces."""


@dataclass(frozen=True, slots=True)
class Future:
    """How long everything that runs and waits will run."""

    releases: Releases
    waiting: Waiting


def futures(queue: Queue, samples: int, rng: np.random.Generator) -> list[Future]:
    """The expected future, and others drawn at random; the same for all candidates of a queue."""
    found = [Future(queue.releases, queue.waiting)]
    for _ in range(samples):
        ends, limits = queue.releases.end_s, queue.releases.limit_s
        # The parts of one job on several nodes end together: they share a limit, and so a draw.
        _, part = np.unique(limits, return_inverse=True)
        drawn = np.minimum(limits * _shares(rng, limits.size)[part], limits) if limits.size else ends
        longest = queue.waiting.limit_s
        runtime = np.clip(longest * _shares(rng, longest.size), 1.0, longest)
        found.append(Future(replace(queue.releases, end_s=drawn), replace(queue.waiting, runtime_s=runtime)))
    return found


def _shares(rng: np.random.Generator, count: int) -> FloatArray:
    return np.exp(rng.normal(np.log(MEDIAN_SHARE), SPREAD, count))
