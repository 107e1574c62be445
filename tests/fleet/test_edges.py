"""The five edges of a Slurm federation: each shown on real daemons, then handled by the daemon's cycle."""

from __future__ import annotations

import importlib.util
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from real_world import RealWorld, command
from steered import Steered, shown, sprio
from test_command_port import command_port
from test_pyslurm_port import pyslurm_port

from slurm_evo.model import ClusterName, JobKey

make_port = pyslurm_port if importlib.util.find_spec("pyslurm") else command_port
"""pyslurm is the default way in; where it is not built, the command line."""


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


def submit(world: RealWorld, **wishes: object) -> JobKey:
    job = world.submit("alpha", clusters=["alpha"], **wishes)  # type: ignore[arg-type]
    return JobKey(ClusterName("alpha"), job)


def _settled(steered: Steered, key: JobKey, cluster: str) -> bool:
    """The move is over and the job waits at that cluster alone."""
    return steered.waits_at(key) == {cluster} and steered.memory(key).wanted is None


def test_edge_1_a_stranded_job_comes_home(world: RealWorld, steered: Steered) -> None:
    key = submit(world, partition="debug", limit_min=5)
    steered.want(key, "alpha", moves=1)  # a job that slurm-evo moved before
    command("alpha", "scontrol", "update", f"JobId={key.id}", "Clusters=beta")  # beta has no partition debug
    time.sleep(2)
    assert steered.waits_at(key) == set(), "the edge is not there: somebody lists the job"
    steered.until(lambda: steered.waits_at(key) == {"alpha"}, "the job waits at its origin again")
    world.cancel("alpha", key.id)


def test_edge_1_a_destination_that_rejects_never_gets_the_job_alone(world: RealWorld, steered: Steered) -> None:
    key = submit(world, partition="debug", limit_min=5)
    steered.want(key, "beta")
    seen = set()

    def given_up() -> bool:
        seen.add(frozenset(steered.waits_at(key)))
        memory = steered.memory(key)
        return (
            memory.wanted is None
            and "beta" in memory.refusing
            and shown("alpha", key.id, "FedViableSiblings") == "alpha"
        )

    steered.until(given_up, "beta is given up")
    assert seen == {frozenset({"alpha"})}, "the job left its origin's queue"
    world.cancel("alpha", key.id)


def test_edge_2_a_moved_job_keeps_its_nice_and_a_live_site_factor(world: RealWorld, steered: Steered) -> None:
    key = submit(world, nice=37)
    steered.want(key, "beta")
    steered.until(lambda: _settled(steered, key, "beta"), "it waits at beta")
    steered.until(lambda: (sprio("beta", key.id) or (0, 0))[1] > 0, "its SiteFactor counts at beta")
    priority, site_factor = sprio("beta", key.id) or (0, 0)
    assert priority > site_factor / 2
    assert shown("beta", key.id, "Nice") == "37"
    before = site_factor
    command("alpha", "scontrol", "update", f"JobId={key.id}", f"SiteFactor={before + 5000}")
    time.sleep(1)
    assert (sprio("beta", key.id) or (0, 0))[0] >= priority + 4000, "the priority is pinned"
    world.cancel("alpha", key.id)


def test_edge_3_a_moved_job_gets_its_age_back(world: RealWorld, steered: Steered) -> None:
    key = submit(world)
    steered.cycle()
    days = timedelta(days=3.5)  # half of PriorityMaxAge: half of PriorityWeightAge=1000
    steered.want(key, "beta", submitted=steered.memory(key).submitted - days)
    steered.until(lambda: _settled(steered, key, "beta"), "it waits at beta")
    steered.until(lambda: (sprio("beta", key.id) or (0, 0))[1] > 0, "its SiteFactor counts at beta")
    _, decision = steered.cycle()
    assert steered.memory(key).age_lost_s >= days.total_seconds()
    (_, site_factor), rank = sprio("beta", key.id) or (0, 0), decision.ranks[key]
    assert site_factor == rank.site_factor
    plain = [rank.site_factor - 500 for other, rank in decision.ranks.items() if other == key]
    assert all(value >= 1 for value in plain), "500 points of age are in it"
    world.cancel("alpha", key.id)


def test_edge_4_siblings_share_one_value_in_the_policys_order(world: RealWorld, steered: Steered) -> None:
    # Less limit, higher score: submitted in the wrong order on purpose.
    keys = [
        JobKey(ClusterName("alpha"), world.submit("alpha", limit_min=minutes, user=user))
        for minutes, user in ((500, "ada"), (60, "bob"), (5, "cyd"))
    ]
    _, decision = steered.cycle()
    time.sleep(1)
    values = []
    for key in keys:
        everywhere = {(sprio(cluster, key.id) or (0, -1))[1] for cluster in ("alpha", "beta", "gamma")}
        assert everywhere == {decision.ranks[key].site_factor}
        values += everywhere
    assert values == sorted(values)
    report, _ = steered.cycle()
    assert report.counts["site_factors_set"] == 0, "nothing new, and yet something was sent"
    for key in keys:
        world.cancel("alpha", key.id)


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
    finally:
        subprocess.run(["python3", "/testbed/inside.py", "start", "slurmctld-alpha"], check=True)
    steered.until(
        lambda: steered.waits_at(key) == {"beta"}, "the move goes on after the origin is back", seconds=90
    )
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
