"""Units and waiting: what is known of an expression before any simulation."""

import numpy as np
import pytest
from training_stories import busy

from slurm_evo.policy import Policy, problems
from slurm_evo_training.fitness import complexity, probe_rows
from slurm_evo_training.seeds import drawn
from slurm_evo_training.soundness import folded, sound, unit_faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("wait + 60", 0),
        ("wait + gpus", 1),
        ("weight * (wait + 60) / (runtime * gpus)", 0),
        ("wait / runtime + load", 0),
        ("wait / runtime + gpus", 1),
        ("log(wait) + log(gpus)", 0),
        ("max(wait, limit) - runtime", 0),
        ("max(wait * gpus, user_usage)", 0),
        ("sqrt(wait * runtime) + limit", 0),
        ("sqrt(wait) + limit", 1),
        ("inv(wait) + runtime", 1),
        ("(wait + gpus) * (limit + weight)", 2),
        ("2 * wait + 3 * gpus", 1),
    ],
)
def test_sums_of_unlike_units_are_counted(text, faults):
    policy = Policy.parse(text)
    assert unit_faults(policy) == faults
    assert complexity(policy) == policy.size + 3 * faults


@pytest.mark.parametrize(
    "text",
    [
        "wait", "-runtime", "-wait", "wait / runtime", "runtime / wait", "min(wait, 600)",
        "wait * (load - 0.5)", "log(wait + 1) - log(runtime)", "weight * wait * wait", "1 / (600 - wait)", "7",
        "wait * wait * wait * wait",
        "user_pending - wait", "abs(wait - 3600)",
    ],
)  # fmt: skip
def test_the_quick_check_agrees_with_the_careful_one(text):
    policy = Policy.parse(text)
    assert sound(policy) == (problems(policy) == ())


def test_drawn_policies_are_sound_and_of_the_family():
    random = np.random.RandomState(1)
    for _ in range(50):
        policy = drawn(random)
        assert sound(policy)
        assert unit_faults(policy) <= 1  # the last, linear term in waiting
        assert {"weight", "wait", "runtime"} <= policy.terminals


def test_an_expression_of_too_many_terminals_is_not_sound():
    assert sound(Policy.parse("wait + limit + runtime + gpus + nodes + cpus + weight"))
    assert not sound(Policy.parse("wait + limit + runtime + gpus + nodes + cpus + weight + load"))


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("wait * (2 + 3)", "wait * 5"),
        ("neg(neg(wait))", "wait"),
        ("abs(abs(wait))", "abs(wait)"),
        ("wait", "wait"),
    ],
)
def test_folding_shortens(text, short):
    assert folded(Policy.parse(text)).text == short


def test_probe_rows_are_jobs_of_the_history():
    jobs = busy()
    table = probe_rows(jobs)
    assert table.shape == (11, 512)
    assert set(table[3]) <= set(jobs.gpus.tolist())
    assert np.isfinite(table).all()
    assert np.array_equal(table, probe_rows(jobs))
