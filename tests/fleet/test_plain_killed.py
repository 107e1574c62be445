"""kill -9 of the daemon during moves of plain jobs, slurmctld gone at any step: nothing lost or doubled."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from plain import DELTA, GAMMA, cancel_all, close_ports, fill, until
from plain_daemon import PlainDaemon, prepared, runs, submit_marked, until_nothing_is_left
from plain_faults import fill_both, looked_at, struck_by_site, verdict
from real_world import command

from slurm_evo.slurm.transfer import Phase

DEATHS = 20


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Nothing on the clusters before and after."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(0o755)
    prepared()
    yield tmp_path
    close_ports()
    for name in (DELTA, GAMMA):
        cancel_all(name)


def test_twenty_deaths_during_moves(folder: Path) -> None:
    rng = random.Random(7)
    blockers = fill("delta", 2, 8)
    daemon = PlainDaemon(folder)
    daemon.configure()
    daemon.run("plan")  # compiles what is compiled once
    submitted = submit_marked(90, rng, folder / "marks", sizes=(1, 2, 4), seconds=25)
    time.sleep(6)  # slurmctld saves what it was told
    in_a_move = 0
    for _ in range(DEATHS):
        daemon.start()
        deadline = time.monotonic() + 30
        while not daemon.moves_open() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(rng.uniform(0.0, 2.0))
        daemon.end(signal.SIGKILL)
        in_a_move += bool(daemon.moves_open())
    daemon.start()
    try:
        until(
            lambda: not any(daemon.moves()[phase.value] for phase in Phase if phase.open), 300, "the end of moves"
        )
        command("delta", "scancel", *map(str, blockers))
        until_nothing_is_left(600)
        until(
            lambda: not any(daemon.moves()[phase.value] for phase in Phase if phase.open), 300, "the end of moves"
        )
    finally:
        daemon.end()
    found = runs(submitted, folder / "marks")
    print(f"deaths {DEATHS}, with moves open {in_a_move}; moves {dict(daemon.moves())}")
    print(f"not moved: {daemon.reasons()}")
    print(f"ran at gamma: {sum(lines[0][0] == 'gamma' for lines in found.values() if lines)}")
    assert {job: len(lines) for job, lines in found.items() if len(lines) != 1} == {}
    assert in_a_move >= DEATHS // 2, "the deaths missed the moves"
    assert daemon.moves()["done"] > 10


@pytest.mark.parametrize(
    "fault", [f"slurmctld of {name} is killed" for name in (DELTA, GAMMA)] + ["gamma refuses"]
)
def test_whatever_happens_to_a_controller_at_any_step(folder: Path, fault: str) -> None:
    """A job for each point of a move, all at their points at once: stopped or killed there, or refusing."""
    fill_both()
    marks = folder / "marks"
    cases = struck_by_site(fault, marks)
    looked_at(cases, marks)
    found = {case.point: verdict(case, fault) for case in cases}
    print(fault, {point: what for point, (what, _) in found.items()})
    assert {point: wrong for point, (_, wrong) in found.items() if wrong} == {}
