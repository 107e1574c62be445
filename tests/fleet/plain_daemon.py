"""The daemon as a process, as root, on delta and gamma without a federation; and jobs that leave marks."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from plain import PLAIN, STATE, leave_federation
from real_world import OPERATOR, command, commands_of, rest_url, slurm_conf

from slurm_evo.slurm.transfer import Phase

USERS = ("ada", "bob", "cyd")


@dataclass
class PlainDaemon:
    """``slurm-evo daemon`` with a configuration and a journal in a folder of its own."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def config(self) -> Path:
        """Its configuration file."""
        return self.folder / "slurm-evo.toml"

    def configure(
        self, *, confirm_s: float = 6, max_at_once: int = 16, ways: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Quick cycles, and moves between the two clusters; the way into each is «command» if none is given."""
        clusters = "".join(
            f'[[clusters]]\nname = "{name}"\nslurm_conf = "{slurm_conf(name)}"\n{way_in(name, ways)}'
            f'[clusters.transfers]\nurl = "{rest_url(name)}"\nstate_dir = "{STATE}/{name}"\n'
            'paths = { "/home" = "/home", "/tmp" = "/tmp" }\n'
            for name in PLAIN
        )
        self.config.write_text(
            f'[cycle]\nperiod_s = 2.0\nlease_s = 20.0\n[store]\nstate_dir = "{self.folder}"\n'
            "[optimizer]\nbudget_s = 0.3\nmargin = 0.01\n[moves]\ncooldown_s = 10\nrefusal_s = 30\n"
            f"[transfers]\nenabled = true\nconfirm_s = {confirm_s}\nmax_at_once = {max_at_once}\n"
            f"[priority]\nrecalc_s = 30\n{clusters}"
        )

    def start(self) -> None:
        """Start it and wait until it says that it runs."""
        self.starts = self.log().count("daemon.started") + 1
        with (self.folder / "daemon.log").open("ab") as log:
            argv = [sys.executable, "-m", "slurm_evo_daemon", "daemon", "--config", str(self.config)]
            self.process = subprocess.Popen(argv, stderr=log, stdout=log)
        deadline = time.monotonic() + 60
        while self.log().count("daemon.started") < self.starts:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"the daemon did not start: {self.log()[-2000:]}")
            time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM) -> None:
        """Stop it by a signal and wait."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(timeout=120)
        self.process = None

    def log(self) -> str:
        """What it said so far."""
        file = self.folder / "daemon.log"
        return file.read_text() if file.exists() else ""

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another command."""
        argv = [sys.executable, "-m", "slurm_evo_daemon", *words, "--config", str(self.config)]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def moves_open(self) -> int:
        """How many moves have something left to do."""
        return sum(number for phase, number in self.moves().items() if Phase(phase).open)

    def reasons(self) -> dict[str, int]:
        """Why moves were given up."""
        query = "SELECT why, COUNT(*) FROM transfers WHERE phase = 'abandoned' GROUP BY why"
        connection = sqlite3.connect(self.folder / "journal.sqlite")
        try:
            return dict(connection.execute(query).fetchall())
        finally:
            connection.close()

    def moves(self) -> Counter[str]:
        """How many moves are in which phase, by the journal."""
        journal = self.folder / "journal.sqlite"
        if not journal.exists():
            return Counter()
        connection = sqlite3.connect(journal)
        try:
            return Counter(
                dict(connection.execute("SELECT phase, COUNT(*) FROM transfers GROUP BY phase").fetchall())
            )
        finally:
            connection.close()


def way_in(cluster: str, ways: Mapping[str, str]) -> str:
    """The lines of the configuration that say how a cluster is reached."""
    way, own = ways.get(cluster, "command"), commands_of(cluster)
    lines = f'way = "{way}"\n' + (f'commands = "{own}"\n' if own else "")
    if way == "rest":
        token = f"/etc/slurm-evo/jwt/{cluster}"
        lines += f'url = "{rest_url(cluster)}"\ntoken_file = "{token}"\nuser = "{OPERATOR}"\n'
    return lines


def submit_marked(
    number: int, rng: random.Random, marks: Path, *, sizes: tuple[int, ...] = (1, 1, 2, 4, 8), seconds: int = 40
) -> dict[int, str]:
    """Jobs of three users at delta alone, each of which writes a line when it runs; id to user."""
    marks.mkdir(exist_ok=True)
    marks.chmod(0o777)
    found = {}
    for _ in range(number):
        user, limit = rng.choice(USERS), rng.choice([1, 2, 5, 10])
        script = f"echo $SLURM_CLUSTER_NAME $(date +%s) >> {marks}/$TAG; sleep {rng.randint(5, seconds)}"
        tag = f"{len(found)}"
        told = command(
            "delta", "env", f"TAG={tag}", "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null",
            f"--time={limit}", f"--gpus={rng.choice(sizes)}", "--wrap", script, user=user,
        )  # fmt: skip
        found[int(told.strip())] = tag
    return found


def runs(submitted: dict[int, str], marks: Path) -> dict[int, list[list[str]]]:
    """The lines that each job left, by its first number."""
    return {
        job: [line.split() for line in (marks / tag).read_text().splitlines()] if (marks / tag).exists() else []
        for job, tag in submitted.items()
    }


def waiting_or_running() -> str:
    """What is left anywhere."""
    return "".join(command(name, "squeue", "--noheader") for name in PLAIN).strip()


def until_nothing_is_left(seconds: float) -> None:
    """Wait until no job waits or runs on either cluster."""
    deadline = time.monotonic() + seconds
    while left := waiting_or_running():
        if time.monotonic() > deadline:
            raise AssertionError(f"not done within {seconds:g} s:\n{left}")
        time.sleep(1)


def prepared() -> None:
    """Two plain clusters with nothing on them."""
    leave_federation()
    for name in PLAIN:
        for user in USERS:
            command(name, "scancel", f"--user={user}", check=False)
    until_nothing_is_left(60)
