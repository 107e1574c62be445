"""The pyslurm port on real daemons: the common stories, its worker's deaths, its speed."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_world import RealWorld, as_operator, slurm_conf
from stories import ActingStories, FederationStories, LookingStories
from test_command_port import StartedJobs

from slurm_evo.model import Answer, ClusterName, ClusterUnreachable, JobKey, SetSiteFactor
from slurm_evo.slurm.pyslurm_port import PyslurmPort

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pyslurm") is None, reason="pyslurm is not built for this fleet's Slurm"
)

WORKER = (
    "runuser", "-u", "slurm-evo", "--", sys.executable, "-m", "slurm_evo.slurm.pyslurm_worker",
)  # fmt: skip


def pyslurm_port(cluster: str, timeout_s: float = 30.0) -> PyslurmPort:
    return PyslurmPort(
        ClusterName(cluster), slurm_conf=slurm_conf(cluster), worker=WORKER, run=as_operator, timeout_s=timeout_s
    )


@pytest.fixture(scope="class")
def world() -> Iterator[RealWorld]:
    real = RealWorld(pyslurm_port)
    yield real
    real.close()


class TestLooking(LookingStories):
    pass


class TestActing(StartedJobs, ActingStories):
    pass


class TestFederation(FederationStories):
    pass


def _workers() -> list[int]:
    found = subprocess.run(
        ["pgrep", "-f", "slurm_evo.slurm.pyslurm_worker"], capture_output=True, text=True, check=False
    )
    return [pid for pid in map(int, found.stdout.split()) if _command(pid) not in ("", "runuser")]


def _command(pid: int) -> str:
    """Empty for a process that has ended since it was listed."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_a_worker_that_was_killed_is_started_again() -> None:
    port = pyslurm_port("delta")
    try:
        port.look()
        for pid in _workers():
            os.kill(pid, signal.SIGKILL)
        first = _look_or_error(port)
        assert first is None or isinstance(first, ClusterUnreachable)
        assert port.look().cluster == "delta"
    finally:
        port.close()
    assert _workers() == []


def _look_or_error(port: PyslurmPort) -> ClusterUnreachable | None:
    try:
        port.look()
    except ClusterUnreachable as failure:
        return failure
    return None


def test_a_worker_that_dies_in_the_middle_leaves_the_answer_unknown() -> None:
    port = PyslurmPort(
        ClusterName("delta"),
        slurm_conf=slurm_conf("delta"),
        worker=("sh", "-c", "read line; exit 1"),
        run=as_operator,
    )
    outcome = port.apply(SetSiteFactor(JobKey(ClusterName("delta"), 1), 5))
    assert outcome.answer is Answer.UNKNOWN
    assert "ended" in outcome.message
    port.close()
