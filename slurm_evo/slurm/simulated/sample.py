"""The sample fleet of the demo, the same as the testbed's real one."""

from __future__ import annotations

from slurm_evo.slurm.simulated.spec import (
    ClusterSpec,
    FleetSpec,
    NodeSpec,
    PartitionSpec,
    QosSpec,
    UserSpec,
)

USERS = tuple(
    UserSpec(name=name, account=("physics", "physics", "biology")[number % 3])
    for number, name in enumerate(
        ("ada", "bob", "cyd", "dee", "eva", "fay", "gil", "hal", "ian", "joy", "kai", "lea")
    )
)
QOS = (QosSpec(name="normal", max_gpus_per_user=64), QosSpec(name="high", priority=100))


def cluster_spec(
    name: str,
    nodes: int,
    gpus: int,
    gpu_type: str,
    *,
    debug: bool = False,
    federated: bool = True,
    users: tuple[UserSpec, ...] = USERS,
    qos: tuple[QosSpec, ...] = QOS,
) -> ClusterSpec:
    """A cluster of equal nodes ``NAME1`` ...: partition ``gpu`` on all, maybe ``debug`` on the first."""
    partitions = [PartitionSpec(name="gpu", default=True)]
    if debug:
        partitions.append(PartitionSpec(name="debug", limit_s=3600, nodes=(f"{name}1",)))
    return ClusterSpec(
        name=name,
        nodes=tuple(
            NodeSpec(name=f"{name}{number}", gpus=gpus, gpu_type=gpu_type) for number in range(1, nodes + 1)
        ),
        partitions=tuple(partitions),
        qos=qos,
        users=users,
        federated=federated,
    )


def sample_fleet(*, users: tuple[UserSpec, ...] = USERS, qos: tuple[QosSpec, ...] = QOS) -> FleetSpec:
    """Alpha (4 x 8 a100), beta (2 x 8 a100) and gamma (4 x 4 v100) federated; delta (2 x 8 a100) plain."""
    return FleetSpec(
        clusters=(
            cluster_spec("alpha", 4, 8, "a100", debug=True, users=users, qos=qos),
            cluster_spec("beta", 2, 8, "a100", users=users, qos=qos),
            cluster_spec("gamma", 4, 4, "v100", debug=True, users=users, qos=qos),
            cluster_spec("delta", 2, 8, "a100", federated=False, users=users, qos=qos),
        )
    )
