"""Values for stories: a small fleet and jobs with everything ordinary filled in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from slurm_evo.model import (
    ClusterError,
    ClusterName,
    ClusterView,
    ControllerFacts,
    FleetView,
    Job,
    JobKey,
    JobState,
    Node,
    Partition,
)

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MEMBERS = (ClusterName("alpha"), ClusterName("beta"), ClusterName("gamma"))


def names(*clusters: str) -> frozenset[ClusterName]:
    """A set of clusters."""
    return frozenset(ClusterName(cluster) for cluster in clusters)


def key(number: int, cluster: str = "alpha") -> JobKey:
    """A job's name."""
    return JobKey(ClusterName(cluster), number)


def job(number: int, cluster: str = "alpha", **changes: Any) -> Job:
    """A pending one-GPU job of ada, federated, viable and active at its origin alpha."""
    origin = changes.pop("origin", ClusterName("alpha"))
    plain: dict[str, Any] = {
        "cluster": ClusterName(cluster),
        "id": number,
        "name": f"job{number}",
        "user": "ada",
        "account": "physics",
        "partitions": ("gpu",),
        "qos": "normal",
        "state": JobState.PENDING,
        "reason": "Priority",
        "gpus": 1,
        "limit_s": 3600,
        "submitted": NOW - timedelta(minutes=10),
        "site_factor": 0,
        "origin": origin,
        "viable": () if origin is None else (ClusterName("alpha"),),
        "active": () if origin is None else (ClusterName("alpha"),),
    }
    return Job(**{**plain, **changes})


def siblings(number: int, *waiting: str, viable: Iterable[str] = (), **changes: Any) -> list[Job]:
    """The records of one federated job of alpha: waiting at some clusters, a tracker at its origin."""
    where = tuple(sorted(ClusterName(name) for name in (tuple(viable) or waiting)))
    records = []
    for cluster in MEMBERS:
        if cluster not in waiting and cluster != "alpha":
            continue
        flags = frozenset() if cluster in waiting else frozenset({"REVOKED"})
        records.append(job(number, cluster, viable=where, active=where, flags=flags, **changes))
    return records


def cluster(
    name: str,
    jobs: Iterable[Job] = (),
    *,
    nodes: int = 2,
    gpus: int = 8,
    gpu_type: str = "a100",
    federation: str | None = "fed",
    partitions: tuple[str, ...] = ("gpu",),
    **facts: Any,
) -> ClusterView:
    """One cluster with equal nodes; their used GPUs follow from the running jobs' node lists."""
    jobs = tuple(jobs)
    used = {
        node: sum(
            record.gpus // len(record.nodelist)
            for record in jobs
            if record.state is JobState.RUNNING and node in record.nodelist
        )
        for node in (f"{name}{number}" for number in range(1, nodes + 1))
    }
    members = MEMBERS if federation else ()
    return ClusterView(
        cluster=ClusterName(name),
        seen_at=NOW,
        facts=ControllerFacts(
            version="26.05.5",
            priority_type="priority/multifactor",
            federation=federation,
            federation_clusters=members,
            federation_state="ACTIVE" if federation else "",
            **facts,
        ),
        nodes=tuple(
            Node(
                name=node,
                gpu_type=gpu_type,
                gpus=gpus,
                gpus_used=taken,
                cpus=64,
                cpus_used=0,
                memory_mb=512_000,
                memory_used_mb=0,
                up=True,
                state="IDLE",
                partitions=partitions,
            )
            for node, taken in used.items()
        ),
        partitions=tuple(
            Partition(name=part, up=True, default=part == "gpu", limit_s=7 * 86_400, nodes=tuple(used))
            for part in partitions
        ),
        jobs=jobs,
    )


def fleet(
    records: Iterable[Job] = (),
    *,
    now: datetime = NOW,
    unseen: Iterable[str] = (),
    changes: dict[str, dict[str, Any]] | None = None,
) -> FleetView:
    """alpha, beta and gamma in one federation, delta plain; each with the records that name it."""
    records = list(records)
    shapes: dict[str, dict[str, Any]] = {
        "alpha": {"nodes": 4, "partitions": ("gpu", "debug")},
        "beta": {},
        "gamma": {"nodes": 4, "gpus": 4, "gpu_type": "v100", "partitions": ("gpu", "debug")},
        "delta": {"federation": None},
    }
    seen = [
        cluster(
            name,
            [record for record in records if record.cluster == name],
            **{**shape, **(changes or {}).get(name, {})},
        )
        for name, shape in shapes.items()
        if name not in unseen
    ]
    gone = {ClusterName(name): ClusterError(name, "did not answer") for name in unseen}
    return FleetView(now, tuple(replace(view, seen_at=now) for view in seen), gone)
