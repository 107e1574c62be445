"""alpha overloaded: the same jobs with the daemon off and on, waits as sacct records them."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from daemon_process import DaemonProcess, until_done
from real_world import MEMBERS, command

USERS = ("ada", "bob", "cyd")


@dataclass(frozen=True)
class Waited:
    """One run of the workload."""

    jobs: int
    ran_once: int
    """By the marks that the jobs left themselves."""
    completed_once: int
    """By sacct, duplicates shown."""
    mean_wait_s: float
    max_wait_s: float
    elsewhere: int
    """Jobs that ran at another cluster than alpha."""
    start_gap_s: int
    """Largest difference between a start as sacct tells it and as the job itself does."""

    def as_dict(self) -> dict[str, float]:
        """For a JSON line."""
        return asdict(self)


def submit_all(jobs: int, seed: int, marks: Path) -> dict[int, str]:
    """Mixed jobs of three users, all sent to alpha alone (``-M alpha``); id to user."""
    rng = random.Random(seed)
    marks.mkdir(exist_ok=True)
    marks.chmod(0o777)
    found = {}
    for _ in range(jobs):
        user, gpus, seconds = rng.choice(USERS), rng.choice([1, 1, 2, 4, 8]), rng.randint(5, 40)
        limit = rng.choice([1, 2, 5, 10])
        script = f"echo $SLURM_CLUSTER_NAME $(date +%s) >> {marks}/$SLURM_JOB_ID; sleep {seconds}"
        told = command(
            "alpha", "sbatch", "--parsable", "-M", "alpha", "--chdir=/tmp", "--output=/dev/null",
            f"--time={limit}", f"--gpus={gpus}", "--wrap", script, user=user,
        )  # fmt: skip
        found[int(told.strip().split(";")[0])] = user
    return found


def measure(submitted: dict[int, str], marks: Path) -> Waited:
    """Waits by sacct (first submission to start), runs by the marks that the jobs left."""
    first: dict[int, int] = {}
    start: dict[int, int] = {}
    completed: Counter[int] = Counter()
    for cluster in MEMBERS:
        fields = ("--format=JobIDRaw,Submit,Start,State", "--starttime=now-6hours")
        text = command(cluster, "env", "SLURM_TIME_FORMAT=%s", "sacct", "-n", "-P", "-X", "-D", "-a", *fields)
        for line in text.splitlines():
            job, submit, begin, state = line.split("|")
            if not job.isdigit() or int(job) not in submitted or not submit.isdigit():
                continue
            key = int(job)
            first[key] = min(first.get(key, int(submit)), int(submit))
            if state == "COMPLETED":  # trackers end as REVOKED; their times are not a run's
                completed[key] += 1
                start[key] = int(begin)
    waits = [start[job] - first[job] for job in submitted if job in start]
    runs = {
        job: [line.split() for line in (marks / str(job)).read_text().splitlines()]
        for job in submitted
        if (marks / str(job)).exists()
    }
    return Waited(
        jobs=len(submitted),
        ran_once=sum(len(lines) == 1 for lines in runs.values()),
        completed_once=sum(completed[job] == 1 for job in submitted),
        mean_wait_s=sum(waits) / max(len(waits), 1),
        max_wait_s=float(max(waits, default=0)),
        elsewhere=sum(lines[0][0] != "alpha" for lines in runs.values()),
        start_gap_s=max((abs(int(runs[job][0][1]) - start[job]) for job in start if job in runs), default=0),
    )


def run(jobs: int, seed: int, folder: Path, daemon: DaemonProcess | None, *, patience_s: float) -> Waited:
    """Submit, let it run to the end, measure; ``daemon`` is started first and stopped last."""
    marks = folder / ("on" if daemon else "off")
    if daemon is not None:
        daemon.start()
        daemon.until_started()
    try:
        submitted = submit_all(jobs, seed, marks)
        until_done(set(submitted), patience_s)
        time.sleep(3)  # sacct hears of the last ends a moment later
    finally:
        if daemon is not None:
            daemon.end()
    return measure(submitted, marks)


def explained(daemon: DaemonProcess, job: int) -> str:
    """What ``slurm-evo explain`` says of a job."""
    return re.sub(r"\s+", " ", daemon.run("explain", f"alpha:{job}").stdout)
