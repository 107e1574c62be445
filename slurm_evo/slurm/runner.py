"""What the ports do to this host: run a command, read the clock."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol


def utc_now() -> datetime:
    """The clock of this host."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command that ended left behind."""

    returncode: int
    stdout: str
    stderr: str


class Runner(Protocol):
    """Runs one command to its end; another transport (a container, ssh) is another Runner."""

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> Ran:
        """Run ``argv`` with exactly the environment ``env``.

        Raises:
            OSError: it could not be started.
            subprocess.TimeoutExpired: it did not end in time and was killed.
        """
        ...


def run_process(argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> Ran:
    """Run a command on this host: no shell, nothing on standard input.

    Output that is no UTF-8 (a job's name may be anything) is kept with replacement characters.

    Raises:
        OSError: it could not be started.
        subprocess.TimeoutExpired: it did not end in time and was killed.
    """
    done = subprocess.run(
        list(argv),
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=False,
        encoding="utf-8",
        errors="replace",
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def slurm_environment(slurm_conf: str, commands: Path | None = None) -> dict[str, str]:
    """A whole environment for Slurm's commands.

    Nothing of the caller's SLURM_CLUSTERS, SQUEUE_STATES and the like comes through, which would change
    what the commands print. SLURM_CONF chooses the cluster: ``-M`` would print a header into the JSON.

    Args:
        slurm_conf: path of the cluster's slurm.conf.
        commands: the folder of that cluster's own commands, looked into first; None: those on PATH.
    """
    path = os.environ.get("PATH", os.defpath)
    return {
        "PATH": path if commands is None else f"{commands}{os.pathsep}{path}",
        "LC_ALL": "C",
        "TZ": "UTC",
        "SLURM_TIME_FORMAT": "standard",
        "SLURM_CONF": slurm_conf,
    }
