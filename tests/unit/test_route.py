"""Where a job is submitted, and where it is now."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slurm_evo.model import ClusterName, JobKey
from slurm_evo.store import Journal, TransferRecord
from slurm_evo_daemon.route import Answered, choose

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


def answered(cluster: str, start: str | None) -> Answered:
    """What a cluster says."""
    return Answered(cluster, f"/{cluster}", "sbatch", None if start is None else datetime.fromisoformat(start), "")


def test_the_earliest_start_wins_and_the_first_of_equals() -> None:
    late, early, same = "2026-03-02T13:00:00", "2026-03-02T12:00:00", "2026-03-02T12:00:00"
    found = choose([answered("a", late), answered("b", early), answered("c", same), answered("d", None)])
    assert found is not None
    assert found.cluster == "b"
    assert choose([answered("a", None)]) is None


SBATCH = """#!/bin/sh
case "$1" in
--test-only)
  case "$2$SBATCH_CLUSTERS" in
    -h) echo "Usage: sbatch"; exit ;;
    -Q) exit ;;
    *away*)
      echo "sbatch: Job 1 to start at 2026-03-09T12:00:00 on cluster away a using 1 processors" >&2; exit ;;
  esac
  case "$SLURM_CONF" in
    *near*) echo "sbatch: Job 1 to start at 2026-03-02T12:00:00 a using 1 processors" >&2 ;;
    *) echo "sbatch: Job 1 to start at 2026-03-03T12:00:00 a using 1 processors" >&2 ;;
  esac ;;
*) printf '%s|' "$SLURM_CONF" "$@" ;;
esac
"""


def slurm_evo(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command as a process, with an sbatch that knows two clusters, and more environment."""
    sbatch = folder / "sbatch"
    sbatch.write_text(SBATCH)
    sbatch.chmod(sbatch.stat().st_mode | stat.S_IXUSR)
    config = folder / "slurm-evo.toml"
    config.write_text(
        f'[store]\nstate_dir = "{folder}"\n'
        + "".join(
            f'[[clusters]]\nname = "{name}"\nway = "command"\nslurm_conf = "/{name}"\n' for name in ("far", "near")
        )
    )
    env = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "SLURM_EVO_CONFIG": str(config),
        "PYTHONPATH": ":".join(sys.path),
    } | more
    argv = [sys.executable, "-m", "slurm_evo_daemon", *words]
    return subprocess.run(
        argv, env=env | more, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_submit_passes_sbatchs_arguments_on_unchanged(tmp_path: Path) -> None:
    ran = slurm_evo(tmp_path, "submit", "-N2", "--gpus=2", "train.sh", "--epochs", "3", "a b")
    assert ran.stdout == "/near|-N2|--gpus=2|train.sh|--epochs|3|a b|"
    assert "near, expected start 2026-03-02 12:00:00" in ran.stderr
    own = slurm_evo(tmp_path, "submit", "-M", "far", "train.sh")
    assert own.stdout.endswith("|-M|far|train.sh|")


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "4", "train.sh"],
        ["-Jtraincfg", "train.sh"],
        ["train.sh", "-c", "conf"],
        ["train.sh", "--config", "conf.yaml", "--help"],
        ["train.sh", "--", "-x"],
        ["-o", "out", "train.sh", "-M", "3"],
    ],
)
def test_submit_has_no_options_among_those_of_sbatch_and_the_script(tmp_path: Path, words: list[str]) -> None:
    ran = slurm_evo(tmp_path, "submit", *words)
    assert ran.stdout == "|".join(["/near", *words, ""])
    own = slurm_evo(tmp_path, "submit", "--config", str(tmp_path / "slurm-evo.toml"), "--", *words)
    assert own.stdout == ran.stdout


def test_submit_names_the_cluster_that_its_owner_chose(tmp_path: Path) -> None:
    ran = slurm_evo(tmp_path, "submit", "train.sh", SBATCH_CLUSTERS="away")
    assert ran.stderr.startswith("slurm-evo: away, expected start 2026-03-09")


def test_submit_asks_aloud_where_sbatch_is_to_be_quiet(tmp_path: Path) -> None:
    ran = slurm_evo(tmp_path, "submit", "-Q", "train.sh")
    assert (ran.stdout, ran.stderr) == ("/near|-Q|train.sh|", "")


def test_submit_runs_sbatch_where_it_has_no_complaint_and_no_start(tmp_path: Path) -> None:
    ran = slurm_evo(tmp_path, "submit", "-h")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "/far|-h|", "")


@pytest.mark.parametrize("name", ["far:7", "near:7", "7"])
def test_where_follows_a_job_over_its_moves(tmp_path: Path, name: str) -> None:
    far, near = ClusterName("far"), ClusterName("near")
    with Journal.open(f"sqlite:///{tmp_path}/journal.sqlite") as journal:
        lease = journal.acquire("test", now=AT, length_s=60)
        assert lease is not None
        record = TransferRecord(
            job=JobKey(far, 7), to=near, copy=7, phase="done", closed=True, began=AT, phase_since=AT, fields="",
            image=None, site_factor=0, why="starts earlier",
        )  # fmt: skip
        journal.write_transfer(record, lease=lease, now=AT)
    told = json.loads(slurm_evo(tmp_path, "where", name, "--json").stdout)
    assert told["now"] == "near:7"
    assert [(move["job"], move["to"], move["why"]) for move in told["moves"]] == [
        ("far:7", "near", "starts earlier")
    ]
    unknown = slurm_evo(tmp_path, "where", "far:8")
    assert (unknown.returncode, "where it was submitted" in unknown.stdout) == (1, True)


SACCT = """#!/bin/sh
case "$SLURM_CONF$*" in
  */far*--jobs=7*) echo "its owner's words slurm-evo:to=near:9" ;;
  */near*--jobs=9*) echo "slurm-evo:from=far:7" ;;
  */far*--jobs=8*) echo "slurm-evo:moving-to=near" ;;
  *--jobs=5*) echo "sacct: error: Connection refused" >&2; exit 1 ;;
esac
"""


def accounting(folder: Path) -> None:
    """An sacct of the two clusters; far:7 went to near:9."""
    sacct = folder / "sacct"
    sacct.write_text(SACCT)
    sacct.chmod(0o755)


@pytest.mark.parametrize("name", ["far:7", "near:9", "7"])
def test_where_asks_accounting_if_there_is_no_journal_for_us(tmp_path: Path, name: str) -> None:
    """An ordinary user, or a move that the journal has forgotten."""
    accounting(tmp_path)
    told = json.loads(slurm_evo(tmp_path, "where", name, "--json").stdout)
    assert (told["now"], told["moves"][0]["job"]) == ("near:9", "far:7")
    assert not (tmp_path / "journal.sqlite").exists()
    assert slurm_evo(tmp_path, "where", "far:8").returncode == 1
    unknown = slurm_evo(tmp_path, "where", "far:5")
    assert (unknown.returncode, "Connection refused" in unknown.stderr) == (3, True)
    Journal.open(f"sqlite:///{tmp_path}/journal.sqlite").close()
    assert "It is near:9 now" in slurm_evo(tmp_path, "where", name).stdout


def moved(job: str, to: str) -> TransferRecord:
    """A completed move."""
    there = JobKey.parse(to)
    return TransferRecord(
        job=JobKey.parse(job), to=there.cluster, copy=there.id, phase="done", closed=True, began=AT,
        phase_since=AT, fields="", image=None, site_factor=0, why="",
    )  # fmt: skip


def test_a_number_that_two_moved_jobs_have_is_not_answered_for_one_of_them(tmp_path: Path) -> None:
    with Journal.open(f"sqlite:///{tmp_path}/journal.sqlite") as journal:
        lease = journal.acquire("test", now=AT, length_s=60)
        assert lease is not None
        for record in (moved("far:7", "near:9"), moved("near:7", "far:11")):
            journal.write_transfer(record, lease=lease, now=AT)
    ran = slurm_evo(tmp_path, "where", "7")
    assert (ran.returncode, "far:7 and near:7: say which" in ran.stderr) == (2, True)
    assert "It is far:11 now" in slurm_evo(tmp_path, "where", "near:7").stdout


def test_explain_tells_of_moves(tmp_path: Path) -> None:
    with Journal.open(f"sqlite:///{tmp_path}/journal.sqlite") as journal:
        lease = journal.acquire("test", now=AT, length_s=60)
        assert lease is not None
        journal.write_transfer(moved("far:7", "near:9"), lease=lease, now=AT)
    accounting(tmp_path)
    told = json.loads(slurm_evo(tmp_path, "explain", "far:7", "--json").stdout)
    assert "far:7 went to near:9" in told["why"][1]
    by_number = {number: slurm_evo(tmp_path, "explain", number, "--json") for number in ("7", "9", "8")}
    assert {json.loads(by_number[number].stdout)["job"] for number in ("7", "9")} == {"near:9"}
    assert by_number["8"].returncode == 2
    assert "the journal tells nothing of it" in by_number["8"].stderr
    assert slurm_evo(tmp_path, "explain", "\u00b2").returncode == 2
