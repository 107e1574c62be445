"""Does the simulator start jobs when and in the order real Slurm does? Small workloads through both.

Run inside an idle fleet of the testbed; takes about 15 minutes:

    python3 tests/testbed exec NAME -- /opt/slurm-evo/venv/bin/python /src/benchmarks/agreement.py

Again from what was recorded, without Slurm: ``python benchmarks/agreement.py --replay tests/golden/agreement``.
The method and what was found: docs/explanation/agreement-with-slurm.md.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "fleet"), str(TESTS.parent)]

from agreement_record import GOLDEN, Recorded, compare, table, ticks
from agreement_stories import LIMITED, LIMITED_GPUS, LIMITED_JOBS, Ask, Story, last, stories
from real_world import CLUSTERS, GPUS, OPERATOR, command

CORES, MEMORY_MIB, MEMORY_PER_CORE = 64, 512_000, 2000
"""Of every node, and DefMemPerCPU; slurm-conf/."""
LOGS = Path("/scratch/log")
COMMON = Path("/etc/slurm/common.conf")
PATIENCE_S = 600
IDLE_S = 6
"""Before a workload, so that what was there before has no part in it."""


def configure(text: str) -> None:
    """Give all controllers this common.conf; they are started again, as the surest way to have it read."""
    COMMON.write_text(text)
    for cluster in CLUSTERS:
        for verb in ("stop", "start"):
            subprocess.run([sys.executable, "/testbed/inside.py", verb, f"slurmctld-{cluster}"], check=True)


def prepare() -> str:
    """Switch fair share off, which the simulator has no tree for, and make the QOS; the old common.conf."""
    command("alpha", "sacctmgr", "-i", "-Q", "add", "qos", LIMITED, check=False)
    per_user = (f"maxtresperuser=gres/gpu={LIMITED_GPUS}", f"maxjobsperuser={LIMITED_JOBS}")
    command("alpha", "sacctmgr", "-i", "-Q", "modify", "qos", LIMITED, "set", *per_user)
    command(
        "alpha", "sacctmgr", "-i", "-Q", "modify", "user", "ada,bob,cyd", "set", f"qos+={LIMITED}", check=False
    )
    before = COMMON.read_text()
    configure(re.sub(r"(?m)^PriorityWeightFairshare=.*$", "PriorityWeightFairshare=0", before))
    time.sleep(10)
    return before


def rules_of(cluster: str) -> tuple[str, dict[str, int]]:
    """Slurm's version, and the rules as the controller has them; what is not set has Slurm's default."""
    config = command(cluster, "scontrol", "show", "config")
    found = dict(re.findall(r"(?m)^(\S+)\s+= (.*?)\s*$", config))
    told = dict(re.findall(r"(\w+)=(\d+)", found["SchedulerParameters"]))
    rules = {
        name: int(told[name])
        for name in ("sched_interval", "default_queue_depth", "bf_interval", "bf_max_job_test", "bf_resolution")
        if name in told
    }
    hours, minutes, seconds = map(int, found["PriorityCalcPeriod"].split(":"))
    return found["SLURM_VERSION"], rules | {"priority_calc_period": hours * 3600 + minutes * 60 + seconds}


def lines_of(cluster: str, since: float) -> Iterator[tuple[float, str]]:
    """The controller's log from an instant on: (Unix time to a millisecond, line)."""
    for line in (LOGS / f"slurmctld-{cluster}.log").read_text(errors="replace").splitlines():
        if re.match(r"\[\d{4}-\d\d-\d\dT", line):
            at = datetime.fromisoformat(line[1:24]).timestamp()
            if at >= since:
                yield at, line


def first_passes(cluster: str, since: float) -> dict[str, float]:
    """When the controller's periods fell first after an instant (Unix time), by its log: seconds after it."""
    marks = {
        "sched_first": "Running job scheduler for full queue",
        "bf_first": "_attempt_backfill: beginning",
        "time_limit_first": "Testing job time limits",
    }
    found: dict[str, list[float]] = {name: [] for name in marks}
    for at, line in lines_of(cluster, since):
        for name, mark in marks.items():
            if mark in line:
                found[name].append(at - since)
    gaps = [b - a for a, b in pairwise(found["bf_first"])]
    return {name: seen[0] for name, seen in found.items() if seen} | {"bf_interval": statistics.median(gaps)}


def last_pass(cluster: str, before: float) -> float:
    """When the controller's main pass last ran before an instant, by its log (Unix time)."""
    seen = (at for at, line in lines_of(cluster, before - 60) if at < before and "sched: Running job" in line)
    return max(seen, default=before - 60)


def exact_times(story: Story, began: float) -> dict[str, dict[tuple[str, str, str], float]]:
    """Submissions, starts and ends to a millisecond, by the logs: (cluster, job, task) to Unix time."""
    marks = {
        "submit": r"_slurm_rpc_submit_batch_job: JobId=(\d+)()\b",
        "start": r"acct_policy_job_begin: after adding JobId=(\d+)(?:_(\d+))?\b",
        "end": r"(?:_job_complete:|Time limit exhausted for) JobId=(\d+)(?:_(\d+))?(?:\(\d+\))?(?: done|$)",
    }
    found: dict[str, dict[tuple[str, str, str], float]] = {name: {} for name in marks}
    for cluster in story.clusters:
        for at, line in lines_of(cluster, began):
            for name, mark in marks.items():
                if match := re.search(mark, line):
                    found[name].setdefault((cluster, match[1], match[2] or ""), at)
    return found


def submit(story: Story, ask: Ask) -> list[tuple[int, int]]:
    """Submit one job or array; (id, task) of each job, task -1 outside arrays."""
    home = story.clusters[0]
    words = ["sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", f"--time={ask.limit_min}"]
    words += [f"--gpus={ask.gpus}"] if ask.nodes == 0 else [f"--nodes={ask.nodes}", f"--gpus-per-node={ask.gpus}"]
    if ask.cpus > 1:
        words += ["--ntasks-per-node=1", f"--cpus-per-task={ask.cpus}"]
    words += [f"--qos={ask.qos}"]
    if len(story.clusters) == 1:
        words += ["-M", home]
    if ask.score and not story.site_factors:
        words += [f"--nice=-{ask.score}"]
    tasks = len(ask.seconds)
    script = f"sleep {ask.seconds[0]}"
    if tasks > 1:
        words += [f"--array=0-{tasks - 1}"]
        script = f"set -- {' '.join(map(str, ask.seconds))}; shift $SLURM_ARRAY_TASK_ID; sleep $1"
    told = command(home, *words, "--wrap", script, user=ask.user)
    job = int(told.strip().split(";")[0])
    if ask.score and story.site_factors:
        command(home, "scontrol", "update", f"JobId={job}", f"SiteFactor={ask.score}", user=OPERATOR)
    return [(job, task if tasks > 1 else -1) for task in range(tasks)]


def run(story: Story, folder: Path) -> Recorded:
    """Send a workload to real Slurm, wait for its end and record it."""
    version, rules = rules_of(story.clusters[0])
    for cluster in story.clusters:
        command(cluster, "scontrol", "setdebug", "debug2")
        command(cluster, "scontrol", "setdebugflags", "+backfill")
    time.sleep(IDLE_S)
    began = time.time() + 1
    todo: list[tuple[float, Ask | tuple[str, str]]] = [(ask.at, ask) for ask in story.asks]
    for node, since, until in story.drains:
        todo += [(since, (node, "DRAIN")), (until, (node, "RESUME"))]
    submitted: list[tuple[int, int, Ask]] = []
    drained: dict[tuple[str, str], float] = {}
    for at, what in sorted(todo, key=lambda each: each[0]):
        time.sleep(max(began + at - time.time(), 0))
        if isinstance(what, Ask):
            submitted += [(job, task, what) for job, task in submit(story, what)]
        else:
            words = (f"NodeName={what[0]}", f"State={what[1]}", "Reason=agreement")
            command(story.clusters[0], "scontrol", "update", *words)
            drained[what] = time.time()
    rows = ended(story, {(job, task) for job, task, _ in submitted}, began)
    refine(story, rows, began)
    first = min(rows[job, task]["submit"] for job, task, _ in submitted)
    passes = first_passes(story.clusters[0], first) | {"sched_last": first - last_pass(story.clusters[0], first)}
    first -= first % 60  # planned starts are rounded on the clock's minutes
    recorded = Recorded(
        name=story.name,
        kind=story.kind,
        slurm=version,
        rules=rules,
        first={name: ticks(at) for name, at in passes.items()},
        nodes=[
            [
                {"name": f"{c}{i + 1}", "gpus": GPUS[c][1], "cpus": CORES, "memory": MEMORY_MIB}
                for i in range(GPUS[c][0])
            ]
            for c in story.clusters
        ],
        qos=[{"gpus": None, "jobs": None}, {"gpus": LIMITED_GPUS, "jobs": LIMITED_JOBS}],
        drains=[
            {"node": n, "start": ticks(drained[n, "DRAIN"] - first), "end": ticks(drained[n, "RESUME"] - first)}
            for n, _, _ in story.drains
        ],
        jobs=columns(story, submitted, rows, first),
        ran_on=[rows[job, task]["nodes"] for job, task, _ in submitted],
    )
    recorded.write(folder)
    return recorded


def columns(story: Story, submitted: list, rows: dict, first: float) -> dict[str, list[int]]:  # type: ignore[type-arg]
    """What Recorded keeps of each job."""
    found: dict[str, list[int]] = {}
    users = {user: index for index, user in enumerate(sorted({ask.user for _, _, ask in submitted}))}
    for job, task, ask in submitted:
        row = rows[job, task]
        spread = max(ask.nodes, 1)
        one = {
            "submit": ticks(row["submit"] - first),
            "start": ticks(row["start"] - first),
            "end": ticks(row["end"] - first),
            "limit": ask.limit_min * 60,
            "gpus": ask.gpus * spread,
            "nodes": ask.nodes,
            "cpus": ask.cpus * spread,
            "memory": ask.cpus * spread * MEMORY_PER_CORE,
            "user": users[ask.user],
            "qos": int(ask.qos == LIMITED),
            "score": ask.score,
            "clusters": (1 << len(story.clusters)) - 1,
            "on": story.clusters.index(row["cluster"]),
        }
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    return found


def refine(story: Story, rows: dict, began: float) -> None:  # type: ignore[type-arg]
    """Replace what sacct says in whole seconds by what the logs say, which must agree within a second."""
    exact = exact_times(story, began - 1)
    for (job, task), row in rows.items():
        name = "" if task < 0 else str(task)
        for what, at in (("submit", exact["submit"].get((story.clusters[0], str(job), ""))),
                         ("start", exact["start"].get((row["cluster"], str(job), name))),
                         ("end", exact["end"].get((row["cluster"], str(job), name)))):  # fmt: skip
            if at is None:
                continue
            if abs(at - row[what]) > 2:
                raise ValueError(f"job {job}: sacct and the log do not agree on its {what}: {row[what]}, {at}")
            row[what] = at


def ended(story: Story, wanted: set[tuple[int, int]], began: float) -> dict:  # type: ignore[type-arg]
    """What sacct says of every job, once all have ended."""
    given_up = time.time() + PATIENCE_S
    while True:
        rows = look(story, int(began) - 5)
        if wanted <= rows.keys():
            return rows
        if time.time() > given_up:
            raise TimeoutError(f"{story.name}: {len(wanted - rows.keys())} jobs did not end")
        time.sleep(5)


def look(story: Story, since: int) -> dict:  # type: ignore[type-arg]
    """Ended jobs by (id, task), from sacct; submit is the earliest of a federated job's records."""
    words = ("sacct", "-n", "-P", "-X", "-D", "-a", "-M", ",".join(story.clusters))
    fields = "--format=JobID,Cluster,Submit,Start,End,State,NodeList"
    text = command(
        story.clusters[0],
        "env",
        "SLURM_TIME_FORMAT=%s",
        *words,
        fields,
        f"--starttime=now-{int(time.time()) - since}",
    )
    submits: dict[tuple[int, int], int] = {}
    rows = {}
    for line in text.splitlines():
        job, cluster, *times, state, nodes = line.split("|")
        name = re.fullmatch(r"(\d+)(?:_(\d+))?", job)
        if name is None:
            continue
        key = (int(name[1]), int(name[2]) if name[2] else -1)
        submits[key] = min(int(times[0]), submits.get(key, int(times[0])))
        if state.split()[0] in {"COMPLETED", "TIMEOUT", "FAILED"} and times[1].isdigit() and times[2].isdigit():
            rows[key] = {"cluster": cluster, "start": int(times[1]), "end": int(times[2]), "nodes": expand(nodes)}
    return {key: row | {"submit": submits[key]} for key, row in rows.items()}


def expand(nodes: str) -> list[str]:
    """``alpha[1-2,4]`` as names."""
    found = re.fullmatch(r"(\D+)\[(.*)\]", nodes)
    if found is None:
        return [nodes]
    names = []
    for part in found[2].split(","):
        low, _, high = part.partition("-")
        names += [f"{found[1]}{n}" for n in range(int(low), int(high or low) + 1)]
    return names


def record(folder: Path, only: set[str]) -> list[Recorded]:
    """Run all workloads, those on different clusters side by side."""

    def lane(one: list[Story]) -> list[Recorded]:
        found = []
        for story in one:
            if not only or story.name in only:
                began = time.time()
                found.append(run(story, folder))
                print(f"{story.name}: {len(found[-1].ran_on)} jobs, {time.time() - began:.0f} s", flush=True)
        return found

    with ThreadPoolExecutor() as pool:
        recorded = [each for lanes in pool.map(lane, stories()) for each in lanes]
    return recorded + lane(last())


def main() -> None:
    """Record or read, simulate, compare; print a table and a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replay", type=Path, metavar="FOLDER", help="compare what was recorded, without Slurm")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these workloads alone")
    parser.add_argument(
        "--out", type=Path, default=Path("/scratch/agreement"), help="where to write what is recorded"
    )
    given = parser.parse_args()
    if given.replay:
        paths = sorted(given.replay.glob("*.json"))
        recorded = [Recorded.read(path) for path in paths if not given.only or path.stem in given.only]
    else:
        given.out.mkdir(parents=True, exist_ok=True)
        before = prepare()
        try:
            recorded = record(given.out, set(given.only))
        finally:
            configure(before)
    if not recorded:
        parser.error(f"nothing recorded: look into {given.replay or GOLDEN}")
    rows = {each.name: compare(each, each.simulate()) for each in recorded}
    print(table(rows))
    interval = min(recorded[0].rules["bf_interval"], recorded[0].rules["sched_interval"])
    print(
        json.dumps(
            {
                "benchmark": "agreement",
                "slurm": recorded[0].slurm,
                "interval_s": interval,
                "workloads": {name: asdict(row) for name, row in rows.items()},
                "worst_tau": min(row.tau for row in rows.values()),
                "worst_median_s": max(row.median_s for row in rows.values()),
            }
        )
    )


if __name__ == "__main__":
    main()
