"""gplearn's programs are our policies, and come back as they were."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_evo.model import PolicyError
from slurm_evo.policy import TERMINALS, Policy
from slurm_evo_training.gplearn_port import FUNCTIONS, Breeder, execute, flat_of, policy_of
from slurm_evo_training.soundness import folded

SEEDS = st.integers(0, 2**31)


def breeder(seed):
    return Breeder(np.random.RandomState(seed), depth=(2, 5))


@settings(deadline=None)
@given(SEEDS)
def test_a_program_becomes_a_policy_and_the_same_program_again(seed):
    policy = breeder(seed).grow()
    assert policy_of(flat_of(policy)) == policy
    assert Policy.parse(policy.text).text == policy.text


@settings(deadline=None)
@given(SEEDS)
def test_gplearn_and_we_score_alike(seed):
    random = np.random.default_rng(seed)
    policy = breeder(seed).grow()
    table = np.exp(random.uniform(-3, 10, (len(TERMINALS), 40)))
    with np.errstate(all="ignore"):
        theirs = execute(policy, table)
    ours = policy.scores(table)
    whole = np.isfinite(theirs)
    np.testing.assert_allclose(ours[whole], theirs[whole], rtol=1e-9)


@settings(deadline=None)
@given(SEEDS)
def test_every_operator_makes_complete_policies_and_is_deterministic(seed):
    def children(breeder):
        one, other = breeder.grow(), breeder.grow()
        return [
            breeder.cross(one, other),
            breeder.replace_subtree(one),
            breeder.hoist(one),
            breeder.change_points(one),
        ]

    made = children(breeder(seed))
    assert [child.text for child in made] == [child.text for child in children(breeder(seed))]
    for child in made:
        assert policy_of(flat_of(child)) == child


@settings(deadline=None)
@given(SEEDS)
def test_a_hoisted_policy_is_never_larger(seed):
    source = breeder(seed)
    policy = source.grow()
    assert source.hoist(policy).size <= policy.size


@settings(deadline=None)
@given(SEEDS)
def test_new_parts_speak_only_of_the_terminals_allowed(seed):
    some = Breeder(np.random.RandomState(seed), terminals=("runtime", "wait"))
    assert some.grow().terminals <= {"runtime", "wait"}
    foreign = Policy.parse("weight + pressure * gpus")
    child = some.cross(foreign, some.grow())
    assert child.terminals <= {"runtime", "wait", "weight", "pressure", "gpus"}
    assert some.replace_subtree(foreign).terminals <= {"runtime", "wait", "weight", "pressure", "gpus"}


@settings(deadline=None)
@given(SEEDS)
def test_folding_keeps_every_score_and_adds_no_node(seed):
    random = np.random.default_rng(seed)
    policy = breeder(seed).grow()
    small = folded(policy)
    assert small.size <= policy.size
    table = np.exp(random.uniform(-3, 8, (len(TERMINALS), 20)))
    np.testing.assert_allclose(small.scores(table), policy.scores(table), rtol=1e-9)


@pytest.mark.parametrize("flat", [[FUNCTIONS[0], 1], [1, 2], [FUNCTIONS[0], 1, 99], [FUNCTIONS[0], 1, "x"], []])
def test_what_is_no_program_is_refused(flat):
    with pytest.raises(PolicyError):
        policy_of(flat)
