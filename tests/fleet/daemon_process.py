"""The daemon as a process of its own, as the slurm-evo operator, and the workload it steers."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from real_world import MEMBERS, OPERATOR, command, slurm_conf

from slurm_evo.store import Journal

WAY = os.environ.get("FLEET_WAY") or ("pyslurm" if importlib.util.find_spec("pyslurm") else "command")
"""The way in that the stories use; ``FLEET_WAY=command`` tells them through Slurm's commands."""


@dataclass
class DaemonProcess:
    """``slurm-evo daemon`` with a configuration and a journal in a folder of its own."""

    folder: Path
    period_s: float = 2.0
    budget_s: float = 0.3
    cooldown_s: float = 10.0
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def config(self) -> Path:
        """Its configuration file."""
        return self.folder / "slurm-evo.toml"

    def configure(self, extra: str = "", *, moves: bool = True) -> None:
        """Write the configuration: quick cycles, and clusters that the user's -M does not bind.

        Args:
            extra: more TOML.
            moves: whether new ones are planned; those under way are brought to their end either way.
        """
        clusters = "".join(
            f'[[clusters]]\nname = "{name}"\nway = "{WAY}"\nslurm_conf = "{slurm_conf(name)}"\n'
            for name in (*MEMBERS, "delta")
        )
        self.config.write_text(
            f'[cycle]\nperiod_s = {self.period_s}\nlease_s = 20.0\n[store]\nstate_dir = "{self.folder}"\n'
            f"[optimizer]\nbudget_s = {self.budget_s}\nmargin = 0.01\n"
            f"[moves]\nenabled = {str(moves).lower()}\ncooldown_s = {self.cooldown_s}\n"
            "confirm_s = 10\nstranded_s = 4\nmax_per_cycle = 100\n"
            f"respect_user_clusters = false\n[priority]\nrecalc_s = 30\n{extra}\n{clusters}"
        )
        self._hand_over()

    def _hand_over(self) -> None:
        subprocess.run(["chown", "-R", OPERATOR, str(self.folder)], check=True)

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        """Its journal, while it does not run."""
        journal = Journal.open(f"sqlite:///{self.folder}/journal.sqlite")
        try:
            yield journal
        finally:
            journal.close()
            self._hand_over()

    def _words(self, *words: str) -> list[str]:
        config = ("--config", str(self.config))
        python = ("env", "NUMBA_CACHE_DIR=/tmp/numba-slurm-evo", sys.executable)
        return [*python, "-m", "slurm_evo_daemon", *words, *config]

    def start(self) -> None:
        """Start it."""
        self.starts = self._said("daemon.started") + 1  # the folder may have seen other daemons
        with (self.folder / "daemon.log").open("ab") as log:
            # No runuser between us: signals go to the daemon itself, and its workers see that it died.
            self.process = subprocess.Popen(
                self._words("daemon"), stderr=log, stdout=log, user=OPERATOR, group=OPERATOR, extra_groups=()
            )

    def until_started(self, seconds: float = 60.0) -> None:
        """Wait until this start of it says that it runs."""
        deadline = time.monotonic() + seconds
        while self._said("daemon.started") < self.starts:
            if time.monotonic() > deadline:
                raise AssertionError(f"the daemon did not start: {self.log()[-2000:]}")
            time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM) -> None:
        """Stop it by a signal and wait."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(timeout=60)
        self.process = None

    def _said(self, event: str) -> int:
        return self.log().count(event) if (self.folder / "daemon.log").exists() else 0

    def log(self) -> str:
        """What it said so far."""
        return (self.folder / "daemon.log").read_text()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another command."""
        return subprocess.run(
            self._words(*words), capture_output=True, text=True, check=False,
            user=OPERATOR, group=OPERATOR, extra_groups=(),
        )  # fmt: skip


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
