"""Running times learned from jobs that ended: whose word counts, what is kept, what the daemon makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from builders import NOW, fleet, job, key, siblings
from trace_files import row, sacct_text

from slurm_evo.model import ConfigError, JobState
from slurm_evo.predict import Asked, Predictor, groups_of
from slurm_evo.predict import predictor as limits
from slurm_evo.trace import read
from slurm_evo.trace.prepare import predicted
from slurm_evo_daemon.learning import FILE, STEP, RunningTimes

TRAIN = Asked(user="ada", name="train-7", limit_s=7200, gpus=4)


def test_the_narrowest_group_that_has_seen_enough_says() -> None:
    other = replace(TRAIN, name="eval-1")
    stranger = replace(TRAIN, user="bob")
    learned = Predictor.learned(
        [(TRAIN, 100), (other, 5000), (other, 5200), (replace(TRAIN, name="train-8"), 300)]
    )
    told = learned.predict(replace(TRAIN, name="train-99"))
    assert (told.median_s, told.seen, told.group) == (200.0, 2, "u=ada n=train-# l=7200 g=4")
    assert learned.predict(replace(other, gpus=1)).group == "u=ada l=7200"
    assert learned.predict(stranger).group == "l=7200 g=4"
    assert learned.predict(replace(stranger, limit_s=60)).median_s == 60.0, "never above the limit"


def test_nobody_seen_means_the_limit() -> None:
    told = Predictor().predict(TRAIN)
    assert (told.median_s, told.seen, told.group) == (7200.0, 0, "limit")
    assert Predictor().predict(replace(TRAIN, limit_s=None)).median_s == 3600.0


def test_quantiles_are_those_of_what_was_seen_lately() -> None:
    learned = Predictor.learned([(TRAIN, 1)] * 50 + [(TRAIN, seconds) for seconds in range(100, 124)])
    told = learned.predict(TRAIN)
    assert told.seen == limits.KEEP == 24
    assert (told.low_s, told.median_s, told.high_s) == pytest.approx(
        tuple(np.quantile(range(100, 124), (0.2, 0.5, 0.8)))
    )


def test_what_was_learned_is_kept_as_data(tmp_path: Path) -> None:
    learned = Predictor.learned([(TRAIN, 100), (TRAIN, 200), (replace(TRAIN, user="böb"), 7)])
    learned.save(tmp_path / "t.json")
    again = Predictor.load(tmp_path / "t.json")
    assert again.groups() == learned.groups()
    assert json.loads((tmp_path / "t.json").read_text())["groups"]["u=böb"] == [7]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 9, "groups": {}}', '{"version": 1, "groups": {"all": ["soon"]}}', "\x00"]
)
def test_a_damaged_file_is_refused_and_nothing_of_it_used(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(ConfigError, match=r"t\.json: "):
        Predictor.load(tmp_path / "t.json")


def test_groups_longest_not_used_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_GROUPS", 20)
    learned = Predictor()
    for number in range(100):
        learned.learn(replace(TRAIN, user=f"user{number}"), number)
    assert len(learned) == 20
    assert {"u=user99", "all", groups_of(TRAIN)[6]} <= set(learned.groups())


def test_a_prediction_never_sees_the_future(tmp_path: Path) -> None:
    """The second job is submitted while the first runs, the third after it ended."""
    first = row(JobID="1", Submit="2026-03-01T10:00:00", Start="2026-03-01T10:00:00", End="2026-03-01T11:00:00")
    second = row(JobID="2", Submit="2026-03-01T10:30:00", Start="2026-03-01T10:30:00", End="2026-03-01T10:40:00")
    third = row(JobID="3", Submit="2026-03-01T11:00:00", Start="2026-03-01T12:00:00", End="2026-03-01T12:10:00")
    rows = [{**each, "Eligible": "", "Elapsed": ""} for each in (first, second, third)]
    jobs = read(sacct_text(tmp_path / "h.txt", rows)).trace.jobs
    guess = predicted(jobs, jobs["runtime"].to_numpy())
    assert guess.tolist() == [7200.0, 7200.0, 2100.0]


def ran(number: int, **changes: object) -> object:
    return job(number, state=JobState.RUNNING, started=NOW - timedelta(seconds=600), limit_s=7200, **changes)


def test_the_daemon_learns_from_jobs_it_sees_end() -> None:
    times = RunningTimes()
    assert times.watch(fleet([ran(1), ran(2), ran(3)])) == 0
    done = job(2, state=JobState.DONE, started=NOW - timedelta(seconds=600), ended=NOW - timedelta(seconds=300))
    assert times.watch(fleet([ran(1), done])) == 2
    assert sorted(times.predictor.groups()["all"]) == [300, 600]
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
    for number in range(10):
        times.predictor.learn(Asked(one.user, one.name, one.limit_s, one.gpus), 1000 + number)
    told = times.expected_s(one)
    assert 1000 / STEP < told < 1000 * STEP
    times.predictor.learn(Asked(one.user, one.name, one.limit_s, one.gpus), 1020)
    assert times.expected_s(one) == told
    assert times.expected_s(replace(one, limit_s=600)) <= 600


def test_what_the_daemon_learned_outlives_it(tmp_path: Path) -> None:
    times = RunningTimes.load(tmp_path)
    times.save(tmp_path)
    assert not (tmp_path / FILE).exists(), "nothing learned, nothing written"
    times.watch(fleet([ran(1)]))
    times.watch(fleet([job(5)]))
    times.save(tmp_path)
    assert RunningTimes.load(tmp_path).predictor.groups() == times.predictor.groups()


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
