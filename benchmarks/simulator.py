"""How fast the simulator is, next to plain Python and SimPy in the same run.

    python benchmarks/simulator.py                   # 10 thousand and 100 thousand jobs
    python benchmarks/simulator.py --million         # and a million, with peak memory

Peers from PyPI: SimPy, in the same run. AccaSim 1.1.3 was not tried: it is reported not to import on Python newer
than 3.9. hpcsim 0.3.1 installs; nobody has written a driver that feeds it these jobs, so it is not measured.

"of ceiling" compares with prototypes that do nothing but replay (CEILING). "bare loop" is a bound measured in
the same run: every end through the engine's own heap, every arrival looked at, and no scheduling at all.

Times are processor time, the least of several runs. Every row gives jobs per second, nanoseconds per event, and
the mean queue: a policy that schedules badly has longer queues and so simulates slower. The last line is JSON.
Compiling (once per machine) is not counted.
"""

from __future__ import annotations

# ruff: noqa: ANN001, ANN201, ANN202  # a script: what goes in and out is said in words
import argparse
import heapq
import json
import resource
import sys
import time
from bisect import insort
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from workloads import synthetic

from slurm_evo.policy import Policy
from slurm_evo.sim.fleet import FleetShape
from slurm_evo.sim.passes import compiled, pop, push
from slurm_evo.sim.replay import replay
from slurm_evo.sim.rules import Backfill, Fixed, LayerOne, Race, Rules

GPUS = 512
HEAVY = Policy.parse(
    "(wait / limit * log(gpus + 1) + sqrt(wait) * weight) / (runtime / (wait + 60) + 0.5) + max(gpus, nodes)"
)
POLICIES = {"fifo": Policy.parse("-0.0 * limit"), "sjf": Policy.parse("-limit"), "default": Policy.default()}
POLICIES["heavy"] = HEAVY


CEILING = {
    "counts none fifo": 5_920e3,
    "counts EASY fifo": 1_045e3,
    "counts none sjf": 7_500e3,
    "counts EASY sjf": 2_580e3,
    "counts none heavy": 1_025e3,
    "counts EASY heavy": 1_130e3,
    "nodes none heavy": 760e3,
    "nodes EASY heavy": 640e3,
}
"""Jobs a second of numba prototypes of one mode each, one core, 10 thousand jobs at an offered load of 0.95
like these. They were measured once, on another day, on a machine of the same kind: two-core AMD EPYC, Python
3.11, numba 0.68. Compared as multiples of plain Python then (CEILING_PLAIN) and now. Their policies were as
long, not the same, and their queues as long as these within a factor of 2."""
CEILING_PLAIN = {False: 832e3, True: 58e3}
"""Plain Python's FIFO without and with EASY beside those prototypes, jobs a second."""
LONG = {
    "counts none fifo",
    "counts EASY sjf",
    "nodes none sjf",
    "nodes EASY default",
    "4 clusters EASY default race",
}
"""Modes that are run with a million jobs."""


@compiled
def bare_loop(submit, runtime, heap):
    """All events in order and nothing else; the number of ends."""
    running, ends = 0, 0
    for j in range(submit.size):
        while running > 0 and heap[0] >> 32 <= submit[j]:
            pop(heap, running)
            running -= 1
            ends += 1
        push(heap, running, (submit[j] + runtime[j]) << 32 | j)
        running += 1
    return ends + running


def plain_python(jobs, easy):  # the yardstick is one loop
    """FIFO by GPU counts in plain Python: the yardstick. Returns the mean wait."""
    rows = list(
        zip(jobs.submit.tolist(), jobs.runtime.tolist(), jobs.limit.tolist(), jobs.gpus.tolist(), strict=True)
    )
    free, following, now, waited = GPUS, 0, 0, 0
    running, queue = [], []
    while following < len(rows) or running or queue:
        now = min(rows[following][0] if following < len(rows) else 1 << 60, running[0][0] if running else 1 << 60)
        while running and running[0][0] == now:
            free += heapq.heappop(running)[2]
        while following < len(rows) and rows[following][0] == now:
            insort(queue, following)
            following += 1
        place = 0
        shadow, extra = 1 << 60, 0
        while place < len(queue) and free:
            job = queue[place]
            submit, runtime, limit, gpus = rows[job]
            if gpus <= free and (place == 0 or now + limit <= shadow or gpus <= extra):
                if place and now + limit > shadow:
                    extra -= gpus
                free -= gpus
                heapq.heappush(running, (now + runtime, job, gpus, now + limit))
                waited += now - submit
                queue.pop(place)
                continue
            if place == 0:
                if not easy:
                    break
                available = free
                for end, held in sorted((entry[3], entry[2]) for entry in running):
                    if available >= gpus and end > shadow:
                        break
                    available += held
                    if available >= gpus:
                        shadow, extra = end, available - gpus
            place += 1
    return waited / len(rows)


def simpy_fifo(jobs):
    """The same FIFO as SimPy users would write it: one process a job, a container of GPUs."""
    import simpy

    world = simpy.Environment()
    gpus = simpy.Container(world, capacity=GPUS, init=GPUS)
    waits = []

    def job(asked, runtime):
        since = world.now
        yield gpus.get(asked)
        waits.append(world.now - since)
        yield world.timeout(runtime)
        yield gpus.put(asked)

    def source():
        for submit, runtime, asked in zip(
            jobs.submit.tolist(), jobs.runtime.tolist(), jobs.gpus.tolist(), strict=True
        ):
            yield world.timeout(submit - world.now)
            world.process(job(asked, runtime))

    world.process(source())
    world.run()
    return sum(waits) / len(waits)


def timed(run, repeat):
    """Least seconds of processor time, and the last result: other work on the machine has no part in it."""
    seconds = []
    for _ in range(repeat):
        began = time.process_time()
        result = run()
        seconds.append(time.process_time() - began)
    return min(seconds), result


def modes(quick):
    """(name, fleet, policy, allocation, rules)."""
    counts = FleetShape.uniform(clusters=1, nodes=1, gpus=GPUS)
    nodes = FleetShape.uniform(clusters=1, nodes=GPUS // 8, gpus=8)
    four = FleetShape.uniform(clusters=4, nodes=GPUS // 32, gpus=8)
    event, easy = Rules.every_event(Backfill.NONE), Rules.every_event(Backfill.EASY)
    for name, policy in POLICIES.items():
        yield f"counts none {name}", counts, policy, Race(), event
        yield f"counts EASY {name}", counts, policy, Race(), easy
        yield f"nodes none {name}", nodes, policy, Race(), event
        yield f"nodes EASY {name}", nodes, policy, Race(), easy
    for allocation in (*Fixed, Race()):
        label = allocation.name.lower() if isinstance(allocation, Fixed) else "race"
        yield f"4 clusters EASY default {label}", four, POLICIES["default"], allocation, easy
    stay = LayerOne(decide=lambda seen: seen.feasible, cycle=60)
    yield "4 clusters EASY default layer 1 (keeps all)", four, POLICIES["default"], stay, easy
    if quick:
        yield "nodes Slurm sjf", nodes, POLICIES["sjf"], Race(), Rules()
        yield "4 clusters Slurm default race", four, POLICIES["default"], Race(), Rules()


def measure(n, repeat):
    """All modes at one size."""
    jobs = synthetic(n, GPUS, 0.95, seed=1)
    spread = synthetic(n, GPUS, 0.95, seed=1, homes=True)
    rows = []
    rules = "%-46s %10s %9s %10s %10s %9s %11s"
    print(f"\n{n} jobs")
    print(rules % ("mode", "jobs/s", "ns/event", "queue", "mean wait", "x plain", "of ceiling"))
    yard = {}
    heap = np.zeros(n + 1, dtype=np.int64)
    seconds, _ = timed(lambda: bare_loop(jobs.submit, jobs.runtime, heap), 3)
    bound = n / seconds
    print(rules % ("bare loop, no scheduling", f"{bound:.0f}", f"{seconds / n / 2 * 1e9:.0f}", "-", "-", "", ""))
    rows.append({"mode": "bare loop", "jobs": n, "jobs_per_s": bound, "ns_per_event": seconds / n / 2 * 1e9})
    if n <= 100_000:
        for name, easy in (("plain Python counts none", False), ("plain Python counts EASY", True)):
            seconds, wait = timed(lambda easy=easy: plain_python(jobs, easy), 1)
            yard[easy] = n / seconds
            print(rules % (name, f"{n / seconds:.0f}", "-", "-", f"{wait:.0f}", "1", ""))
            rows.append({"mode": name, "jobs": n, "jobs_per_s": n / seconds, "mean_wait_s": wait})
        try:
            seconds, wait = timed(lambda: simpy_fifo(jobs), 1)
        except ModuleNotFoundError:
            print("SimPy is not installed: left out (pip install simpy)")
        else:
            print(rules % ("SimPy counts none", f"{n / seconds:.0f}", "-", "-", f"{wait:.0f}", "", ""))
            rows.append({"mode": "SimPy", "jobs": n, "jobs_per_s": n / seconds, "mean_wait_s": wait})
    for name, fleet, policy, allocation, rule in modes(quick=n <= 10_000):
        if n >= 1_000_000 and name not in LONG:
            continue
        asked = (jobs if len(fleet.clusters) == 1 else spread, fleet, policy, allocation, rule)
        seconds, done = timed(lambda asked=asked: replay(*asked), repeat)
        started = done.start >= 0
        row = {
            "mode": name,
            "jobs": n,
            "jobs_per_s": n / seconds,
            "ns_per_event": seconds / done.counts.events * 1e9,
            "mean_queue": done.counts.mean_queue,
            "mean_wait_s": float((done.start - jobs.submit)[started].mean()),
        }
        ratio = f"{row['jobs_per_s'] / yard['EASY' in name]:.1f}" if yard and "Slurm" not in name else ""
        numbers = (f"{row['jobs_per_s']:.0f}", f"{row['ns_per_event']:.0f}", f"{row['mean_queue']:.1f}")
        row["of_bare_loop"] = row["jobs_per_s"] / bound
        if name in CEILING and n <= 10_000:
            easy = "EASY" in name
            row["of_ceiling"] = row["jobs_per_s"] / yard[easy] / (CEILING[name] / CEILING_PLAIN[easy])
        of_ceiling = f"{row['of_ceiling']:.2f}" if "of_ceiling" in row else ""
        print(rules % (name, *numbers, f"{row['mean_wait_s']:.0f}", ratio, of_ceiling), flush=True)
        rows.append(row)
    return rows


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--million", action="store_true", help="also a million jobs")
    parser.add_argument("--only", type=int, help="this number of jobs alone")
    given = parser.parse_args()
    began = time.perf_counter()
    tiny = synthetic(50, GPUS, 0.9, seed=2)
    replay(tiny, FleetShape.uniform(clusters=1, nodes=64, gpus=8), HEAVY, Race())
    print(f"ready after {time.perf_counter() - began:.1f} s (compiling, or reading what was compiled)")
    sizes = [given.only] if given.only else [10_000, 100_000] + [1_000_000] * given.million
    rows = [row for n in sizes for row in measure(n, repeat=5 if n <= 10_000 else 1)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"\npeak memory {peak:.0f} MiB")
    print(
        json.dumps(
            {
                "benchmark": "simulator",
                "rows": rows,
                "peak_mib": peak,
                "python": sys.version.split()[0],
                "numpy": np.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
