"""The clusters of a replay: nodes, partitions, times out of service, limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from slurm_evo.model import ConfigError
from slurm_evo.sim.workload import FOREVER, MAX_CLUSTERS, MAX_PARTITIONS, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What one node has, and the partitions it is in."""

    gpus: int
    gpu_type: int = 0
    cpus: int = FOREVER
    memory: int = FOREVER
    """MiB."""
    partitions: frozenset[int] = frozenset((0,))


class Why(IntEnum):
    """Why a node takes no new job for a time."""

    DRAIN = 0
    """Nobody knew before: a job that runs goes on, a plan made before does not foresee it."""
    RESERVATION = 1
    """Known from the beginning, as a maintenance reservation: no job starts whose limit reaches into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfService:
    """One node takes no new job in [start, end), seconds from the origin."""

    node: int
    """Index over all nodes of the fleet."""
    start: int
    end: int
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLimit:
    """How much may run at one time on one cluster; None is no limit."""

    gpus: int | None = None
    jobs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of what runs, each kept by every cluster for itself (sacctmgr(1))."""

    user: Mapping[int, RunningLimit] = field(default_factory=dict)
    """By user: GrpTRES=gres/gpu and MaxJobs of the association."""
    qos: Mapping[int, RunningLimit] = field(default_factory=dict)
    """By QOS, all users together: GrpTRES=gres/gpu, GrpJobs."""
    qos_user: Mapping[int, RunningLimit] = field(default_factory=dict)
    """By QOS, for each user: MaxTRESPerUser=gres/gpu, MaxJobsPerUser."""

    def __bool__(self) -> bool:
        """There is any limit at all."""
        return bool(self.user or self.qos or self.qos_user)


@dataclass(frozen=True, kw_only=True)
class FleetShape:
    """Clusters in a fixed order. A node's index counts over all clusters, in that order."""

    clusters: tuple[tuple[NodeShape, ...], ...]
    out_of_service: tuple[OutOfService, ...] = ()
    limits: Limits = field(default_factory=Limits)
    partition_limit: Mapping[int, int] = field(default_factory=dict)
    """MaxTime of a partition, seconds: a job that asks for more never starts there."""
    speed: tuple[float, ...] = ()
    """By cluster: a job's running time is divided by it, its limit is not; none: all alike. To a thousandth."""

    def __post_init__(self) -> None:
        """Refuse shapes the engine cannot hold.

        Raises:
            ConfigError: no or too many clusters, an empty one, a partition id out of range, a bad interval.
        """
        if not 1 <= len(self.clusters) <= MAX_CLUSTERS:
            raise ConfigError(f"a fleet has 1 to {MAX_CLUSTERS} clusters, not {len(self.clusters)}")
        wrong = any(not 0.001 <= each <= 1000 for each in self.speed)
        if self.speed and (wrong or len(self.speed) != len(self.clusters)):
            raise ConfigError(f"speed needs one number for each cluster, 0.001 to 1000, not {self.speed}")
        for index, nodes in enumerate(self.clusters):
            if not nodes:
                raise ConfigError(f"cluster {index} has no node")
            for node in nodes:
                if not all(0 <= each < MAX_PARTITIONS for each in node.partitions):
                    raise ConfigError(f"cluster {index}: partition ids are 0 to {MAX_PARTITIONS - 1}")
                if min(node.gpus, node.cpus, node.memory) < 0:
                    raise ConfigError(f"cluster {index}: a node has less than nothing: {node}")
        for out in self.out_of_service:
            if not (0 <= out.node < self.node_count and 0 <= out.start < out.end <= FOREVER):
                raise ConfigError(f"out of service: unknown node or empty interval: {out}")

    @property
    def nodes(self) -> tuple[NodeShape, ...]:
        """All nodes, cluster by cluster."""
        return tuple(node for cluster in self.clusters for node in cluster)

    @property
    def node_count(self) -> int:
        """Nodes of all clusters."""
        return sum(len(nodes) for nodes in self.clusters)

    @property
    def gpus(self) -> Ints:
        """Devices per cluster, (clusters,)."""
        return np.array([sum(node.gpus for node in nodes) for nodes in self.clusters], dtype=np.int64)

    @property
    def thousandths(self) -> Ints:
        """The clusters' speeds as the engine counts them, (clusters,)."""
        return np.array([round(1000 * v) for v in self.speed or (1.0,) * len(self.clusters)], dtype=np.int64)

    def available_gpu_seconds(self, first: int, last: int) -> int:
        """GPU-seconds of all clusters in [first, last), with time out of service taken out once."""
        nodes = self.nodes
        lost = 0
        for index in {out.node for out in self.out_of_service}:
            spans = sorted((o.start, o.end) for o in self.out_of_service if o.node == index)
            reached = first
            for start, end in spans:
                begin = max(start, reached)
                stop = min(end, last)
                if stop > begin:
                    lost += (stop - begin) * nodes[index].gpus
                    reached = stop
        return int(self.gpus.sum()) * (last - first) - lost

    @classmethod
    def uniform(cls, *, clusters: int, nodes: int, gpus: int) -> FleetShape:
        """So many equal clusters of equal nodes, where only GPUs are scarce."""
        return cls(clusters=((NodeShape(gpus=gpus),) * nodes,) * clusters)
