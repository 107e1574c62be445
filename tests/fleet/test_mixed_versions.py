"""One fleet of two Slurm releases: delta on 24.11, the others and slurmdbd on 26.05; jobs move either way.

Slurm promises that older clients may talk to a newer slurmctld, not the reverse: delta is reached by its own
commands (``clusters.commands``) or its own slurmrestd.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from plain import (
    DELTA,
    GAMMA,
    JOBS,
    LOOK,
    PLAIN,
    Move,
    Odd,
    cancel_all,
    close_ports,
    differences,
    fill,
    leave_federation,
    record,
    saved,
    seen_by,
    twin_of,
    until,
)
from plain_daemon import PlainDaemon
from real_world import OLDER_COMMANDS, command, slurm_conf

from slurm_evo.model import ClusterName, ClusterUnreachable
from slurm_evo.slurm.command import CommandPort
from slurm_evo.slurm.transfer import Phase

pytestmark = pytest.mark.skipif(
    not OLDER_COMMANDS.is_dir(), reason="one release only: python3 tests/testbed up NAME --delta trixie"
)
BOTH_WAYS = pytest.mark.parametrize(
    ("source", "to"), [(DELTA, GAMMA), (GAMMA, DELTA)], ids=["24.11 to 26.05", "26.05 to 24.11"]
)
NOT_TOLD = "not to delta: its federation state is unknown"
SIZE = {DELTA: (2, 8), GAMMA: (4, 4)}
"""Nodes, and GPUs of each."""


@pytest.fixture(scope="module", autouse=True)
def two_plain_clusters() -> Iterator[None]:
    """Gamma, on 26.05, leaves the federation."""
    leave_federation()
    yield
    close_ports()


@pytest.fixture(autouse=True)
def full() -> Iterator[None]:
    """Nothing starts unless a story makes room."""
    for cluster in PLAIN:
        cancel_all(cluster)
        fill(cluster, *SIZE[cluster])
    yield
    for cluster in PLAIN:
        cancel_all(cluster)


@BOTH_WAYS
def test_moved_jobs_equal_those_that_never_moved(source: ClusterName, to: ClusterName) -> None:
    """Field by field, with script and environment: both are seen where the job now is, by one release."""
    jobs = {name: odd.submit(source) for name, odd in JOBS.items()}
    twins = {name: twin_of(odd, to) for name, odd in JOBS.items()}
    for job in jobs.values():
        saved(job, source)
    with ThreadPoolExecutor(len(jobs)) as pool:
        moved = dict(
            zip(jobs, pool.map(lambda job: Move(job, source, to).to_its_end(), jobs.values()), strict=True)
        )
    assert {name: move.why for name, move in moved.items() if move.phase is not Phase.DONE} == {}
    assert {name: move.copy for name, move in moved.items()} == jobs, "the numbers are kept"
    found = {name: differences(to, jobs[name], twins[name]) for name in JOBS}
    assert {name: what for name, what in found.items() if what} == {}


@BOTH_WAYS
def test_a_moved_job_runs_once_and_sees_what_it_would_have_seen(source: ClusterName, to: ClusterName) -> None:
    odd = Odd(script=LOOK, name="look.sh", arguments=["a b", "", "ü"], env={"FOO": "x\ny=1", "BAR": "'\"$"})
    job, twin = saved(odd.submit(source), source), twin_of(odd, to)
    assert Move(job, source, to).to_its_end().phase is Phase.DONE
    for cluster in PLAIN:
        cancel_all(cluster, ("bob",))
    for number in (job, twin):
        until(partial(completed, to, number), 60, f"{number}")
    assert record(source, job)["job_state"] == ["CANCELLED"]
    assert seen_by(job) == seen_by(twin)
    assert seen_by(job)[0] == "a b\n\nü\n", "once"


def completed(cluster: str, job: int) -> bool:
    """It ran through."""
    return bool(record(cluster, job)["job_state"] == ["COMPLETED"])


def test_newer_commands_do_not_reach_an_older_controller_and_the_answer_says_what_to_do() -> None:
    with pytest.raises(ClusterUnreachable, match=r"clusters\.commands"):
        CommandPort(DELTA, slurm_conf=slurm_conf(DELTA)).look()
    port = CommandPort(DELTA, slurm_conf=slurm_conf(DELTA), commands=OLDER_COMMANDS)
    assert port.look().facts.version.startswith("24.11.")


@pytest.fixture
def daemon(tmp_path: Path) -> PlainDaemon:
    """A daemon of root, with a folder that users may look into."""
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(0o755)
    return PlainDaemon(tmp_path)


@pytest.mark.parametrize(
    "ways",
    [{"delta": "command", "gamma": "pyslurm"}, {"delta": "rest", "gamma": "command"}],
    ids=["commands and pyslurm", "REST and commands"],
)
def test_both_releases_are_seen_and_ranked(daemon: PlainDaemon, ways: Mapping[str, str]) -> None:
    daemon.configure(ways=ways)
    # The longer one comes first; the policy ranks the shorter one higher.
    waiting = {
        name: [int(command(name, "sbatch", "--parsable", "-D/tmp", f"-t{minutes}", "--gpus=1", "--wrap=sleep 1",
                           user="ada").strip()) for minutes in (600, 2)]
        for name in PLAIN
    }  # fmt: skip
    told = json.loads(daemon.run("doctor", "--json").stdout)
    versions = {row["cluster"]: row["seen"] for row in told if row["subject"] == "version"}
    assert versions == {"delta": "Slurm 24.11.5", "gamma": "Slurm 26.05.5"}
    saved(waiting[DELTA][0], DELTA)
    able = json.loads(daemon.run("movable", "--deep", "--json").stdout)
    # slurmrestd tells no federation, so that nothing is moved to a cluster that is looked at by it.
    assert able == ({"could move": 4} if ways[DELTA] == "command" else {"could move": 2, NOT_TOLD: 2})
    ran = daemon.run("daemon", "--once")
    assert ran.returncode == 0, ran.stderr
    for name, (long, short) in waiting.items():
        factors = {job: site_factor(name, job) for job in (long, short)}
        assert factors[short] > factors[long], (name, factors)


def site_factor(cluster: str, job: int) -> int:
    """What slurmctld has."""
    return int(command(cluster, "sprio", "--noheader", "--local", f"--jobs={job}", "--format=%S"))
