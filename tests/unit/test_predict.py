"""Running times from the past: never from the future, from the nearest group that is known, kept as plain data."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_evo.model import ConfigError
from slurm_evo.predict import Asked, Predictor, stem
from slurm_evo.predict.backtest import accuracy, as_it_was, user_last_two


def job(user="ada", name="train_1", limit_s=3600, gpus=1):
    return Asked(user=user, name=name, limit_s=limit_s, gpus=gpus)


def test_without_a_past_the_limit_is_the_prediction():
    assert Predictor().explain(job()) == (3600.0, "its limit: no such job is known")


def test_the_nearest_group_that_is_known_well_enough_speaks():
    predictor = Predictor()
    for ran in (100, 120, 140):
        predictor.learn(job(name="train_7"), ran)
    for ran in (2000, 2200, 2400):
        predictor.learn(job(name="eval", limit_s=7200), ran)
    assert predictor.explain(job(name="train_8")) == (120.0, "3 jobs of the same user, name, limit, size")
    assert predictor.predict(job(name="eval", limit_s=7200)) == pytest.approx(2200)
    assert "limit, size" in predictor.explain(job(user="bob", name="other"))[1]


def test_quantiles_rise_and_end_at_the_limit():
    predictor = Predictor()
    for ran in (10, 100, 1000, 10_000):
        predictor.learn(job(), ran)
    found = [predictor.predict(job(), quantile) for quantile in (0.1, 0.5, 0.9)]
    assert found == sorted(found)
    assert found[-1] == 3600.0
    assert found[1] == pytest.approx((100 * 1000) ** 0.5)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("train_17", "train"), ("train-18.sh", "train#sh"), ("run a1b2c3d4e5", "run "),
        ("2026-12-01_eval", "eval"), ("", ""), ("42", ""),
    ],
)  # fmt: skip
def test_what_tells_runs_apart_is_no_part_of_a_name(name, plain):
    assert stem(name) == plain


def test_only_what_ended_before_the_submission_is_known():
    jobs = [job(), job(), job()]
    submit = np.array([0.0, 50.0, 500.0])
    ran = np.array([300.0, 300.0, 20.0])
    found = as_it_was(jobs, submit, submit + ran, ran, Predictor())
    assert found.tolist() == [3600.0, 3600.0, pytest.approx(300.0)]


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 500)), min_size=2, max_size=30), st.randoms())
def test_the_future_changes_no_prediction(times, random):
    submit = np.array([float(one) for one, _ in times])
    ran = np.array([float(two) for _, two in times])
    jobs = [job(user=f"u{place % 3}") for place in range(len(times))]
    whole = as_it_was(jobs, submit, submit + ran, ran, Predictor())
    until = random.choice(sorted(submit))
    early = submit <= until
    kept = [one for one, take in zip(jobs, early, strict=True) if take]
    part = as_it_was(kept, submit[early], (submit + ran)[early], ran[early], Predictor())
    # Jobs submitted at the same second may be taught in another order only by what has ended by then.
    np.testing.assert_allclose(whole[early], part)


def test_it_comes_back_from_a_file_as_it_was_and_goes_on_learning(tmp_path):
    predictor = Predictor(quantile=0.6)
    for place in range(40):
        predictor.learn(job(user=f"u{place % 4}", name=f"n{place % 5}", gpus=place % 3), 10.0 + place)
    file = tmp_path / "predictor.json"
    predictor.save(file)
    again = Predictor.load(file)
    assert again.as_json() == predictor.as_json()
    for one in (predictor, again):
        one.learn(job(), 77.0)
    assert again.predict(job()) == predictor.predict(job())


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": 7}', '{"format": 1, "quantile": 0.5, "learned": 0, "levels": []}'],
)
def test_what_is_no_predictor_is_refused_by_name(tmp_path, content):
    file = tmp_path / "predictor.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"predictor\.json"):
        Predictor.load(file)


def test_numbers_that_are_none_are_refused(tmp_path):
    predictor = Predictor()
    predictor.learn(job(), 5)
    found = predictor.as_json()
    found["levels"][0]["groups"][next(iter(found["levels"][0]["groups"]))] = ["soon"]
    file = tmp_path / "predictor.json"
    file.write_text(json.dumps(found))
    with pytest.raises(ConfigError, match=r"predictor\.json"):
        Predictor.load(file)


def test_what_cannot_be_a_running_time_teaches_nothing():
    predictor = Predictor()
    for ran in (float("nan"), float("inf"), -1.0):
        predictor.learn(job(), ran)
    assert predictor.learned == 0


def test_the_users_last_two_is_their_mean():
    jobs = [job()] * 4
    submit, ran = np.array([0.0, 100.0, 200.0, 300.0]), np.array([10.0, 20.0, 30.0, 40.0])
    assert user_last_two(jobs, submit, submit + ran, ran).tolist() == [3600.0, 10.0, 15.0, 25.0]


def test_a_perfect_prediction_has_perfect_figures():
    ran = np.array([10.0, 200.0, 3000.0])
    perfect = {"accuracy": 1.0, "log_error": 0.0, "mean_error_h": 0.0, "rank_loss": 0.0}
    assert accuracy(ran, ran) == pytest.approx(perfect, abs=1e-12)
    assert accuracy(ran * 2, ran)["accuracy"] == pytest.approx(0.5)
