"""One change asked of Slurm, and what Slurm answered.

Actions are idempotent: applied twice they equal applied once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from slurm_evo.model.job import ClusterName, JobKey


@dataclass(frozen=True, slots=True)
class SetClusters:
    """Change a federated job's viable set (job update with ``Clusters=``), at its origin."""

    job: JobKey
    clusters: tuple[ClusterName, ...]
    """The whole new viable set, sorted, never empty."""

    @property
    def kind(self) -> str:
        """Its name in the journal."""
        return "set_clusters"


@dataclass(frozen=True, slots=True)
class SetSiteFactor:
    """Change a pending job's SiteFactor (scontrol(1) ``SiteFactor=``), at its origin."""

    job: JobKey
    value: int
    """As the administrator would write it; ports add Slurm's own offset."""

    @property
    def kind(self) -> str:
        """Its name in the journal."""
        return "set_site_factor"


@dataclass(frozen=True, slots=True)
class Unpin:
    """Bring a job out of direct-priority mode: Priority=INFINITE with Nice and SiteFactor restored.

    Sending INFINITE releases a held job, so a port reads the job again immediately before and
    answers REFUSED if it is held by then.
    """

    job: JobKey
    nice: int
    site_factor: int

    @property
    def kind(self) -> str:
        """Its name in the journal."""
        return "unpin"


Action = SetClusters | SetSiteFactor | Unpin


class Answer(StrEnum):
    """How Slurm took an action."""

    DONE = "done"
    GONE = "gone"
    """The job does not wait: it started, ended or was cancelled, or a cluster is just trying to start it, of which
    Slurm says the same. Nothing was changed; the next look tells whether it waits."""
    REFUSED = "refused"
    """Slurm said no: not repeated unless the view changes."""
    UNKNOWN = "unknown"
    """No answer, or an unreadable one: it may or may not have happened; the next look tells."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one action."""

    action: Action
    answer: Answer
    message: str = ""
    """Slurm's own words, or ours where Slurm said nothing."""
