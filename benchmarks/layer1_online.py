"""Layer 1 in the loop of a replay, every cycle, as deployed: what it is worth against Slurm's own ways.

Every row runs under the same priority (``--priority``; if left out, weight * (wait + 60) / (runtime * gpus)),
packing, EASY backfill and knowledge of running times (estimates with a log-normal error, sigma 0.8). Cases:

* philly-5, philly-4: Microsoft's log, 2017-10-02 to 10-30, eleven clusters with a fifth or a quarter of the
  nodes. With ``--plain`` the clusters form no federation: a move costs 30 s, a job moves once in 10 minutes.
* mixed: a generated fleet, three GPU types of different speed, unequal sizes, some jobs tied to a type.
* openb: Alibaba's pods with their GPU models as clusters; the pools are cut down and time is compressed.
* ubhpc: a week of a Slurm cluster split into its four groups of nodes; features and memory bind jobs.

    python benchmarks/layer1_online.py --data DIRECTORY [--cases mixed openb] [--seeds 1 2] [--plain] [--ablations]
                                        [--priority EXPRESSION]

``--ablations`` adds layer 1 without late binding (a job goes at once to the one cluster that is expected to start
it first), without futures (running times are as expected, nobody comes), without seeds, without a margin, and
without the front of the cycle before.

DIRECTORY holds philly/, alibaba_openb2023/ and ubhpc/ with the logs as published. Limits, weights and
estimates the logs lack are drawn from the seed. Ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from slurm_evo.optimize import search
from slurm_evo.optimize.in_simulation import LayerOneInReplay
from slurm_evo.optimize.seeds import seeds
from slurm_evo.policy import Policy
from slurm_evo.sim.fleet import FleetShape, NodeShape
from slurm_evo.sim.metrics import measure
from slurm_evo.sim.replay import Replayed, replay
from slurm_evo.sim.rules import Allocation, Fixed, LayerOne, Race, Rules
from slurm_evo.sim.workload import Workload

DAY = 86_400
PRIORITY = "weight * (wait + 60) / (runtime * max(gpus, 1))"
CASES = ("philly-5", "philly-4", "mixed", "openb", "ubhpc")


@dataclass(frozen=True)
class Case:
    """What is replayed."""

    jobs: Workload
    fleet: FleetShape


def drawn(
    rng: np.random.Generator, fleet: FleetShape, submit: Any, runtime: Any, gpus: Any, **more: Any
) -> Workload:
    """Fill in what a log lacks; a job's home is drawn by size."""
    count = len(submit)
    limit = runtime * np.exp(np.abs(rng.normal(0, 1.5, count))) * 1.05 + 60
    limit = np.maximum(np.minimum(np.ceil(limit / 3600) * 3600, 7 * DAY), runtime)
    more.setdefault("limit", limit.astype(np.int64))
    estimate = np.minimum(np.maximum(runtime * np.exp(rng.normal(0, 0.8, count)), 1), more["limit"])
    weight = rng.choice([1.0, 2.0, 4.0], count, p=[0.6, 0.3, 0.1])
    sizes = fleet.gpus
    may = (
        np.asarray(more.get("clusters", np.full(count, (1 << len(sizes)) - 1)))[:, None] >> np.arange(len(sizes))
    ) & 1
    edge = np.cumsum(may * np.where(sizes >= np.asarray(gpus)[:, None], sizes, 0), axis=1)
    home = (rng.random(count)[:, None] * edge[:, -1:] >= edge).sum(axis=1)
    return Workload(
        submit=submit, runtime=runtime, gpus=gpus, estimate=estimate.astype(np.int64), weight=weight,
        home=np.minimum(home, len(sizes) - 1), **more,
    )  # fmt: skip


def philly(data: Path, part: int, since: float, days: float, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    begin = datetime(2017, 10, 2) + timedelta(days=since)  # noqa: DTZ001 - the log's own wall time
    with gzip.open(data / "philly" / "philly_jobs.csv.gz", "rt") as file:
        rows = [
            ((datetime.fromisoformat(row["timestamp"]) - begin).total_seconds(),
             float(row["duration"]), int(row["num_gpus"]))
            for row in csv.DictReader(file)
        ]  # fmt: skip
    rows = sorted(row for row in rows if row[2] <= 32 and 0 <= row[0] < days * DAY)
    with (data / "philly" / "philly_vc.csv").open() as file:
        nodes = [int(row["node num"]) for row in csv.DictReader(file)]
    fleet = FleetShape(clusters=tuple((NodeShape(gpus=8),) * max(count // part, 2) for count in nodes))
    columns = np.array(rows)
    runtime = np.minimum(columns[:, 1], 7 * DAY).astype(np.int64)
    return Case(drawn(rng, fleet, columns[:, 0].astype(np.int64), runtime, columns[:, 2].astype(np.int64)), fleet)


def mixed(days: float, seed: int, load: float = 0.95) -> Case:
    """28 nodes of 8 GPUs: one small cluster of a fast type, two of a middling one, three of the slowest.

    At a load of 0.95 about half of the small cluster's capacity and a quarter of the middling ones' is asked for
    by jobs tied to them; with other loads as much less or more.
    """
    rng = np.random.default_rng(seed)
    sizes, kinds, speed = (3, 8, 4, 2, 6, 5), (0, 1, 1, 2, 2, 2), (2.0, 1.4, 1.4, 1.0, 1.0, 1.0)
    fleet = FleetShape(
        clusters=tuple(
            (NodeShape(gpus=8, gpu_type=kind),) * size for size, kind in zip(sizes, kinds, strict=True)
        ),
        speed=speed,
    )
    power = fleet.gpus * np.array(speed)
    work = days * DAY * np.array([power[:1].sum() * 0.6, power[1:3].sum() * 0.3, power.sum() * 0.95])
    work *= load / 0.95
    work[2] -= work[:2].sum()
    found: list[tuple[float, float, int, int]] = []
    for kind, asked in ((0, work[0]), (1, work[1]), (-1, work[2])):
        sum_gpu_s = 0.0
        while sum_gpu_s < asked:
            # A sweep of like jobs within minutes, more by day than by night.
            instant = rng.uniform(0, days * DAY)
            if rng.random() > 0.6 + 0.4 * np.sin(2 * np.pi * instant / DAY):
                continue
            gpus = int(rng.choice([1, 2, 4, 8, 16], p=[0.55, 0.15, 0.12, 0.14, 0.04]))
            typical = float(np.clip(np.exp(rng.normal(np.log(1500), 1.3)), 30, 2 * DAY))
            for _ in range(int(rng.geometric(1 / 5))):
                runs = float(np.clip(typical * np.exp(rng.normal(0, 0.4)), 10, 3 * DAY))
                found.append((instant + rng.uniform(0, 300), runs, gpus, kind))
                sum_gpu_s += runs * gpus
    found.sort()
    columns = np.array(found)
    kind = columns[:, 3].astype(np.int64)
    bits = {-1: (1 << len(sizes)) - 1, 0: 0b1, 1: 0b110}
    return Case(
        drawn(rng, fleet, columns[:, 0].astype(np.int64), columns[:, 1].astype(np.int64),
              columns[:, 2].astype(np.int64), gpu_type=kind, clusters=np.array([bits[k] for k in kind.tolist()])),
        fleet,
    )  # fmt: skip


def openb(data: Path, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    shapes = {"G2": (4, 8), "T4": (5, 2), "G3": (1, 8), "P100": (2, 2), "V100M32": (1, 8), "V100M16": (1, 4)}
    names = list(shapes)
    fleet = FleetShape(
        clusters=tuple((NodeShape(gpus=g, gpu_type=k),) * n for k, (n, g) in enumerate(shapes.values()))
    )
    rows = []
    with gzip.open(data / "alibaba_openb2023" / "openb_pod_list_gpuspec33.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if int(row["num_gpu"]) and row["scheduled_time"] and float(row["creation_time"]) >= 117 * DAY:
                spec = [names.index(name) for name in row["gpu_spec"].split("|") if name in names]
                allowed = sum(1 << c for c in spec) or (1 << len(names)) - 1
                runs = float(row["deletion_time"]) - float(row["scheduled_time"])
                rows.append((float(row["creation_time"]), min(runs, 2 * DAY), int(row["num_gpu"]), allowed))
    rows.sort()
    columns = np.array(rows)
    # Time is compressed until the pods of these weeks offer 0.9 of the pools' GPU time.
    span = columns[:, 1] @ columns[:, 2] / (0.9 * fleet.gpus.sum())
    since = (columns[:, 0] - columns[0, 0]) / (columns[-1, 0] - columns[0, 0]) * span
    return Case(
        drawn(rng, fleet, since.astype(np.int64), np.maximum(columns[:, 1], 1).astype(np.int64),
              columns[:, 2].astype(np.int64), clusters=columns[:, 3].astype(np.int64)),
        fleet,
    )  # fmt: skip


def ubhpc(data: Path, days: float, seed: int) -> Case:
    """Devices are cores. Groups: n 87 nodes of 32 cores, m 96 and b 24 (754 GB) of 40, g 8 of 40 with GPUs."""
    rng = np.random.default_rng(seed)
    groups = ((87, 32, 187_000), (96, 40, 187_000), (24, 40, 754_000), (8, 40, 187_000))
    fleet = FleetShape(clusters=tuple((NodeShape(gpus=cores, memory=memory),) * n for n, cores, memory in groups))
    rows = []
    with gzip.open(data / "ubhpc" / "workload_week.events.gz", "rt") as file:
        for line in file:
            since, runs = re.search(r"-dt\s+(\S+)", line), re.search(r"-sim-walltime\s+(\S+)", line)
            nodes, tasks = re.search(r"-N\s+(\d+)", line), re.search(r"-n\s+(\d+)", line)
            limit = re.search(r"-t\s+(?:(\d+)-)?(\d+):(\d+):(\d+)", line)
            if not (since and runs and nodes and tasks and limit) or "-p debug" in line:
                continue
            day, hour, minute, second = (int(each or 0) for each in limit.groups())
            allowed = 0b1000 if "gpu:" in line else 0b1110 if "6230" in line else 0b1 if "6130" in line else 0b1111
            memory = re.search(r"--mem=(\d+)([GM]?)", line)
            size = int(memory[1]) * (1000 if memory and memory[2] == "G" else 1) if memory else 0
            if size > 187_000:
                allowed &= 0b0100
            count, seconds = int(nodes[1]), day * DAY + hour * 3600 + minute * 60 + second
            if allowed and count <= 80 and float(since[1]) < days * DAY:
                rows.append(
                    (float(since[1]), max(float(runs[1]), 1), int(tasks[1]), count, size * count, allowed, seconds)
                )
    rows.sort()
    columns = np.array(rows).astype(np.int64)
    fits = columns[:, 2] <= columns[:, 3] * np.where(columns[:, 5] == 1, 32, 40)
    columns = columns[fits]
    allowed = np.where(columns[:, 2] > columns[:, 3] * 32, columns[:, 5] & 0b1110, columns[:, 5])
    columns, allowed = columns[allowed > 0], allowed[allowed > 0]
    return Case(
        drawn(rng, fleet, columns[:, 0], np.minimum(columns[:, 1], columns[:, 6]), columns[:, 2],
              nodes=columns[:, 3], memory=np.minimum(columns[:, 4], 700_000 * columns[:, 3]), clusters=allowed,
              limit=np.maximum(columns[:, 6], 60)),
        fleet,
    )  # fmt: skip


def case_of(name: str, data: Path, since: float, days: float, seed: int) -> Case:
    """A case by name."""
    if name.startswith("philly-"):
        return philly(data, int(name[-1]), since, days, seed)
    if name == "mixed":
        return mixed(days, seed)
    return openb(data, seed) if name == "openb" else ubhpc(data, days, seed)


def figures(case: Case, done: Replayed) -> dict[str, float]:
    """The three objectives, and who never started."""
    jobs, ran = case.jobs, done.start >= 0
    window = (0, max(int(jobs.submit[-1]), 1))
    told = measure(
        submit_s=jobs.submit[ran], start_s=done.start[ran], end_s=done.end[ran], gpus=jobs.gpus[ran],
        weight=jobs.weight[ran], window_s=window, available_gpu_s=case.fleet.available_gpu_seconds(*window),
    )  # fmt: skip
    return {
        "average": told.average_wait_s,
        "maximum": told.maximum_wait_s,
        "utilization": told.utilization,
        "p99": told.p99_wait_s,
        "unstarted": float((~ran).sum()),
    }


ABLATIONS: dict[str, dict[str, Any]] = {
    "layer 1": {},
    "no late binding": {"soon_s": float("inf")},
    "no futures": {"samples": 0, "foresees_s": 0.0},
    "no seeds": {},
    "no margin": {"margin": 0.0},
    "no last front": {"remembers": False},
}


def unseeded(_queue: Any, choice: Any, _judge: Any, _also: Any = None) -> Any:
    """«Change nothing», and one change at random."""
    genomes = np.zeros((2, choice.jobs.size), np.int16)
    genomes[1, 0] = choice.counts[0] - 1
    return genomes


def allocations(plain: bool) -> dict[str, Allocation | None]:
    """None: layer 1."""
    bound: dict[str, Allocation | None] = {
        "home": Fixed.HOME,
        "least loaded": Fixed.LEAST_LOADED,
        "earliest start": Fixed.EARLIEST_START,
    }
    return {**(bound if plain else {"earliest start": Fixed.EARLIEST_START}), "race": Race(), "layer 1": None}


def one(
    name: str, data: Path, since: float, days: float, seed: int, way: str, plain: bool, priority: str,
    changes: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """One replay."""
    case, policy = case_of(name, data, since, days, seed), Policy.parse(priority)
    allocation = allocations(plain).get(way)
    decide = None
    search.seeds = unseeded if way == "no seeds" else seeds
    if allocation is None:
        # With federation, binding early is what it is without: one cluster for each job, only that moving is free.
        binds = plain or way == "no late binding"
        decide = LayerOneInReplay(
            case.jobs, case.fleet, policy, seed=seed, federated=not binds, **ABLATIONS[way], **changes
        )
        allocation = LayerOne(
            decide=decide, cycle=60, move_s=30 if plain else 0, entry=1 << case.jobs.home if binds else None
        )
    began = time.perf_counter()
    done = replay(case.jobs, case.fleet, policy, allocation, Rules.every_event())
    row = {"case": name, "plain": plain, "seed": seed, "way": way, "jobs": len(case.jobs), **figures(case, done)}
    row |= {"seconds": time.perf_counter() - began, "queue": done.counts.mean_queue}
    if decide is not None:
        row |= {"changed": decide.changed, "plans": decide.asked}
    return row


def show(row: dict[str, Any]) -> None:
    extra = f"  {row['changed']} changes in {row['plans']} plans" if "plans" in row else ""
    print(
        f"{row['case']:9s} {'plain' if row['plain'] else 'federated':9s} seed {row['seed']} {row['way']:15s} "
        f"average {row['average']:9.0f} s  maximum {row['maximum']:10.0f} s  "
        f"utilization {row['utilization']:.3f}  "
        f"[{row['jobs']} jobs, queue {row['queue']:.0f}, {row['seconds']:.0f} s]{extra}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--since", type=float, default=6, help="first day of Philly's window, from 2017-10-02")
    parser.add_argument("--days", type=float, default=4, help="length of the window")
    parser.add_argument("--plain", action="store_true", help="no federation")
    parser.add_argument("--ablations", action="store_true", help="layer 1 without each of its parts as well")
    parser.add_argument("--ways", nargs="+", help="only these")
    parser.add_argument("--priority", default=PRIORITY, help="the expression that ranks, such as a trained one")
    parser.add_argument("--set", type=json.loads, default={}, help='settings of layer 1, as {"margin": 0.05}')
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    Policy.parse(args.priority)  # a wrong one is told before anything runs
    ways = args.ways or [*allocations(args.plain), *(list(ABLATIONS)[1:] if args.ablations else ())]
    rows = []
    with ProcessPoolExecutor(args.workers) as pool:
        jobs = [
            pool.submit(
                one, name, args.data, args.since, args.days, seed, way, args.plain, args.priority, args.set
            )
            for name in args.cases
            for seed in args.seeds
            for way in ways
        ]
        for job in jobs:
            rows.append(job.result())
            show(rows[-1])
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
