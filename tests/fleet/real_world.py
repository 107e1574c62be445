"""A real fleet of the testbed, commanded from inside it as root (see tests/contract/world.py)."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from slurm_evo.model import ClusterPort
from slurm_evo.slurm.runner import Ran, run_process, slurm_environment

OPERATOR = "slurm-evo"
MEMBERS = ("alpha", "beta", "gamma")
CLUSTERS = (*MEMBERS, "delta")
GPUS = {"alpha": (4, 8), "beta": (2, 8), "gamma": (4, 4), "delta": (2, 8)}
"""Nodes, and GPUs of each."""
PATIENCE_S = 60
OPEN = "PENDING,RUNNING,SUSPENDED,COMPLETING,STOPPED"
OLDER_COMMANDS = Path("/opt/slurm-older/bin")
"""In a mixed fleet: the commands of the older Slurm, which delta runs."""


def slurm_conf(cluster: str) -> str:
    """Where the fleet keeps a cluster's configuration."""
    return f"/etc/slurm/{cluster}/slurm.conf"


def commands_of(cluster: str) -> Path | None:
    """The folder of a cluster's own commands; None where those on PATH are."""
    return OLDER_COMMANDS if cluster == "delta" and OLDER_COMMANDS.is_dir() else None


def rest_url(cluster: str) -> str:
    """Where the fleet's slurmrestd of a cluster listens."""
    return f"http://127.0.0.1:{6820 + CLUSTERS.index(cluster)}"


def as_user(user: str, argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> Ran:
    """Run a command as another user, with exactly the environment given."""
    return run_process(["runuser", "-u", user, "--", *argv], env=env, timeout_s=timeout_s)


def as_operator(argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> Ran:
    """A Runner for the ports under test: an ordinary Unix user, Slurm's AdminLevel Operator."""
    return as_user(OPERATOR, argv, env=env, timeout_s=timeout_s)


def command(cluster: str, *argv: str, user: str = "root", check: bool = True) -> str:
    """Run one of Slurm's commands at a cluster; what it printed."""
    env = slurm_environment(slurm_conf(cluster), commands_of(cluster))
    ran = as_user(user, argv, env=env, timeout_s=PATIENCE_S)
    if check and ran.returncode:
        raise subprocess.CalledProcessError(ran.returncode, list(argv), ran.stdout, ran.stderr)
    return ran.stdout


def clear(seconds: float = PATIENCE_S) -> None:
    """Cancel whatever waits or runs, and come back when no cluster lists it any more.

    Once is not enough: a scancel may miss a job that is just being started by a sibling, and what a controller
    had to tell its siblings is gone when it is restarted.

    Raises:
        AssertionError: a job will not go.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = {cluster: ids for cluster in CLUSTERS if (ids := _open_jobs(cluster))}
        if not left:
            return
        assert time.monotonic() < deadline, f"jobs that scancel does not end: {left}"
        for cluster, ids in left.items():
            command(cluster, "scancel", *ids, check=False)
        time.sleep(1)


def _open_jobs(cluster: str) -> list[str]:
    return command(cluster, "squeue", "--local", "--all", "--noheader", f"--states={OPEN}", "--format=%A").split()


class RealWorld:
    """A World of real daemons.

    Args:
        make_port: makes the port under test for a cluster.
    """

    def __init__(self, make_port: Callable[[str], ClusterPort]) -> None:
        self._make_port = make_port
        self._ports: dict[str, ClusterPort] = {}
        self._owners: dict[tuple[str, int], str] = {}

    def port(self, cluster: str) -> ClusterPort:
        if cluster not in self._ports:
            self._ports[cluster] = self._make_port(cluster)
        return self._ports[cluster]

    def close(self) -> None:
        """Close the ports and cancel what is left."""
        for port in self._ports.values():
            port.close()
        for cluster, job in self._owners:
            self.cancel(cluster, job)

    def submit(
        self,
        cluster: str,
        *,
        user: str = "ada",
        gpus: int = 1,
        gpu_type: str | None = None,
        nodes: int = 1,
        limit_min: int = 60,
        seconds: int = 600,
        clusters: Sequence[str] | None = None,
        partition: str | None = None,
        qos: str | None = None,
        nice: int | None = None,
        hold: bool = False,
        array: str | None = None,
        dependency: str | None = None,
        comment: str | None = None,
        het: bool = False,
        begin: str | None = None,
        name: str = "story",
        reservation: str | None = None,
    ) -> int:
        if reservation is not None:
            self._reserve(cluster, reservation)
        wishes = {
            "gpus": f"{gpu_type}:{gpus}" if gpu_type else gpus,
            "nodes": nodes,
            "ntasks": nodes,
            "time": limit_min,
            "clusters": ",".join(clusters) if clusters else None,
            "partition": partition,
            "qos": qos,
            "nice": nice,
            "array": array,
            "dependency": dependency,
            "comment": comment,
            "begin": begin,
            "job-name": name,
            "reservation": reservation,
            "chdir": "/tmp",
            "output": "/dev/null",
            "wrap": f"sleep {seconds}",
        }
        options = [f"--{option}={wish}" for option, wish in wishes.items() if wish is not None]
        held = ["--hold"] if hold else []
        second = [":", "--nodes=1", "--ntasks=1", "--gpus=1"] if het else []
        told = command(cluster, "sbatch", "--parsable", *held, *options, *second, user=user)
        job, _, where = told.strip().partition(";")
        # with several clusters sbatch itself chooses the origin: the one that could start the job first
        if where and where != cluster:
            command(where, "scancel", job)
            raise AssertionError(f"sbatch chose {where}, not {cluster}, for -M {clusters}")
        self._owners[cluster, int(job)] = user
        return int(job)

    @staticmethod
    def _reserve(cluster: str, name: str) -> None:
        shown = command(cluster, "scontrol", "--oneliner", "show", "reservation", check=False)
        if f"ReservationName={name} " not in shown:
            command(
                cluster,
                *("scontrol", "create", "reservation", f"reservationname={name}", "starttime=now+1day"),
                *("duration=60", "users=ada,bob,cyd", "nodecnt=1", "partition=gpu"),
            )

    def fill(self, cluster: str) -> list[int]:
        number, gpus = GPUS[cluster]
        pinned = [cluster] if cluster in MEMBERS else None
        jobs = [
            self.submit(cluster, gpus=gpus, clusters=pinned, seconds=3600, limit_min=120, name="fill")
            for _ in range(number)
        ]
        deadline = time.monotonic() + PATIENCE_S
        while self._running(cluster).issuperset(jobs) is False:
            if time.monotonic() > deadline:
                raise AssertionError(f"{cluster} is not full: {command(cluster, 'squeue', '--local', '--all')}")
            time.sleep(0.5)
        return jobs

    @staticmethod
    def _running(cluster: str) -> set[int]:
        shown = command(cluster, "squeue", "--local", "--all", "--noheader", "--states=RUNNING", "--format=%A")
        return {int(job) for job in re.findall(r"\d+", shown)}

    def hold(self, cluster: str, job: int) -> None:
        command(cluster, "scontrol", "uhold", str(job), user=self._owners[cluster, job])

    def release(self, cluster: str, job: int) -> None:
        command(cluster, "scontrol", "release", str(job), user=self._owners[cluster, job])

    def cancel(self, cluster: str, job: int) -> None:
        command(cluster, "scancel", str(job), user=self._owners[cluster, job], check=False)

    def settle(self, seconds: float) -> None:
        time.sleep(seconds)
