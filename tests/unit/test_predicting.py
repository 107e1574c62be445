"""The daemon with a predictor: expects what was learned, learns what ends, survives damaged files."""

from datetime import timedelta
from itertools import count

import numpy as np
import pytest
from builders import NOW, fleet, job, key

from slurm_evo.config import Settings
from slurm_evo.model import ConfigError, JobState
from slurm_evo.policy import Policy
from slurm_evo.predict import Asked, Predictor
from slurm_evo_daemon.decide import decide
from slurm_evo_daemon.predicting import SAVED_EVERY, Predicting, predicting_of


def ended(number, seconds, **changes):
    return job(
        number, state=JobState.DONE, started=NOW - timedelta(seconds=seconds), ended=NOW, submitted=NOW, **changes
    )


def taught(name, seconds, times=5):
    predictor = Predictor()
    for _ in range(times):
        record = job(1, name=name)
        predictor.learn(
            Asked(user=record.user, name=name, limit_s=record.limit_s, gpus=record.gpus, cpus=record.cpus), seconds
        )
    return predictor


def test_a_job_that_is_expected_to_be_short_goes_before_one_with_the_same_limit():
    ticks = count()
    predictor = taught("long", 3000)
    for record in [job(2, name="quick")] * 5:
        predictor.learn(
            Asked(user=record.user, name="quick", limit_s=record.limit_s, gpus=record.gpus, cpus=record.cpus), 30
        )
    decision = decide(
        fleet([job(1, name="long"), job(2, name="quick")]),
        {},
        Settings.model_validate({"moves": {"enabled": False}}),
        Policy.parse("-runtime"),
        rng=np.random.default_rng(1),
        stopwatch=lambda: next(ticks) / 100,
        predicting=Predicting(predictor),
    )
    assert decision.standing is not None
    assert decision.standing.runtime_of[key(2)] == pytest.approx(30)
    assert decision.ranks[key(2)].place < decision.ranks[key(1)].place


def test_a_job_that_ended_is_learned_once():
    predicting = Predicting(Predictor())
    view = fleet([ended(1, 120), ended(2, 240)])
    assert predicting.learn_from(view) == 2
    assert predicting.learn_from(view) == 0
    assert predicting.predictor.learned == 2
    assert predicting.expected_s(job(3)) == pytest.approx((120 * 240) ** 0.5)


def test_a_job_that_never_started_teaches_nothing():
    predicting = Predicting(Predictor())
    assert predicting.learn_from(fleet([job(1, state=JobState.DONE, ended=NOW), job(2)])) == 0


def test_what_was_learned_is_kept_beside_the_trained_file(tmp_path):
    trained, state = tmp_path / "predictor.json", tmp_path / "state"
    state.mkdir()
    taught("train", 100).save(trained)
    settings = Settings.model_validate({"policy": {"predictor": str(trained)}, "store": {"state_dir": str(state)}})
    predicting = predicting_of(settings)
    assert predicting is not None
    assert predicting.learn_from(fleet([ended(number, 60) for number in range(1, SAVED_EVERY + 1)])) == SAVED_EVERY
    again = predicting_of(settings)
    assert again is not None
    assert again.predictor.learned == 5 + SAVED_EVERY
    (state / "predictor.json").write_text("half a fi")
    damaged = predicting_of(settings)
    assert damaged is not None
    assert damaged.predictor.learned == 5


def test_without_a_predictor_there_is_none_and_a_missing_file_is_named(tmp_path):
    assert predicting_of(Settings()) is None
    settings = Settings.model_validate({"policy": {"predictor": str(tmp_path / "gone.json")}})
    with pytest.raises(ConfigError, match=r"gone\.json"):
        predicting_of(settings)
