"""From the configuration to the ways in."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import numpy as np

from slurm_evo.config import ClusterSettings, ClusterTransferSettings, Settings
from slurm_evo.model import ClusterName, ClusterPort, ConfigError
from slurm_evo.slurm.simulated import SimulatedFleet, SimulatedPort, sample_fleet, sample_workload
from slurm_evo.slurm.transfer import TransferPort

SAMPLE_SEED = 1
SAMPLE_JOBS = 400
SAMPLE_DAYS = 1.0
SAMPLE_LOAD = 1.1
SAMPLE_NOON_S = 12 * 3600
"""A simulated fleet is opened at noon of its first day."""


def connect(settings: Settings, clock: Callable[[], datetime]) -> Mapping[ClusterName, ClusterPort]:
    """One port for each configured cluster; a sample fleet where none, or simulated ones, are configured.

    Nothing is asked of a cluster yet.

    Raises:
        ConfigError: a simulated cluster that the sample fleet does not have.
    """
    if settings.simulated:
        return _simulated(settings, clock)
    return {ClusterName(cluster.name): _real(cluster) for cluster in settings.clusters}


def connect_transfers(settings: Settings) -> Mapping[ClusterName, TransferPort]:
    """The ways of moving plain jobs, for the clusters that have [clusters.transfers]; nothing is asked yet.

    Empty for simulated clusters, whose sample fleet has but one plain cluster.
    """
    return {
        ClusterName(cluster.name): _transfers(cluster, cluster.transfers)
        for cluster in settings.clusters
        if cluster.transfers is not None and not settings.simulated
    }


def _transfers(cluster: ClusterSettings, given: ClusterTransferSettings) -> TransferPort:
    from slurm_evo.slurm.transfer.slurm_way import SlurmTransfers

    return SlurmTransfers(
        ClusterName(cluster.name),
        slurm_conf=str(cluster.slurm_conf),
        commands=cluster.commands,
        our_uid=os.geteuid(),
        url=given.url,
        slurm_user=given.slurm_user,
        token_file=given.token_file,
        state_dir=given.state_dir,
        state_reader=given.state_reader,
        timeout_s=cluster.timeout_s,
    )


def _real(cluster: ClusterSettings) -> ClusterPort:
    name = ClusterName(cluster.name)
    if cluster.way == "pyslurm":
        from slurm_evo.slurm.pyslurm_port import PyslurmPort

        return PyslurmPort(
            name, slurm_conf=str(cluster.slurm_conf), commands=cluster.commands, timeout_s=cluster.timeout_s
        )
    if cluster.way == "command":
        from slurm_evo.slurm.command import CommandPort

        return CommandPort(
            name, slurm_conf=str(cluster.slurm_conf), commands=cluster.commands, timeout_s=cluster.timeout_s
        )
    from slurm_evo.slurm.rest import RestPort

    if cluster.token_file is None:
        raise ConfigError(f"clusters.{name}: way = 'rest' needs a token_file")
    return RestPort(
        name, url=cluster.url, token_file=cluster.token_file, user=cluster.user, timeout_s=cluster.timeout_s
    )


def _simulated(settings: Settings, clock: Callable[[], datetime]) -> Mapping[ClusterName, ClusterPort]:
    """A fleet that lives in this process, with a sample workload, at the pace of the clock."""
    spec = sample_fleet()
    # It has run for half a day when it is opened, so that queues are there; its present is the clock's.
    fleet = SimulatedFleet(spec, start=clock() - timedelta(seconds=SAMPLE_NOON_S), clock=clock)
    rng = np.random.default_rng(SAMPLE_SEED)
    fleet.arrive(sample_workload(rng, spec, jobs=SAMPLE_JOBS, days=SAMPLE_DAYS, load=SAMPLE_LOAD))
    fleet.advance_to_s(SAMPLE_NOON_S)
    wanted = settings.names or tuple(ClusterName(cluster.name) for cluster in spec.clusters)
    missing = [name for name in wanted if name not in fleet.controllers]
    if missing:
        known = ", ".join(fleet.controllers)
        raise ConfigError(f"clusters: there is no simulated cluster {missing[0]}; there are {known}")
    return {name: SimulatedPort(fleet, name) for name in wanted}
