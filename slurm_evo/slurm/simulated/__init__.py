"""A fleet of simulated Slurm clusters: the demo's, and the tests'. Behaves as docs and daemons say."""

from slurm_evo.slurm.simulated.faults import Faults
from slurm_evo.slurm.simulated.fleet import EPOCH, SimulatedFleet
from slurm_evo.slurm.simulated.port import SimulatedPort
from slurm_evo.slurm.simulated.record import INFINITE, SimulatedJob
from slurm_evo.slurm.simulated.runs import Results, judge, results, run, without_federation
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
from slurm_evo.slurm.simulated.workload import sample_workload

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
    "Results",
    "SimulatedFleet",
    "SimulatedJob",
    "SimulatedPort",
    "Submission",
    "UserSpec",
    "cluster_spec",
    "judge",
    "results",
    "run",
    "sample_fleet",
    "sample_workload",
    "without_federation",
]
