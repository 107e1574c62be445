"""Shipped stand-ins for tests of slurm-evo and of what is built on it."""

from slurm_evo.slurm.simulated import (
    Faults,
    SimulatedFleet,
    SimulatedPort,
    Submission,
    cluster_spec,
    sample_fleet,
)
from slurm_evo.testing.clock import ManualClock

__all__ = [
    "Faults",
    "ManualClock",
    "SimulatedFleet",
    "SimulatedPort",
    "Submission",
    "cluster_spec",
    "sample_fleet",
]
