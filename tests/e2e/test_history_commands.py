"""trace, replay and compare, as people and scripts run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from trace_files import row, sacct_text

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(str(ROOT / room) for room in ("", "daemon", "gp_training"))
    env = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "120"}
    argv = [sys.executable, "-m", "slurm_evo_daemon", *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("history") / "month.parquet"
    done = run("trace", "generate", file, "--days", "3", "--load", "0.9", "--seed", "4")
    assert "jobs for 4 clusters, 144 devices" in done.stdout
    return file


@pytest.mark.parametrize(
    "command", [["trace", "inspect"], ["trace", "convert"], ["trace", "generate"], ["replay"]]
)
def test_every_command_tells_how_it_is_used(command: list[str]) -> None:
    assert "Example" in run(*command, "--help").stdout


def test_a_history_is_looked_at_and_converted(tmp_path: Path) -> None:
    rows = [row(), row(JobID="100.0"), row(JobID="101", Submit="when?")]
    file = sacct_text(tmp_path / "history.txt", rows)
    shown = run("trace", "inspect", file).stdout
    assert "history.txt: 1 jobs" in shown
    assert "left out: 1 × bad row: field submit (first history.txt:4: 'when?' is no time)" in shown
    facts = json.loads(run("trace", "inspect", file, "--json").stdout)
    assert (facts["jobs"], facts["rows"], facts["gpu_hours"]) == (1, 3, 4.0)
    done = run("trace", "convert", file, tmp_path / "history.parquet", "--timezone", "Europe/Berlin")
    assert "left out: 1 × step of a job" in done.stderr
    assert pl.read_parquet(tmp_path / "history.parquet")["submit"].item() == facts_submit(facts) - 3600


def facts_submit(facts: dict[str, str]) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(facts["from"]).timestamp())


def test_a_replay_says_how_long_jobs_wait_and_keeps_each(month: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / "replayed.parquet", tmp_path / "queue.png"
    done = run("replay", month, "--policy", "fifo", "--jobs", out, "--picture", picture, "--json")
    told = json.loads(done.stdout)
    table = pl.read_parquet(out)
    assert told["metrics"]["jobs"] == len(table)
    assert table["replayed_wait"].mean() == pytest.approx(told["metrics"]["mean_wait_s"])
    assert (table["replayed_start"] >= table["submit"]).all()
    assert picture.stat().st_size > 10_000
    assert "average wait" in run("replay", month, "--policy", "fifo").stdout


def test_a_comparison_has_a_row_for_each_policy_and_allocation(month: Path, tmp_path: Path) -> None:
    words = ("compare", month, "--policy", "fifo", "--policy", "mine=wait/runtime", "--allocations", "race,home")
    told = json.loads(run(*words, "--seeds", "1,2", "--json", "--picture", tmp_path / "c.svg").stdout)
    rows = {(each["policy"], each["allocation"]): each for each in told["rows"]}
    assert set(rows) == {(p, a) for p in ("fifo", "mine") for a in ("race", "home")} | {("clairvoyant", "race")}
    assert len(told["runs"]) == 10
    assert rows["fifo", "race"]["mean"]["average_wait_s"] < rows["fifo", "home"]["mean"]["average_wait_s"]
    assert any("estimated" in sentence for sentence in told["said"])
    shown = run(*words).stdout
    assert "clairvoyant" in shown
    assert "estimated from what was in use: give --fleet" in shown.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--policy", "wait +"), "is no expression"),
        (("--allocations", "magic"), "no allocation 'magic'"),
        (("--seeds", "one"), "--seeds: 'one' is no list"),
        (("--from", "soon"), "--from: 'soon' is no day"),
        (("--from", "2036-01-01"), "no job is left to simulate"),
        (("--longest", "7 weeks"), "--longest: '7 weeks' is no time"),
        (("--knows", "all"), "--knows: 'all' is none of limit, noisy, predicted, true"),
        (("--scheduler", "pbs"), "no scheduler 'pbs'"),
        (("--divide-nodes", "0"), "divided by 1 or more"),
        (("--picture", "x.doc"), "x.doc: the picture cannot be written"),
        (("--timezone", "Mars/Base"), "--timezone: 'Mars/Base' is no time zone"),
    ],
)
def test_bad_options_end_with_a_sentence(month: Path, words: tuple[str, ...], sentence: str) -> None:
    failed = run("compare", month, "--allocations", "race", "--policy", "fifo", *words, code=2)
    assert sentence in failed.stderr
    assert "Traceback" not in failed.stderr
    assert failed.stdout == ""


def test_what_is_no_history_ends_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    failed = run("trace", "inspect", tmp_path / "x", code=2)
    assert "slurm-evo: x: is none of the formats that are understood" in failed.stderr


def test_without_the_extra_it_is_said_what_to_install() -> None:
    code = (
        "import sys; sys.modules['polars'] = None; sys.argv = ['slurm-evo', 'trace', 'inspect', 'x'];"
        " from slurm_evo_daemon.__main__ import main; main()"
    )
    paths = os.pathsep.join(str(ROOT / room) for room in ("", "daemon", "gp_training"))
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 2
    assert "needs polars; install with: pip install 'slurm-evo[trace]'" in done.stderr
