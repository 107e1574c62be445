"""Running times, learned from the jobs that the daemon sees end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from slurm_evo.model import ConfigError, FleetView, Job, JobKey, JobState
from slurm_evo.predict import Asked, Predictor
from slurm_evo_daemon.arrivals import Arrivals
from slurm_evo_daemon.speeds import NodeSpeeds, node_speeds, speed_of

STEP = 1.15
"""Expectations are rounded to powers of it: one job that ends must not shift the ranks of all that are like it."""
FILE = "running-times.json"
"""In the state directory."""
NO_SPEEDS: Mapping[str, float] = MappingProxyType({})


@dataclass(slots=True)
class RunningTimes:
    """What is expected of jobs, and the jobs being watched until they end."""

    predictor: Predictor = field(default_factory=Predictor)
    arrivals: Arrivals = field(default_factory=Arrivals)
    """What came of late; forgotten when the daemon ends."""
    _running: dict[JobKey, Job] = field(default_factory=dict)

    def expected_s(self, job: Job) -> float:
        """Seconds it will run on GPUs of speed 1, by the median of what is like it; its limit where nothing is."""
        limit = float(max(job.limit_s, 1))
        told = self.predictor.predict(_asked(job))
        return limit if told >= limit else min(max(round(STEP ** round(math.log(told, STEP))), 1.0), limit)

    def watch(self, view: FleetView, gpu_speed: Mapping[str, float] = NO_SPEEDS) -> int:
        """Learn from every job that ran at the last look and runs no longer; how many there were.

        What it took is learned as what it would have taken at speed 1 (``gpu_speed``, by GPU type).

        A job whose end nobody told is taken to have ended now, at most one cycle late. One that waits again
        (requeued, preempted) has not ended, and one whose cluster was not seen is watched on.
        """
        self.arrivals.watch(view)
        running = {key: job.job for key, job in view.jobs.items() if job.running}
        speeds = node_speeds(view, gpu_speed)
        ended = 0
        for key, before in self._running.items():
            if key in running:
                continue
            seen = view.cluster(before.cluster)
            if seen is None:
                running[key] = before
                continue
            after = view.jobs.get(key)
            if after is not None and after.pending:
                continue
            told = next(
                (one.ended for one in seen.jobs if one.id == before.id and one.state is JobState.DONE), None
            )
            self._learn(before, min(told, view.now) if told is not None else view.now, speeds)
            ended += 1
        self._running = running
        return ended

    def _learn(self, job: Job, ended: datetime, speeds: NodeSpeeds) -> None:
        if job.started is not None and ended > job.started:
            self.predictor.learn(_asked(job), (ended - job.started).total_seconds() * speed_of(job, speeds))

    def save(self, folder: Path) -> None:
        """Keep what was learned, in a file of the daemon's own: the trained one is never written.

        Raises:
            ConfigError: the file cannot be written.
        """
        if not self.predictor.learned:
            return
        try:
            self.predictor.save(folder / FILE)
        except OSError as failure:
            raise ConfigError(f"{folder / FILE}: running times cannot be written: {failure.strerror}") from failure

    @classmethod
    def load(cls, folder: Path, trained: Path | None = None) -> RunningTimes:
        """What was kept, or a trained predictor that is newer; nothing where there is neither.

        Raises:
            ConfigError: the file is damaged.
        """
        files = [
            file for file in (folder / FILE, trained) if file is not None and (file == trained or file.exists())
        ]
        try:
            newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
        except OSError as failure:
            raise ConfigError(f"policy.predictor: {trained} cannot be read: {failure.strerror}") from failure
        return cls() if newest is None else cls(Predictor.load(newest))


def _asked(job: Job) -> Asked:
    return Asked(user=job.user, name=job.name, limit_s=job.limit_s, gpus=job.gpus, cpus=job.cpus)


__all__ = ["FILE", "RunningTimes"]
