"""Moves of plain jobs on real daemons with one fault at one point: what became of each job.

A *point* is just before or just after one question of a move: the step is journaled, its question not asked yet;
or asked, and the answer not used yet. A *fault* strikes there while the move goes on.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

from plain import DELTA, GAMMA, PLAIN, Move, Odd, cancel_all, fill, ports, record, until
from real_world import command

from slurm_evo.model import ClusterError, ClusterName
from slurm_evo.slurm.transfer import NotMovable, Patience, Phase, Transfer

CALLS = ("test", "defer", "submit", "cancel", "release")
"""What a move asks that changes something, in its order; and the test."""
POINTS = (
    *(f"{when} {call}" for call in CALLS[:3] for when in ("before", "after")),
    "confirming",
    *(f"{when} {call}" for call in CALLS[3:] for when in ("before", "after")),
)
COPY_THERE = POINTS[POINTS.index("after submit") :]
MARK = """#!/bin/bash
echo $SLURM_CLUSTER_NAME >> {marks}/$TAG
env -0 > {marks}/$TAG.env
"""
ENV = {"FOO": "x\ny=1", "BAR": "'\"$ ü", "EMPTY": ""}
CONFIRM_S = 12.0


@dataclass
class Case:
    """One job, its move, and what a fault did to it."""

    point: str
    tag: str
    job: int = 0
    move: Move | None = None
    accepted: bool | None = None
    """What an owner asked at the point was done; None if nothing was asked."""
    reached: bool = False
    places: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Records of the living, by cluster, when the move was over."""
    ran: list[str] = field(default_factory=list)
    same_env: bool = True


class Struck:
    """A port at one of whose calls a fault strikes, once."""

    def __init__(self, port: Any, at_point: Callable[[str], None]) -> None:
        self._port = port
        self._at_point = at_point

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if name not in CALLS:
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            # A copy that is taken back is cancelled by the same call, without a place that it went to.
            taken_back = name == "cancel" and args[1] is None
            if not taken_back:
                self._at_point(f"before {name}")
            replied = method(*args, **kwargs)
            if not taken_back:
                self._at_point(f"after {name}")
            return replied

        return call


def prepared_move(case: Case, strike: Callable[[Case], None], **more: Any) -> Move:
    """The case's move, at whose point the fault strikes."""

    def at_point(point: str) -> None:
        if point == case.point and not case.reached:
            case.reached = True
            strike(case)

    ways = {name: Struck(way, at_point) for name, way in ports().items()}
    move = Move(case.job, ports=ways, patience=Patience(confirm_s=CONFIRM_S), **more)
    write = move._write

    def written(changed: Transfer) -> None:
        write(changed)
        if changed.phase is Phase.CONFIRM:
            at_point("confirming")

    move._write = written  # type: ignore[method-assign]
    return move


def submitted(points: Sequence[str], marks: Path, name: str) -> list[Case]:
    """A waiting job of ada for each point, saved by its controller; both clusters are full."""
    marks.mkdir(exist_ok=True)
    marks.chmod(0o777)
    cases = []
    for place, point in enumerate(points):
        case = Case(point, f"{name}-{place}".replace(" ", "-"))
        odd = Odd(script=MARK.format(marks=marks), name="mark.sh", env={**ENV, "TAG": case.tag}, arguments=["a b"])
        case.job = odd.submit(DELTA, "--time=9")
        cases.append(case)
    until(lambda: all(readable(case.job) for case in cases), 40, "saving of the jobs")
    return cases


def readable(job: int) -> bool:
    """Delta's controller has saved it, arguments and all."""
    try:
        ports()[DELTA].image(job)
    except NotMovable:
        return False
    return True


# -- faults ---------------------------------------------------------------------------------------------


def control(what: str, cluster: str) -> None:
    """Stop, kill or start a controller."""
    subprocess.run(
        ["python3", "/testbed/inside.py", what, f"slurmctld-{cluster}"], check=True, capture_output=True
    )


def answers(cluster: str) -> bool:
    """Its controller is there."""
    try:
        command(cluster, "scontrol", "ping")
        command(cluster, "squeue")
    except (subprocess.CalledProcessError, ClusterError):
        return False
    return True


def partition(state: str) -> None:
    """Of gamma; DRAIN: it takes no new jobs, what waits there may start (slurm.conf(5), State)."""
    command(GAMMA, "scontrol", "update", "PartitionName=gpu", f"State={state}")


def by_owner(cluster: ClusterName, *argv: str) -> Callable[[Case], None]:
    """The owner asks Slurm for something; ``JOB`` stands for the number."""

    def strike(case: Case) -> None:
        words = [word.replace("JOB", str(case.job)) for word in argv]
        try:
            command(cluster, *words, user="ada")
            case.accepted = True
        except subprocess.CalledProcessError:
            case.accepted = False

    return strike


OWNER = {
    "owner holds": by_owner(DELTA, "scontrol", "hold", "JOB"),
    "owner cancels": by_owner(DELTA, "scancel", "--ctld", "JOB"),
    "owner edits": by_owner(DELTA, "scontrol", "update", "JobId=JOB", "TimeLimit=7"),
    "owner cancels the copy": by_owner(GAMMA, "scancel", "--ctld", "JOB"),
    "owner releases the copy": by_owner(GAMMA, "scontrol", "release", "JOB"),
}
SITE: Mapping[str, tuple[Callable[[], None], Callable[[], None], bool]] = {
    **{
        f"slurmctld of {name} {what}": (
            lambda what=word, name=name: control(what, name),  # type: ignore[misc]
            lambda name=name: control("start", name),  # type: ignore[misc]
            False,
        )
        for name in PLAIN
        for what, word in (("stops", "stop"), ("is killed", "kill"))
    },
    "gamma refuses": (lambda: partition("DRAIN"), lambda: partition("UP"), True),
}
"""Begin, end, and whether it lasts until the moves are over."""
KILLED = "daemon is killed"
FAULTS = (KILLED, *SITE, *OWNER)


def struck_by_owner(fault: str, marks: Path) -> list[Case]:
    """Each job's owner meddles at its point."""
    points = COPY_THERE if "copy" in fault else POINTS
    cases = submitted(points, marks, fault)
    for case in cases:
        case.move = prepared_move(case, OWNER[fault])
    with ThreadPoolExecutor(len(cases)) as pool:
        list(pool.map(to_its_end, cases))
    return cases


def struck_by_site(fault: str, marks: Path, points: Sequence[str] = POINTS) -> list[Case]:
    """All moves stop at their points; the fault begins; all go on; the fault ends; all go to their ends."""
    begin, end, lasting = SITE[fault]
    cases = submitted(points, marks, fault)
    meet = Barrier(len(cases) + 1, timeout=180)

    def strike(_: Case) -> None:
        meet.wait()  # all are at their points
        meet.wait()  # the fault has begun

    def go(case: Case) -> None:
        assert case.move is not None
        deadline = time.monotonic() + 120
        while not case.reached and case.move.move.phase.open and time.monotonic() < deadline:
            case.move.carry_on()
            time.sleep(0.5)
        if not case.reached:
            meet.abort()
        case.move.carry_on()  # whatever is there of the clusters
        if lasting:
            to_its_end(case)

    for case in cases:
        case.move = prepared_move(case, strike)
    with ThreadPoolExecutor(len(cases)) as pool:
        gone = [pool.submit(go, case) for case in cases]
        try:
            meet.wait()
            begin()
            meet.wait()
        except BrokenBarrierError:
            raise AssertionError(
                f"{fault}: points not reached: {[case.point for case in cases if not case.reached]}"
            ) from None
        for one in gone:
            one.result()
        end()
        until(lambda: all(map(answers, PLAIN)), 60, "the controllers")
        list(pool.map(to_its_end, cases))
    return cases


def to_its_end(case: Case) -> None:
    """Carry the move on until it is over."""
    assert case.move is not None
    case.move.to_its_end(300)


def struck_by_death(marks: Path, die: Callable[[Case], Transfer]) -> list[Case]:
    """A daemon for each job, killed at its point, and then another one."""
    cases = submitted(POINTS, marks, "killed")
    for case in cases:
        ended = die(case)
        case.reached = True
        case.move = Move(case.job)
        case.move.move = ended
    return cases


# -- what became of them --------------------------------------------------------------------------------


def fill_both() -> None:
    """Nothing starts."""
    fill(DELTA, 2, 8)
    fill(GAMMA, 4, 4)


def looked_at(cases: Sequence[Case], marks: Path) -> None:
    """Where each job waits now; then free what owners hold, let everything run, and read the marks."""
    for case in cases:
        for name in PLAIN:
            try:
                shown = record(name, case.move.move.copy or case.job if name == GAMMA and case.move else case.job)
            except (subprocess.CalledProcessError, IndexError):
                continue
            if shown["job_state"] == ["PENDING"]:
                case.places[name] = shown
    for case in cases:
        for name, shown in case.places.items():
            if shown["hold"]:
                command(name, "scontrol", "release", str(shown["job_id"]), user="ada", check=False)
    for name in PLAIN:
        command(name, "scancel", "--user=bob")
    left = ("squeue", "--noheader", "--user=ada,bob")
    try:
        until(lambda: not any(command(name, *left).strip() for name in PLAIN), 90)
    except AssertionError:
        print("left:", *(command(name, *left) for name in PLAIN), file=sys.stderr)
    for name in PLAIN:
        cancel_all(name, ("ada", "bob"))
    for case in cases:
        file = marks / case.tag
        case.ran = file.read_text().split() if file.exists() else []
        if case.ran:
            text = (marks / f"{case.tag}.env").read_bytes().decode()
            seen = dict(one.split("=", 1) for one in text.split("\0") if "=" in one)
            case.same_env = all(seen.get(name) == value for name, value in ENV.items()) and not {
                name for name in seen if name.startswith("SLURM_EVO")
            }


def put_off(shown: Mapping[str, Any]) -> bool:
    """It may not start yet."""
    return bool(shown["eligible_time"]["number"] > time.time() + 5)


def verdict(case: Case, fault: str) -> tuple[str, str]:
    """What happened in a word, and what is wrong with it (empty: nothing)."""
    assert case.move is not None
    cancelled = "cancels" in fault and bool(case.accepted)
    wrong = []
    if len(case.ran) > 1:
        wrong.append(f"ran {len(case.ran)} times")
    if len(case.places) > 1:
        wrong.append("waits at both")
    if cancelled and case.ran and "copy" not in fault:
        wrong.append("ran although it was cancelled")
    if not cancelled and not case.ran:
        wrong.append("lost")
    if not case.same_env:
        wrong.append("another environment")
    if case.move.move.phase.open:
        wrong.append(f"its move is open ({case.move.move.phase})")
    held = False
    for name, shown in case.places.items():
        held = bool(shown["hold"])
        if held != (fault == "owner holds" and bool(case.accepted)):
            wrong.append("left held" if held else "its hold is lost")
        if name == DELTA and put_off(shown):
            wrong.append("left put off")
        if fault == "owner edits" and case.accepted and shown["time_limit"]["number"] != 7:
            wrong.append("its edit is lost")
    where = "cancelled" if not case.places else "moved" if GAMMA in case.places else "stayed"
    if wrong:
        wrong.append(f"{case.move.move.phase}: {case.move.move.why}")
    return where + (", held" if held else ""), "; ".join(wrong)


def kill_self() -> None:
    """What kill -9 does to the daemon."""
    import os

    os.kill(os.getpid(), signal.SIGKILL)
