"""Slurm's JSON answers (squeue, scontrol, slurmrestd) made into values of the model.

Read are the data_parser versions v0.0.37 (Slurm 21.08) to v0.0.45 (26.05); what they do differently is told
where it is read. A node or a partition that cannot be read makes the whole answer unreadable, because all
jobs depend on it. A job that cannot be read is left out and named, so that one odd job does not stop a
fleet; if no job at all can be read, the format has changed and the answer is unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_evo.model import AnswerUnreadable, ClusterName, Hold, Job, JobState, Node, Partition
from slurm_evo.slurm.fields import INFINITE, Record, records
from slurm_evo.slurm.tres import Gpus, gpus_of_gres, gpus_of_tres, memory_mb_of_tres

UNLIMITED_S = 365 * 86_400
"""What an unlimited job counts as: one year, as in Slurm's own backfill scheduler."""

LAST_WITH_EXCLUSIVE = "v0.0.44"
"""v0.0.45 leaves a job's ``shared`` empty and has nothing in its place (seen on 26.05.5)."""
_FORGOTTEN = 0xFFFF_FFFE
"""The job id (NO_VAL) of a revoked sibling that slurmctld has unlinked but still lists (seen on 24.11)."""

_BASE_STATES = {
    "PENDING": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "SUSPENDED": JobState.SUSPENDED,
    "COMPLETED": JobState.DONE,
    "CANCELLED": JobState.DONE,
    "FAILED": JobState.DONE,
    "TIMEOUT": JobState.DONE,
    "NODE_FAIL": JobState.DONE,
    "PREEMPTED": JobState.DONE,
    "BOOT_FAIL": JobState.DONE,
    "DEADLINE": JobState.DONE,
    "OUT_OF_MEMORY": JobState.DONE,
}
# Before v0.0.40 the state was one word, and a flag, if there was one, hid the base state.
_FLAG_STATES = {
    "COMPLETING": JobState.DONE,
    "STAGE_OUT": JobState.DONE,
    "LAUNCH_FAILED": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "REVOKED": JobState.PENDING,
    "CONFIGURING": JobState.RUNNING,
    "POWER_UP_NODE": JobState.RUNNING,
    "RECONFIG_FAIL": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STOPPED": JobState.SUSPENDED,
    "EXPEDITING": JobState.PENDING,
    "UPDATE_DB": JobState.DONE,
}
_NODE_STATES_OUT = frozenset(
    {
        *("DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "INVALID"),
        *("INVALID_REG", "MAINT", "MAINTENANCE", "NOT_RESPONDING", "REBOOT_ISSUED", "POWER_DRAIN", "UNKNOWN"),
    }
)
_EXCLUSIVE = frozenset({"NONE", "USER", "MCS", "TOPO", "TRUE", "EXCLUSIVE"})


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of one answer, and one sentence for each that was left out."""

    jobs: tuple[Job, ...]
    unreadable: tuple[str, ...] = ()


def tells_no_exclusive(version: str) -> bool:
    """The newest job list of this Slurm version no longer tells ``--exclusive``."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) >= (26, 5)


def parse_jobs(
    cluster: ClusterName, answer: Any, partitions: Iterable[Partition] = (), *, what: str = "squeue --json"
) -> Jobs:
    """Read a job list.

    Args:
        cluster: who answered.
        answer: the decoded JSON.
        partitions: the cluster's own; their MaxTime stands in where a job has no limit.
        what: the question, for errors.

    Raises:
        AnswerUnreadable: there is no list of jobs, or not one of its records could be read.
    """
    limits = {partition.name: partition.limit_s for partition in partitions}
    found = records(cluster, answer, "jobs", what)
    jobs: list[Job] = []
    unreadable: list[str] = []
    first: AnswerUnreadable | None = None
    for data in found:
        if isinstance(data, Mapping) and data.get("job_id") == _FORGOTTEN:
            continue
        try:
            jobs.append(parse_job(cluster, data, limits))
        except AnswerUnreadable as failure:
            first = first or failure
            unreadable.append(failure.message)
    if first is not None and not jobs:
        raise AnswerUnreadable(
            cluster, f"none of {len(found)} jobs could be read; the first: {first.message}"
        ) from first
    return Jobs(_without_stale(jobs), tuple(unreadable))


def _without_stale(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Leave out REVOKED records that track nothing.

    A tracker is kept by a job's origin. Elsewhere a REVOKED record is what is left of a sibling that was
    taken back; it can stay for minutes beside a living record of the same id, as after a user's hold and
    release (seen on 26.05), and would pass for a second, held copy of the job.
    """
    return tuple(job for job in jobs if not (job.revoked and job.federated and job.origin != job.cluster))


def parse_job(cluster: ClusterName, data: Any, limits: Mapping[str, int | None]) -> Job:
    """Read one job.

    Args:
        cluster: who answered.
        data: one element of the answer's list ``jobs``.
        limits: MaxTime by partition, seconds; None for UNLIMITED.

    Raises:
        AnswerUnreadable: a field is missing or has another form than any known version gives it.
    """
    identity = data.get("job_id") if isinstance(data, Mapping) else None
    record = Record(cluster, data, f"job {identity}")
    number = record.number("job_id")
    if number <= 0:
        raise record.unreadable("job_id", identity, "a job id")
    state, flags = _state(record)
    partitions = record.names("partition")
    reason = record.text("state_reason")
    gpus, per_node = _gpus(record, state)
    origin = record.text("federation_origin")
    nodes = max(1, record.count("node_count", 1))
    cpus = max(1, record.count("cpus", 1))
    has_run = state is not JobState.PENDING
    submitted = record.instant("submit_time")
    if submitted is None:
        raise record.unreadable("submit_time", record.raw("submit_time"), "seconds since 1970")
    return Job(
        cluster=cluster,
        id=number,
        name=record.text("name"),
        user=record.text("user_name") or str(record.number("user_id")),
        account=record.text("account"),
        partitions=partitions,
        qos=record.text("qos"),
        state=state,
        flags=flags,
        reason="" if reason == "None" else reason,
        hold=_hold(record, state, reason),
        gpus=gpus.count,
        gpu_type=gpus.type,
        gpus_per_node=per_node,
        nodes=nodes,
        cpus=cpus,
        memory_mb=_memory_mb(record, nodes, cpus),
        exclusive=bool(_EXCLUSIVE & {*record.words("shared"), *record.words("exclusive")}),
        limit_s=_limit_s(record, partitions, limits),
        submitted=submitted,
        eligible=record.instant("eligible_time"),
        # for a pending job these two are Slurm's forecast
        started=record.instant("start_time") if has_run else None,
        ended=record.instant("end_time") if state is JobState.DONE else None,
        nodelist=record.hosts("nodes") if has_run else (),
        priority=record.number("priority"),
        nice=record.number("nice"),
        batch=record.raw("batch_flag") is None or record.truth("batch_flag"),
        array_id=record.number("array_job_id") or None,
        het_id=record.number("het_job_id") or None,
        scrontab=bool(record.text("cron")) or "CRON_JOB" in record.words("flags"),
        dependency=record.text("dependency"),
        reservation=record.text("resv_name"),
        licenses=record.text("licenses"),
        features=record.text("features"),
        required_nodes=record.hosts("required_nodes"),
        burst_buffer=record.text("burst_buffer"),
        comment=record.text("comment"),
        admin_comment=record.text("admin_comment"),
        extra=record.text("extra"),
        workdir=record.text("current_working_directory"),
        origin=ClusterName(origin) if origin else None,
        viable=_clusters(record, "federation_siblings_viable"),
        active=_clusters(record, "federation_siblings_active"),
        cluster_features=record.text("cluster_features"),
    )


def _clusters(record: Record, field: str) -> tuple[ClusterName, ...]:
    return tuple(ClusterName(name) for name in record.names(field))


def _state(record: Record) -> tuple[JobState, frozenset[str]]:
    words = record.words("job_state")
    bases = [word for word in words if word in _BASE_STATES]
    flags = frozenset(words).difference(bases)
    if len(bases) == 1:
        return _BASE_STATES[bases[0]], flags
    hidden = [_FLAG_STATES[word] for word in words if word in _FLAG_STATES]
    if bases or not hidden:
        raise record.unreadable("job_state", record.raw("job_state"), "a job state")
    return hidden[0], flags


def _hold(record: Record, state: JobState, reason: str) -> Hold:
    """Held is: pending with priority 0 (scontrol(1), hold). A missing priority proves nothing."""
    if state is not JobState.PENDING or record.number("priority", -1) != 0:
        return Hold.NONE
    # whatever else brings a job to priority 0, such as too many requeues, only an administrator's word mends
    return Hold.USER if reason == "JobHeldUser" else Hold.ADMIN


def _gpus(record: Record, state: JobState) -> tuple[Gpus, int | None]:
    """All devices of a job, and those of each node if it asked by node.

    Slurm's own sums (``tres_alloc_str``, ``tres_req_str``) come first; clusters that do not track gres/gpu
    (slurm.conf(5) AccountingStorageTRES) have only the request itself, which names the type in any case.
    """
    asked, per_node = _gpus_asked(record)
    granted = Gpus()
    tracked = None
    if state is not JobState.PENDING:
        tracked = record.parsed("tres_alloc_str", gpus_of_tres, "a TRES list")
        granted = _gpus_granted(record)
    if tracked is None:
        tracked = record.parsed("tres_req_str", gpus_of_tres, "a TRES list")
    count = max(granted.count, tracked.count if tracked else 0) or asked.count
    named = granted.type or asked.type or (tracked.type if tracked else None)
    return Gpus(count, named if count else None), per_node


def _gpus_asked(record: Record) -> tuple[Gpus, int | None]:
    by_node = record.parsed("tres_per_node", gpus_of_gres, "a GRES list")
    nodes = max(1, record.count("node_count", 1))
    by_job = record.parsed("tres_per_job", gpus_of_gres, "a GRES list")
    by_task = record.parsed("tres_per_task", gpus_of_gres, "a GRES list")
    by_socket = record.parsed("tres_per_socket", gpus_of_gres, "a GRES list")
    candidates = (
        by_job,
        by_node.times(nodes),
        by_task.times(max(1, record.count("tasks", 1))),
        by_socket.times(nodes * max(1, record.count("sockets_per_node", 1))),
    )
    asked = max(candidates, key=lambda gpus: gpus.count)
    named = asked.type or next((gpus.type for gpus in candidates if gpus.type), None)
    return Gpus(asked.count, named), by_node.count or None


def _gpus_granted(record: Record) -> Gpus:
    """Devices a running job holds: one entry of ``gres_detail`` for each of its nodes."""
    details = record.raw("gres_detail")
    if details is None:
        return Gpus()
    if not isinstance(details, list) or not all(isinstance(detail, str) for detail in details):
        raise record.unreadable("gres_detail", details, "a list of GRES")
    try:
        return gpus_of_gres(",".join(details))
    except ValueError as failure:
        raise record.unreadable("gres_detail", details, "a list of GRES") from failure


def _memory_mb(record: Record, nodes: int, cpus: int) -> int:
    total = record.parsed("tres_req_str", memory_mb_of_tres, "a TRES list")
    if total is not None:
        return total
    return record.count("memory_per_node") * nodes or record.count("memory_per_cpu") * cpus


def _limit_s(record: Record, partitions: tuple[str, ...], limits: Mapping[str, int | None]) -> int:
    minutes = record.number_or_infinite("time_limit")
    if isinstance(minutes, int):
        if minutes < 0:
            raise record.unreadable("time_limit", record.raw("time_limit"), "minutes")
        return minutes * 60
    longest = [limits.get(name) for name in partitions]
    known = [limit for limit in longest if limit is not None]
    return max(known) if known and len(known) == len(longest) else UNLIMITED_S


def parse_nodes(
    cluster: ClusterName, answer: Any, *, what: str = "scontrol show nodes --json"
) -> tuple[Node, ...]:
    """Read a node list.

    Raises:
        AnswerUnreadable: there is no such list, or a record of it is not understood.
    """
    return tuple(_node(cluster, data) for data in records(cluster, answer, "nodes", what))


def _node(cluster: ClusterName, data: Any) -> Node:
    name = data.get("name") if isinstance(data, Mapping) else None
    record = Record(cluster, data, f"node {name}")
    if not record.text("name"):
        raise record.unreadable("name", name, "a node name")
    states = (*record.words("state"), *record.words("state_flags"))
    if not states:
        raise record.unreadable("state", record.raw("state"), "a node state")
    total = record.parsed("gres", gpus_of_gres, "a GRES list")
    used = record.parsed("gres_used", gpus_of_gres, "a GRES list").count
    if not total.count:
        total = record.parsed("tres", gpus_of_tres, "a TRES list") or total
    if not used:
        tracked = record.parsed("tres_used", gpus_of_tres, "a TRES list")
        used = tracked.count if tracked else 0
    return Node(
        name=record.text("name"),
        gpu_type=total.type,
        gpus=total.count,
        gpus_used=used,
        cpus=record.count("cpus"),
        cpus_used=record.count("alloc_cpus"),
        memory_mb=record.count("real_memory"),
        memory_used_mb=record.count("alloc_memory"),
        up=not _NODE_STATES_OUT.intersection(states),
        state="+".join(states),
        partitions=record.names("partitions"),
        reserved=bool(record.text("reservation")) or "RESERVED" in states,
    )


def parse_partitions(
    cluster: ClusterName, answer: Any, *, what: str = "the list of partitions"
) -> tuple[Partition, ...]:
    """Read a partition list as slurmrestd gives it.

    Which one is the default is told only by v0.0.43 and later; before, a single partition counts as it.

    Raises:
        AnswerUnreadable: there is no such list, or a record of it is not understood.
    """
    found = records(cluster, answer, "partitions", what)
    return tuple(_partition(cluster, data, alone=len(found) == 1) for data in found)


def _partition(cluster: ClusterName, data: Any, *, alone: bool) -> Partition:
    name = data.get("name") if isinstance(data, Mapping) else None
    record = Record(cluster, data, f"partition {name}")
    if not record.text("name"):
        raise record.unreadable("name", name, "a partition name")
    states = record.words("partition.state") or record.words("state")
    if not states:
        raise record.unreadable("partition.state", record.raw("partition.state"), "a partition state")
    limit = record.number_or_infinite("maximums.time")
    accounts, qos = record.names("accounts.allowed"), record.names("qos.allowed")
    return Partition(
        name=record.text("name"),
        up=states == ("UP",),
        default=alone or "DEFAULT" in record.words("flags"),
        # «infinite» and, on 24.05 and earlier, «not set» both mean UNLIMITED
        limit_s=None if limit in (None, INFINITE) else record.count("maximums.time") * 60,
        nodes=record.hosts("nodes.configured"),
        allow_accounts=accounts or None,
        deny_accounts=record.names("accounts.deny"),
        allow_qos=qos or None,
        deny_qos=record.names("qos.deny"),
        priority_tier=record.number("priority.tier", 1),
    )
