"""Siblings, the first start, and the five edges of moving a pending job."""

from __future__ import annotations

import pytest

from slurm_evo.model import (
    ClusterName,
    ClusterRefused,
    ClusterUnreachable,
    FleetJob,
    FleetView,
    Job,
    JobKey,
    JobState,
)
from slurm_evo.slurm.simulated import INFINITE, SimulatedFleet, SimulatedPort, Submission, sample_fleet

MEMBERS = ("alpha", "beta", "gamma")


@pytest.fixture
def full() -> SimulatedFleet:
    """A federation without a free GPU for 10,000 s, now at second 60."""
    fleet = SimulatedFleet(sample_fleet())
    for name in MEMBERS:
        for node in fleet.spec.cluster(name).nodes:
            filler = Submission(user="cyd", gpus=node.gpus, run_s=10_000, limit_s=20_000, clusters=(name,))
            fleet.submit(name, filler)
    fleet.advance_to_s(60)
    return fleet


def submit(fleet: SimulatedFleet, *clusters: str, at: str = "alpha", **wishes) -> JobKey:
    asked = {"user": "ada", "run_s": 100, "clusters": clusters} | wishes
    return fleet.submit(at, Submission(**asked))


def joined(fleet: SimulatedFleet, key: JobKey) -> FleetJob:
    views = tuple(SimulatedPort(fleet, name).look() for name in MEMBERS if fleet.controllers[name].up)
    return FleetView(fleet.now, views).jobs[key]


def record(fleet: SimulatedFleet, name: str, key: JobKey) -> Job:
    found = joined(fleet, key).on(ClusterName(name))
    assert found is not None
    return found


def test_ids_carry_the_origin_above_the_local_bits(full: SimulatedFleet) -> None:
    assert submit(full, at="beta").id >> 26 == 2
    assert full.submit("delta", Submission(user="ada", run_s=1)).id == 1


def test_the_first_start_wins_and_the_others_are_revoked(full: SimulatedFleet) -> None:
    key = submit(full)
    assert joined(full, key).waiting_on == set(MEMBERS)
    gamma_job = next(iter(full.controllers["gamma"].running))
    full.cancel("gamma", gamma_job)
    full.advance_to_s(70)
    job = joined(full, key)
    assert job.running
    assert job.job.cluster == "gamma"
    assert job.waiting_on == frozenset()
    assert record(full, "alpha", key).revoked
    assert record(full, "alpha", key).state is JobState.PENDING
    full.advance_to_s(500)
    assert full.jobs[key].cluster == "gamma"
    assert full.jobs[key].ending == "COMPLETED"


def test_a_cluster_that_cannot_take_the_job_is_viable_but_not_active(full: SimulatedFleet) -> None:
    key = submit(full, partitions=("debug",))
    job = record(full, "alpha", key)
    assert job.viable == MEMBERS
    assert job.active == ("alpha", "gamma")


def test_edge_1_a_destination_that_rejects_strands_the_job(full: SimulatedFleet) -> None:
    key = submit(full, "alpha", partitions=("debug",))
    full.update("alpha", key.id, clusters=["beta"])
    job = joined(full, key)
    assert job.waiting_on == frozenset()
    assert job.pending
    assert record(full, "alpha", key).active == ()
    full.advance_to_s(30_000)
    assert full.jobs[key].started is None, "nobody looks at a stranded job"
    full.update("alpha", key.id, clusters=["alpha"])
    full.advance_to_s(30_100)
    assert full.jobs[key].started == 30_001


def test_edge_2_a_later_sibling_has_its_priority_pinned(full: SimulatedFleet) -> None:
    key = submit(full, "alpha", nice=5)
    full.update("alpha", key.id, site_factor=1000)
    number = record(full, "alpha", key).priority
    full.update("alpha", key.id, clusters=["alpha", "beta"])
    full.update("alpha", key.id, site_factor=9000)
    sibling = record(full, "beta", key)
    assert (sibling.priority, sibling.direct_priority, sibling.site_factor) == (number, True, None)
    assert sibling.nice == 5
    assert record(full, "alpha", key).priority == number + 8000


def test_infinite_heals_the_pin_everywhere_but_resets_nice_unless_given(full: SimulatedFleet) -> None:
    key = submit(full, "alpha", nice=5)
    full.update("alpha", key.id, clusters=["alpha", "beta"])
    full.update("alpha", key.id, priority=INFINITE, site_factor=700)
    assert [record(full, name, key).nice for name in ("alpha", "beta")] == [0, 0]
    full.update("alpha", key.id, priority=INFINITE, nice=5, site_factor=700)
    for name in ("alpha", "beta"):
        job = record(full, name, key)
        assert (job.direct_priority, job.site_factor, job.nice, job.priority) == (False, 700, 5, 695)


def test_infinite_releases_a_held_job(full: SimulatedFleet) -> None:
    key = submit(full, held=True)
    full.update("alpha", key.id, priority=INFINITE)
    assert record(full, "alpha", key).hold == "none"
    assert joined(full, key).waiting_on == set(MEMBERS)


def test_siblings_made_at_submission_are_not_pinned(full: SimulatedFleet) -> None:
    key = submit(full)
    full.update("alpha", key.id, site_factor=700)
    assert {record(full, name, key).priority for name in MEMBERS} == {700}


def test_edge_3_a_later_sibling_is_submitted_now(full: SimulatedFleet) -> None:
    key = submit(full, "alpha")
    full.advance_to_s(3600)
    full.update("alpha", key.id, clusters=["alpha", "beta"])
    age = record(full, "beta", key).submitted - record(full, "alpha", key).submitted
    assert age.total_seconds() == 3540


def test_edge_4_every_update_reaches_all_siblings(full: SimulatedFleet) -> None:
    key = submit(full)
    full.update("beta", key.id, site_factor=42)
    assert [record(full, name, key).site_factor for name in MEMBERS] == [42, 42, 42]


def test_edge_5_without_its_origin_a_job_cannot_be_changed_but_can_start(full: SimulatedFleet) -> None:
    key = submit(full)
    full.stop_controller("alpha")
    for at in ("alpha", "beta"):
        with pytest.raises(ClusterUnreachable):
            full.update(at, key.id, site_factor=42)
    full.cancel("beta", next(iter(full.controllers["beta"].running)))
    full.advance_to_s(100)
    assert full.jobs[key].cluster == "beta"
    full.start_controller("alpha")
    assert record(full, "alpha", key).revoked


def test_a_submission_waits_for_a_controller_that_is_down(full: SimulatedFleet) -> None:
    key = submit(full, "alpha")
    full.stop_controller("gamma")
    full.update("alpha", key.id, clusters=["gamma"])
    assert record(full, "alpha", key).active == ("gamma",)
    assert joined(full, key).waiting_on == frozenset()
    full.start_controller("gamma")
    assert joined(full, key).waiting_on == {"gamma"}


def test_a_submission_that_was_taken_back_is_not_delivered(full: SimulatedFleet) -> None:
    key = submit(full, "alpha")
    full.stop_controller("gamma")
    full.update("alpha", key.id, clusters=["alpha", "gamma"])
    full.update("alpha", key.id, clusters=["alpha"])
    full.start_controller("gamma")
    assert joined(full, key).waiting_on == {"alpha"}


def test_a_moved_array_is_stranded_as_a_whole(full: SimulatedFleet) -> None:
    key = submit(full, tasks=4)
    assert record(full, "alpha", key).viable == ("alpha",)
    full.update("alpha", key.id, clusters=["beta"])
    job = joined(full, key)
    assert job.waiting_on == frozenset()
    assert record(full, "alpha", key).revoked


def test_a_held_job_is_sent_when_it_is_released(full: SimulatedFleet) -> None:
    key = submit(full, "alpha", held=True)
    full.update("alpha", key.id, clusters=["alpha", "beta"])
    assert joined(full, key).waiting_on == {"alpha"}
    full.release("alpha", key.id)
    assert joined(full, key).waiting_on == {"alpha", "beta"}


def test_a_held_job_that_is_moved_away_can_no_longer_be_released_by_its_owner(full: SimulatedFleet) -> None:
    key = submit(full, "alpha", held=True)
    full.update("alpha", key.id, clusters=["beta"])
    job = record(full, "alpha", key)
    assert (job.revoked, job.hold, job.active) == (True, "admin", ())
    with pytest.raises(ClusterRefused, match="denied"):
        full.release("alpha", key.id)
    full.update("alpha", key.id, priority=INFINITE)
    assert joined(full, key).waiting_on == {"beta"}


def test_hold_and_release_cost_the_siblings_their_nice_and_site_factor(full: SimulatedFleet) -> None:
    key = submit(full, nice=5)
    full.update("alpha", key.id, site_factor=700)
    full.hold("alpha", key.id)
    assert joined(full, key).waiting_on == {"alpha"}
    assert record(full, "alpha", key).active == MEMBERS
    full.release("alpha", key.id)
    seen = {name: record(full, name, key) for name in MEMBERS}
    assert {name: (job.nice, job.site_factor, job.direct_priority) for name, job in seen.items()} == {
        "alpha": (5, 700, False),
        "beta": (0, 0, False),
        "gamma": (0, 0, False),
    }


def test_a_dependent_job_stays_at_its_origin_until_it_is_free(full: SimulatedFleet) -> None:
    first = submit(full, "alpha")
    key = submit(full, dependency=f"afterany:{first.id}")
    assert joined(full, key).waiting_on == {"alpha"}
    full.cancel("alpha", first.id)
    assert joined(full, key).waiting_on == set(MEMBERS)
    assert record(full, "beta", key).direct_priority


def test_a_cancelled_job_leaves_every_queue(full: SimulatedFleet) -> None:
    key = submit(full)
    full.cancel("gamma", key.id)
    assert all(key.id not in full.controllers[name].waiting for name in MEMBERS)
    assert full.jobs[key].ending == "CANCELLED"


def test_a_running_job_is_not_updated(full: SimulatedFleet) -> None:
    running = next(iter(full.controllers["alpha"].running))
    with pytest.raises(ClusterRefused, match="no longer pending"):
        full.update("alpha", running, clusters=["beta"])
    full.update("alpha", running, site_factor=5)
    assert full.controllers["alpha"].records[running].state is JobState.RUNNING


@pytest.mark.parametrize("clusters", [[], ["delta"], ["alpha", "nowhere"]])
def test_only_members_are_viable(full: SimulatedFleet, clusters: list[str]) -> None:
    key = submit(full)
    with pytest.raises(ClusterRefused, match="Invalid cluster name"):
        full.update("alpha", key.id, clusters=clusters)
    assert joined(full, key).viable == set(MEMBERS)


@pytest.mark.parametrize("wishes", [{"held": True}, {"begin_s": 600}])
def test_the_site_factor_of_a_job_that_may_not_start_cannot_be_read(full: SimulatedFleet, wishes: dict) -> None:
    key = submit(full, **wishes)
    full.update("alpha", key.id, site_factor=5)
    assert record(full, "alpha", key).site_factor is None
    full.release("alpha", key.id)
    full.advance_to_s(700)
    assert record(full, "alpha", key).site_factor == 5
