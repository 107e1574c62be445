"""Moves between real clusters without a federation lose nothing: delta, and gamma taken out of the federation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from plain import (
    DELTA,
    GAMMA,
    JOBS,
    LOOK,
    Move,
    Odd,
    cancel_all,
    close_ports,
    differences,
    fill,
    leave_federation,
    ports,
    record,
    saved,
    seen_by,
    twin_of,
    until,
)
from real_world import command

from slurm_evo.model import Answer, ClusterName, JobKey
from slurm_evo.slurm.transfer import Patience, Phase, Replied


@pytest.fixture(scope="module", autouse=True)
def two_full_plain_clusters() -> Iterator[None]:
    """Nothing starts unless a story makes room."""
    leave_federation()
    for cluster in (DELTA, GAMMA):
        cancel_all(cluster)
    fill(DELTA, 2, 8)
    fill(GAMMA, 4, 4)
    yield
    for cluster in (DELTA, GAMMA):
        cancel_all(cluster)
    close_ports()


@pytest.fixture(autouse=True)
def nothing_else_waits() -> Iterator[None]:
    """Each story begins with nothing but what fills the clusters."""
    yield
    for cluster in (DELTA, GAMMA):
        cancel_all(cluster, ("ada", "cyd"))


@pytest.mark.parametrize("name", JOBS)
def test_a_moved_job_equals_one_that_never_moved(name: str) -> None:
    odd = JOBS[name]
    job, twin = saved(odd.submit(DELTA)), twin_of(odd)
    moved = Move(job, site_factor=12).to_its_end()
    assert moved.phase is Phase.DONE, moved.why
    assert moved.copy == job, "the number is kept"
    assert differences(GAMMA, job, twin) == {}
    now = record(GAMMA, job)
    assert (now["hold"], now["admin_comment"]) == (
        False,
        f"slurm-evo:from=delta:{job} slurm-evo:move={moved.name}",
    )
    assert record(DELTA, job)["admin_comment"] == f"slurm-evo:to=gamma:{job} slurm-evo:move={moved.name}"
    # --local: the sum is there at once, with what was given for its lost age
    shown = command(GAMMA, "sprio", "--noheader", "--local", f"--jobs={job}", "--format=%S").split()
    assert shown in (["12"], []), "not computed yet is possible, another value is not"


NOT_MOVED = {
    "an array": (Odd(["-a", "1-3"]), "array"),
    "a dependency": (Odd(["-d", "singleton", "-H"]), ""),
    "a distribution": (Odd(["-m", "block:cyclic"]), "--distribution"),
    "named nodes": (Odd(["-w", "delta1"]), "named the nodes"),
    "a variable": (Odd(env={"SBATCH_ACCTG_FREQ": "30"}), "SBATCH_ACCTG_FREQ"),
    "waiting": (Odd(script="#!/bin/bash\n#SBATCH --no-kill\n"), "--no-kill"),
}


@pytest.mark.parametrize("name", NOT_MOVED)
def test_what_would_lose_something_is_refused_with_the_reason(name: str) -> None:
    odd, why = NOT_MOVED[name]
    job = odd.submit(DELTA)
    time.sleep(6)
    moved = Move(job).to_its_end()
    assert moved.phase is Phase.ABANDONED
    if why:
        assert why in moved.why
    assert record(DELTA, job)["job_state"] == ["PENDING"]


def test_a_destination_that_would_not_take_it_is_not_even_tried() -> None:
    job = saved(Odd(["--gpus-per-node=8"]).submit(DELTA))  # gamma's nodes have four
    moved = Move(job).to_its_end()
    assert moved.phase is Phase.ABANDONED
    assert "gamma would not take it" in moved.why
    assert not record(DELTA, job)["admin_comment"]


def waiting_at_gamma() -> Move:
    """A move whose copy waits, held, to be confirmed."""
    move = Move(saved(Odd().submit(DELTA)), patience=Patience(confirm_s=3600, give_up_s=7200))
    move.carry_on()
    assert move.move.phase is Phase.CONFIRM, move.move.why
    assert record(GAMMA, move.move.job.id)["state_reason"] == "JobHeldUser"
    return move


def test_a_hold_by_its_owner_is_honoured() -> None:
    move = waiting_at_gamma()
    job = move.move.job.id
    command(DELTA, "scontrol", "hold", str(job), user="ada")
    assert move.to_its_end().phase is Phase.ABANDONED
    left = record(DELTA, job)
    assert (left["job_state"], left["state_reason"], left["admin_comment"]) == (["PENDING"], "JobHeldUser", "")
    assert record(GAMMA, job)["job_state"] == ["CANCELLED"]
    command(DELTA, "scontrol", "release", str(job), user="ada")
    assert record(DELTA, job)["eligible_time"]["number"] <= time.time() + 1, "it is no longer put off"


def test_a_scancel_of_the_old_number_is_honoured() -> None:
    move = waiting_at_gamma()
    job = move.move.job.id
    command(DELTA, "scancel", str(job), user="ada")
    assert move.to_its_end().phase is Phase.ABANDONED
    assert record(GAMMA, job)["job_state"] == ["CANCELLED"]


def test_an_edit_by_its_owner_is_not_lost() -> None:
    move = waiting_at_gamma()
    job = move.move.job.id
    command(DELTA, "scontrol", "update", f"JobId={job}", "TimeLimit=7", user="ada")
    moved = move.to_its_end()
    assert (moved.phase, moved.why) == (Phase.ABANDONED, "its owner changed it")
    assert record(DELTA, job)["time_limit"]["number"] == 7
    assert record(GAMMA, job)["job_state"] == ["CANCELLED"]


def test_root_is_not_mistaken_for_us() -> None:
    """An administrator cancels with the very account that slurm-evo uses."""
    move = waiting_at_gamma()
    command(DELTA, "scancel", str(move.move.job.id))
    assert move.to_its_end().phase is Phase.ABANDONED
    assert record(GAMMA, move.move.job.id)["job_state"] == ["CANCELLED"]


def test_a_copy_that_its_owner_releases_is_not_run_twice() -> None:
    move = waiting_at_gamma()
    job = move.move.job.id
    freed = command(GAMMA, "squeue", "--noheader", "--states=RUNNING", "--format=%A").split()[0]
    command(GAMMA, "scancel", freed)
    command(GAMMA, "scontrol", "release", str(job), user="ada")
    until(lambda: record(GAMMA, job)["job_state"] != ["PENDING"], 30, "the copy's start")
    move.patience = Patience(confirm_s=2)
    assert move.to_its_end().phase is Phase.DONE
    assert record(DELTA, job)["job_state"] == ["CANCELLED"]
    fill(GAMMA, 1, 4)


def waiting_at(cluster: ClusterName) -> list[str]:
    """What ada has waiting there: numbers and reasons."""
    asked = ("squeue", "--noheader", "--local", "--user=ada", "--states=PENDING", "--format=%A %r")
    return command(cluster, *asked).splitlines()


def test_two_daemons_with_a_journal_each_lose_nothing() -> None:
    """Started on two hosts, say, each with its own SQLite: both move the same job at the same time."""
    job = saved(Odd().submit(DELTA))
    with ThreadPoolExecutor(2) as pool:
        ends = [future.result() for future in [pool.submit(Move(job).to_its_end) for _ in range(2)]]
    left = [line for cluster in (DELTA, GAMMA) for line in waiting_at(cluster)]
    assert len(left) == 1, (left, ends)
    assert "JobHeld" not in left[0]
    done = [move for move in ends if move.phase is Phase.DONE]
    assert len(done) <= 1, ends
    assert waiting_at(GAMMA if done else DELTA) == left
    assert not done or left[0].startswith(f"{done[0].copy} ")


def ended(job: int) -> bool:
    """It ran through."""
    return bool(record(GAMMA, job)["job_state"] == ["COMPLETED"])


def test_the_job_that_runs_sees_what_it_would_have_seen() -> None:
    odd = Odd(script=LOOK, name="look.sh", arguments=["a b", "", "ü"], env={"FOO": "x\ny=1", "BAR": "'\"$"})
    job, twin = saved(odd.submit(DELTA)), twin_of(odd)
    assert Move(job).to_its_end().phase is Phase.DONE
    freed = command(GAMMA, "squeue", "--noheader", "--states=RUNNING", "--format=%A").split()[0]
    command(GAMMA, "scancel", freed)
    for number in (job, twin):
        until(partial(ended, number), 60, f"{number}")
    assert seen_by(job) == seen_by(twin)
    assert seen_by(job)[0] == "a b\n\nü\n"
    fill(GAMMA, 1, 4)


def test_a_taken_number_is_replaced() -> None:
    job = saved(Odd().submit(DELTA))
    way = ports()[GAMMA]
    image = ports()[DELTA].image(job)
    assert way.submit(replace(image, key=JobKey(DELTA, 3_999_999), admin_comment=""), "a1") == Replied(Answer.DONE)
    assert way.submit(replace(image, key=JobKey(GAMMA, 3_999_999)), "a1").answer is Answer.DONE
    (copy,) = way.copies(JobKey(GAMMA, 3_999_999), image, None, "a1")
    assert 2_000_000 < copy.id < 3_000_000, "gamma's next"


def test_what_is_there_already_is_not_submitted_again() -> None:
    job = saved(Odd().submit(DELTA))
    way = ports()[GAMMA]
    image = ports()[DELTA].image(job)
    assert way.submit(image, "a1").answer is Answer.DONE
    assert way.submit(image, "a1").answer is Answer.DONE
    assert [copy.id for copy in way.copies(image.key, image, None, "a1")] == [job]
