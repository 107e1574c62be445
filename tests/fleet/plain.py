"""Two plain clusters of the testbed, jobs with everything odd in them, and the moves between."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from real_world import command, commands_of, rest_url, slurm_conf

from slurm_evo.model import ClusterName, JobKey
from slurm_evo.slurm.transfer import (
    ClusterTables,
    JobImage,
    Known,
    Mover,
    NotMovable,
    Patience,
    Transfer,
    TransferPort,
    translate,
)
from slurm_evo.slurm.transfer.slurm_way import SlurmTransfers

DELTA, GAMMA = ClusterName("delta"), ClusterName("gamma")
PLAIN = (DELTA, GAMMA)
STATE = "/var/lib/slurm-evo-site"
TABLES = ClusterTables(paths={"/": "/"})
KNOWN = Known(
    partitions=frozenset(("gpu",)),
    qos=frozenset(("normal", "high")),
    accounts=frozenset((("ada", "physics"), ("bob", "physics"), ("cyd", "biology"))),
    gpu_types=frozenset(("a100",)),
)

DIFFERS = frozenset((
    "admin_comment", "association_id", "cluster", "job_id", "step_id", "last_sched_evaluation", "submit_time",
    "eligible_time", "accrue_time", "start_time", "end_time", "priority", "priority_by_partition",
    "stdout_expanded",
    "stderr_expanded", "scheduled_nodes", "state_reason", "hold", "allocating_node", "site_factor",
    "estimated_start",
    "preemptable_time", "submit_line",
))  # fmt: skip
"""What is one job's own (numbers, times, place in the queue), and the submit line, which REST cannot set."""
OWN_FLAGS = frozenset(
    (
        "BACKFILL_ATTEMPTED",
        "SCHEDULING_ATTEMPTED",
        "JOB_WAS_RUNNING",
        "DEPENDENT",
        "JOB_ACCRUE_TIME_RESET",
        "JOB_IMPLICIT_MAX_NODES",
    )
)
"""What the scheduler notes of its own work."""


def leave_federation(cluster: str = GAMMA) -> None:
    """Take a cluster out of the federation, if it is in it, and wait until its controller knows."""

    def out() -> bool:
        return "Federation" not in command(cluster, "scontrol", "show", "federation")

    if out():
        return
    command(cluster, "sacctmgr", "-i", "modify", "federation", "fed", "set", f"clusters-={cluster}", check=False)
    try:
        until(out, 10)
    except AssertionError:
        # A controller that was told while it was just getting up can miss it; this makes it ask again.
        command(cluster, "scontrol", "reconfigure")
        until(out, 30, f"{cluster} out of the federation")


def until(true: Callable[[], bool], seconds: float, what: str = "it") -> None:
    """Wait."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {seconds:g} s")
        time.sleep(0.3)


@cache
def ports() -> dict[ClusterName, TransferPort]:
    """The ways of moving, as root; `close_ports` closes them."""
    return {
        name: SlurmTransfers(
            name,
            slurm_conf=slurm_conf(name),
            commands=commands_of(name),
            our_uid=os.geteuid(),
            url=rest_url(name),
            state_dir=Path(STATE, name),
        )
        for name in PLAIN
    }


def close_ports() -> None:
    """Let go of their connections."""
    for way in ports().values():
        way.close()
    ports.cache_clear()


def as_owner(user: str, folder: str, argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Run a command as an owner with exactly this environment."""
    whole = {"PATH": os.environ["PATH"], **env}
    ran = subprocess.run(
        list(argv), user=user, group=user, extra_groups=(), cwd=folder, env=whole, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if ran.returncode:
        raise AssertionError(f"{argv} failed: {ran.stderr}")
    return ran.stdout


@dataclass(frozen=True)
class Odd:
    """One sbatch call."""

    options: Sequence[str] = ()
    script: str = "#!/bin/bash\nsleep 1\n"
    name: str = "job.sh"
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "ada"

    def submit(self, cluster: str, *more: str) -> int:
        """Submit it at a cluster, with the same environment whichever that is; the job's number."""
        home = f"/home/{self.user}"
        path = Path(home, self.name)
        if not path.exists() or path.read_text() != self.script:
            path.write_text(self.script)
            path.chmod(0o755)
        env = {"SLURM_CONF": slurm_conf(cluster), **self.env}
        own = commands_of(cluster)
        sbatch = "sbatch" if own is None else str(own / "sbatch")  # PATH stays: it goes with the job
        words = [sbatch, "--parsable", *more, *self.options, self.name, *self.arguments]
        return int(as_owner(self.user, home, words, env).strip())


def twin_of(odd: Odd, cluster: str = GAMMA) -> int:
    """The same call at the other cluster, never moved."""
    return odd.submit(cluster)


LARGE = "#!/bin/bash\n#SBATCH --gres=gpu:2\n" + "".join(f"# line {number} äöü '\"$\n" for number in range(9000))
JOBS = {
    "plain": Odd(),
    "wrapped in odd names": Odd(["-J", "odd name, \"x\" 'y'", "--comment", "a  b"], name="odd name.sh"),
    "arguments": Odd(arguments=["one", "two three", "", "it's", "--lr=0.1", "-O", "*"]),
    "environment": Odd(env={
        "FOO": "a\nb c\nX=1", "BAR": 'x="y"', "EMPTY": "", "ÄÖ": "ü", "BASH_FUNC_f%%": "() { :\n}",
    }),
    "sizes": Odd(["-N1-2", "-n4", "-c2", "--gpus=4", "--mem=4G", "-t30", "--time-min=10", "--mincpus=2"]),
    "one node": Odd(["-N2", "--ntasks-per-node=3", "--gpus-per-node=2", "--mem-per-cpu=500"]),
    "paths": Odd(["-o", "out-%j.txt", "-e", "/tmp/err-%x.%j", "-i", "/dev/zero", "-D/tmp", "--open-mode=append"]),
    "wishes": Odd([
        "--nice=7", "-q", "high", "-A", "physics", "--no-requeue", "--deadline=2030-01-01", "--signal=B:USR1@60",
        "--mail-type=END,FAIL", "--mail-user=ada@example.org", "--exclusive=user", "--extra=xx", "--wckey=w",
        "--kill-on-invalid-dep=yes", "--gres-flags=enforce-binding", "-p", "gpu", "--network=n", "--profile=task",
        "--switches=1@10", "--spread-job", "--use-min-nodes", "--contiguous",
    ]),
    "a whole node": Odd(["--exclusive", "--gres=gpu:1"]),
    "a large script": Odd(script=LARGE, name="large.sh"),
    "its own options": Odd(script="#!/bin/bash\n#SBATCH --gres=gpu:3 -t 15\n#SBATCH --signal=TERM@30\necho\n"),
    "another user": Odd(user="cyd", arguments=["x"]),
    "no requeue of nothing": Odd(["--export=NONE"]),
}  # fmt: skip


def saved(job: int, cluster: ClusterName = DELTA) -> int:
    """Wait until its controller has saved the job, arguments and all."""

    def told() -> bool:
        try:
            ports()[cluster].image(job)
        except NotMovable as refusal:
            if "arguments" in str(refusal) or "state directory" in str(refusal):
                return False
            raise
        return True

    until(told, 20, f"saving of {job}")
    return job


LOOK = "#!/bin/bash\nenv -0 >> env.$SLURM_JOB_ID\nprintf '%s\\n' \"$@\" >> args.$SLURM_JOB_ID\n"
"""Leaves in its folder what it sees; twice if it runs twice."""
ITS_OWN = (
    "SLURM_JOB", "SLURM_JOBID", "SLURM_JWT", "SLURM_CPU", "SLURM_TASK_PID", "SLURM_STEP", "HOSTNAME",
    "SLURM_NODE",
    "SLURMD_", "SLURM_TOPOLOGY", "SLURM_PRIO", "TMPDIR", "SLURM_GTIDS", "SLURM_CONF=", "SLURM_SLUID",
)  # fmt: skip


def seen_by(job: int) -> tuple[str, list[str]]:
    """The arguments and the environment that a job of ada with the script `LOOK` saw."""
    home = Path("/home/ada")
    text = (home / f"env.{job}").read_bytes().decode()
    seen = sorted(one for one in text.split("\0") if one and not one.startswith(ITS_OWN))
    return (home / f"args.{job}").read_text(), seen


def record(cluster: str, job: int) -> dict[str, Any]:
    """What slurmctld shows of a job, with its --exclusive."""
    asked = "squeue", "--local", "--all", "--states=all", f"--jobs={job}"
    shown: dict[str, Any] = json.loads(command(cluster, *asked, "--json"))["jobs"][0]
    older = json.loads(command(cluster, *asked, "--json=v0.0.42"))["jobs"][0]
    shown["shared"] = older.get("shared", [])
    shown["flags"] = sorted(set(shown["flags"]) - OWN_FLAGS)
    if shown["max_nodes"]["number"] == shown["tasks"]["number"]:
        # Until it has looked at a job, the scheduler notes that no more nodes than tasks are of use.
        shown["max_nodes"] = shown["max_nodes"] | {"number": 0}
    return shown


def state_files(cluster: str, job: int) -> tuple[bytes, list[bytes]]:
    """The script and the environment that slurmctld would hand to the node."""
    folder = Path(STATE, cluster, f"hash.{job % 10}", f"job.{job}")
    environment = (folder / "environment").read_bytes()[4:].split(b"\0")
    return (folder / "script").read_bytes(), [one for one in environment if not one.startswith(b"SLURM_CONF=")]


def differences(cluster: str, moved: int, twin: int) -> dict[str, tuple[Any, Any]]:
    """Every field in which a moved job and a twin that was submitted there differ."""
    one, other = record(cluster, moved), record(cluster, twin)
    own = (str(moved), str(twin))
    found = {
        name: (one.get(name), other.get(name))
        for name in sorted(one.keys() | other.keys())
        if name not in DIFFERS and one.get(name) != other.get(name)
    }
    if not re.search(r" (-N|--nodes)", other.get("submit_line", "")):
        found.pop("max_nodes", None)  # nobody's wish: what 24.11 shows of it goes with its scheduler's first look
    texts = {name for name, (a, b) in found.items() if str(a).replace(*own) == str(b)}
    found = {name: pair for name, pair in found.items() if name not in texts}
    (script, environment), (its_script, its_environment) = state_files(cluster, moved), state_files(cluster, twin)
    if script != its_script:
        found["script"] = (script, its_script)
    if environment != its_environment:
        found["environment"] = (environment, its_environment)
    return found


class Move:
    """A move carried on by hand, from one cluster to the other."""

    def __init__(self, job: int, source: ClusterName = DELTA, to: ClusterName = GAMMA, **more: Any) -> None:
        now = datetime.now(UTC)
        self.ports = more.pop("ports", None) or ports()
        self.patience = more.pop("patience", Patience(confirm_s=2))
        self.move = Transfer(job=JobKey(source, job), to=to, began=now, phase_since=now, **more)
        self.written: list[Transfer] = []
        self.note = ""

    def _write(self, move: Transfer) -> None:
        self.move = move
        self.written.append(move)

    def _translate(self, image: JobImage, to: ClusterName) -> JobImage:
        return translate(image, to, TABLES, KNOWN)

    def carry_on(self) -> None:
        """One cycle's worth."""
        mover = Mover(
            self.ports, write=self._write, translate=self._translate, clock=lambda: datetime.now(UTC),
            patience=self.patience, defer_s=900,
        )  # fmt: skip
        self.note = mover.advance(self.move).note

    def to_its_end(self, seconds: float = 60) -> Transfer:
        """Carry on until nothing is left to do."""

        def over() -> bool:
            if self.move.phase.open:
                self.carry_on()
            return not self.move.phase.open

        try:
            until(over, seconds, f"the end of the move {self.move.job}")
        except AssertionError as failure:
            raise AssertionError(f"{failure}: {self.move.phase}, {self.note}") from None
        return self.move


def fill(cluster: str, nodes: int, gpus: int) -> list[int]:
    """Occupy every GPU for an hour; the jobs' numbers."""
    jobs = [
        int(command(cluster, "sbatch", "--parsable", "-D/tmp", "-o/dev/null", "-N1", "--exclusive",
                    f"--gres=gpu:{gpus}",
                    "-t120", "--wrap=sleep 3600", user="bob"))
        for _ in range(nodes)
    ]  # fmt: skip
    shown = "squeue", "--noheader", "--states=RUNNING", "--user=bob", "--format=%A"
    until(lambda: set(map(str, jobs)) <= set(command(cluster, *shown).split()), 60, f"filling {cluster}")
    return jobs


def cancel_all(cluster: str, users: Sequence[str] = ("ada", "bob", "cyd")) -> None:
    """Leave nothing of these users behind."""
    for user in users:
        command(cluster, "scancel", f"--user={user}", check=False)
    shown = "squeue", "--noheader", f"--user={','.join(users)}"
    until(lambda: not command(cluster, *shown).strip(), 60, f"emptying {cluster}")
