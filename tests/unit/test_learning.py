"""Running times as the daemon learns them: what it sees end, what it keeps, what it expects."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from builders import NOW, fleet, job, key, siblings
from trace_files import row, sacct_text

from slurm_evo.config import Settings
from slurm_evo.model import ConfigError, JobState
from slurm_evo.policy import Policy
from slurm_evo.predict import Asked, Predictor
from slurm_evo.store import JobMemory
from slurm_evo.trace import read
from slurm_evo.trace.prepare import predicted
from slurm_evo_daemon.features import standing
from slurm_evo_daemon.learning import FILE, STEP, RunningTimes

TRAIN = Asked(user="ada", name="train-7", limit_s=7200, gpus=4)


def taught(*ended: tuple[Asked, float]) -> Predictor:
    """A predictor that saw these jobs end, in this order."""
    made = Predictor()
    for asked, ran_s in ended:
        made.learn(asked, ran_s)
    return made


def test_a_prediction_never_sees_the_future(tmp_path: Path) -> None:
    """The second job is submitted while the first runs, the third after it ended."""
    first = row(JobID="1", Submit="2026-03-01T10:00:00", Start="2026-03-01T10:00:00", End="2026-03-01T11:00:00")
    second = row(JobID="2", Submit="2026-03-01T10:30:00", Start="2026-03-01T10:30:00", End="2026-03-01T10:40:00")
    third = row(JobID="3", Submit="2026-03-01T11:00:00", Start="2026-03-01T12:00:00", End="2026-03-01T12:10:00")
    rows = [{**each, "Eligible": "", "Elapsed": ""} for each in (first, second, third)]
    jobs = read(sacct_text(tmp_path / "h.txt", rows)).trace.jobs
    guess = predicted(jobs, jobs["runtime"].to_numpy(), jobs["limit"].to_numpy())
    assert guess.tolist() == [7200.0, 7200.0, pytest.approx(np.sqrt(3600 * 600))]


def ran(number: int, **changes: object) -> object:
    return job(number, state=JobState.RUNNING, started=NOW - timedelta(seconds=600), limit_s=7200, **changes)


def test_the_daemon_learns_from_jobs_it_sees_end() -> None:
    times = RunningTimes()
    assert times.watch(fleet([ran(1), ran(2), ran(3)])) == 0
    done = job(2, state=JobState.DONE, started=NOW - timedelta(seconds=600), ended=NOW - timedelta(seconds=300))
    assert times.watch(fleet([ran(1), done])) == 2
    assert sorted(seconds for seconds in times.predictor.as_json()["levels"][-1]["groups"]["7200"]) == [300, 600]
    assert times.watch(fleet([ran(1)])) == 0, "each end counts once"


def test_a_requeued_job_and_one_out_of_sight_have_not_ended() -> None:
    times = RunningTimes()
    times.watch(fleet([ran(1), ran(2)]))
    assert times.watch(fleet([job(1, reason="BeginTime"), ran(2)])) == 0
    times.watch(fleet([ran(2)]))
    assert times.watch(fleet([job(9, "beta")], unseen=("alpha",))) == 0
    assert times.watch(fleet([job(9)])) == 1, "seen again, and no longer there"


def test_expectations_move_in_steps_and_stay_within_the_limit() -> None:
    times = RunningTimes()
    one = job(1, limit_s=7200)
    assert times.expected_s(one) == 7200.0
    asked = Asked(user=one.user, name=one.name, limit_s=one.limit_s, gpus=one.gpus, cpus=one.cpus)
    for number in range(10):
        times.predictor.learn(asked, 1000 + number)
    told = times.expected_s(one)
    assert 1000 / STEP < told < 1000 * STEP
    times.predictor.learn(asked, 1020)
    assert times.expected_s(one) == told
    assert times.expected_s(replace(one, limit_s=600)) <= 600


def test_what_the_daemon_learned_outlives_it(tmp_path: Path) -> None:
    times = RunningTimes.load(tmp_path)
    times.save(tmp_path)
    assert not (tmp_path / FILE).exists(), "nothing learned, nothing written"
    times.watch(fleet([ran(1)]))
    times.watch(fleet([job(5)]))
    times.save(tmp_path)
    assert RunningTimes.load(tmp_path).predictor.as_json() == times.predictor.as_json()


def test_a_trained_predictor_is_used_until_the_daemon_knows_more(tmp_path: Path) -> None:
    trained = tmp_path / "trained.json"
    taught((TRAIN, 100)).save(trained)
    times = RunningTimes.load(tmp_path / "state", trained)
    assert times.predictor.learned == 1
    (tmp_path / "state").mkdir()
    times.predictor.learn(TRAIN, 200)
    times.save(tmp_path / "state")
    os.utime(trained, (0, 0))
    assert RunningTimes.load(tmp_path / "state", trained).predictor.learned == 2
    assert Predictor.load(trained).learned == 1, "never written"
    os.utime(trained)
    os.utime(tmp_path / "state" / FILE, (0, 0))
    assert RunningTimes.load(tmp_path / "state", trained).predictor.learned == 1, "trained anew"
    with pytest.raises(ConfigError, match=r"policy\.predictor: .*gone\.json cannot be read"):
        RunningTimes.load(tmp_path, tmp_path / "gone.json")


def test_siblings_of_a_federated_job_are_watched_where_it_runs() -> None:
    times = RunningTimes()
    records = siblings(1, "beta", viable=("alpha", "beta"))
    running = [
        replace(each, state=JobState.RUNNING, started=NOW - timedelta(seconds=50))
        if each.cluster == "beta"
        else each
        for each in records
    ]
    times.watch(fleet(running))
    assert times.watch(fleet([job(7), job(8, "beta")])) == 1
    assert key(1) not in times._running


def test_what_ran_on_a_fast_gpu_is_learned_as_on_one_of_speed_one() -> None:
    """Ten minutes on an a100 of speed 2 are twenty elsewhere; a job without GPUs is as fast everywhere."""
    for gpus, learned in ((1, 1200.0), (0, 600.0)):
        times = RunningTimes()
        speeds = {"a100": 2.0}
        times.watch(fleet([ran(1, gpus=gpus, nodelist=("alpha1",))]), speeds)
        assert times.watch(fleet([job(9)]), speeds) == 1
        assert times.predictor.as_json()["levels"][-1]["groups"]["7200"] == [learned]


def test_a_running_job_is_expected_to_end_sooner_on_a_fast_gpu() -> None:
    times = RunningTimes()
    times.predictor.learn(Asked(user="ada", name="job1", limit_s=7200, gpus=1), 4000.0)
    view = fleet([ran(1, nodelist=("alpha1",)), job(2, limit_s=7200)])
    memories = {key(2): JobMemory(key=key(2), submitted=NOW, asked=frozenset(), seen_at=NOW)}
    pending = [view.jobs[key(2)]]
    told = [
        standing(view, pending, memories, Settings.model_validate({"gpu_speed": speeds}), Policy.default(), times)
        for speeds in ({}, {"a100": 2.0})
    ]
    assert told[1].runtime_of[key(1)] == told[0].runtime_of[key(1)] / 2
    assert told[1].runtime_of[key(2)] == told[0].runtime_of[key(2)], "it may run on any type yet"
