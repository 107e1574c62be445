"""What a simulated fleet is made of, and what its users submit. Frozen values; times in whole seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

DEFAULT_WEIGHTS: Mapping[str, int] = MappingProxyType({"age": 1000, "qos": 100, "jobsize": 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node as slurm.conf(5) and gres.conf(5) describe it."""

    name: str
    gpus: int
    gpu_type: str | None
    cpus: int = 64
    memory_mb: int = 512_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """One partition of slurm.conf(5)."""

    name: str
    default: bool = False
    limit_s: int | None = 7 * 86_400
    nodes: tuple[str, ...] | None = None
    """None for all nodes of the cluster."""
    allow_accounts: tuple[str, ...] | None = None
    allow_qos: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QosSpec:
    """One QOS of sacctmgr(1)."""

    name: str
    priority: int = 0
    max_gpus_per_user: int | None = None
    """MaxTRESPerUser=gres/gpu=N."""
    max_wall_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSpec:
    """One user with the association that holds on every cluster."""

    name: str
    account: str
    max_jobs: int | None = None
    """MaxJobs: running at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """One cluster: a slurmctld with its nodes, partitions, users and scheduler options."""

    name: str
    nodes: tuple[NodeSpec, ...]
    partitions: tuple[PartitionSpec, ...]
    qos: tuple[QosSpec, ...]
    users: tuple[UserSpec, ...]
    federated: bool = True
    weights: Mapping[str, int] = field(default_factory=lambda: DEFAULT_WEIGHTS)
    """PriorityWeightAge, ...QOS, ...JobSize by lower-case name."""
    max_age_s: int = 7 * 86_400
    backfill: bool = True
    bf_interval_s: int = 30

    @property
    def gpus(self) -> int:
        """All devices."""
        return sum(node.gpus for node in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """Several clusters; those with ``federated`` set are members of one federation."""

    clusters: tuple[ClusterSpec, ...]
    federation: str = "fleet"

    @property
    def members(self) -> tuple[str, ...]:
        """The federation's clusters, in the order of their federation ids (1, 2, ...)."""
        return tuple(cluster.name for cluster in self.clusters if cluster.federated)

    def cluster(self, name: str) -> ClusterSpec:
        """One cluster by name.

        Raises:
            KeyError: there is none of that name.
        """
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        raise KeyError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a user gives sbatch(1), and what only nature knows: how long it really runs."""

    user: str
    run_s: int
    """True running time; the job is killed at ``limit_s`` if that comes first."""
    limit_s: int = 3600
    gpus: int = 1
    """Whole devices, all nodes together; spread evenly over ``nodes``."""
    gpu_type: str | None = None
    nodes: int = 1
    cpus: int = 1
    """All nodes together."""
    memory_mb: int = 0
    name: str = "job"
    account: str = ""
    """Empty: the user's own."""
    partitions: tuple[str, ...] = ()
    """Empty: the default of each cluster."""
    qos: str = "normal"
    nice: int = 0
    held: bool = False
    tasks: int = 0
    """Number of array tasks; 0 for no array."""
    components: tuple[Submission, ...] = ()
    """The further components of a heterogeneous job."""
    dependency: str = ""
    """``afterok:ID``, ``afterany:ID``, ``afternotok:ID`` or ``after:ID``; several joined by commas."""
    begin_s: int = 0
    """Seconds after submission before which it may not start (``--begin=now+N``)."""
    reservation: str = ""
    comment: str = ""
    clusters: tuple[str, ...] = ()
    """The user's own ``-M``; empty for all members of the federation."""

    def per_node(self) -> tuple[int, int, int]:
        """GPUs, CPUs and memory in MB on each of its nodes, rounded up."""
        n = self.nodes
        return -(-self.gpus // n), -(-self.cpus // n), -(-self.memory_mb // n)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One submission of a workload: when, where from, what."""

    at_s: int
    """Seconds after the fleet's start."""
    cluster: str
    submission: Submission


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """One reservation of scontrol(1): nodes that only its users' jobs may use while it lasts."""

    name: str
    nodes: tuple[str, ...]
    start_s: int
    end_s: int
    users: tuple[str, ...]
