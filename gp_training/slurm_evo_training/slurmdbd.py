"""Histories and the fleet asked of the clusters: sacct on each configured one, and a look at its nodes."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, ClusterUnreachable, ConfigError, TraceError
from slurm_evo.slurm.connect import connect
from slurm_evo.slurm.runner import slurm_environment
from slurm_evo.trace import Trace, read
from slurm_evo.trace.capacity import Capacity, of_views
from slurm_evo.trace.sacct_text import ASK

TIMEOUT_S = 600.0
Run = Callable[[Sequence[str], dict[str, str]], str]


def run(command: Sequence[str], environment: dict[str, str]) -> str:
    """Standard output of a command.

    Raises:
        OSError: it cannot be run.
        subprocess.SubprocessError: it failed or took too long.
    """
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, errors="replace"
    )
    return done.stdout


def ask(settings: Settings, *, days: float, runner: Run = run) -> list[Trace]:
    """The last days of every configured cluster, in UTC.

    Raises:
        ConfigError: no real cluster is configured.
        ClusterUnreachable: sacct could not be asked; names the cluster.
        TraceError: no cluster ran a job, or an answer cannot be read.
    """
    if settings.simulated:
        raise ConfigError("--from-slurmdbd needs clusters in the configuration; simulated ones have no history")
    found = []
    for cluster in settings.clusters:
        command = [*ASK.split(), "-M", cluster.name, "-S", f"now-{round(days * 24)}hours"]
        own = slurm_environment(str(cluster.slurm_conf), cluster.commands)
        environment = {**os.environ, "PATH": own["PATH"], "SLURM_CONF": own["SLURM_CONF"], "TZ": "UTC"}
        try:
            text = runner(command, environment)
        except (OSError, subprocess.SubprocessError) as failure:
            detail = (getattr(failure, "stderr", "") or str(failure)).strip()
            raise ClusterUnreachable(ClusterName(cluster.name), f"sacct could not be asked: {detail}") from failure
        if len(text.splitlines()) < 2:  # the header alone: a cluster that ran nothing is no obstacle
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"sacct of {cluster.name}"
            file.write_text(text, encoding="utf-8")
            found.append(read(file, form="sacct").trace)
    if not found:
        names = ", ".join(cluster.name for cluster in settings.clusters)
        raise TraceError(f"sacct of {names} tells of no job in the last {days:g} days; give more with --days")
    return found


def fleet(settings: Settings) -> Capacity:
    """The nodes of every configured cluster that are up now.

    Raises:
        ClusterUnreachable: one does not answer; half a fleet would teach the wrong thing.
        ClusterRefused: one does not let us look.
        ConfigError: no node is up.
    """
    ports = connect(settings, lambda: datetime.now(UTC))
    try:
        return of_views([port.look() for port in ports.values()])
    finally:
        for port in ports.values():
            port.close()
