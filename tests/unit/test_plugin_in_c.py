"""The parts of site_factor/evo that need no Slurm: their own tests under sanitizers, and a short fuzzing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from evo_library import PLUGINS


@pytest.mark.parametrize(
    ("target", "word"), [("unit", "evo_test: all well"), ("fuzz", "of them taken as files, nothing broke")]
)
def test_they_pass_with_sanitizers(tmp_path: Path, target: str, word: str) -> None:
    argv = ("make", "-s", "-C", str(PLUGINS), target, f"BUILD={tmp_path}", "FUZZ_ROUNDS=3000")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert word in done.stdout


def test_without_a_source_make_says_what_to_do(tmp_path: Path) -> None:
    for source, words in (("", "build --from-distribution"), (str(tmp_path), "is not configured")):
        argv = ("make", "-s", "-C", str(PLUGINS), f"BUILD={tmp_path}/out", f"SLURM_SRC={source}")
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert words in done.stderr
