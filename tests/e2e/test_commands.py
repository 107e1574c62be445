"""The command as people and scripts run it: a process of its own, on the embedded default."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing of this host's configuration counts."""
    paths = os.pathsep.join(str(ROOT / room) for room in ("", "daemon", "gp_training"))
    keep = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_EVO")}
    return {**keep, "PYTHONPATH": paths, "SLURM_EVO_STORE__STATE_DIR": str(tmp_path / "state"), "COLUMNS": "160"}


def run(env: dict[str, str], *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurm_evo_daemon", *words]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    "command", ["demo", "daemon", "plan", "status", "explain", "history", "withdraw", "doctor"]
)
def test_every_command_tells_how_it_is_used(env: dict[str, str], command: str) -> None:
    assert "Example" in run(env, command, "--help").stdout


def test_help_comes_at_once_without_the_heavy_libraries(env: dict[str, str]) -> None:
    code = (
        "import sys; from slurm_evo.cli.app import build; from slurm_evo_daemon.commands import register; "
        "build(register); "
        "print([name for name in ('numba', 'pymoo', 'sklearn', 'sqlalchemy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == "[]"


def test_a_day_with_the_embedded_default(env: dict[str, str]) -> None:
    planned = json.loads(run(env, "plan", "--json").stdout)
    assert planned["counts"]["pending"] > 0
    assert planned["actions"]
    dry = run(env, "daemon", "--once", "--dry-run").stderr
    lines = [json.loads(line) for line in dry.splitlines()]
    done = [line for line in lines if line["event"] == "cycle.done"]
    assert len(done) == 1
    assert done[0]["mode"] == "dry"
    assert "not sent" in done[0]["why"]
    assert "no daemon holds the lease" in run(env, "status").stdout
    assert json.loads(run(env, "history", "--json").stdout) == []
    run(env, "daemon", "--once")
    told = json.loads(run(env, "status", "--json").stdout)
    assert told["last_cycle"]["mode"] == "live"
    assert told["open_actions"] == 0
    acted = json.loads(run(env, "history", "--json").stdout)
    assert acted
    assert all(row["answer"] == "done" for row in acted)
    assert len(json.loads(run(env, "history", "--cycles", "--json").stdout)) == 2
    job = acted[0]["job"]
    story = json.loads(run(env, "explain", job, "--json").stdout)
    assert story["job"] == job
    assert story["actions"]
    assert story["why"]
    assert job in run(env, "explain", job).stdout


@pytest.mark.parametrize(
    "command", [["status"], ["history"], ["withdraw", "--really"], ["policy", "list"], ["digest"]]
)
def test_no_journal_is_no_empty_one(env: dict[str, str], tmp_path: Path, command: list[str]) -> None:
    """Whoever looks into another folder than the daemon's must not hear that nothing was ever done."""
    told = run(env, *command, code=3)
    assert f"{tmp_path}/state/journal.sqlite is not there" in told.stderr
    assert "store.state_dir" in told.stderr
    assert not (tmp_path / "state").exists()


def test_looking_at_real_clusters_without_a_journal_says_so_and_makes_none(
    env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "slurm-evo.toml"
    file.write_text('[[clusters]]\nname = "far"\nway = "command"\nslurm_conf = "/nowhere/slurm.conf"\n')
    for command in (["plan"], ["movable"]):
        told = run(env, *command, "--config", str(file), code=3 if command == ["movable"] else 0)
        assert "Without what slurm-evo has done so far" in told.stderr
    assert "Without" not in run(env, "plan").stderr, "simulated clusters begin anew each time"
    assert not (tmp_path / "state").exists()


def test_a_policy_may_come_before_the_daemon(env: dict[str, str], tmp_path: Path) -> None:
    assert "A new journal was made" in run(env, "policy", "add", "wait / limit").stderr
    assert "A new journal" not in run(env, "policy", "add", "wait / runtime").stderr
    assert (tmp_path / "state" / "journal.sqlite").exists()
    assert len(json.loads(run(env, "policy", "list", "--json").stdout)) == 2


def test_withdraw_says_when_there_is_nothing_to_put_back(env: dict[str, str]) -> None:
    run(env, "daemon", "--once", "--dry-run")
    assert "Nothing to put back" in run(env, "withdraw").stdout


def test_the_demo_ends_with_the_three_contestants(env: dict[str, str]) -> None:
    found = json.loads(run(env, "demo", "--jobs", "60", "--days", "0.3", "--json").stdout)
    assert [row["name"] for row in found] == ["clusters alone, FIFO", "plain federation", "slurm-evo"]
    assert len({row["jobs"] for row in found}) == 1
    assert found[0]["updates"] == found[1]["updates"] == 0
    assert found[2]["updates"] > 0


def test_a_wrong_key_is_named_and_ends_with_2(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "slurm-evo.toml"
    file.write_text("[cycle]\nperiods_s = 5\n")
    for command in (("config", "check"), ("plan",), ("daemon", "--once"), ("doctor",)):
        done = run(env, *command, "--config", str(file), code=2)
        assert "unknown key cycle.periods_s; did you mean period_s?" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_policy_that_starves_is_refused(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "slurm-evo.toml"
    file.write_text("[policy]\nexpression = '0 - wait'\n")
    done = run(env, "daemon", "--once", "--config", str(file), code=2)
    assert "policy.expression" in done.stderr
    assert "falls as a job waits" in done.stderr


def test_an_unreachable_cluster_is_a_finding_and_a_reason(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "slurm-evo.toml"
    clusters = (
        f'[[clusters]]\nname = "alpha"\nway = "command"\nslurm_conf = "{tmp_path}/none.conf"\ntimeout_s = 5\n'
    )
    file.write_text(clusters)
    found = json.loads(run(env, "doctor", "--json", "--config", str(file), code=1).stdout)
    assert [(row["cluster"], row["level"]) for row in found] == [("alpha", "error")]
    done = run(env, "daemon", "--once", "--config", str(file)).stderr
    assert "alpha left alone" in done


def test_config_check_tells_values_and_sources(env: dict[str, str]) -> None:
    rows = json.loads(run({**env, "SLURM_EVO_CYCLE__PERIOD_S": "45"}, "config", "check", "--json").stdout)
    period = next(row for row in rows if row["key"] == "cycle.period_s")
    assert (period["value"], period["source"]) == (45.0, "SLURM_EVO_CYCLE__PERIOD_S")
    assert "cycle.period_s" in run(env, "config", "check").stdout


def test_an_unknown_job_is_a_sentence(env: dict[str, str]) -> None:
    assert "no cluster lists job 1" in run(env, "explain", "1", code=2).stderr


def test_the_daemon_stops_when_asked_and_lets_no_second_one_in(env: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        first = subprocess.Popen([sys.executable, "-m", "slurm_evo_daemon", "daemon"], stderr=out, env=env)
    try:
        deadline = time.monotonic() + 120
        while "cycle.done" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        second = run(env, "daemon", "--once", code=3)
        assert "runs already" in second.stderr
        first.send_signal(signal.SIGHUP)
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=60) == 0
    finally:
        first.kill()
    assert json.loads(log.read_text().splitlines()[-1])["event"] == "daemon.stopped"
    assert json.loads(run(env, "status", "--json").stdout)["acting"] is None


def test_a_spare_daemon_with_the_same_journal_takes_over_when_the_first_one_dies(
    env: dict[str, str], tmp_path: Path
) -> None:
    """Two hosts, in small: each its own state folder, one journal."""
    env |= {"SLURM_EVO_STORE__URL": f"sqlite:///{tmp_path}/shared.sqlite", "SLURM_EVO_OPTIMIZER__BUDGET_S": "0.1"}
    env |= {"SLURM_EVO_CYCLE__PERIOD_S": "1", "SLURM_EVO_CYCLE__LEASE_S": "20"}
    with ExitStack() as running:

        def start(name: str) -> tuple[subprocess.Popen[bytes], Path]:
            log = tmp_path / f"{name}.log"
            own = env | {"SLURM_EVO_STORE__STATE_DIR": str(tmp_path / name)}
            out = running.enter_context(log.open("wb"))
            process = subprocess.Popen([sys.executable, "-m", "slurm_evo_daemon", "daemon"], stderr=out, env=own)
            running.callback(process.wait)
            running.callback(process.kill)
            return process, log

        def until(log: Path, event: str) -> None:
            deadline = time.monotonic() + 240
            while f'"{event}"' not in log.read_text():
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)

        first, log = start("first")
        until(log, "cycle.done")
        _, spare = start("spare")
        until(spare, "lease.waiting")
        assert "cycle.done" not in spare.read_text()
        first.kill()
        until(spare, "cycle.done")
        acting = json.loads(run(env, "status", "--json").stdout)["acting"]
        assert f"{tmp_path}/spare:" in acting["holder"]
