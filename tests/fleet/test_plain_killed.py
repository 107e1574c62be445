"""kill -9 of the daemon during moves of plain jobs, slurmctld gone at each step: nothing lost or doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from plain import DELTA, GAMMA, Move, Odd, cancel_all, close_ports, fill, record, until
from plain_daemon import PlainDaemon, prepared, runs, submit_marked, until_nothing_is_left
from real_world import command

from slurm_evo.model import ClusterError
from slurm_evo.slurm.transfer import Patience, Phase

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


def control(what: str, cluster: str) -> None:
    """Take a controller away or bring it back."""
    subprocess.run(
        ["python3", "/testbed/inside.py", what, f"slurmctld-{cluster}"], check=True, capture_output=True
    )


@pytest.mark.parametrize("cluster", [DELTA, GAMMA])
@pytest.mark.parametrize("phase", [Phase.DEFER, Phase.SUBMIT, Phase.CONFIRM, Phase.CANCEL, Phase.RELEASE])
def test_a_controller_that_stops_at_a_step(folder: Path, phase: Phase, cluster: str) -> None:
    """Stopped just as the step is written down, before it is asked; back a moment later."""
    del folder
    for name, nodes, gpus in ((DELTA, 2, 8), (GAMMA, 4, 4)):
        fill(name, nodes, gpus)
    job = Odd().submit(DELTA)
    time.sleep(6)
    move = Move(job, patience=Patience(confirm_s=1))
    stopped = False
    write = move._write

    def stop_there(changed: object) -> None:
        nonlocal stopped
        write(changed)  # type: ignore[arg-type]
        if move.move.phase is phase and not stopped:
            stopped = True
            control("stop", cluster)

    move._write = stop_there  # type: ignore[method-assign]
    for _ in range(4):
        if not stopped:
            move.carry_on()
            time.sleep(1.2)
    assert stopped
    seen = move.move.phase
    move.carry_on()
    assert move.move.phase is seen or not move.move.phase.open, "nothing goes on without a controller"
    control("start", cluster)
    until(lambda: answers(cluster), 60, f"{cluster}")
    ended = move.to_its_end(120)
    assert ended.phase in (Phase.DONE, Phase.ABANDONED)
    there, here = state(GAMMA, job), state(DELTA, job)
    print(f"{phase} × {cluster} stops: {ended.phase} ({ended.why}); delta {here}, gamma {there}")
    alive = [one for one in (here, there) if one == ("PENDING", False)]
    assert len(alive) == 1, (here, there)


def answers(cluster: str) -> bool:
    """Its controller is there again."""
    try:
        command(cluster, "scontrol", "ping")
        command(cluster, "squeue")
    except (subprocess.CalledProcessError, ClusterError):
        return False
    return True


def state(cluster: str, job: int) -> tuple[str, bool] | None:
    """State of a job and whether it is held or put off; None if it is not listed."""
    try:
        shown = record(cluster, job)
    except subprocess.CalledProcessError:
        return None
    put_off = shown["eligible_time"]["number"] > time.time() + 5
    return shown["job_state"][0], bool(shown["hold"]) or put_off
