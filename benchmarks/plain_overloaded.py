"""150 jobs of three users sent to delta alone, no federation, daemon off and on: waits as sacct records them.

Run inside a fleet of the testbed, which must be idle (gamma is taken out of the federation):
``python3 tests/testbed exec NAME -- /opt/slurm-evo/venv/bin/python /src/benchmarks/plain_overloaded.py``
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / "fleet")]

from plain import PLAIN
from plain_daemon import PlainDaemon, prepared, runs, submit_marked, until_nothing_is_left
from real_world import command


def waits(submitted: dict[int, str]) -> list[int]:
    """Seconds from the first submission to the start, by sacct; a moved job keeps its number."""
    first: dict[int, int] = {}
    start: dict[int, int] = {}
    for cluster in PLAIN:
        told = command(
            cluster, "env", "SLURM_TIME_FORMAT=%s", "sacct", "-n", "-P", "-X", "-D", "-a", "--local",
            "--format=JobIDRaw,Submit,Start,State", "--starttime=now-6hours",
        )  # fmt: skip
        for line in told.splitlines():
            job, submit, begin, state = line.split("|")
            if job.isdigit() and int(job) in submitted:
                first[int(job)] = min(first.get(int(job), int(submit)), int(submit))
                if state == "COMPLETED":
                    start[int(job)] = int(begin)
    return [start[job] - first[job] for job in submitted if job in start]


def run(jobs: int, seed: int, folder: Path, daemon: PlainDaemon | None) -> dict[str, float]:
    """Submit, let it run to the end, measure."""
    prepared()
    marks = folder / f"marks-{'on' if daemon else 'off'}-{time.time():.0f}"
    if daemon is not None:
        daemon.start()
    try:
        submitted = submit_marked(jobs, random.Random(seed), marks)
        until_nothing_is_left(2400)
        time.sleep(3)  # sacct hears of the last ends a moment later
    finally:
        if daemon is not None:
            daemon.end()
    waited, found = waits(submitted), runs(submitted, marks)
    return {
        "jobs": jobs,
        "ran_once": sum(len(lines) == 1 for lines in found.values()),
        "ran_elsewhere": sum(lines[0][0] != "delta" for lines in found.values() if lines),
        "mean_wait_s": sum(waited) / max(len(waited), 1),
        "max_wait_s": max(waited, default=0),
        "completed": len(waited),
    }


def main() -> None:
    """Run both and print a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = Path("/scratch/benchmark-plain-overloaded")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    daemon = PlainDaemon(folder)
    daemon.configure()
    daemon.run("plan")
    found = {}
    for name, steered in (("off", None), ("on", daemon)):
        found[name] = run(given.jobs, given.seed, folder, steered)
        print(f"daemon {name}: {found[name]}", flush=True)
    ratio = found["off"]["mean_wait_s"] / max(found["on"]["mean_wait_s"], 1e-9)
    print(json.dumps({"benchmark": "plain_overloaded", "seed": given.seed, **found, "mean_wait_ratio": ratio}))


if __name__ == "__main__":
    main()
