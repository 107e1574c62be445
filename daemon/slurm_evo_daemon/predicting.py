"""Running times the daemon expects: from a trained predictor, taught by every job that is seen to have ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, ConfigError, FleetView, Job, JobState
from slurm_evo.predict import Asked, Predictor

SAVED_EVERY = 100
"""Jobs learned between two writings of what was learned."""
REMEMBERED = 50_000
"""Ended jobs known not to be new; slurmctld lists one for MinJobAge (300 s) only."""


@dataclass(slots=True)
class Predicting:
    """A predictor in use. What it learns goes into a file of the daemon's own, never into the trained one."""

    predictor: Predictor
    learned_file: Path | None = None
    _ended: dict[tuple[ClusterName, int, datetime], None] = field(default_factory=dict)
    _unsaved: int = 0

    def expected_s(self, job: Job) -> float:
        """Seconds a pending job will run: at least 1, at most its limit."""
        return self.predictor.predict(asked(job))

    def learn_from(self, view: FleetView) -> int:
        """Learn each job that ended since; returns how many.

        Jobs that were cancelled while waiting never started and teach nothing. A job that Slurm forgets between
        two looks is missed.
        """
        records = [
            record
            for seen in view.seen
            for record in seen.jobs
            if record.state is JobState.DONE and record.started is not None and record.ended is not None
        ]
        learned = 0
        for record in sorted(records, key=lambda one: (one.ended or view.now, one.cluster, one.id)):
            assert record.started is not None  # noqa: S101 - filtered above
            assert record.ended is not None  # noqa: S101 - filtered above
            name = (record.cluster, record.id, record.ended)
            if name in self._ended or record.ended <= record.started:
                continue
            self._ended[name] = None
            self.predictor.learn(asked(record), (record.ended - record.started).total_seconds())
            learned += 1
        while len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]
        self._unsaved += learned
        if self._unsaved >= SAVED_EVERY and self.learned_file is not None:
            self.predictor.save(self.learned_file)
            self._unsaved = 0
        return learned


def asked(job: Job) -> Asked:
    """What a predictor knows of a job."""
    return Asked(user=job.user, name=job.name, limit_s=job.limit_s, gpus=job.gpus, cpus=job.cpus)


def predicting_of(settings: Settings) -> Predicting | None:
    """The configured predictor, with what the daemon learned since if that is newer; None if there is none.

    Raises:
        ConfigError: the configured file cannot be read; names it.
    """
    trained = settings.policy.predictor
    if trained is None:
        return None
    learned = settings.state_dir / "predictor.json"
    predictor = Predictor.load(trained)
    try:
        if learned.stat().st_mtime > trained.stat().st_mtime:
            predictor = Predictor.load(learned)
    except (OSError, ConfigError):
        # What was learned is lost or damaged: the trained one is whole, and it learns again.
        pass
    return Predicting(predictor, learned)


__all__ = ["Predicting", "asked", "predicting_of"]
