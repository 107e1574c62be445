"""3,000 pending jobs on real slurmctld daemons: seconds per phase of a cycle, updates per second and how many.

Run inside a fleet of the testbed, which must be idle:
``python3 tests/testbed exec NAME -- /opt/slurm-evo/venv/bin/python /src/benchmarks/cycle_3000.py``
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / place) for place in ("fleet", "contract")]

from real_world import command
from steered import Steered
from test_edges import make_port

from slurm_evo.config import Settings
from slurm_evo_daemon.decide import decide
from slurm_evo_daemon.priorities import fewest_updates


def submit(number: int, seed: int) -> None:
    """Pending jobs: every GPU is busy first."""
    for cluster, nodes, gpus in (("alpha", 4, 8), ("beta", 2, 8), ("gamma", 4, 4)):
        for _ in range(nodes):
            _sbatch("root", "-M", cluster, f"--gpus={gpus}", "--time=120", "--wrap", "sleep 7000")
    time.sleep(8)
    rng = random.Random(seed)
    wishes = [
        (rng.choice(("ada", "bob", "cyd")), rng.choice((1, 2, 4, 8)), rng.randint(10, 3000)) for _ in range(number)
    ]
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda wish: _sbatch(wish[0], f"--gpus={wish[1]}", f"--time={wish[2]}", "--wrap", "sleep 60"),
                wishes,
            )
        )


def _sbatch(user: str, *words: str) -> None:
    command("alpha", "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *words, user=user)


def main() -> None:
    """Submit, cycle four times, print a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    submit(given.jobs, given.seed)
    print(f"{given.jobs} jobs submitted in {time.monotonic() - began:.0f} s", flush=True)
    settings: dict[str, Any] = {"moves": {"enabled": False}, "priority": {"recalc_s": 100_000}}
    with tempfile.TemporaryDirectory() as folder:
        steered = Steered(make_port, Path(folder), settings)
        steered.settings = Settings.model_validate({"moves": {"enabled": True}})
        _decide_once(steered)  # compiled code and worker processes are there from now on
        steered.settings = Settings.model_validate(settings)
        rows = []
        for name in ("first", "nothing new", "a tenth resubmitted", "layer 1 on"):
            if name == "layer 1 on":
                steered.settings = Settings.model_validate({**settings, "moves": {"enabled": True}})
            if name.startswith("a tenth"):
                shown = command("alpha", "squeue", "--local", "-h", "-t", "PD", "-u", "ada", "-o", "%A").split()
                command("alpha", "scancel", *shown[: given.jobs // 10])
                submit_more = [("bob", 1 + place % 4, 20 + place) for place in range(given.jobs // 10)]
                for user, gpus, minutes in submit_more:
                    _sbatch(user, f"--gpus={gpus}", f"--time={minutes}", "--wrap", "sleep 60")
                time.sleep(5)
            least = _least(steered)
            report, _ = steered.cycle()
            sent = report.counts["site_factors_set"]
            seconds = {phase: round(value, 3) for phase, value in report.seconds.items()}
            rows.append(
                {"cycle": name, "pending": report.counts["pending"], "seconds": seconds, "sent": sent,
                 "least_possible": least, "sets_changed": report.counts["sets_changed"],
                 "updates_per_s": round(sent / max(report.seconds["act"], 1e-9))}
            )  # fmt: skip
            print(rows[-1], flush=True)
        steered.close()
    print(json.dumps({"benchmark": "cycle_3000", "seed": given.seed, "cycles": rows}))


def _decide_once(steered: Steered) -> Any:
    from slurm_evo.policy import Policy
    from slurm_evo_daemon.loop import utc_now
    from slurm_evo_daemon.observe import observe

    view = observe(steered.ports, utc_now())
    known = steered.journal.jobs()
    policy = Policy.default()
    around, settings = steered.around, steered.settings
    return decide(view, known, settings, policy, around.times, rng=around.rng, stopwatch=time.monotonic)


def _least(steered: Steered) -> int:
    """The least number of updates that brings the present values into the wanted order."""
    ranks = sorted(_decide_once(steered).ranks.values(), key=lambda rank: -rank.place)
    return fewest_updates([rank.before for rank in ranks], steered.settings.priority.band)


if __name__ == "__main__":
    main()
