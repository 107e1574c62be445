"""Which jobs may be ranked, which may be moved, and where to: explicit rules, each refusal with its reason.

Two strengths. An *untouchable* job is neither ranked nor moved: nothing is ever sent for it. A *fixed* job
is ranked, but its viable set stays as it is. What is not known is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from slurm_evo.config import RulesSettings
from slurm_evo.model import (
    ClusterName,
    ClusterView,
    FleetJob,
    FleetView,
    Hold,
    Job,
    JobKey,
    LimitIndex,
    Node,
    Partition,
)
from slurm_evo.optimize.limits import forbidden
from slurm_evo.slurm.transfer import ClusterTables, look_up
from slurm_evo.slurm.transfer.image import FROM, mark_of

NO_TABLES: Mapping[ClusterName, ClusterTables] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say of one pending job."""

    key: JobKey
    untouchable: tuple[str, ...] = ()
    """Why nothing is sent for it at all; empty if it may be ranked."""
    fixed: tuple[str, ...] = ()
    """Why its viable set stays; empty if it may be moved."""
    allowed: frozenset[ClusterName] = frozenset()
    """Where it may run by the rules; what it has now is always among them."""
    closed: tuple[tuple[ClusterName, str], ...] = ()
    """The other clusters of its federation, each with the reason."""

    @property
    def rankable(self) -> bool:
        """Its SiteFactor may be set."""
        return not self.untouchable

    @property
    def movable(self) -> bool:
        """Its viable set may be changed."""
        return not self.untouchable and not self.fixed and len(self.allowed) > 1

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every refusal, as sentences."""
        return (*self.untouchable, *self.fixed, *(f"not to {name}: {why}" for name, why in self.closed))


def judge(
    fleet_job: FleetJob,
    view: FleetView,
    rules: RulesSettings,
    *,
    asked: frozenset[ClusterName],
    respect_user_clusters: bool,
    refused: Mapping[ClusterName, str],
    plain: Mapping[ClusterName, ClusterTables] = NO_TABLES,
) -> Verdict:
    """Decide what may be done with one pending job.

    Args:
        fleet_job: the job with all records that were seen.
        view: the whole fleet, for what its destinations offer.
        rules: the configured lists and opt-out words.
        asked: the viable set it had when it was first seen: the user's own ``-M``, or all.
        respect_user_clusters: never let a job run outside ``asked``.
        refused: clusters that turned this job away lately, with what is known of why.
        plain: the unfederated clusters between which jobs may be moved, with their tables.
    """
    untouchable = tuple(_untouchable(fleet_job, view.now, rules))
    fixed = tuple(_fixed(fleet_job, view, rules, plain))
    if untouchable or fixed:
        return Verdict(fleet_job.key, untouchable, fixed, fleet_job.viable)
    origin = view.cluster(fleet_job.key.cluster)
    federated = fleet_job.job.federated
    members = () if origin is None else origin.facts.federation_clusters if federated else tuple(plain)
    allowed, closed = set(fleet_job.viable), []
    for name in sorted(set(members) - fleet_job.viable):
        if federated and respect_user_clusters and name not in asked:
            why = f"the user asked for {', '.join(sorted(asked))}"
        elif name in refused:
            why = f"it turned the job away ({refused[name]})"
        else:
            job = fleet_job.job if federated else in_words_of(fleet_job.job, plain[name])
            why = _why_not(job, origin, view.cluster(name), view.limits_of(name))
        if why:
            closed.append((name, why))
        else:
            allowed.add(name)
    return Verdict(fleet_job.key, (), (), frozenset(allowed), tuple(closed))


def _untouchable(fleet_job: FleetJob, now: datetime, rules: RulesSettings) -> Iterator[str]:
    job = fleet_job.job
    if job.array_id is not None:
        yield "it belongs to a job array"
    if job.het_id is not None:
        yield "it is part of a heterogeneous job"
    if not job.batch:
        yield "it is interactive (srun or salloc)"
    if job.scrontab:
        yield "it comes from scrontab"
    # A sibling may tell of a hold that the origin's record, read a moment earlier, does not show yet.
    holds = {record.hold for record in fleet_job.records} - {Hold.NONE}
    if holds:
        yield f"it is held by its {' and its '.join(sorted(holds))}"
    if job.dependency:
        yield f"it depends on another job ({job.dependency})"
    if job.reservation:
        yield f"it uses the reservation {job.reservation}"
    if job.eligible is not None and job.begins_later(now):
        yield f"it may not start before {job.eligible:%Y-%m-%d %H:%M} UTC"
    said = f"{job.comment} {job.extra} {job.admin_comment}"
    words = {*said.split(), *re.split(r"[\s,;]+", said)}
    for word in rules.opt_out_comments:
        if word in words:
            yield f"its owner opted out ({word})"
    for topic, value in (("account", job.account), ("user", job.user), ("qos", job.qos)):
        if not rules.allows(topic, value):
            yield f"the configuration excludes the {topic} {value}"
    yield from (
        f"the configuration excludes the partition {name}"
        for name in job.partitions
        if not rules.allows("partition", name)
    )


def in_words_of(job: Job, tables: ClusterTables) -> Job:
    """A plain job with its partitions, account, QOS and GPU type under the names of another cluster."""

    def meant(table: Mapping[str, str], word: str) -> str:
        return look_up(table, job.cluster, word) or word

    return replace(
        job,
        partitions=tuple(meant(tables.partitions, name) for name in job.partitions),
        account=meant(tables.accounts, job.account),
        qos=meant(tables.qos, job.qos),
        gpu_type=job.gpu_type and meant(tables.gpu_types, job.gpu_type),
    )


def _fixed_plain(job: Job, view: FleetView, plain: Mapping[ClusterName, ClusterTables]) -> Iterator[str]:
    if job.cluster not in plain:
        yield "its cluster is in no federation"
        return
    if mark_of(job.admin_comment, FROM) is not None:
        yield "it was moved once: its submit line is lost, so what else it asked for cannot be known"
    here = view.cluster(job.cluster)
    number = re.compile(rf"(?<!\d){job.id}(?!\d)")
    if here is not None and any(other.dependency and number.search(other.dependency) for other in here.jobs):
        yield "another job depends on it"
    if job.required_nodes:
        yield "its owner named the nodes"
    if job.burst_buffer:
        yield "it uses a burst buffer"


def _fixed(
    fleet_job: FleetJob, view: FleetView, rules: RulesSettings, plain: Mapping[ClusterName, ClusterTables]
) -> Iterator[str]:
    job = fleet_job.job
    if not job.federated:
        if not rules.moves_allowed(job.partitions, job.qos, job.account, job.user):
            yield "the configuration lets it be ranked but not moved"
        yield from _fixed_plain(job, view, plain)
        return
    origin = view.cluster(fleet_job.key.cluster)
    if origin is None:
        yield f"its origin {fleet_job.key.cluster} was not seen, and only the origin can change it"
        return
    if not rules.moves_allowed(job.partitions, job.qos, job.account, job.user):
        yield "the configuration lets it be ranked but not moved"
    if job.cluster_features:
        yield f"its owner chose clusters by feature ({job.cluster_features})"
    if job.required_nodes:
        yield "its owner named the nodes"
    if job.burst_buffer:
        yield "it uses a burst buffer"
    if job.licenses:
        yield f"it needs licences ({job.licenses})"
    if job.features:
        yield f"it has a node constraint ({job.features})"


def _why_not(job: Job, origin: ClusterView | None, there: ClusterView | None, limits: LimitIndex | None) -> str:
    """Why a cluster cannot take the job, or an empty text if it can; unknown limits prove nothing."""
    if origin is None:
        return "its origin was not seen"
    if there is None:
        return "it was not seen"
    if there.facts.federation != origin.facts.federation:
        return "it is in another federation"
    if there.facts.federation_state.upper().split("+")[0] not in ("", "ACTIVE"):
        return f"its federation state is {there.facts.federation_state}"
    partitions = [partition for partition in there.partitions if partition.name in job.partitions]
    if len(partitions) < len(job.partitions):
        known = {partition.name for partition in partitions}
        return f"it has no partition {', '.join(name for name in job.partitions if name not in known)}"
    reasons = {reason for partition in partitions if (reason := _partition_refuses(job, partition))}
    if len(reasons) == len(partitions):
        return min(reasons)
    if limits is not None and (job.user, job.account) not in limits.users:
        return f"user {job.user} has no association with account {job.account} there"
    if limits is not None and (why := forbidden(job, limits)):
        return why
    return _nodes_refuse(job, there)


def _partition_refuses(job: Job, partition: Partition) -> str:
    if not partition.up:
        return f"its partition {partition.name} is not up"
    if partition.limit_s is not None and job.limit_s > partition.limit_s:
        return f"its partition {partition.name} allows {partition.limit_s // 60} minutes"
    for topic, value, allow, deny in (
        ("account", job.account, partition.allow_accounts, partition.deny_accounts),
        ("QOS", job.qos, partition.allow_qos, partition.deny_qos),
    ):
        if (allow is not None and value not in allow) or value in deny:
            return f"its partition {partition.name} does not take the {topic} {value}"
    return ""


def _nodes_refuse(job: Job, there: ClusterView) -> str:
    nodes = [node for node in there.nodes if node.up and not set(node.partitions).isdisjoint(job.partitions)]
    if job.gpu_type is not None:
        nodes = [node for node in nodes if node.gpu_type == job.gpu_type]
        if not nodes:
            return f"it has no {job.gpu_type} that is up"
    if not _fits(job, nodes):
        return "the job is larger than what is up there"
    return ""


def _fits(job: Job, nodes: list[Node]) -> bool:
    """The job would fit if the nodes were empty; GPUs by node as Slurm spreads them."""
    per_node = job.gpus_per_node or -(-job.gpus // max(job.nodes, 1))
    cpus, memory = -(-job.cpus // max(job.nodes, 1)), job.memory_mb // max(job.nodes, 1)
    fitting = [node for node in nodes if node.cpus >= cpus and node.memory_mb >= memory]
    if job.nodes > 1:
        return sum(node.gpus >= per_node for node in fitting) >= job.nodes
    return any(node.gpus >= job.gpus for node in fitting) or (
        job.gpus > max((node.gpus for node in fitting), default=0)
        and sum(node.gpus for node in fitting) >= job.gpus
        and job.gpus_per_node is None
    )
