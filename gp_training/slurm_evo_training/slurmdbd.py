"""Histories asked of the clusters themselves: sacct on each configured one."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, ClusterUnreachable, ConfigError
from slurm_evo.trace import Trace, read
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
    """
    if settings.simulated:
        raise ConfigError("--from-slurmdbd needs clusters in the configuration; simulated ones have no history")
    found = []
    for cluster in settings.clusters:
        command = [*ASK.split(), "-M", cluster.name, "-S", f"now-{round(days * 24)}hours"]
        environment = {**os.environ, "SLURM_CONF": str(cluster.slurm_conf), "TZ": "UTC"}
        try:
            text = runner(command, environment)
        except (OSError, subprocess.SubprocessError) as failure:
            detail = (getattr(failure, "stderr", "") or str(failure)).strip()
            raise ClusterUnreachable(ClusterName(cluster.name), f"sacct could not be asked: {detail}") from failure
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"sacct of {cluster.name}"
            file.write_text(text, encoding="utf-8")
            found.append(read(file, form="sacct").trace)
    return found
