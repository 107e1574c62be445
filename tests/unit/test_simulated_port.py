"""The way into a simulated cluster when something goes wrong, and its clock."""

from __future__ import annotations

import pytest

from slurm_evo.model import (
    Action,
    Answer,
    AnswerUnreadable,
    ClusterName,
    ClusterUnreachable,
    JobKey,
    JobState,
    SetClusters,
    SetSiteFactor,
)
from slurm_evo.slurm.simulated import SimulatedFleet, SimulatedPort, Submission, sample_fleet
from slurm_evo.testing import ManualClock

ALPHA = ClusterName("alpha")


@pytest.fixture
def fleet() -> SimulatedFleet:
    return SimulatedFleet(sample_fleet())


@pytest.fixture
def key(fleet: SimulatedFleet) -> JobKey:
    return fleet.submit("alpha", Submission(user="ada", run_s=100, begin_s=1000))


def site_factor(fleet: SimulatedFleet, key: JobKey) -> int:
    return fleet.controllers[key.cluster].records[key.id].site_factor


def test_an_unreachable_cluster_is_not_seen_and_not_changed(fleet: SimulatedFleet, key: JobKey) -> None:
    fleet.faults.unreachable.add("alpha")
    port = SimulatedPort(fleet, "alpha")
    with pytest.raises(ClusterUnreachable):
        port.look()
    assert port.apply(SetSiteFactor(key, 5)).answer is Answer.UNKNOWN
    assert site_factor(fleet, key) == 0


def test_half_an_answer_hides_that_the_action_was_done(fleet: SimulatedFleet, key: JobKey) -> None:
    fleet.faults.half_answers.add("alpha")
    port = SimulatedPort(fleet, "alpha")
    with pytest.raises(AnswerUnreadable):
        port.look()
    assert port.apply(SetSiteFactor(key, 5)).answer is Answer.UNKNOWN
    assert site_factor(fleet, key) == 5


def test_a_stopped_controller_does_not_answer(fleet: SimulatedFleet, key: JobKey) -> None:
    fleet.stop_controller("alpha")
    port = SimulatedPort(fleet, "alpha")
    with pytest.raises(ClusterUnreachable):
        port.look()
    assert port.apply(SetSiteFactor(key, 5)).answer is Answer.UNKNOWN


def test_a_slow_answer_is_old_when_it_comes(fleet: SimulatedFleet) -> None:
    key = fleet.submit("alpha", Submission(user="ada", run_s=100))
    fleet.faults.slow_s["alpha"] = 30
    view = SimulatedPort(fleet, "alpha").look()
    assert view.seen_at == fleet.start
    assert view.jobs[0].state is JobState.PENDING
    assert fleet.elapsed_s == 30
    assert fleet.jobs[key].started == 1


def test_a_job_that_starts_between_look_and_action_is_gone(fleet: SimulatedFleet) -> None:
    key = fleet.submit("alpha", Submission(user="ada", run_s=100))

    def let_it_start(action: Action) -> None:
        assert action.job == key
        fleet.advance_to_s(fleet.elapsed_s + 2)

    fleet.faults.before_apply = let_it_start
    outcome = SimulatedPort(fleet, "alpha").apply(SetClusters(key, (ClusterName("beta"),)))
    assert outcome.answer is Answer.GONE
    assert fleet.jobs[key].cluster == "alpha"


def test_a_job_of_another_cluster_is_refused(fleet: SimulatedFleet, key: JobKey) -> None:
    outcome = SimulatedPort(fleet, "beta").apply(SetSiteFactor(key, 5))
    assert outcome.answer is Answer.REFUSED
    assert "alpha" in outcome.message


def test_a_port_brings_its_fleet_to_the_clock_it_was_given() -> None:
    clock = ManualClock()
    fleet = SimulatedFleet(sample_fleet(), start=clock(), clock=clock)
    key = fleet.submit("alpha", Submission(user="ada", run_s=100))
    clock.advance(50)
    view = SimulatedPort(fleet, "alpha").look()
    assert view.seen_at == clock() == fleet.now
    assert fleet.jobs[key].started == 1


def test_time_never_runs_backwards() -> None:
    clock = ManualClock()
    fleet = SimulatedFleet(sample_fleet(), start=clock())
    fleet.advance_to_s(100)
    fleet.advance(clock())
    assert fleet.elapsed_s == 100
    clock.advance(10)
    with pytest.raises(ValueError, match="before"):
        clock.advance(-1)


def test_a_fleet_has_ports_for_its_own_clusters_only(fleet: SimulatedFleet) -> None:
    with pytest.raises(KeyError):
        SimulatedPort(fleet, "nowhere")
