"""alpha overloaded while beta and gamma idle: with the daemon every job runs once, and sooner."""

from __future__ import annotations

import json
import pwd
import time
from pathlib import Path

import pytest
from daemon_process import DaemonProcess
from overload import explained, run
from real_world import MEMBERS, OPERATOR, RealWorld, command
from test_command_port import command_port

JOBS, SEED = 30, 3


@pytest.fixture
def folder() -> Path:
    place = Path("/scratch/overloaded")
    place.mkdir(exist_ok=True)
    place.chmod(0o777)
    return place


def test_the_daemon_shortens_the_waits_and_every_job_runs_once(folder: Path) -> None:
    daemon = DaemonProcess(folder)
    daemon.configure()
    assert daemon.run("config", "check").returncode == 0
    assert "error" not in daemon.run("doctor", "--json").stdout
    daemon.run("plan")  # compiles what will be needed
    off = run(JOBS, SEED, folder, None, patience_s=240)
    on = run(JOBS, SEED, folder, daemon, patience_s=240)
    print(json.dumps({"seed": SEED, "off": off.as_dict(), "on": on.as_dict()}))
    for waited in (off, on):
        assert (waited.ran_once, waited.completed_once) == (JOBS, JOBS)
        assert waited.start_gap_s <= 3, "sacct and the jobs themselves tell different starts"
    assert on.elsewhere > 0
    assert on.mean_wait_s < off.mean_wait_s
    assert on.max_wait_s <= off.max_wait_s


def test_explain_tells_of_any_job_why_it_is_where_it_is(folder: Path) -> None:
    daemon = DaemonProcess(folder)
    daemon.configure("[rules.never]\nuser = ['cyd']\n")
    world = RealWorld(command_port)
    try:
        running, *_ = [job for cluster in MEMBERS for job in world.fill(cluster)]
        told = {
            what: world.submit("alpha", clusters=["alpha"], **wishes)  # type: ignore[arg-type]
            for what, wishes in {
                "excludes the user cyd": {"user": "cyd"},
                "its owner opted out (slurm-evo:stay)": {"comment": "slurm-evo:stay"},
                "it is held by its user": {"hold": True},
                "It does not go to beta: it has no partition debug": {"partition": "debug", "limit_min": 5},
                "It ranks": {"gpus": 2, "limit_min": 15},
            }.items()
        }
        assert daemon.run("daemon", "--once").returncode == 0
        for what, job in told.items():
            text = explained(daemon, job)
            assert f"alpha:{job} (" in text
            assert "waits at" in text
            assert _plain(what) in _plain(text)
        assert f"alpha:{running} (ada, 8 GPUs) runs at alpha on alpha" in explained(daemon, running)
        assert "neither waits nor runs" in explained(daemon, 999_999)
    finally:
        world.close()


def _plain(text: str) -> str:
    """Without the frame and the line ends that a terminal adds."""
    return "".join(letter for letter in text.lower() if letter.isalnum())


def test_the_daemon_needs_no_more_than_an_operator(folder: Path) -> None:
    shown = command("alpha", "sacctmgr", "-nP", "show", "user", OPERATOR, "format=user,adminlevel")
    assert shown.split() == [f"{OPERATOR}|Operator"]
    daemon = DaemonProcess(folder)
    daemon.configure()
    daemon.start()
    try:
        daemon.until_started()
        assert daemon.process is not None
        status = Path(f"/proc/{daemon.process.pid}/status").read_text()
        ids = next(line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
        assert set(ids) == {str(pwd.getpwnam(OPERATOR).pw_uid)}
        time.sleep(2 * daemon.period_s)
    finally:
        daemon.end()
    last = json.loads(next(line for line in reversed(daemon.log().splitlines()) if "cycle.done" in line))
    assert (last["mode"], last["clusters_seen"], last["refused"]) == ("live", 4, 0)
