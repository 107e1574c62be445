"""A cluster's record of a job, the federation's word on it, and the job as its user knows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_evo.model import ClusterName, Hold, JobKey, JobState
from slurm_evo.slurm.simulated.spec import Submission

PRIORITY_MAX = 2**32 - 1
INFINITE = 0xFFFFFFFF
"""What ``scontrol release`` sends as priority (slurm.h)."""


@dataclass(slots=True)
class Federated:
    """What origin and siblings know together of one federated job."""

    origin: str
    viable: set[str]
    active: set[str] = field(default_factory=set)
    locked: str | None = None
    """The cluster that won the start."""
    undelivered: set[str] = field(default_factory=set)
    """Members whose submission waits for their controller to come up."""


@dataclass(slots=True, eq=False)
class Record:
    """One job in one slurmctld."""

    cluster: str
    id: int
    asked: Submission
    account: str
    partitions: tuple[str, ...]
    submitted: int
    nice: int
    limit_s: int
    user_job: SimulatedJob
    state: JobState = JobState.PENDING
    revoked: bool = False
    hold: Hold = Hold.NONE
    site_factor: int = 0
    pinned: int | None = None
    """The number of direct-priority mode; None while multifactor computes it."""
    reason: str = ""
    eligible: int = 0
    started: int | None = None
    ended: int | None = None
    ending: str = ""
    """COMPLETED, TIMEOUT, CANCELLED or REVOKED once it is done."""
    nodes: tuple[int, ...] = ()
    tasks: int = 0
    """Array tasks that this record still stands for; 0 for no array."""
    array_id: int | None = None
    het_id: int | None = None
    components: list[Record] = field(default_factory=list)
    """Of a heterogeneous job's leader: the others."""
    waits_for: list[tuple[str, int]] = field(default_factory=list)
    """Outstanding dependencies: kind and job id."""
    fed: Federated | None = None
    admin_comment: str = ""
    cancelled_by: str = ""
    """Who cancelled it, as accounting tells."""

    @property
    def pending(self) -> bool:
        """Nobody has started it, as far as this record knows."""
        return self.state is JobState.PENDING

    @property
    def waiting_here(self) -> bool:
        """In this controller's own queue."""
        return self.state is JobState.PENDING and not self.revoked

    @property
    def key(self) -> JobKey:
        """The fleet's name of the job."""
        return JobKey(ClusterName(self.fed.origin if self.fed else self.cluster), self.id)


@dataclass(slots=True)
class SimulatedJob:
    """One job as its user knows it: submitted once, to run once. Seconds after the fleet's start."""

    key: JobKey
    asked: Submission
    submitted: int
    started: int | None = None
    ended: int | None = None
    cluster: str | None = None
    """Where it ran."""
    ending: str = ""
    """COMPLETED, TIMEOUT or CANCELLED."""
    ran_to: str = ""
    """How the record that ran has ended."""
    alive: int = 1
    """Records of unfederated clusters that stand for it: two while it is being moved between them."""
