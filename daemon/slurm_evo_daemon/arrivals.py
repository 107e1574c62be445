"""Jobs that are expected: like those that came of late, as often as they came."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np

from slurm_evo.model import ClusterName, FleetJob, FleetView, Job, JobKey, JobState

HISTORY = timedelta(days=1)
AT_LEAST = timedelta(hours=3)
"""A shorter history says little about a rate: nobody is expected."""
FORESEES_S = 1800.0
MOST = 150


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job that may come, and when."""

    job: FleetJob
    """Pending, submitted at the instant it is foreseen from; its id is below 0."""
    clusters: frozenset[ClusterName]
    at_s: float
    """Seconds from now."""


@dataclass(slots=True)
class Arrivals:
    """The federated jobs submitted while the daemon watched, of the last day.

    Others are moved when they can start, and again when that was wrong: keeping places free for those to come
    cost more than it saved.
    """

    _first: datetime | None = None
    _seen: dict[JobKey, FleetJob] = field(default_factory=dict)

    def watch(self, view: FleetView) -> None:
        """Take in the jobs submitted since the first look; forget those of more than a day ago."""
        if self._first is None:
            self._first = view.now
        since = max(self._first, view.now - HISTORY)
        self._seen = {key: job for key, job in self._seen.items() if job.job.submitted >= since}
        for key, job in view.jobs.items():
            if key not in self._seen and job.job.federated and job.job.submitted >= since:
                self._seen[key] = job

    def drawn(self, now: datetime, rng: np.random.Generator, after: int = 0) -> tuple[Arrival, ...]:
        """A sample of the jobs that will come within half an hour, at most ``MOST``; soonest first.

        ``after`` such jobs have been drawn before: ids go on from there.
        """
        if self._first is None or not self._seen or now - self._first < AT_LEAST:
            return ()
        span_s = min(HISTORY, now - self._first).total_seconds()
        count = min(int(rng.poisson(len(self._seen) * FORESEES_S / span_s)), MOST)
        like = list(self._seen.values())
        picks = rng.integers(0, len(like), count)
        instants = np.sort(rng.uniform(0.0, FORESEES_S, count))
        return tuple(
            _arrival(like[pick], -1 - after - number, now, at_s)
            for number, (pick, at_s) in enumerate(zip(picks.tolist(), instants.tolist(), strict=True))
        )


def _arrival(like: FleetJob, number: int, now: datetime, at_s: float) -> Arrival:
    job: Job = replace(
        like.job, id=number, state=JobState.PENDING, submitted=now, started=None, eligible=None, nodelist=()
    )
    key = JobKey(like.key.cluster, number)
    return Arrival(FleetJob(key, (job,)), like.viable | like.waiting_on, at_s)


__all__ = ["Arrival", "Arrivals"]
