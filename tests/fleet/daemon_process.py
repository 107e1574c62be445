"""The daemon as a process of its own, as the slurm-evo operator, and the workload it steers."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from real_world import MEMBERS, command, slurm_conf

WAY = "pyslurm" if importlib.util.find_spec("pyslurm") else "command"


@dataclass
class DaemonProcess:
    """``slurm-evo daemon`` with a configuration and a journal in a folder of its own."""

    folder: Path
    period_s: float = 2.0
    budget_s: float = 0.3
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def config(self) -> Path:
        """Its configuration file."""
        return self.folder / "slurm-evo.toml"

    def configure(self, extra: str = "") -> None:
        """Write the configuration: quick cycles, and clusters that the user's -M does not bind."""
        clusters = "".join(
            f'[[clusters]]\nname = "{name}"\nway = "{WAY}"\nslurm_conf = "{slurm_conf(name)}"\n'
            for name in (*MEMBERS, "delta")
        )
        self.config.write_text(
            f'[cycle]\nperiod_s = {self.period_s}\nlease_s = 20.0\n[store]\nstate_dir = "{self.folder}"\n'
            f"[optimizer]\nbudget_s = {self.budget_s}\nmargin = 0.01\n"
            "[moves]\ncooldown_s = 10\nconfirm_s = 10\nstranded_s = 4\nmax_per_cycle = 100\n"
            f"respect_user_clusters = false\n[priority]\nrecalc_s = 30\n{extra}\n{clusters}"
        )
        subprocess.run(["chown", "-R", "slurm-evo", str(self.folder)], check=True)

    def argv(self, *words: str) -> list[str]:
        """The command line of any slurm-evo command under this configuration."""
        config = ("--config", str(self.config))
        python = ("env", "NUMBA_CACHE_DIR=/tmp/numba-slurm-evo", sys.executable)
        return ["runuser", "-u", "slurm-evo", "--", *python, "-m", "slurm_evo_daemon", *words, *config]

    def start(self) -> None:
        """Start it."""
        self.starts += 1
        with (self.folder / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(self.argv("daemon"), stderr=log, stdout=log, start_new_session=True)

    def until_started(self, seconds: float = 60.0) -> None:
        """Wait until this start of it says that it runs."""
        deadline = time.monotonic() + seconds
        while self.log().count("daemon.started") < self.starts:
            if time.monotonic() > deadline:
                raise AssertionError(f"the daemon did not start: {self.log()[-2000:]}")
            time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM) -> None:
        """Stop it by a signal (to all its processes if it is SIGKILL) and wait."""
        assert self.process is not None
        if number == signal.SIGKILL:
            os.killpg(self.process.pid, number)
        else:
            subprocess.run(["pkill", f"-{int(number)}", "-f", "slurm_evo_daemon daemon"], check=False)
        self.process.wait(timeout=60)
        self.process = None

    def log(self) -> str:
        """What it said so far."""
        return (self.folder / "daemon.log").read_text()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another command."""
        return subprocess.run(self.argv(*words), capture_output=True, text=True, check=False)


def open_jobs(states: str = "PENDING,RUNNING,COMPLETING") -> set[int]:
    """Jobs that wait or run anywhere in the federation, trackers not counted."""
    found = set()
    for name in MEMBERS:
        shown = command(name, "squeue", "--local", "--noheader", f"--states={states}", "--format=%A")
        found |= {int(word) for word in shown.split()}
    return found


def until_done(jobs: set[int], seconds: float) -> None:
    """Wait until none of the jobs waits or runs."""
    deadline = time.monotonic() + seconds
    while open_jobs() & jobs:
        if time.monotonic() > deadline:
            shown = "\n".join(command(name, "squeue", "--local", "--all") for name in MEMBERS)
            raise AssertionError(f"not done within {seconds:g} s:\n{shown}")
        time.sleep(1)
