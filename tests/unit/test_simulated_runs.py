"""Workloads, runs of a fleet and the numbers that judge them."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_evo.sim.metrics import average_weighted_wait, bounded_slowdown, measure, utilization
from slurm_evo.slurm.simulated import (
    Arrival,
    SimulatedFleet,
    Submission,
    judge,
    results,
    run,
    sample_fleet,
    sample_workload,
    without_federation,
)

SPEC = sample_fleet()
DAY_S = 86_400


def workload(seed: int, **wishes) -> tuple[Arrival, ...]:
    return sample_workload(np.random.default_rng(seed), SPEC, **{"jobs": 300, "days": 2.0} | wishes)


def test_a_workload_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    assert workload(3) == workload(3)
    assert workload(3) != workload(4)


def test_every_job_of_a_workload_is_accepted_where_it_is_submitted() -> None:
    fleet = SimulatedFleet(SPEC)
    for arrival in workload(5):
        fleet.submit(arrival.cluster, arrival.submission)
    assert len(fleet.jobs) == 300


def test_a_workload_crowds_the_first_cluster_and_asks_for_about_the_load_wanted() -> None:
    jobs = workload(7, jobs=2000, days=7.0, load=0.8)
    asked = dict.fromkeys((cluster.name for cluster in SPEC.clusters), 0.0)
    for arrival in jobs:
        asked[arrival.cluster] += arrival.submission.gpus * arrival.submission.run_s / (7 * DAY_S)
    load = {name: gpus / SPEC.cluster(name).gpus for name, gpus in asked.items()}
    assert load["alpha"] > 1.1
    assert max(load["beta"], load["gamma"], load["delta"]) < 0.8
    assert sum(asked.values()) / 80 == pytest.approx(0.8, rel=0.15)


def test_limits_are_far_above_running_times_and_some_jobs_run_out() -> None:
    jobs = [arrival.submission for arrival in workload(7, jobs=2000)]
    assert np.median([job.limit_s / job.run_s for job in jobs]) > 3
    assert 0 < sum(job.run_s > job.limit_s for job in jobs) < 60
    runs = np.array([job.run_s for job in jobs])
    assert runs.mean() > 1.8 * np.median(runs), "running times are heavy-tailed"


def test_jobs_come_by_day_and_fewer_on_weekends() -> None:
    at = np.array([arrival.at_s for arrival in workload(7, jobs=2000, days=7.0)])
    assert (np.diff(at) >= 0).all()
    hour = at // 3600 % 24
    assert ((hour >= 9) & (hour < 17)).sum() > 3 * (hour < 6).sum()
    days = np.bincount(at // DAY_S, minlength=7)
    assert days[5:].max() < days[:5].min()


@pytest.mark.parametrize("wishes", [{"jobs": 0}, {"days": 0.0}, {"load": -1.0}])
def test_a_workload_of_nothing_is_refused(wishes: dict) -> None:
    with pytest.raises(ValueError, match="needs jobs, days and load"):
        workload(1, **wishes)


def test_a_run_ends_when_every_job_is_done_and_a_federation_beats_clusters_alone() -> None:
    jobs = workload(11)
    alone_spec, alone_jobs = without_federation(SPEC, jobs)
    judged = []
    for spec, arrivals in ((alone_spec, alone_jobs), (SPEC, jobs)):
        fleet = SimulatedFleet(spec)
        run(fleet, arrivals)
        done = results(fleet, {"high": 4.0})
        assert not fleet.busy
        assert (len(done.keys), done.unstarted) == (300, 0)
        judged.append(judge(done, spec))
    alone, federated = judged
    assert federated.average_wait_s < alone.average_wait_s
    assert federated.utilization > alone.utilization


def test_without_federation_a_job_runs_where_its_user_sent_it() -> None:
    asked = Submission(user="ada", run_s=10, clusters=("beta", "gamma"))
    here = Submission(user="ada", run_s=10)
    spec, jobs = without_federation(SPEC, [Arrival(0, "alpha", asked), Arrival(0, "alpha", here)])
    fleet = SimulatedFleet(spec)
    run(fleet, jobs)
    assert [key.cluster for key in fleet.jobs] == ["beta", "alpha"]


def test_a_daemon_is_called_at_each_cycle_until_all_is_done() -> None:
    fleet = SimulatedFleet(SPEC)
    called: list[int] = []
    run(
        fleet,
        [Arrival(1000, "alpha", Submission(user="ada", run_s=500))],
        every_s=300,
        on_cycle=lambda fleet: called.append(fleet.elapsed_s),
    )
    assert called == [300, 600, 900, 1200, 1500, 1800]


def test_a_run_stops_when_told_and_when_nothing_can_happen_any_more() -> None:
    fleet = SimulatedFleet(SPEC)
    run(fleet, [Arrival(0, "alpha", Submission(user="ada", run_s=3000))], until_s=100)
    assert fleet.elapsed_s == 100
    stuck = SimulatedFleet(SPEC)
    run(stuck, [Arrival(0, "alpha", Submission(user="ada", run_s=30, held=True))])
    assert stuck.busy
    assert results(stuck, {}).unstarted == 1


def test_a_submission_at_a_stopped_controller_is_tried_again() -> None:
    fleet = SimulatedFleet(SPEC)
    fleet.stop_controller("alpha")
    fleet.at(100, lambda: fleet.start_controller("alpha"))
    run(fleet, [Arrival(10, "alpha", Submission(user="ada", run_s=30))])
    (job,) = fleet.jobs.values()
    assert (job.submitted, job.ending) == (130, "COMPLETED")


def test_the_metrics_are_those_of_the_definitions() -> None:
    numbers = measure(
        submit_s=np.array([0, 0, 10]),
        start_s=np.array([0, 30, 20]),
        end_s=np.array([10, 130, 25]),
        gpus=np.array([1, 2, 4]),
        weight=np.array([1.0, 1.0, 4.0]),
        window_s=(0.0, 40.0),
        available_gpu_s=400.0,
    )
    assert numbers.jobs == 3
    assert numbers.average_wait_s == pytest.approx((0 + 30 + 40) / 6)
    assert numbers.maximum_wait_s == pytest.approx(40 / 2)
    assert numbers.mean_wait_s == pytest.approx(40 / 3)
    assert numbers.max_wait_s == 30
    assert numbers.p95_wait_s == pytest.approx(28)
    assert numbers.p99_wait_s == pytest.approx(29.6)
    assert numbers.bounded_slowdown == pytest.approx((1 + 1.3 + 1.5) / 3)
    assert numbers.utilization == pytest.approx((10 + 2 * 10 + 4 * 5) / 400)


def test_no_job_waits_for_nothing() -> None:
    none = np.array([])
    assert average_weighted_wait(none, none) == 0
    assert bounded_slowdown(none, none) == 1
    assert utilization(none, none, none, window_s=(0, 10), available_gpu_s=10) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"start_s": np.array([0, 30])},
        {"start_s": np.array([-1])},
        {"weight": np.array([0.0])},
        {"available_gpu_s": 0.0},
    ],
)
def test_what_cannot_be_judged_is_refused(wrong: dict) -> None:
    one = np.array([0])
    good = {"submit_s": one, "start_s": one, "end_s": one + 9, "gpus": one + 1, "weight": one + 1.0}
    with pytest.raises(ValueError, match=r"need|submitted"):
        measure(**{**good, "window_s": (0.0, 10.0), "available_gpu_s": 10.0} | wrong)
