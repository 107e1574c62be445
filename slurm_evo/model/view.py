"""What was seen of the clusters at one instant. Immutable; says who was *not* seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from types import MappingProxyType

from slurm_evo.model.errors import ClusterError
from slurm_evo.model.job import ClusterName, FleetJob, Job, JobKey, JobState

_EMPTY: Mapping[str, str] = MappingProxyType({})
_NO_WEIGHTS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node with its devices."""

    name: str
    gpu_type: str | None
    """None for a node without GPUs, or whose GPUs have no type."""
    gpus: int
    gpus_used: int
    cpus: int
    cpus_used: int
    memory_mb: int
    memory_used_mb: int
    up: bool
    """May take a new job now or when its present ones end: not down, drained, draining or failing."""
    state: str
    """Slurm's own words, for the operator."""
    partitions: tuple[str, ...]
    reserved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition."""

    name: str
    up: bool
    default: bool
    limit_s: int | None
    """MaxTime; None for UNLIMITED."""
    nodes: tuple[str, ...]
    allow_accounts: tuple[str, ...] | None = None
    """None where all may."""
    deny_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] | None = None
    deny_qos: tuple[str, ...] = ()
    priority_tier: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Limits of one association or one QOS, as far as they can be had; None means no limit."""

    scope: str
    """``association`` or ``qos``."""
    account: str = ""
    user: str = ""
    """Empty: the account's own association, or a QOS."""
    partition: str = ""
    qos: str = ""
    max_jobs: int | None = None
    """Running jobs: of the user (association MaxJobs, QOS MaxJobsPerUser)."""
    max_submit: int | None = None
    max_gpus: int | None = None
    """Running GPUs of the user (association MaxTRES per user is per job: see ``max_gpus_per_job``)."""
    max_gpus_per_job: int | None = None
    group_jobs: int | None = None
    group_gpus: int | None = None
    max_wall_s: int | None = None

    @property
    def limits_something(self) -> bool:
        """There is any limit on what runs."""
        told = (self.max_jobs, self.max_gpus, self.max_gpus_per_job, self.group_jobs, self.group_gpus)
        return any(most is not None for most in (*told, self.max_wall_s))


@dataclass(frozen=True, slots=True)
class LimitIndex:
    """The limits of one cluster by whom they hold for."""

    qos: Mapping[str, Limit]
    users: Mapping[tuple[str, str], tuple[Limit, ...]]
    """By user and account; one for each partition where a partition has its own association."""
    accounts: Mapping[str, Limit]
    silent: bool = False
    """None of them limits anything: they only say who may use the cluster."""

    @classmethod
    def of(cls, limits: Iterable[Limit]) -> LimitIndex:
        """Sort them."""
        users: dict[tuple[str, str], tuple[Limit, ...]] = {}
        accounts: dict[str, Limit] = {}
        qos: dict[str, Limit] = {}
        silent = True
        for limit in limits:
            silent = silent and not limit.limits_something
            if limit.scope == "qos":
                qos[limit.qos] = limit
            elif limit.user:
                users[limit.user, limit.account] = (*users.get((limit.user, limit.account), ()), limit)
            else:
                accounts[limit.account] = limit
        return cls(qos, users, accounts, silent)

    def association(self, user: str, account: str, partitions: tuple[str, ...]) -> Limit | None:
        """The association that holds for a user's jobs: that of one of its partitions, else the one for all."""
        found = self.users.get((user, account), ())
        return next((one for one in found if one.partition and one.partition in partitions), None) or next(
            (one for one in found if not one.partition), None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFacts:
    """What a slurmctld says of itself (slurm.conf(5), ``scontrol show config``, ``show federation``)."""

    version: str
    """Such as 26.05.5."""
    priority_type: str
    """Such as priority/multifactor; unknown: this way in does not tell it."""
    priority_flags: frozenset[str] = frozenset()
    priority_weights: Mapping[str, int] = field(default_factory=lambda: _NO_WEIGHTS)
    """By lower-case name: age, assoc, fairshare, jobsize, partition, qos."""
    priority_max_age_s: int = 7 * 86_400
    priority_calc_period_s: int = 300
    site_factor_plugin: str = ""
    federation: str | None = None
    federation_clusters: tuple[ClusterName, ...] = ()
    """All members, this one included; empty outside a federation."""
    federation_state: str = ""
    """This cluster's FedState: ACTIVE, DRAIN, INACTIVE, ..."""
    federation_alike: bool = True
    """All members have the same federation features, or none: --cluster-constraint tells none from another."""
    scheduler_parameters: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    slurmctld_parameters: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    clock_skew_s: float | None = None
    """The controller's clock minus ours; None where this way in cannot tell."""

    @property
    def multifactor(self) -> bool:
        """SiteFactor has an effect at all; where that is not told, Slurm's default is taken to be in force."""
        return self.priority_type.endswith(("multifactor", "unknown"))

    @property
    def rate_limited(self) -> bool:
        """The rl_enable option of SlurmctldParameters is on."""
        return "rl_enable" in self.slurmctld_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One cluster at one instant."""

    cluster: ClusterName
    seen_at: datetime
    facts: ControllerFacts
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    jobs: tuple[Job, ...]
    """Pending and running ones, REVOKED trackers included; ended ones only while Slurm still lists them."""
    limits: tuple[Limit, ...] | None = None
    """None where they could not be had; unknown is not unlimited."""
    unreadable: tuple[str, ...] = ()
    """One sentence for each job record that was left out of ``jobs`` because it was not understood.

    Each begins with ``job ID:`` where the id could be read. A view with any of these is incomplete: that a
    job is missing from ``jobs`` then proves nothing about it.
    """

    @property
    def gpus(self) -> int:
        """All devices of nodes that are up."""
        return sum(node.gpus for node in self.nodes if node.up)


@dataclass(frozen=True)
class FleetView:
    """All clusters at about one instant; ``unseen`` names those that failed, with the error."""

    now: datetime
    seen: tuple[ClusterView, ...]
    unseen: Mapping[ClusterName, ClusterError] = field(default_factory=dict)

    def cluster(self, name: ClusterName) -> ClusterView | None:
        """The view of one cluster, or None if it was not seen."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[ClusterName, ClusterView]:
        return {view.cluster: view for view in self.seen}

    def limits_of(self, name: ClusterName) -> LimitIndex | None:
        """The limits of one cluster; None if it was not seen or its limits could not be had."""
        return self._limits.get(name)

    @cached_property
    def _limits(self) -> dict[ClusterName, LimitIndex]:
        return {view.cluster: LimitIndex.of(view.limits) for view in self.seen if view.limits is not None}

    @cached_property
    def jobs(self) -> Mapping[JobKey, FleetJob]:
        """Every job that waits or runs, once, with all its siblings' records; ordered by key."""
        return join_siblings(job for view in self.seen for job in view.jobs)


def join_siblings(records: Iterable[Job]) -> Mapping[JobKey, FleetJob]:
    """Group records by job, so that a federated job is counted once.

    Records that have ended are dropped, unless another sibling is alive.
    """
    groups: dict[JobKey, list[Job]] = {}
    for record in records:
        groups.setdefault(record.key, []).append(record)
    joined = {}
    for key in sorted(groups):
        group = groups[key]
        if all(record.state is JobState.DONE for record in group):
            continue
        group.sort(key=lambda record: (record.cluster != key.cluster, record.cluster))
        joined[key] = FleetJob(key, tuple(group))
    return joined
