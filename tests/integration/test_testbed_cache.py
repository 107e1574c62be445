"""The testbed's cache of root file systems: a half-made one is never taken for whole."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from testbed.roots import cached


def test_a_build_that_fails_leaves_nothing_that_counts_and_the_next_one_starts_clean(tmp_path):
    def half(aside: Path) -> None:
        aside.mkdir()
        (aside / "half").touch()
        raise SystemExit("the network went away")

    def whole(aside: Path) -> None:
        aside.mkdir()
        (aside / "whole").touch()

    target = tmp_path / "root"
    with pytest.raises(SystemExit):
        cached(target, half)
    assert not target.exists()
    assert [path.name for path in cached(target, whole).iterdir()] == ["whole"]


def test_two_who_want_the_same_root_build_it_once(tmp_path):
    built = []

    def build(aside: Path) -> None:
        built.append(aside)
        time.sleep(0.2)
        aside.mkdir()

    threads = [threading.Thread(target=cached, args=(tmp_path / "root", build)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
