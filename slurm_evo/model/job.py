"""A job as its cluster reports it, and the same job as the fleet knows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType

LOOK = timedelta(minutes=1)
"""A look takes a while, and clocks differ: a job may start whose eligible time lies just after the look's
instant, as that of a job released a moment ago does (seen on 26.05)."""

ClusterName = NewType("ClusterName", str)
"""The ClusterName of slurm.conf(5)."""


class JobState(StrEnum):
    """Slurm's base job states, as far as a pending-queue scheduler tells them apart."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    DONE = "DONE"
    """Any state a job does not leave by itself: COMPLETED, FAILED, CANCELLED, TIMEOUT, ..."""


class Hold(StrEnum):
    """Who holds a pending job (Slurm: priority 0, with reason JobHeldUser or JobHeldAdmin)."""

    NONE = "none"
    USER = "user"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """Names one job of the fleet: a job id alone is never a key.

    For a federated job ``cluster`` is its origin, so all its siblings share one key.
    """

    cluster: ClusterName
    id: int

    def __str__(self) -> str:
        return f"{self.cluster}:{self.id}"

    @classmethod
    def parse(cls, text: str) -> JobKey:
        """Read ``cluster:id`` back.

        Raises:
            ValueError: the text is not of that form.
        """
        cluster, colon, number = text.rpartition(":")
        if not colon or not cluster or not number.isdecimal():
            raise ValueError(f"{text!r} is no job key; write CLUSTER:ID, such as alpha:1042")
        return cls(ClusterName(cluster), int(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as one cluster reports it."""

    cluster: ClusterName
    """Who reported it."""
    id: int
    """Unique within its cluster (a federated job has one id on all siblings)."""
    name: str
    user: str
    account: str
    partitions: tuple[str, ...]
    """As requested; Slurm allows a list."""
    qos: str
    state: JobState
    flags: frozenset[str] = frozenset()
    """Slurm's state flags, upper case: REVOKED, COMPLETING, CONFIGURING, REQUEUED, ..."""
    reason: str = ""
    """Slurm's pending reason, such as Priority, Resources, Dependency, JobHeldUser."""
    hold: Hold = Hold.NONE

    gpus: int
    """Whole devices, all nodes together."""
    gpu_type: str | None = None
    """The type asked for; None where any will do."""
    gpus_per_node: int | None = None
    nodes: int = 1
    """Least number of nodes asked for."""
    cpus: int = 1
    """All nodes together."""
    memory_mb: int = 0
    """All nodes together; 0 where the cluster's default applies and is not known."""
    exclusive: bool = False
    limit_s: int
    """What the user asked for, not what it will use. The partition's maximum where it asked for none."""

    submitted: datetime
    """UTC. A sibling made by a move has the instant of the move: the store keeps the first one seen."""
    eligible: datetime | None = None
    """When it may start (``--begin``, dependencies); None if not known."""
    started: datetime | None = None
    ended: datetime | None = None
    nodelist: tuple[str, ...] = ()
    """Where it runs; one name per node."""

    priority: int = 0
    nice: int = 0
    site_factor: int | None = None
    """Read back from Slurm (sprio); None where this way in cannot read it."""
    direct_priority: bool = False
    """Slurm's direct-priority mode seen: multifactor no longer computes this record's priority."""

    batch: bool = True
    """False for srun and salloc: never moved."""
    array_id: int | None = None
    """Set for an array parent and for each of its tasks."""
    het_id: int | None = None
    """Set for each component of a heterogeneous job."""
    scrontab: bool = False
    dependency: str = ""
    """Outstanding dependencies, in Slurm's own words; empty if none."""
    reservation: str = ""
    licenses: str = ""
    features: str = ""
    """Node constraint (``--constraint``)."""
    required_nodes: tuple[str, ...] = ()
    burst_buffer: str = ""
    comment: str = ""
    admin_comment: str = ""
    extra: str = ""
    workdir: str = ""

    origin: ClusterName | None = None
    """Origin cluster of a federated job; None for a plain one."""
    viable: tuple[ClusterName, ...] = ()
    """Slurm's FedViableSiblings: where it may run."""
    active: tuple[ClusterName, ...] = ()
    """Slurm's FedActiveSiblings; can be empty while the job is alive (seen on 26.05): never trusted alone."""
    cluster_features: str = ""
    """``--cluster-constraint`` of the owner."""

    @property
    def key(self) -> JobKey:
        """The fleet's name of this job."""
        return JobKey(self.origin or self.cluster, self.id)

    @property
    def revoked(self) -> bool:
        """A tracker record: the job is known here, but waits or runs elsewhere."""
        return "REVOKED" in self.flags

    def begins_later(self, now: datetime) -> bool:
        """It may not start yet, by more than `LOOK`; ``now`` is when the look began, aware."""
        return self.eligible is not None and self.eligible > now + LOOK

    @property
    def waiting_here(self) -> bool:
        """Pending in this cluster's own queue, so that this cluster may start it."""
        return self.state is JobState.PENDING and not self.revoked

    @property
    def federated(self) -> bool:
        """Known to a federation."""
        return self.origin is not None


@dataclass(frozen=True, slots=True)
class FleetJob:
    """One job of the fleet with the record of every cluster that knows it."""

    key: JobKey
    records: tuple[Job, ...]
    """At least one; at most one per cluster; the origin's first where it was seen."""

    @property
    def job(self) -> Job:
        """The record that speaks for the job: the running one, else the origin's, else any waiting one."""
        for record in self.records:
            if record.state in (JobState.RUNNING, JobState.SUSPENDED):
                return record
        for record in self.records:
            if record.cluster == self.key.cluster:
                return record
        return next((record for record in self.records if record.waiting_here), self.records[0])

    @property
    def pending(self) -> bool:
        """Nobody runs it and at least one record still waits (REVOKED trackers included)."""
        return self.job.state is JobState.PENDING

    @property
    def running(self) -> bool:
        """Some cluster runs it."""
        return self.job.state in (JobState.RUNNING, JobState.SUSPENDED)

    @property
    def waiting_on(self) -> frozenset[ClusterName]:
        """The clusters whose own queues hold it now, by their own word."""
        return frozenset(record.cluster for record in self.records if record.waiting_here)

    @property
    def viable(self) -> frozenset[ClusterName]:
        """Where Slurm lets it run: the origin's word, or its one cluster if it is a plain job."""
        job = self.on(self.key.cluster) or self.job
        return frozenset(job.viable) if job.federated else frozenset((job.cluster,))

    def on(self, cluster: ClusterName) -> Job | None:
        """The record of one cluster, if that cluster was seen and knows the job."""
        return next((record for record in self.records if record.cluster == cluster), None)
