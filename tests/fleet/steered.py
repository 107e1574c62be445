"""The daemon's own cycle on the real fleet, one call at a time, acting as the slurm-evo operator."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from real_world import MEMBERS, command

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, ClusterPort, JobKey
from slurm_evo.policy import Policy
from slurm_evo.store import JobMemory, Journal
from slurm_evo_daemon.cycle import Surroundings, cycle
from slurm_evo_daemon.decide import Decision
from slurm_evo_daemon.loop import utc_now
from slurm_evo_daemon.report import CycleReport

QUICK: dict[str, Any] = {
    "moves": {
        "confirm_s": 4, "stranded_s": 2, "cooldown_s": 0, "refusal_s": 600, "enabled": False,
        "respect_user_clusters": False,
    },
    "priority": {"recalc_s": 600},
}  # fmt: skip
"""Short patience; layer 1 off, so that only what a story wants is moved."""


class Steered:
    """A fleet under slurm-evo.

    Args:
        make_port: the way in.
        folder: where the journal goes.
        settings: as in a configuration file.
    """

    def __init__(
        self, make_port: Callable[[str], ClusterPort], folder: Path, settings: dict[str, Any] = QUICK
    ) -> None:
        self.settings = Settings.model_validate(settings)
        self.ports = {ClusterName(name): make_port(name) for name in (*MEMBERS, "delta")}
        self.journal = Journal.open(f"sqlite:///{folder}/journal.sqlite")
        rng = np.random.default_rng(1)
        self.around = Surroundings(self.ports, self.journal, utc_now, time.monotonic, rng)

    def cycle(self) -> tuple[CycleReport, Decision]:
        """One live pass."""
        lease = self.journal.acquire("stories", now=utc_now(), length_s=600)
        return cycle(self.around, self.settings, Policy.default(), lease)

    def until(self, done: Callable[[], bool], what: str, *, seconds: float = 300.0) -> None:
        """Cycle once a second until something holds."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                shown = "\n".join(command(name, "squeue", "--local", "--all") for name in MEMBERS)
                raise AssertionError(f"not within {seconds:g} s: {what}\n{shown}\n{self._told()}")
            self.cycle()
            time.sleep(1)

    def _told(self) -> str:
        """What the journal has to say for a story that failed: the latest actions, and what is remembered."""
        rows = (
            f"{row.intended_at:%H:%M:%S} {row.action} {row.state} «{row.message}»: {row.reason}"
            for row in self.journal.history(limit=12)
        )
        return "\n".join((*rows, *map(str, self.journal.jobs().values())))

    def want(self, key: JobKey, *clusters: str, **changes: Any) -> None:
        """Write down, as a plan would, where a job is to be brought."""
        memory = self.journal.jobs([key]).get(key)
        if memory is None:
            self.cycle()
            memory = self.journal.jobs([key])[key]
        wanted = frozenset(ClusterName(name) for name in clusters)
        self.journal.remember([replace(memory, wanted=wanted, widening_since=None, **changes)])

    def memory(self, key: JobKey) -> JobMemory:
        """What the journal knows of a job."""
        return self.journal.jobs([key])[key]

    def waits_at(self, key: JobKey) -> set[str]:
        """The clusters in whose own queues it waits."""
        found = set()
        for name in MEMBERS:
            shown = command(
                name,
                "squeue",
                "--local",
                "--noheader",
                f"--jobs={key.id}",
                "--states=PENDING",
                "--format=%T",
                check=False,
            )
            if "PENDING" in shown:
                found.add(name)
        return found

    def close(self) -> None:
        """Let everything go."""
        for port in self.ports.values():
            port.close()
        self.journal.close()


def sprio(cluster: str, job: int) -> tuple[int, int] | None:
    """(priority, SiteFactor) as sprio shows them at a cluster; None if it shows nothing."""
    shown = command(
        cluster, "sprio", "--local", "--noheader", f"--jobs={job}", "--format=%Y %S", check=False
    ).split()
    return (int(shown[0]), int(shown[1])) if len(shown) >= 2 else None


def shown(cluster: str, job: int, field: str) -> str:
    """One field of the cluster's own record; without --local scontrol shows the origin's (scontrol(1))."""
    local = ("scontrol", "--local", "--all", "--oneliner")
    text = command(cluster, *local, "show", "job", str(job), check=False)
    return next((word.split("=", 1)[1] for word in text.split() if word.startswith(f"{field}=")), "")
