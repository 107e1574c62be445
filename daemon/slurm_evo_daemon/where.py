"""Where a job went over its moves: by the journal, or by the marks in accounting where that cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, ConfigError, JobKey, StoreError
from slurm_evo.slurm.transfer.marks import Comments, Unanswered, comments_in_accounting, moves_by_marks
from slurm_evo.store import Journal, TransferRecord
from slurm_evo_daemon.site import open_journal


@dataclass(frozen=True, slots=True)
class Leg:
    """One move of the job."""

    job: JobKey
    to: ClusterName
    copy: int | None
    phase: str = "done"
    closed: bool = True
    began: str | None = None
    """None, as the next one and why, where only a mark tells of it."""
    since: str | None = None
    why: str = ""

    @property
    def sentence(self) -> str:
        """For a person."""
        at = f"{self.since[:19].replace('T', ' ')} UTC: " if self.since else ""
        why = f" ({self.why})" if self.why else ""
        if self.phase == "done":
            return f"{at}{self.job} went to {self.to}:{self.copy}{why}."
        if self.closed:
            return f"{at}{self.job} stayed; it was not moved to {self.to}: {self.why}."
        return f"{at}{self.job} is on its way to {self.to} ({self.phase})."

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "job": str(self.job),
            "to": str(self.to),
            "copy": self.copy,
            "phase": self.phase,
            "began": self.began,
            "since": self.since,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """All that is known of a job's moves."""

    legs: tuple[Leg, ...]
    """Oldest first."""
    unasked: str = ""
    """Why accounting could not be asked, where that would have told more."""

    @property
    def now(self) -> JobKey | None:
        """Its name after the last completed move; None if none is known."""
        done = [leg for leg in self.legs if leg.phase == "done"]
        return JobKey(done[-1].to, done[-1].copy or done[-1].job.id) if done else None


def whereabouts(settings: Settings, keys: Sequence[JobKey], *, comment: Comments | None = None) -> Whereabouts:
    """Follow a job that is named by one of these keys.

    Args:
        settings: the configuration.
        keys: one, or for a number alone one for each cluster.
        comment: another way to ask for a job's AdminComment.

    Raises:
        ConfigError: several jobs that were moved have this number.
        StoreError: neither the journal nor accounting can be asked.
    """
    unread: StoreError | None = None
    try:
        with open_journal(settings) as journal:
            found = _only(keys, lambda key: tuple(map(leg_of, moves_of(journal, key))))
        if found or settings.simulated:
            return Whereabouts(found)
    except StoreError as failure:
        if settings.simulated:
            raise
        unread = failure
    ask = comment or _accounting(settings)
    try:
        return Whereabouts(_only(keys, lambda key: _marked(key, ask)))
    except Unanswered as failure:
        if unread is not None:
            raise StoreError(f"{unread}; nor does accounting tell where it went: {failure}") from failure
        return Whereabouts((), unasked=str(failure))


def moves_of(journal: Journal, job: JobKey) -> list[TransferRecord]:
    """All moves of a job, also those before and after the name it is asked by; oldest first."""
    found: dict[int, TransferRecord] = {}
    keys, known = [job], {job}
    while keys:
        for move in journal.transfers_of(keys.pop()):
            found[move.id] = move
            ends = {move.job} | ({JobKey(move.to, move.copy)} if move.copy is not None else set())
            keys += ends - known
            known |= ends
    return [found[number] for number in sorted(found)]


def last_name(journal: Journal, job: JobKey) -> JobKey | None:
    """What a job was called after its last completed move; None if the journal tells nothing of it."""
    moves = moves_of(journal, job)
    done = [JobKey(move.to, move.copy or move.job.id) for move in moves if move.phase == "done"]
    if done:
        return done[-1]
    return job if moves or journal.history(limit=1, job=job) else None


def leg_of(move: TransferRecord) -> Leg:
    """A move of the journal."""
    return Leg(
        move.job, move.to, move.copy, move.phase, move.closed, move.began.isoformat(),
        move.phase_since.isoformat(), move.why,
    )  # fmt: skip


def _only(keys: Sequence[JobKey], legs: Callable[[JobKey], tuple[Leg, ...]]) -> tuple[Leg, ...]:
    """The moves of the one job that is meant."""
    found = {key: told for key in keys if (told := legs(key))}
    if len(set(found.values())) > 1:
        raise ConfigError(f"job {keys[0].id} is known as {' and '.join(map(str, found))}: say which")
    return next(iter(found.values()), ())


def _marked(key: JobKey, comment: Comments) -> tuple[Leg, ...]:
    return tuple(Leg(job, to.cluster, to.id) for job, to in moves_by_marks(key, comment))


def _accounting(settings: Settings) -> Comments:
    clusters = [cluster for cluster in settings.clusters if cluster.way in ("pyslurm", "command")]
    return comments_in_accounting(
        {ClusterName(cluster.name): (str(cluster.slurm_conf), cluster.commands) for cluster in clusters},
        timeout_s=max((cluster.timeout_s for cluster in clusters), default=1.0),
    )
