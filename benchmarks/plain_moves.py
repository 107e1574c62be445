"""Jobs moved between two plain clusters, compared field by field with twins that never moved; then all run.

Each job is submitted at delta, and the same sbatch call once more at gamma. Both clusters are full, so all
wait. The jobs of delta are moved to gamma; every field of slurmctld's record, the script and the environment in
its state directory are compared. Then the clusters are emptied, everything runs, and what each job saw of its
environment and arguments is compared again. One job in twenty has an option that no call of Slurm tells, one in
twenty-five depends on the job before it: those are not moved, are counted by reason and must run where they are.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests/fleet")]

from plain import (
    DELTA,
    GAMMA,
    PLAIN,
    Move,
    Odd,
    cancel_all,
    close_ports,
    differences,
    fill,
    leave_federation,
    until,
)
from real_world import command

from slurm_evo.slurm.transfer import Patience, Phase

LOOK = (
    "#!/bin/bash\n{options}env -0 > env.{seed}.$SLURM_JOB_ID\nprintf '%s\\0' \"$@\" > args.{seed}.$SLURM_JOB_ID\n"
)
WORDS = ("a", "two words", "", "it's", '"q"', "--lr=0.1", "ünïcode", "$HOME", "*", "x=1", "-O", "tab\there", "\\n")
OPTIONS = (
    (), ("--nice=3",), ("-t", "20", "--time-min=5"), ("-n", "3", "-c", "2"), ("-N", "1-2", "--gpus=2"),
    ("--mem=3G",), ("--mem-per-cpu=700",), ("--gres=gpu:1",), ("-q", "high"), ("-A", "physics", "-p", "gpu"),
    ("--no-requeue",), ("--signal=B:USR1@30",), ("--open-mode=append",), ("--comment", "some words  more"),
    ("-J", 'odd; name & "q"'), ("--deadline=2030-01-01",), ("--exclusive=user",), ("--mail-type=FAIL",),
    ("-o", "out-%x-%j"), ("-e", "err-%j"), ("--threads-per-core=1",), ("--gpus-per-task=1", "-n2"),
    ("--export=ALL,MORE=1",), ("--kill-on-invalid-dep=no",),
)  # fmt: skip
NOT_MOVABLE = (("-m", "cyclic"), ("-w", "delta1"), ("--acctg-freq=30",))
OWN = (
    "SLURM_JOB_ID=", "SLURM_JOBID=",
    "SLURM_TASK_PID=", "SLURM_JOB_START_TIME=", "SLURM_JOB_END_TIME=", "SLURM_NODE",
    "SLURM_JOB_NODELIST=", "SLURMD_", "SLURM_TOPOLOGY", "SLURM_GTIDS=", "HOSTNAME=", "SLURM_CONF=",
    "SLURM_JOB_GPUS=",
    "SLURM_SLUID=", "CUDA_VISIBLE", "ROCR_", "ZE_AFF", "GPU_DEV", "SLURM_JOB_SLUID=", "SLURM_GPUS_ON_NODE=",
    "SLURM_JOB_CPUS_PER_NODE=", "SLURM_TASKS_PER_NODE=", "SLURM_CPUS_ON_NODE=", "SLURM_JOB_NUM_NODES=",
    "SLURM_NNODES=",
)  # fmt: skip
"""Where and when it runs, which is not the same for two jobs."""


def drawn(rng: random.Random, seed: int, number: int) -> Odd:
    """A job that does not come twice."""
    options = [word for wish in rng.sample(OPTIONS, rng.randint(0, 4)) for word in wish]
    if number % 20 == 19:
        options += rng.choice(NOT_MOVABLE)
    lines = "#SBATCH --gres=gpu:1 --tmp=0\n" if number % 7 == 0 else ""
    lines += "".join(f"# {rng.random()}\n" for _ in range(rng.choice((0, 0, 10, 5000))))
    env = {
        f"V{n}": "".join(rng.choices("ab =\"'\n\t$\\üß;|", k=rng.randint(0, 30))) for n in range(rng.randint(0, 9))
    }
    return Odd(
        options=options,
        script=LOOK.format(options=lines, seed=seed),
        name=f"job {number}.sh" if number % 5 == 0 else f"job{number}.sh",
        arguments=rng.choices(WORDS, k=rng.randint(0, 6)),
        env=env,
        user=rng.choice(("ada", "ada", "cyd")) if "physics" not in options else "ada",
    )


def moved(jobs: Sequence[int]) -> list[Move]:
    """Bring each job to gamma, four at a time, as the daemon does."""
    moves = [Move(job, patience=Patience()) for job in jobs]
    deadline = time.monotonic() + 1200
    with ThreadPoolExecutor(4) as pool:
        while rest := [move for move in moves if move.move.phase.open]:
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(rest)} moves did not end, such as {rest[0].move}")
            list(pool.map(Move.carry_on, rest))
            print(f"{len(moves) - len(rest)} of {len(moves)} moves over", file=sys.stderr)
            time.sleep(1)
    return moves


def seen(user: str, seed: int, job: int) -> tuple[list[str], bytes]:
    """What a job wrote of its environment and arguments when it ran."""
    home = Path("/home", user)
    text = (home / f"env.{seed}.{job}").read_bytes().decode("utf-8", "surrogateescape")
    own = [one for one in sorted(text.split("\0")) if one and not one.startswith(OWN)]
    return own, (home / f"args.{seed}.{job}").read_bytes()


def main() -> None:
    """Move, compare, run, compare; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    leave_federation()
    for cluster in PLAIN:
        cancel_all(cluster)
    fill(DELTA, 2, 8)
    fill(GAMMA, 4, 4)
    odds, jobs, twins = [], list[int](), list[int | None]()
    while len(jobs) < given.jobs:
        odd = drawn(rng, given.seed, len(jobs))
        depends = [f"--dependency=afterany:{jobs[-1]}"] if len(jobs) % 25 == 24 else []
        try:
            jobs.append(odd.submit(DELTA, *depends))
        except AssertionError:
            continue  # wishes that do not go together: sbatch said no
        odds.append(odd)
        twins.append(None if depends or "-w" in odd.options else odd.submit(GAMMA))
    time.sleep(10)  # slurmctld saves its state
    began = time.monotonic()
    moves = moved(jobs)
    took = time.monotonic() - began
    phases = Counter(move.move.phase for move in moves)
    reasons = Counter(move.move.why.split(": ")[-1] for move in moves if move.move.phase is Phase.ABANDONED)
    time.sleep(10)  # the scheduler looks at everything
    unequal = {}
    for odd, job, twin, move in zip(odds, jobs, twins, moves, strict=True):
        if move.move.phase is Phase.DONE and twin is not None and (found := differences(GAMMA, job, twin)):
            unequal[job] = found
            print(f"{job} {odd.options}: {found}", file=sys.stderr)
    for cluster in PLAIN:
        command(cluster, "scancel", "--user=bob")
    for cluster in PLAIN:
        until(
            lambda cluster=cluster: not command(cluster, "squeue", "--noheader").strip(), 1200, f"{cluster} empty"
        )
    unseen, differ = [], []
    for odd, job, twin, move in zip(odds, jobs, twins, moves, strict=True):
        try:
            its = seen(odd.user, given.seed, job)
            if move.move.phase is Phase.DONE and twin is not None and its != seen(odd.user, given.seed, twin):
                differ.append(job)
                print(f"{job} saw {set(its[0]) ^ set(seen(odd.user, given.seed, twin)[0])}", file=sys.stderr)
        except OSError as failure:
            unseen.append(job)
            print(f"{job} {odd.options}: {failure}", file=sys.stderr)
    figures = {
        "jobs": given.jobs,
        "moved": phases[Phase.DONE],
        "not_moved": dict(reasons),
        "kept_their_number": sum(move.move.copy == job for job, move in zip(jobs, moves, strict=True)),
        "records_that_differ": len(unequal),
        "did_not_run": len(unseen),
        "saw_something_else": len(differ),
        "seconds": round(took, 1),
    }
    close_ports()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
