"""site_factor/evo put into one real slurmctld of the fleet, and taken out again."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from real_world import command, slurm_conf

from slurm_evo.policy import Policy, compact

DELIVERED = Path("/scratch/plugin/site_factor_evo.so")
LOGS = Path("/scratch/log")
LINES = "\nPrioritySiteFactorPlugin=site_factor/evo\nPrioritySiteFactorParameters=dir={folder}\n"


def put(path: Path, content: str | bytes) -> None:
    """Replace a file in one step, as the daemon does."""
    aside = path.with_name(f".{path.name}.new")
    aside.write_bytes(content.encode() if isinstance(content, str) else content)
    aside.chmod(0o644)
    aside.replace(path)


def context(*lines: str) -> str:
    """A context file of our own."""
    return compact.sealed(
        ["slurm-evo-context 1", f"time {time.time():.0f}", "recalc 1", "stay slurm-evo:stay", *lines]
    )


@dataclass
class PluginSite:
    """One cluster with the plugin."""

    cluster: str
    folder: Path

    def restart(self) -> None:
        """Its slurmctld, stopped and started; returns when it answers."""
        for verb in ("stop", "start"):
            subprocess.run(["python3", "/testbed/inside.py", verb, f"slurmctld-{self.cluster}"], check=True)
        eventually(self.answers, "slurmctld answers", 30)

    def answers(self) -> bool:
        """It is there and knows its jobs."""
        return "is UP" in command(self.cluster, "scontrol", "ping", check=False)

    def put_in(self) -> None:
        """Install as an admin would, by hand."""
        plugins = next(Path("/usr/lib").glob("*/slurm-wlm"))
        # Never over a library that another slurmctld has loaded: cutting a mapped file short ends that process.
        put(plugins / DELIVERED.name, DELIVERED.read_bytes())
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.chown(self.folder, "slurm")
        conf = Path(slurm_conf(self.cluster))
        conf.write_text(conf.read_text() + LINES.format(folder=self.folder))
        self.restart()

    def take_out(self) -> None:
        """As it was."""
        conf = Path(slurm_conf(self.cluster))
        conf.write_text(conf.read_text().replace(LINES.format(folder=self.folder), ""))
        self.restart()
        shutil.rmtree(self.folder, ignore_errors=True)
        for library in Path("/usr/lib").glob(f"*/slurm-wlm/{DELIVERED.name}"):
            library.unlink()

    def use(self, policy: Policy) -> None:
        """Give it a policy and wait until it has it."""
        put(self.folder / "policy", compact.dump(policy))
        eventually(lambda: self.status()["policy"] == compact.policy_id(policy), "the policy is read", 20)

    def status(self) -> dict[str, Any]:
        """What the plugin says of itself."""
        try:
            return dict(json.loads((self.folder / "status.json").read_text()))
        except FileNotFoundError:
            return {"policy": "", "passes": 0, "policy_problem": ""}

    def said(self) -> list[str]:
        """Its lines in slurmctld's log."""
        log = (LOGS / f"slurmctld-{self.cluster}.log").read_text()
        return [line for line in log.splitlines() if "site_factor/evo" in line]

    def submit(self, *options: str, user: str = "ada") -> int:
        """One job that waits; its id."""
        argv = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *options, "--wrap", "sleep 3600")
        return int(command(self.cluster, *argv, user=user).strip().split(";")[0])

    def factors(self, jobs: Sequence[int]) -> dict[int, int]:
        """SiteFactors that sprio shows; held and blocked jobs are not among them."""
        told = command(self.cluster, "sprio", "-h", "-o", "%i %S")
        rows = (line.split() for line in told.splitlines())
        wanted = set(jobs)
        return {int(row[0]): int(float(row[1])) for row in rows if len(row) == 2 and int(row[0]) in wanted}

    def after_a_pass(self, count: int = 1) -> None:
        """Wait until slurmctld has gone through all pending jobs so many times more."""
        before = self.status()["passes"]
        eventually(lambda: self.status()["passes"] >= before + count, "a priority pass", 90 * count)


def eventually(true: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Ask until it is so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)
