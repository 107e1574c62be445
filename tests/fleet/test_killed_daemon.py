"""kill -9 of the daemon at any moment of cycles of moves: no job lost, doubled, stranded or left pinned."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from daemon_process import DaemonProcess, open_jobs, until_done
from real_world import GPUS, MEMBERS, command

SEED = 20
KILLS = 20
JOBS = 240
WISHES = 12
"""Moves that are newly wanted before each start."""


@pytest.fixture
def marks() -> Iterator[Path]:
    folder = Path("/scratch/marks")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    yield folder
    for mark in folder.iterdir():
        mark.unlink()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:2]:
        parent.chmod(0o755)
    process = DaemonProcess(tmp_path, period_s=0.2, budget_s=0.1, cooldown_s=0.0)
    process.configure()
    yield process
    if process.process is not None:
        process.end(signal.SIGKILL)


@pytest.fixture
def one_free_node_each() -> Iterator[list[tuple[str, str]]]:
    """Little room: most jobs wait through the whole story, while some start at every moment of it."""
    blocks = []
    for cluster, (nodes, gpus) in GPUS.items():
        if cluster in MEMBERS:
            words = ("-M", cluster, f"--gpus={gpus}", "--nodes=1", "--time=120", "--wrap", "sleep 3600")
            blocks += [(cluster, _sbatch(cluster, "root", *words)) for _ in range(nodes - 1)]
    time.sleep(3)
    yield blocks
    _cancel(blocks)


def _cancel(blocks: list[tuple[str, str]]) -> None:
    for cluster, job in blocks:
        command(cluster, "scancel", job, check=False)


def _sbatch(cluster: str, user: str, *words: str) -> str:
    told = command(cluster, "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *words, user=user)
    return told.strip().split(";")[0]


def submit(marks: Path, rng: random.Random) -> int:
    """A job that leaves a mark for each time it runs."""
    script = f"echo $SLURM_CLUSTER_NAME >> {marks}/$SLURM_JOB_ID; sleep {rng.randint(2, 8)}"
    words = ("-M", "alpha", "--time=10", f"--gpus={rng.choice([1, 2, 4])}", "--wrap", script)
    return int(_sbatch("alpha", rng.choice(["ada", "bob", "cyd"]), *words))


def wish(daemon: DaemonProcess, jobs: set[int], rng: random.Random) -> None:
    """Write down, as a plan of the cycle before would have, that some waiting jobs are to be elsewhere."""
    waiting = open_jobs("PENDING") & jobs
    with daemon.journal() as journal:
        known = sorted((m for m in journal.jobs().values() if m.key.id in waiting), key=lambda m: m.key)
        chosen = rng.sample(known, min(WISHES, len(known)))
        members = sorted({name for memory in known for name in memory.asked} | set(MEMBERS))
        journal.remember(
            [replace(m, wanted=frozenset({rng.choice(members)}), widening_since=None) for m in chosen]  # type: ignore[arg-type]
        )


def test_twenty_deaths_lose_no_job(
    daemon: DaemonProcess, marks: Path, one_free_node_each: list[tuple[str, str]]
) -> None:
    rng = random.Random(SEED)
    jobs = {submit(marks, rng) for _ in range(JOBS)}
    once = daemon.run("daemon", "--once")  # compiled code is cached now: the deaths come in cycles
    assert once.returncode == 0, once.stderr
    in_cycle = in_answer = 0
    for _ in range(KILLS):
        wish(daemon, jobs, rng)
        daemon.start()
        daemon.until_started()
        time.sleep(rng.uniform(0.2, 2.5))
        daemon.end(signal.SIGKILL)
        with daemon.journal() as journal:
            last = journal.last_cycle()
            in_cycle += last is not None and last.ended is None
            in_answer += bool(journal.open_actions())
        _none_is_lost(jobs, marks)
    daemon.configure(moves=False)  # what is under way is ended, nothing new is begun: the queues come to rest
    daemon.start()
    waiting, elsewhere = _until_well(daemon, jobs, marks)
    _cancel(one_free_node_each)
    until_done(jobs, 120)
    daemon.end()
    ran = Counter({job: len(_mark(marks, job)) for job in jobs})
    with daemon.journal() as journal:
        moves = sum(row.action.kind == "set_clusters" for row in journal.history(limit=100_000))
    print(
        f"seed {SEED}: {KILLS} deaths, {in_cycle} in a cycle, {in_answer} with unanswered actions; {moves} changes"
        f" of viable sets; after the next start {waiting} waited, {elsewhere} of them beyond alpha, all well;"
        f" {JOBS} jobs ran {sum(ran.values())} times"
    )
    assert set(ran.values()) == {1}, f"not exactly once: {[job for job, times in ran.items() if times != 1]}"
    assert "Traceback" not in daemon.log()
    assert in_cycle >= KILLS // 4, "the story is void: the deaths came between cycles"
    assert moves >= KILLS, "the story is void: hardly anything was moved"


def _mark(marks: Path, job: int) -> list[str]:
    mark = marks / str(job)
    return mark.read_text().split() if mark.exists() else []


def _lost(jobs: set[int], marks: Path) -> set[int]:
    """Neither ran, nor waits or runs anywhere. Listed first: a job may start between the two."""
    listed = open_jobs()
    return {job for job in jobs - listed if not _mark(marks, job)}


def _none_is_lost(jobs: set[int], marks: Path) -> None:
    """Three lists are not one instant: a job on its way between clusters is found by the next look."""
    for _ in range(10):
        if not (lost := _lost(jobs, marks)):
            return
        time.sleep(0.5)
    pytest.fail(f"no cluster lists {lost}, and nobody runs the daemon")


def _until_well(daemon: DaemonProcess, jobs: set[int], marks: Path) -> tuple[int, int]:
    """Wait until no job is stranded, pinned or on its way; how many wait, how many of them beyond alpha.

    slurm-evo ranks every waiting job, so one whose SiteFactor sprio shows as 0 is pinned.
    """
    deadline = time.monotonic() + 120
    while True:
        before = {name: _pending(name) & jobs for name in MEMBERS}
        live = {name: _ranked(name) for name in MEMBERS}
        pinned = {name: (before[name] & _pending(name)) - live[name] for name in MEMBERS}
        stranded = _lost(jobs, marks)
        if not any(pinned.values()) and not stranded and _sets_are_settled(before):
            waiting = set().union(*before.values())
            assert len(waiting) >= 20, f"the story is void: only {len(waiting)} jobs still wait"
            elsewhere = set().union(*(ids for name, ids in before.items() if name != "alpha"))
            return len(waiting), len(elsewhere)
        assert time.monotonic() < deadline, f"pinned {pinned}, stranded {stranded}; {daemon.log()[-2000:]}"
        time.sleep(1)


def _pending(cluster: str) -> set[int]:
    shown = command(cluster, "squeue", "--local", "--noheader", "--states=PENDING", "--format=%A")
    return {int(word) for word in shown.split()}


def _ranked(cluster: str) -> set[int]:
    shown = command(cluster, "sprio", "--local", "--noheader", "--format=%i %S", check=False)
    return {int(job) for job, value in map(str.split, shown.splitlines()) if int(value) > 0}


def _sets_are_settled(waiting: dict[str, set[int]]) -> bool:
    """Every waiting job waits exactly where its origin lets it run."""
    text = command("alpha", "squeue", "--local", "--all", "--noheader", "--Format=JobID:|,SiblingsViable:|")
    viable = {
        int(job): set(names.split(",")) for job, names, *_ in (line.split("|") for line in text.splitlines())
    }
    at: dict[int, set[str]] = {}
    for name, listed in waiting.items():
        for job in listed:
            at.setdefault(job, set()).add(name)
    return all(viable.get(job) == names for job, names in at.items())
