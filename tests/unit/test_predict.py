"""Running times learned from jobs that ended: whose word counts, what is kept, what the daemon makes of it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from builders import NOW, fleet, job, key, siblings
from trace_files import row, sacct_text

from slurm_evo.model import ConfigError, JobState
from slurm_evo.predict import Asked, Predictor, stem
from slurm_evo.predict import predictor as limits
from slurm_evo.predict.predictor import REMEMBERED
from slurm_evo.trace import read
from slurm_evo.trace.prepare import predicted
from slurm_evo_daemon.learning import FILE, STEP, RunningTimes

TRAIN = Asked(user="ada", name="train-7", limit_s=7200, gpus=4)


def taught(*ended: tuple[Asked, float]) -> Predictor:
    """A predictor that saw these jobs end, in this order."""
    made = Predictor()
    for asked, ran_s in ended:
        made.learn(asked, ran_s)
    return made


def test_the_narrowest_group_that_has_seen_enough_says() -> None:
    other = replace(TRAIN, name="eval-1")
    stranger = replace(TRAIN, user="bob")
    known = taught((TRAIN, 100), (other, 5000), (other, 5200), (replace(TRAIN, name="train-8"), 400))
    assert known.explain(replace(TRAIN, name="train-99")) == (
        pytest.approx(200.0),
        "2 jobs of the same user, name, limit, size",
    )
    assert known.explain(replace(TRAIN, name="new"))[1] == "4 jobs of the same user, limit, size"
    assert known.explain(replace(other, gpus=1))[1] == "4 jobs of the same user, limit"
    assert known.explain(stranger)[1] == "4 jobs of the same limit, size"
    assert known.predict(replace(stranger, limit_s=60)) == 60.0, "never above the limit"


def test_nobody_seen_means_the_limit() -> None:
    assert Predictor().explain(TRAIN) == (7200.0, "its limit: no such job is known")


@pytest.mark.parametrize(
    ("names", "same"),
    [(("train-7", "train-8"), True), (("a1b2c3d4 x", "ffee0011 x"), True), (("train", "eval"), False)],
)
def test_runs_of_one_thing_have_one_stem(names: tuple[str, str], same: bool) -> None:
    assert (stem(names[0]) == stem(names[1])) is same


def test_quantiles_are_those_of_what_was_seen_lately() -> None:
    known = taught(*[(TRAIN, 1)] * 50, *[(TRAIN, seconds) for seconds in range(100, 100 + REMEMBERED)])
    logs = np.log(np.arange(100, 100 + REMEMBERED))
    for share in (0.2, 0.5, 0.8):
        assert known.predict(TRAIN, share) == pytest.approx(np.exp(np.quantile(logs, share)))


def test_what_makes_no_running_time_is_not_learned() -> None:
    known = taught((TRAIN, float("nan")), (TRAIN, -1.0), (TRAIN, float("inf")))
    assert known.learned == 0


def test_what_was_learned_is_kept_as_data(tmp_path: Path) -> None:
    known = taught((TRAIN, 100), (TRAIN, 200), (replace(TRAIN, user="böb"), 7))
    known.save(tmp_path / "t.json")
    again = Predictor.load(tmp_path / "t.json")
    assert again.as_json() == known.as_json()
    assert json.loads((tmp_path / "t.json").read_text())["learned"] == 3


@pytest.mark.parametrize("text", ["", "[]", '{"format": 9}', '{"format": 1, "quantile": 0.5}', "\x00"])
def test_a_damaged_file_is_refused_and_nothing_of_it_used(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(ConfigError, match=r"t\.json: "):
        Predictor.load(tmp_path / "t.json")


def test_a_running_time_that_is_no_number_is_refused(tmp_path: Path) -> None:
    taught((TRAIN, 100)).save(tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text()
    for wrong in ("NaN", "-5", '"soon"'):
        (tmp_path / "t.json").write_text(text.replace("100.0", wrong))
        with pytest.raises(ConfigError, match=r"t\.json"):
            Predictor.load(tmp_path / "t.json")


def test_groups_longest_not_used_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_GROUPS", 20)
    known = taught(*((replace(TRAIN, user=f"user{number}"), number) for number in range(100) for _ in (1, 2)))
    assert "user" not in known.explain(replace(TRAIN, user="user79"))[1]
    assert "user" in known.explain(replace(TRAIN, user="user99"))[1]


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
