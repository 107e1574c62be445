"""What a simulated controller answers to a look."""

from __future__ import annotations

from datetime import datetime, timedelta

from slurm_evo.model import (
    ClusterName,
    ClusterView,
    ControllerFacts,
    Hold,
    Job,
    JobState,
    Limit,
    Node,
    Partition,
)
from slurm_evo.slurm.simulated.controller import Controller
from slurm_evo.slurm.simulated.record import Record
from slurm_evo.slurm.simulated.spec import FleetSpec

VERSION = "simulated"


def look(controller: Controller, fleet: FleetSpec, start: datetime, now_s: int) -> ClusterView:
    """The cluster at second ``now_s`` after ``start``."""
    return ClusterView(
        cluster=ClusterName(controller.spec.name),
        seen_at=start + timedelta(seconds=now_s),
        facts=_facts(controller, fleet),
        nodes=tuple(_nodes(controller, now_s)),
        partitions=tuple(_partitions(controller)),
        jobs=tuple(_job(controller, record, start, now_s) for record in controller.records.values()),
        limits=tuple(_limits(controller)),
    )


def _facts(controller: Controller, fleet: FleetSpec) -> ControllerFacts:
    spec = controller.spec
    return ControllerFacts(
        version=VERSION,
        priority_type="priority/multifactor",
        priority_weights=dict(spec.weights),
        priority_max_age_s=spec.max_age_s,
        priority_calc_period_s=1,
        federation=fleet.federation if spec.federated else None,
        federation_clusters=tuple(map(ClusterName, fleet.members)) if spec.federated else (),
        federation_state="ACTIVE" if spec.federated else "",
        scheduler_parameters={"bf_interval": str(spec.bf_interval_s)},
        clock_skew_s=0.0,
    )


def _nodes(controller: Controller, now_s: int) -> list[Node]:
    reserved = {
        node
        for reservation in controller.reservations.values()
        if reservation.start_s <= now_s < reservation.end_s
        for node in reservation.nodes
    }
    nodes = []
    for index, spec in enumerate(controller.spec.nodes):
        gpus_used = spec.gpus - controller.free.gpus[index]
        cpus_used = spec.cpus - controller.free.cpus[index]
        up = controller.node_up[index]
        state = "IDLE" if not cpus_used else "ALLOCATED" if cpus_used == spec.cpus else "MIXED"
        nodes.append(
            Node(
                name=spec.name,
                gpu_type=spec.gpu_type,
                gpus=spec.gpus,
                gpus_used=gpus_used,
                cpus=spec.cpus,
                cpus_used=cpus_used,
                memory_mb=spec.memory_mb,
                memory_used_mb=spec.memory_mb - controller.free.memory[index],
                up=up,
                state=state if up else f"{state}+DRAIN",
                partitions=tuple(
                    partition.name
                    for partition in controller.spec.partitions
                    if partition.nodes is None or spec.name in partition.nodes
                ),
                reserved=spec.name in reserved,
            )
        )
    return nodes


def _partitions(controller: Controller) -> list[Partition]:
    every = tuple(node.name for node in controller.spec.nodes)
    default = controller.default_partition()
    return [
        Partition(
            name=partition.name,
            up=True,
            default=partition.name == default,
            limit_s=partition.limit_s,
            nodes=every if partition.nodes is None else partition.nodes,
            allow_accounts=partition.allow_accounts,
            allow_qos=partition.allow_qos,
        )
        for partition in controller.spec.partitions
    ]


def _limits(controller: Controller) -> list[Limit]:
    limits = [
        Limit(scope="association", account=user.account, user=user.name, max_jobs=user.max_jobs)
        for user in controller.spec.users
    ]
    limits += [
        Limit(scope="qos", qos=qos.name, max_gpus=qos.max_gpus_per_user, max_wall_s=qos.max_wall_s)
        for qos in controller.spec.qos
    ]
    return limits


def _job(controller: Controller, record: Record, start: datetime, now_s: int) -> Job:
    asked, fed = record.asked, record.fed

    def instant(second: int | None) -> datetime | None:
        return None if second is None else start + timedelta(seconds=second)

    pinned = record.pinned is not None and record.hold is Hold.NONE
    waits_for = ",".join(f"{kind}:{job}(unfulfilled)" for kind, job in record.waits_for)
    return Job(
        cluster=ClusterName(record.cluster),
        id=record.id,
        name=asked.name,
        user=asked.user,
        account=record.account,
        partitions=record.partitions,
        qos=asked.qos,
        state=record.state,
        flags=frozenset(("REVOKED",)) if record.revoked else frozenset(),
        reason=record.reason,
        hold=record.hold,
        gpus=asked.gpus,
        gpu_type=asked.gpu_type,
        gpus_per_node=asked.per_node()[0] if asked.nodes > 1 else None,
        nodes=asked.nodes,
        cpus=asked.cpus,
        memory_mb=asked.memory_mb,
        limit_s=record.limit_s,
        submitted=start + timedelta(seconds=record.submitted),
        eligible=instant(record.eligible),
        started=instant(record.started),
        ended=instant(record.ended),
        nodelist=tuple(controller.spec.nodes[node].name for node in record.nodes),
        priority=controller.priority(record, now_s),
        nice=record.nice,
        site_factor=record.site_factor if _ranked(record, now_s) else None,
        direct_priority=pinned,
        array_id=record.array_id,
        het_id=record.het_id,
        dependency=waits_for,
        reservation=asked.reservation,
        comment=asked.comment,
        admin_comment=record.admin_comment,
        workdir=f"/home/{asked.user}",
        origin=ClusterName(fed.origin) if fed else None,
        viable=tuple(map(ClusterName, sorted(fed.viable))) if fed else (),
        # Only the origin knows which siblings are active.
        active=tuple(map(ClusterName, sorted(fed.active))) if fed and fed.origin == record.cluster else (),
    )


def _ranked(record: Record, now_s: int) -> bool:
    """Whether sprio(1) shows its factors: it waits here, free to start, its priority not pinned."""
    return (
        record.waiting_here
        and record.hold is Hold.NONE
        and record.pinned is None
        and not record.waits_for
        and record.eligible <= now_s
    )


def pending(record: Record) -> bool:
    """The record's job is still pending somewhere: not started by this cluster nor by another."""
    return record.state is JobState.PENDING and (record.fed is None or record.fed.locked is None)
