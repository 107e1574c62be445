"""train and policy, as people and scripts run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from trace_files import row, sacct_text

from slurm_evo.policy.front import Front

ROOT = Path(__file__).resolve().parent.parent.parent
FLEET = '[[clusters]]\nname = "alpha"\nnodes = [{ count = 2, gpus = 8 }]\n'
TINY = "islands = 1\npopulation = 8\nchildren = 4\ngenerations = 2\nmigrate_every = 1\nrefined = 0\n"


class Site:
    """A folder with a fleet, a recipe and a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "fleet.toml").write_text(FLEET)
        (folder / "recipe.toml").write_text(TINY)

    def command(self, room: str, *words: str | Path) -> tuple[list[str], dict[str, str]]:
        paths = os.pathsep.join(str(ROOT / part) for part in ("", "daemon", "gp_training"))
        env = {
            **os.environ, "PYTHONPATH": paths, "COLUMNS": "120",
            "SLURM_EVO_STORE__STATE_DIR": str(self.folder / "state"),
        }  # fmt: skip
        return [sys.executable, "-m", room, *map(str, words)], env

    def run(self, *words: str | Path, room: str = "slurm_evo_training", code: int = 0, both: bool = False) -> str:
        argv, env = self.command(room, *words)
        done = subprocess.run(
            argv, capture_output=True, text=True, env=env, check=False, timeout=500, cwd=self.folder
        )
        assert done.returncode == code, done.stdout + done.stderr
        if both:
            return done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def policy(self, *words: str | Path, code: int = 0) -> str:
        return self.run("policy", *words, room="slurm_evo_daemon", code=code)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_training_that_is_told_to_end_keeps_the_best_so_far(site: Site) -> None:
    site.run("trace", "generate", "days.parquet", "--days", "3", "--load", "0.9", "--fleet", "fleet.toml")
    (site.folder / "recipe.toml").write_text(TINY.replace("generations = 2", "generations = 100000"))
    words = ["train", "--trace", "days.parquet", "--fleet", "fleet.toml", "--recipe", "recipe.toml"]
    argv, env = site.command(
        "slurm_evo_training", *words, "--scheduler", "easy", "--workers", "2", "--minutes", "30", "--json"
    )
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, env=env, cwd=site.folder)
    try:
        deadline = time.monotonic() + 200
        while not (site.folder / "trained" / "checkpoint.json").is_file():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.terminate()
        told, complained = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, complained
    assert json.loads(told)["interrupted"]
    assert json.loads((site.folder / "trained" / "front.json").read_text())


def test_a_history_becomes_a_policy_in_force(site: Site) -> None:
    site.run("trace", "generate", "days.parquet", "--days", "3", "--load", "0.9", "--fleet", "fleet.toml")
    words = ["train", "--trace", "days.parquet", "--fleet", "fleet.toml", "--recipe", "recipe.toml"]
    found = json.loads(site.run(*words, "--scheduler", "easy", "--workers", "1", "--json"))
    out = site.folder / "trained"
    assert {file.name for file in out.iterdir()} == {
        "checkpoint.json", "front.json", "predictor.json", "report.html",
    }  # fmt: skip
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") >= 3
    assert not re.search(r'(src|href)="http', page)
    assert "Winners and losers" in page
    assert re.search(r"<td>judge<td>\d{4}-\d\d-\d\d \d\d:\d\d<td>", page)
    front = json.loads((out / "front.json").read_text())
    assert front["provenance"]["files"]["days.parquet"]
    assert found["front"] == len(front["members"])
    # Whether so short a run beats the policy in force is chance: let one be allowed.
    allow_first(out / "front.json")
    added = json.loads(site.policy("add", out / "front.json", "--promote", "--json"))
    assert added["in_force"]
    shown = json.loads(site.policy("show", added["id"], "--json"))
    assert shown["provenance"]["recipe"]["islands"] == 1
    site.policy("export", added["id"], "--to", "exported.json")
    (elsewhere := site.folder / "elsewhere").mkdir()
    there = Site(elsewhere)
    taken = json.loads(there.policy("add", site.folder / "exported.json", "--json"))
    assert taken["id"] == added["id"]
    assert "training run" in taken["source"]
    known = json.loads(there.policy("show", added["id"], "--json"))
    assert known["provenance"]["jobs"] == front["provenance"]["jobs"]
    exported = json.loads((site.folder / "exported.json").read_text())
    (site.folder / "edited.json").write_text(json.dumps({**exported, "text": "wait"}))
    assert "changed after it was exported" in there.policy("add", site.folder / "edited.json", code=2)
    again = json.loads(site.run(*words, "--scheduler", "easy", "--workers", "1", "--json", "--resume"))
    assert again["front"] == found["front"]


def allow_first(file: Path) -> None:
    front = Front.load(file)
    first, *others = front.members
    Front(members=(replace(first, refused=()), *others), provenance=front.provenance).save(file)


def test_promotion_and_rollback_move_along_the_stack(site: Site) -> None:
    first = json.loads(site.policy("add", "wait / runtime", "--promote", "--json"))["id"]
    second = json.loads(site.policy("add", "weight * wait", "--json"))["id"]
    site.policy("promote", second[:5])
    rows = json.loads(site.policy("list", "--json"))
    assert [row["id"] for row in rows if row["in_force"]] == [second]
    assert f'id = "{second}"' in site.policy("export", second, "--lua")
    assert f"id {second}" in site.policy("export", second, "--compact")
    assert "two files" in site.policy("export", second, "--compact", "--lua", code=2)
    assert json.loads(site.policy("rollback", "--json"))["id"] == first
    assert json.loads(site.policy("rollback", "--json"))["id"] is None
    assert "no promoted policy" in site.policy("rollback", code=3)


def test_a_daemon_that_starts_goes_on_with_the_last_policy_it_can_use(site: Site) -> None:
    site.policy("add", "wait / runtime", "--promote")
    bad = json.loads(site.policy("add", "weight * wait", "--promote", "--json"))["id"]
    with sqlite3.connect(site.folder / "state" / "journal.sqlite") as journal:
        journal.execute("update policies set text = '600 - wait' where id = ?", (bad,))
    done = site.run("daemon", "--once", room="slurm_evo_daemon", both=True)
    assert "the last good policy stays in force" in done
    assert "falls as a job waits" in done
    assert "cycle.done" in done


def test_a_rollback_to_a_policy_that_cannot_rank_says_both(site: Site) -> None:
    (site.folder / "bad.toml").write_text('[policy]\nexpression = "600 - wait"\n')
    site.policy("add", "wait / runtime", "--promote")
    told = site.policy("rollback", "--config", "bad.toml", code=2)
    assert "it is taken back, yet" in told
    assert "policy.expression" in told
    assert not any(row["in_force"] for row in json.loads(site.policy("list", "--json")))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("wait +", "ends too early"),
        ("600 - wait", "falls as a job waits"),
        ("gone.json", "no such file"),
        ("ages", "unknown name"),
    ],
)
def test_a_bad_policy_is_refused_and_not_kept(site: Site, source: str, said: str) -> None:
    assert said in site.policy("add", source, code=2)
    assert not (site.folder / "state").exists()


def test_an_unknown_policy_is_named(site: Site) -> None:
    site.policy("add", "wait")
    assert "p-none is not known" in site.policy("promote", "p-none", code=2)
    assert "no policy is named" in site.policy("promote", "", code=2)


def sacct(site: Site, rows: list[dict[str, str]]) -> Path:
    return sacct_text(site.folder / "history.txt", rows)


def test_histories_that_teach_nothing_end_with_a_sentence_and_write_nothing(site: Site) -> None:
    nothing = site.folder / "nothing.txt"
    nothing.write_text("\n")
    few = sacct(site, [row()])
    calm = site.folder / "calm.parquet"
    site.run("trace", "generate", calm, "--days", "8", "--load", "0.05", "--fleet", "fleet.toml")
    (site.folder / "small.toml").write_text(
        FLEET.replace("count = 2", "count = 1").replace("gpus = 8", "gpus = 1")
    )
    wrong = site.folder / "wrong.toml"
    wrong.write_text("islnds = 2")
    for words, said in [
        ([], "no history"),
        (["--sacct", nothing], "nothing.txt: is empty"),
        (["--sacct", site.folder / "gone"], "cannot be read"),
        (["--sacct", few, "--fleet", "fleet.toml"], "too few"),
        (["--trace", calm, "--fleet", "fleet.toml"], "has no queue"),
        (["--trace", calm, "--fleet", "small.toml"], "fit on no cluster"),
        (["--trace", calm, "--fleet", "fleet.toml", "--recipe", wrong], "did you mean islands"),
        (["--trace", calm, "--knows", "everything"], "--knows"),
        (["--trace", calm, "--seed", "-1"], "--seed"),
        (["--from-slurmdbd"], "needs clusters"),
    ]:
        told = site.run("train", *words, code=2)
        assert said in told, told
        assert not (site.folder / "trained").exists()


def test_months_that_overlap_count_their_jobs_once(site: Site) -> None:
    site.run("trace", "generate", "days.parquet", "--days", "3", "--load", "0.9", "--fleet", "fleet.toml")
    words = ["train", "--trace", "days.parquet", "--trace", "again/days.parquet", "--fleet", "fleet.toml"]
    (site.folder / "again").mkdir()
    shutil.copy(site.folder / "days.parquet", site.folder / "again")
    told = site.run(*words, "--recipe", "recipe.toml", "--workers", "1", both=True)
    count = int(re.findall(r"(\d+) jobs are in several histories", told)[0])
    made = json.loads((site.folder / "trained" / "front.json").read_text())["provenance"]
    assert made["jobs"] == count
    assert sorted(made["files"]) == ["again/days.parquet", "days.parquet"]


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_before_anything_was_found_says_so_and_leaves_nothing(site: Site, workers: int) -> None:
    site.run("trace", "generate", "days.parquet", "--days", "4", "--load", "0.9", "--fleet", "fleet.toml")
    out = site.folder / "trained"
    words = ["train", "--trace", "days.parquet", "--fleet", "fleet.toml", "--workers", str(workers)]
    argv, env = site.command("slurm_evo_training", *words)
    # A shell starts what runs in its background with SIGINT ignored: a small parent makes it heard again.
    heard = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", heard, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        cwd=site.folder, start_new_session=True,
    ) as running:  # fmt: skip
        while not out.is_dir() and running.poll() is None:
            time.sleep(0.05)
        time.sleep(0.5 * workers)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        # Much sooner than an island of two workers would be done with its ten minutes.
        _, told = running.communicate(timeout=100)
    assert running.returncode == 130, told
    assert "Interrupted before the first exchange" in told
    assert "Traceback" not in told
    assert not out.exists()


def test_every_command_tells_how_it_is_used(site: Site) -> None:
    assert "Example" in site.run("train", "--help")
    for command in ("list", "show", "add", "promote", "rollback", "export"):
        assert "Example" in site.policy(command, "--help")
