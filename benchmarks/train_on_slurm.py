"""A policy trained on what real Slurm recorded, by workers that are Slurm jobs, and put in force: each step seen.

Run inside an idle fleet of the testbed, as root:
``python3 tests/testbed exec NAME -- /opt/slurm-evo/venv/bin/python /src/benchmarks/train_on_slurm.py``
It takes about a quarter of an hour.

1. Three users submit jobs for eleven minutes, more than the federation of three clusters runs at once.
2. ``slurm-evo train --from-slurmdbd --dask ADDRESS``: history by sacct, nodes as slurmctld has them; the islands
   run on Dask workers that are Slurm jobs of the clusters themselves. One of them is cancelled in the middle.
3. A daemon ranks a queue by first come, first served; the trained policy is promoted, and the SiteFactors are
   watched: seconds and cycles until no update is left to send, and how many pairs of jobs changed places.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(ROOT / place) for place in ("daemon", "tests/fleet", "tests/contract"))]

from daemon_process import WAY, DaemonProcess
from real_world import MEMBERS, OPERATOR, command, slurm_conf

HABITS = (("debug", 3, 8), ("eval", 10, 25), ("train", 40, 90), ("sweep", 15, 60))
"""Name of a job, and between how many seconds it runs."""
USERS = ("ada", "bob", "cyd")
FIRST_IN_FIRST_OUT = '[policy]\nexpression = "wait"\n'
SCHEDULER = "tcp://127.0.0.1:8786"
FOLDER = Path("/scratch/benchmark-train-on-slurm")
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}:{ROOT}/daemon:{ROOT}/gp_training", "NUMBA_CACHE_DIR": f"{FOLDER}/numba"}


def submit(random_: random.Random, *more: str) -> int:
    """One job with a habit."""
    name, least, most = random_.choice(HABITS)
    seconds, gpus = random_.randint(least, most), random_.choice([1, 1, 2, 4])
    argv = (
        "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", f"--job-name={name}", f"--gpus={gpus}",
        f"--time={random_.choice([2, 3, 5])}", *more, "--wrap", f"sleep {seconds}",
    )  # fmt: skip
    return int(command("alpha", *argv, user=random_.choice(USERS)).split(";")[0])


def make_history(seconds: float, a_second: float, random_: random.Random) -> int:
    """Submissions at drawn instants; returns how many."""
    began, count = time.monotonic(), 0
    next_s = 0.0
    while next_s < seconds:
        time.sleep(max(began + next_s - time.monotonic(), 0))
        submit(random_)
        count += 1
        next_s += random_.expovariate(a_second)
    return count


def running(state: str = "PENDING,RUNNING,COMPLETING") -> int:
    """Jobs of the users anywhere in the federation."""
    users = ",".join(USERS)
    shown = [command(name, "squeue", "--local", "-h", f"--user={users}", f"--states={state}") for name in MEMBERS]
    return sum(len(text.splitlines()) for text in shown)


@contextmanager
def dask_on_slurm(workers: int) -> Iterator[list[int]]:
    """A scheduler, and workers submitted to alpha; their job ids."""
    environment = {**os.environ, **ENVIRONMENT}
    argv = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "8786", "--no-dashboard"]
    scheduler = subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL)
    exports = ",".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
    line = f"{sys.executable} -m distributed.cli.dask_worker {SCHEDULER} --nthreads 1 --no-dashboard"
    jobs = []
    try:
        for _ in range(workers):
            told = command(
                "alpha", "sbatch", "--parsable", "-Malpha", "--chdir=/tmp", "--output=/tmp/dask-worker-%j.log",
                "--job-name=slurm-evo-train", "--time=60", f"--export=ALL,{exports}", "--wrap", line,
                user="ada",
            )  # fmt: skip
            jobs.append(int(told.split(";")[0]))
        yield jobs
    finally:
        command("alpha", "scancel", *map(str, jobs), check=False)
        scheduler.terminate()
        scheduler.wait()


def train(daemon: DaemonProcess, out: Path, minutes: float, workers: int) -> dict[str, object]:
    """Run the command, cancel a worker in the middle, and return what it printed."""
    with dask_on_slurm(workers) as jobs:
        argv = [
            *(sys.executable, "-m", "slurm_evo_training", "train", "--from-slurmdbd", "--days", "1", "--json"),
            *("--scheduler", "easy", "--dask", SCHEDULER, "--minutes", str(minutes)),
            *("--out", str(out), "--config", str(federation(daemon.folder))),
        ]
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT}
        )
        time.sleep(minutes * 30)
        command("alpha", "scancel", str(jobs[0]))
        print(f"a worker, job {jobs[0]}, is cancelled in the middle", flush=True)
        told, complained = process.communicate(timeout=1200)
        states = command("alpha", "sacct", "-n", "-X", "-P", "-o", "JobID,State", "-j", ",".join(map(str, jobs)))
    print(complained, flush=True)
    if process.returncode:
        raise SystemExit(f"train ended with {process.returncode}")
    return {**json.loads(told), "workers": dict(line.split("|") for line in states.splitlines())}


def federation(folder: Path) -> Path:
    """A configuration of the three clusters that the jobs could run on, and of the policy in force."""
    clusters = "".join(
        f'[[clusters]]\nname = "{name}"\nway = "{WAY}"\nslurm_conf = "{slurm_conf(name)}"\n' for name in MEMBERS
    )
    file = folder / "federation.toml"
    file.write_text(f'[store]\nstate_dir = "{folder}"\n{FIRST_IN_FIRST_OUT}{clusters}')
    return file


def factors(jobs: list[int]) -> dict[int, int]:
    """SiteFactors of alpha's pending jobs."""
    told = command("alpha", "sprio", "-h", "-o", "%i %S")
    rows = [line.split() for line in told.splitlines()]
    return {int(row[0]): int(float(row[1])) for row in rows if int(row[0]) in jobs}


def inversions(one: dict[int, int], other: dict[int, int]) -> float:
    """Share of the pairs that stand in another order."""
    both = sorted(set(one) & set(other))
    pairs = [(a, b) for place, a in enumerate(both) for b in both[place + 1 :]]
    return sum((one[a] - one[b]) * (other[a] - other[b]) < 0 for a, b in pairs) / max(len(pairs), 1)


def updates_left(daemon: DaemonProcess) -> int:
    """Priorities a cycle would still send, as `slurm-evo plan` says."""
    told = daemon.run("plan", "--json")
    found = json.loads(told.stdout)
    return sum(action["kind"] in ("set_site_factor", "unpin") for action in found["actions"])


def promote(daemon: DaemonProcess, front: Path, waiting: int, random_: random.Random) -> dict[str, object]:
    """The daemon's order before and after, and how long it took."""
    argv = ("sbatch", "--parsable", "-Malpha", "-N4", "--exclusive", "--gres=gpu:8", "--time=30", "--chdir=/tmp")
    blocker = command("alpha", *argv, "--output=/dev/null", "--wrap", "sleep 1800").split(";")[0]
    time.sleep(5)
    jobs = []
    for _ in range(waiting):
        jobs.append(submit(random_, "-Malpha"))
        time.sleep(0.5)
    daemon.start()
    try:
        daemon.until_started()
        deadline = time.monotonic() + 60
        while len(before := factors(jobs)) < waiting or updates_left(daemon):
            if time.monotonic() > deadline:
                raise SystemExit("the first order is not there within a minute")
            time.sleep(1)
        added = daemon.run("policy", "add", str(front), "--promote")
        if added.returncode:
            raise SystemExit(f"the policy was not taken: {added.stdout}{added.stderr}")
        promoted, cycles = time.monotonic(), daemon.log().count("cycle.done")
        while updates_left(daemon):
            if time.monotonic() > promoted + 120:
                raise SystemExit("the new order is not there within two minutes")
            time.sleep(0.2)
        seconds, after = time.monotonic() - promoted, factors(jobs)
        return {
            "waiting": waiting, "seconds": round(seconds, 1), "cycles": daemon.log().count("cycle.done") - cycles,
            "period_s": daemon.period_s, "pairs_that_changed_places": round(inversions(before, after), 3),
            "told": re.sub(r"\s+", " ", added.stdout).strip(),
        }  # fmt: skip
    finally:
        daemon.end()
        command("alpha", "scancel", blocker, *map(str, jobs), check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=660, help="of submissions")
    parser.add_argument("--a-second", type=float, default=1.4, help="submissions")
    parser.add_argument("--minutes", type=float, default=2.0, help="of evolution")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--waiting", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    random_ = random.Random(given.seed)
    folder = FOLDER
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    daemon = DaemonProcess(folder)
    daemon.configure(FIRST_IN_FIRST_OUT, moves=False)
    count = make_history(given.seconds, given.a_second, random_)
    print(f"{count} jobs submitted; {running()} of them wait or run", flush=True)
    while running():
        time.sleep(2)
    trained = train(daemon, folder / "trained", given.minutes, given.workers)
    subprocess.run(["chown", "-R", OPERATOR, str(folder)], check=True)
    print(json.dumps(trained), flush=True)
    promoted = promote(daemon, folder / "trained" / "front.json", given.waiting, random_)
    found = {
        "benchmark": "train_on_slurm",
        "seed": given.seed,
        "jobs": count,
        "trained": trained,
        "promoted": promoted,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
