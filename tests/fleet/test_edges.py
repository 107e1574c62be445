"""The five edges of a Slurm federation: each shown on real daemons, then handled by the daemon's cycle."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from daemon_process import WAY
from real_world import RealWorld, command
from steered import Steered, shown, sprio
from test_command_port import command_port
from test_pyslurm_port import pyslurm_port

from slurm_evo.model import ClusterName, JobKey

make_port = pyslurm_port if WAY == "pyslurm" else command_port


@pytest.fixture(scope="module")
def world() -> Iterator[RealWorld]:
    """Every federated GPU is busy, so that what is submitted waits."""
    real = RealWorld(make_port)
    for cluster in ("alpha", "beta", "gamma"):
        real.fill(cluster)
    yield real
    real.close()


@pytest.fixture
def steered(tmp_path: Path) -> Iterator[Steered]:
    fleet = Steered(make_port, tmp_path)
    yield fleet
    fleet.close()
    command("alpha", "scancel", "--name=story", "--state=PENDING", check=False)  # of a story that failed


def submit(world: RealWorld, **wishes: object) -> JobKey:
    job = world.submit("alpha", clusters=["alpha"], **wishes)  # type: ignore[arg-type]
    return JobKey(ClusterName("alpha"), job)


def eventually(true: Callable[[], bool], what: str) -> None:
    """Slurm's own time to show an effect; no cycle runs meanwhile."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, f"not within 60 s: {what}"
        time.sleep(0.3)


def _settled(steered: Steered, key: JobKey, cluster: str) -> bool:
    """The move is over and the job waits at that cluster alone."""
    return steered.waits_at(key) == {cluster} and steered.memory(key).wanted is None


def test_edge_1_a_stranded_job_comes_home(world: RealWorld, steered: Steered) -> None:
    key = submit(world, partition="debug", limit_min=5)
    steered.want(key, "alpha", moves=1)  # a job that slurm-evo moved before
    command("alpha", "scontrol", "update", f"JobId={key.id}", "Clusters=beta")  # beta has no partition debug
    time.sleep(2)
    eventually(lambda: steered.waits_at(key) == set(), "nobody lists the job: the edge itself")
    steered.until(lambda: steered.waits_at(key) == {"alpha"}, "the job waits at its origin again")
    world.cancel("alpha", key.id)


def test_edge_1_a_destination_that_rejects_never_gets_the_job_alone(world: RealWorld, steered: Steered) -> None:
    key = submit(world, partition="debug", limit_min=5)
    steered.want(key, "beta")
    steered.cycle()
    assert shown("alpha", key.id, "FedViableSiblings") == "alpha,beta", "the move was not begun"
    rest = time.monotonic() + steered.settings.moves.confirm_s + 0.2
    while time.monotonic() < rest:
        assert steered.waits_at(key) == {"alpha"}, "the job left its origin's queue"
        time.sleep(0.5)
    steered.cycle()  # the first one after confirm_s
    assert shown("alpha", key.id, "FedViableSiblings") == "alpha"
    assert steered.waits_at(key) == {"alpha"}
    steered.cycle()  # and sees that it is so
    assert (steered.memory(key).wanted, set(steered.memory(key).refusing)) == (None, {"beta"})
    world.cancel("alpha", key.id)


def test_edge_2_a_moved_job_keeps_its_nice_and_a_live_site_factor(world: RealWorld, steered: Steered) -> None:
    key = submit(world, nice=37)
    steered.until(lambda: (sprio("alpha", key.id) or (0, 0))[1] > 0, "it is ranked at alpha")
    command("alpha", "scontrol", "update", f"JobId={key.id}", "Clusters=alpha,beta")
    eventually(lambda: "beta" in steered.waits_at(key), "beta lists it")
    assert _nice_that_counts(key, "beta") == "0", "the edge is not there: Nice counts at beta"
    pinned = _number(key, "beta")
    command("alpha", "scontrol", "update", f"JobId={key.id}", "SiteFactor=777000")
    eventually(lambda: (sprio("alpha", key.id) or (0, 0))[1] == 777_000, "alpha takes the value")
    time.sleep(1)
    assert (sprio("beta", key.id) or (0, 0))[1] == 0, "the edge is not there: SiteFactor counts at beta"
    assert _number(key, "beta") == pinned, "the edge is not there: the priority follows"

    steered.want(key, "beta")
    steered.until(lambda: _settled(steered, key, "beta"), "it waits at beta")
    steered.until(lambda: (sprio("beta", key.id) or (0, 0))[1] > 0, "its SiteFactor counts at beta")
    assert (shown("beta", key.id, "Nice"), _nice_that_counts(key, "beta")) == ("37", "37")
    priority, site_factor = sprio("beta", key.id) or (0, 0)
    command("alpha", "scontrol", "update", f"JobId={key.id}", f"SiteFactor={site_factor + 5000}")
    eventually(lambda: (sprio("beta", key.id) or (0, 0))[1] == site_factor + 5000, "beta takes the value")
    assert abs(_number(key, "beta") - (priority + 5000)) <= 5, "the priority is pinned"
    world.cancel("alpha", key.id)


def _nice_that_counts(key: JobKey, cluster: str) -> str:
    """What sprio subtracts; the job's own record keeps the user's value even where it has no effect."""
    return command(cluster, "sprio", "--local", "--noheader", f"--jobs={key.id}", "--format=%N").strip()


def _number(key: JobKey, cluster: str) -> int:
    return int(shown(cluster, key.id, "Priority"))


def test_edge_3_a_moved_job_gets_its_age_back(world: RealWorld, steered: Steered) -> None:
    """Its rival is 100 points behind; the age that it loses is worth 500: half of PriorityWeightAge."""
    rival = JobKey(ClusterName("alpha"), world.submit("alpha", limit_min=500))
    key = submit(world, limit_min=5)
    steered.cycle()
    for job, value in ((rival, 400_000), (key, 400_100)):
        command("alpha", "scontrol", "update", f"JobId={job.id}", f"SiteFactor={value}")
    eventually(lambda: (sprio("beta", rival.id) or (0, 0))[1] == 400_000, "beta has the rival's value")
    report, _ = steered.cycle()
    assert report.counts["site_factors_set"] == 0, "the story is void: this was not the policy's order"
    time.sleep(1)
    half = timedelta(days=3.5)  # of PriorityMaxAge
    steered.want(key, "beta", submitted=steered.memory(key).submitted - half)
    steered.until(lambda: _settled(steered, key, "beta"), "it waits at beta")
    assert shown("beta", key.id, "SubmitTime") > shown("alpha", key.id, "SubmitTime"), "the edge is not there"
    assert steered.memory(key).age_lost_s > half.total_seconds()

    def in_order() -> bool:
        mine, other = sprio("beta", key.id) or (0, 0), sprio("beta", rival.id) or (0, 0)
        return mine[1] - 500 > other[1] > 0 and mine[0] - 500 > other[0]

    steered.until(in_order, "500 points are made up for, in SiteFactor and in the priority that counts")
    for job in (key, rival):
        world.cancel("alpha", job.id)


def test_edge_4_siblings_share_one_value_in_the_policys_order(world: RealWorld, steered: Steered) -> None:
    # Less limit, higher score: submitted in the wrong order on purpose.
    keys = [
        JobKey(ClusterName("alpha"), world.submit("alpha", limit_min=minutes, user=user))
        for minutes, user in ((500, "ada"), (60, "bob"), (5, "cyd"))
    ]
    _, decision = steered.cycle()
    values = [decision.ranks[key].site_factor for key in keys]
    assert values == sorted(set(values))
    eventually(lambda: [_site_factors(key) for key in keys] == [{value} for value in values], "all have theirs")
    report, _ = steered.cycle()
    assert report.counts["site_factors_set"] == 0, "nothing new, and yet something was sent"
    for key in keys:
        world.cancel("alpha", key.id)


def _site_factors(key: JobKey) -> set[int | None]:
    """What the clusters of the federation show; None for one that shows nothing."""
    return {(sprio(cluster, key.id) or (0, None))[1] for cluster in ("alpha", "beta", "gamma")}


def test_edge_5_nothing_is_sent_while_the_origin_is_down(world: RealWorld, steered: Steered) -> None:
    key = submit(world)
    steered.want(key, "beta")
    before = steered.journal.history(job=key)
    subprocess.run(["python3", "/testbed/inside.py", "stop", "slurmctld-alpha"], check=True)
    try:
        report, _ = steered.cycle()
        assert report.counts["clusters_unseen"] == 1
        assert "alpha left alone" in report.sentence
        assert steered.journal.history(job=key) == before
        assert steered.memory(key).wanted == frozenset({"beta"})
        assert not any(report.counts[name] for name in ("sets_changed", "refused", "unknown", "gone"))
    finally:
        subprocess.run(["python3", "/testbed/inside.py", "start", "slurmctld-alpha"], check=True)
    steered.until(lambda: steered.waits_at(key) == {"beta"}, "the move goes on after the origin is back")
    world.cancel("alpha", key.id)


def test_a_job_held_by_its_owner_during_a_move_stays_held(world: RealWorld, steered: Steered) -> None:
    key = submit(world)
    steered.want(key, "beta")
    steered.cycle()  # widened
    world.hold("alpha", key.id)
    time.sleep(1)
    for _ in range(6):
        steered.cycle()
        time.sleep(1)
    assert shown("alpha", key.id, "Reason") == "JobHeldUser"
    world.release("alpha", key.id)
    steered.until(lambda: steered.waits_at(key) == {"beta"}, "released, the move goes on")
    world.cancel("alpha", key.id)


def test_what_must_not_be_touched_is_not_touched(world: RealWorld, steered: Steered) -> None:
    first = world.submit("alpha", clusters=["alpha"])
    jobs = {
        "array": world.submit("alpha", clusters=["alpha"], array="0-3"),
        "het": world.submit("alpha", het=True),
        "held": world.submit("alpha", clusters=["alpha"], hold=True),
        "opted out": world.submit("alpha", clusters=["alpha"], comment="slurm-evo:stay please"),
        "dependent": world.submit("alpha", clusters=["alpha"], dependency=f"afterok:{first}"),
        "reserved": world.submit("alpha", clusters=["alpha"], reservation="later"),
        "begins later": world.submit("alpha", clusters=["alpha"], begin="now+2hours"),
    }
    before = {name: _story(job) for name, job in jobs.items()}
    for _ in range(3):
        _, decision = steered.cycle()
        time.sleep(1)
    assert {name: _story(job) for name, job in jobs.items()} == before
    touched = {row.action.job.id for row in steered.journal.history(limit=1000)}
    assert first in touched, "the story is void: nothing was ranked at all"
    assert touched.isdisjoint(jobs.values())
    for name, job in jobs.items():
        verdict = decision.verdicts[JobKey(ClusterName("alpha"), job)]
        assert verdict.untouchable, f"{name} was not recognised"
    for job in (*jobs.values(), first):
        world.cancel("alpha", job)


def _story(job: int) -> tuple[str, ...]:
    """What an action would change."""
    fields = ("JobState", "Nice", "Comment", "FedViableSiblings", "Dependency", "Reservation")
    return (*(shown("alpha", job, field) for field in fields), str((sprio("alpha", job) or (0, 0))[1]))
