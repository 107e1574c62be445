"""A fleet of simulated Slurm clusters: the demo's, and the tests'. Behaves as docs and daemons say."""

from slurm_evo.slurm.simulated.faults import Faults
from slurm_evo.slurm.simulated.fleet import EPOCH, SimulatedFleet
from slurm_evo.slurm.simulated.port import SimulatedPort
from slurm_evo.slurm.simulated.record import INFINITE, SimulatedJob
from slurm_evo.slurm.simulated.sample import cluster_spec, sample_fleet
from slurm_evo.slurm.simulated.spec import (
    Arrival,
    ClusterSpec,
    FleetSpec,
    NodeSpec,
    PartitionSpec,
    QosSpec,
    Reservation,
    Submission,
    UserSpec,
)

__all__ = [
    "EPOCH",
    "INFINITE",
    "Arrival",
    "ClusterSpec",
    "Faults",
    "FleetSpec",
    "NodeSpec",
    "PartitionSpec",
    "QosSpec",
    "Reservation",
    "SimulatedFleet",
    "SimulatedJob",
    "SimulatedPort",
    "Submission",
    "UserSpec",
    "cluster_spec",
    "sample_fleet",
]
