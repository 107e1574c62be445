"""What people are shown is what was said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slurm_evo.cli.screen import screen
from slurm_evo.store import Journal
from slurm_evo_daemon.screens import history_table


def test_brackets_and_colons_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"job": "delta:1", "why": "no feature [rack1|rack2] :cat: [/x]"}]
    screen().print(history_table(rows))
    assert "no feature [rack1|rack2] :cat: [/x]" in capsys.readouterr().out


def test_what_the_system_refuses_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "slurm-evo.toml").write_text(f'[store]\nstate_dir = "{tmp_path}"\n')
    Journal.open(f"sqlite:///{tmp_path}/journal.sqlite").close()
    argv = [sys.executable, "-m", "slurm_evo_daemon", "status", "--config", str(tmp_path / "slurm-evo.toml")]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.stderr.startswith("slurm-evo: [Errno 28] No space left on device")
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("words", [["withdraw"], ["withdraw", "--json"], ["movable"]])
def test_clusters_that_were_not_seen_are_not_passed_over(tmp_path: Path, words: list[str]) -> None:
    """With every controller away withdraw said that every job was as its user had left it."""
    (tmp_path / "slurm-evo.toml").write_text(
        f'[store]\nstate_dir = "{tmp_path}"\n'
        f'[[clusters]]\nname = "far"\nway = "command"\nslurm_conf = "{tmp_path}/none"\n'
    )
    Journal.open(f"sqlite:///{tmp_path}/journal.sqlite").close()
    argv = [sys.executable, "-m", "slurm_evo_daemon", *words, "--config", str(tmp_path / "slurm-evo.toml")]
    path = {"PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run(argv, env=path, capture_output=True, text=True, check=False)
    assert ran.returncode == 3
    assert "far was not seen: scontrol could not be started" in ran.stderr
    assert "Nothing to put back" not in ran.stdout
