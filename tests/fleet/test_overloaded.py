"""alpha overloaded while beta and gamma idle: with the daemon every job runs once, and sooner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from daemon_process import DaemonProcess, until_done
from overload import explained, run, submit_all
from real_world import command

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
    assert (off.ran_once, on.ran_once) == (JOBS, JOBS)
    assert on.elsewhere > 0
    assert on.mean_wait_s < off.mean_wait_s
    assert on.max_wait_s <= off.max_wait_s


def test_explain_tells_of_a_waiting_job_why_it_is_where_it_is(folder: Path) -> None:
    daemon = DaemonProcess(folder)
    daemon.configure("[rules.never]\nuser = ['cyd']\n")
    jobs = submit_all(30, 5, folder / "explained")
    daemon.run("daemon", "--once")
    told = {job: explained(daemon, job) for job in list(jobs)[-2:]}
    assert all(f"alpha:{job}" in text for job, text in told.items())
    assert any("ranks" in text or "runs at" in text for text in told.values())
    excluded = next(job for job, user in reversed(jobs.items()) if user == "cyd")
    assert "excludes the user cyd" in explained(daemon, excluded) or "runs at" in explained(daemon, excluded)
    for user in ("ada", "bob", "cyd"):
        command("alpha", "scancel", f"--user={user}", user=user)
    until_done(set(jobs), 60)
