"""5,000 pending jobs on a real slurmctld, with and without site_factor/evo: time, delay, RPCs.

Run inside an idle fleet of the testbed that has the plugin (tests/testbed/plugins.py delivers it; Debian trixie):
``python3 tests/testbed exec NAME -- /opt/slurm-evo/venv/bin/python /src/benchmarks/plugin_5000.py``
It takes about a quarter of an hour and leaves cluster delta without the plugin and without jobs.

* seconds per priority pass: processor time of slurmctld's decay thread, from /proc, by pass;
* delay: from the moment sbatch returns until sprio shows the SiteFactor that puts the job in its place, once with
  the plugin, once with a cycle of the daemon begun at that moment (push), once with cycles every 30 s (polling);
* RPCs: what sdiag counts in a window of steady arrivals, by hour.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / place) for place in ("fleet", "contract"))]

import numpy as np
from plugin_site import PluginSite, eventually
from real_world import command, slurm_conf
from test_command_port import command_port

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName
from slurm_evo.policy import Policy
from slurm_evo.store import Journal
from slurm_evo_daemon.cycle import Surroundings, cycle
from slurm_evo_daemon.loop import utc_now

DELTA = ClusterName("delta")
SITE = PluginSite(DELTA, Path("/var/lib/slurm-evo/plugin/delta"))
POLL_S = 30.0


def say(text: str) -> None:
    """Progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Daemon:
    """The daemon's cycles on delta alone, as the operator."""

    def __init__(self, *, plugin: bool) -> None:
        self.settings = Settings.model_validate(
            {
                "moves": {"enabled": False},
                # A young queue changes its order all the time: here only what arrives is to be sent.
                "priority": {"recalc_s": 86_400.0},
                "clusters": [
                    {"name": DELTA, "way": "command", "slurm_conf": slurm_conf(DELTA),
                     "priority": "plugin" if plugin else "rpc", "plugin_dir": str(SITE.folder)}
                ],
            }
        )  # fmt: skip
        self.journal = Journal.open(f"sqlite:///{tempfile.mkdtemp()}/journal.sqlite")
        self.around = Surroundings(
            {DELTA: command_port(DELTA)}, self.journal, utc_now, time.monotonic, np.random.default_rng(1)
        )

    def cycle(self) -> dict[str, Any]:
        """One live pass."""
        lease = self.journal.acquire("benchmark", now=utc_now(), length_s=600)
        report, _ = cycle(self.around, self.settings, Policy.default(), lease)
        return report.as_fields()


def fill(number: int, seed: int) -> None:
    """Every GPU taken, then jobs that wait."""
    blockers = [SITE.submit("-N1", "--exclusive", "--gres=gpu:8", "--time=6000") for _ in range(2)]
    running = ("squeue", "--noheader", "--states=RUNNING", "--format=%A")
    eventually(lambda: command(DELTA, *running).count("\n") >= len(blockers), "every GPU is taken", 90)
    rng = random.Random(seed)
    wishes = [
        (rng.choice((1, 2, 4, 8)), rng.randint(10, 3000), rng.choice(("ada", "bob", "cyd"))) for _ in range(number)
    ]
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(
            lambda wish: SITE.submit(f"--gres=gpu:{wish[0]}", f"--time={wish[1]}", user=wish[2]), wishes
        ):
            pass


def decay_seconds() -> float:
    """Processor time so far of the thread that recomputes priorities."""
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        try:
            if (task / "comm").read_text().strip() != "decay":
                continue
            argv = (task.parent.parent / "cmdline").read_bytes()
            env = (task.parent.parent / "environ").read_bytes()
            if b"slurmctld" in argv and b"/delta/slurm.conf" in env:
                return int((task / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            continue
    raise SystemExit("the decay thread of slurmctld was not found")


def per_pass(passes: int) -> float:
    """Seconds of the decay thread for each pass; PriorityCalcPeriod is a minute in the testbed."""
    time.sleep(5)
    before = decay_seconds()
    time.sleep(60 * passes)
    return (decay_seconds() - before) / passes


def site_factor(job: int) -> int:
    """What sprio shows."""
    told = command(DELTA, "sprio", "-h", "-j", str(job), "-o", "%S", check=False).strip()
    return int(float(told)) if told else 0


def delay_of(job: int, began: float, patience_s: float = 120) -> float:
    """Seconds until it has a SiteFactor of the policy."""
    while site_factor(job) == 0:
        if time.monotonic() - began > patience_s:
            return float("inf")
        # Often at first, then seldom: the asking must not be what slurmctld is busy with.
        time.sleep(0.02 if time.monotonic() - began < 0.5 else 2.0)
    return time.monotonic() - began


def probe(rng: random.Random) -> tuple[int, float]:
    """A job, and when it was in."""
    job = SITE.submit("--gres=gpu:1", f"--time={rng.randint(10, 3000)}")
    return job, time.monotonic()


def rpcs(seconds: float, every_s: float, rng: random.Random) -> dict[str, Any]:
    """By type and hour, while jobs arrive steadily; with the delays of those jobs."""
    command(DELTA, "sdiag", "--reset")
    began, delays, threads = time.monotonic(), list[float](), []
    while time.monotonic() - began < seconds:
        job, at = probe(rng)
        thread = threading.Thread(target=lambda j=job, a=at: delays.append(delay_of(j, a)))
        thread.start()
        threads.append(thread)
        time.sleep(every_s * rng.uniform(0.5, 1.5))
    told = command(DELTA, "sdiag")
    elapsed = time.monotonic() - began
    by_type = told.split("Remote Procedure Call statistics by message type")[1].split("Remote Procedure Call")[0]
    counts = {
        name: int(count)
        for name, count in re.findall(r"^\s*(\w+)\s*\(\s*\d+\) count:(\d+)", by_type, re.MULTILINE)
    }
    for thread in threads:
        thread.join()
    by_hour = {name: round(count * 3600 / elapsed) for name, count in counts.items()}
    return {"by_hour": by_hour, "delays": delays}


def tell(result: dict[str, Any], **found: Any) -> None:
    """Keep, and say at once: a run that is ended later has not been for nothing."""
    result.update(found)
    for name, value in found.items():
        say(f"  {name}: {value}")


def summary(delays: list[float]) -> dict[str, float]:
    """Seconds."""
    return {
        "median": round(statistics.median(delays), 3), "longest": round(max(delays), 3), "jobs": len(delays)
    }  # fmt: skip


def polled(daemon: Daemon, seconds: float, rng: random.Random) -> dict[str, Any]:
    """Cycles every 30 s beside steady arrivals."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            began = time.monotonic()
            daemon.cycle()
            stop.wait(max(0.0, POLL_S - (time.monotonic() - began)))

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        return rpcs(seconds, 5.0, rng)
    finally:
        stop.set()
        thread.join()


def main() -> None:
    """Measure, print, put everything back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--window", type=float, default=95.0, help="seconds of steady arrivals")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--filled", action="store_true", help="the jobs wait already, from a run that was ended")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    result: dict[str, Any] = {"jobs": given.jobs}
    if not given.filled:
        say(f"submitting {given.jobs} jobs")
        fill(given.jobs, given.seed)
    say("priority passes without the plugin")
    tell(result, pass_without_s=round(per_pass(given.passes), 5))

    say("the plugin goes in")
    SITE.put_in()
    daemon = Daemon(plugin=True)
    daemon.cycle()
    eventually(lambda: bool(SITE.status()["policy"]), "the policy is read", 30)
    SITE.after_a_pass()
    say("priority passes with the plugin")
    tell(result, pass_with_s=round(per_pass(given.passes), 5))
    told = SITE.status()
    tell(result, plugin={name: told[name] for name in ("jobs", "seconds", "longest", "cut")})
    window = polled(daemon, given.window, rng)
    tell(result, delay_plugin_s=summary(window["delays"]), rpcs_by_hour_with=window["by_hour"])

    say("the plugin goes out; the daemon sends what differs")
    SITE.take_out()
    daemon = Daemon(plugin=False)
    first = daemon.cycle()
    tell(result, first_cycle={"seconds": first["seconds"], "updates": first["site_factors_set"]})
    pushed = []
    for _ in range(3):
        job, at = probe(rng)
        daemon.cycle()
        pushed.append(delay_of(job, at))
    tell(result, delay_push_s=summary(pushed))
    say("polling every 30 s, with arrivals")
    window = polled(daemon, given.window, rng)
    tell(result, delay_polling_s=summary(window["delays"]), rpcs_by_hour_without=window["by_hour"])

    say("putting everything back")
    for user in ("ada", "bob", "cyd"):
        subprocess.run(
            ["scancel", "--user", user],
            env={"PATH": "/usr/bin:/bin", "SLURM_CONF": slurm_conf(DELTA)},
            check=False,
        )
    for name, value in result.items():
        print(f"{name:24} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
