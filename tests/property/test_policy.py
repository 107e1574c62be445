"""Expressions: what is printed reads back, and the compiled evaluator agrees with the plain one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_evo.model import PolicyError
from slurm_evo.policy import TERMINALS, Policy, admitted, problems
from slurm_evo.policy.expression import ARITY, Call, Constant, Name, Node
from slurm_evo.policy.machine_kernel import BLOCK
from slurm_evo.policy.plain import score

NAMES = [terminal.name for terminal in TERMINALS]
leaves = st.sampled_from(NAMES).map(Name) | st.floats(-1e6, 1e6).map(Constant)


def calls(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.sampled_from(sorted(ARITY)).flatmap(
        lambda operator: st.tuples(*[children] * ARITY[operator]).map(lambda args: Call(operator, args))
    )


trees = st.recursive(leaves, calls, max_leaves=12)
values = st.floats(-1e12, 1e12) | st.sampled_from([0.0, 0.001, -0.001, 0.0011, 1e-9, 1.0, 1e308])


@given(trees)
@settings(max_examples=300)
def test_what_is_printed_reads_back_and_scores_the_same(tree: Node) -> None:
    text = Policy(tree).text
    again = Policy.parse(text)
    assert again.text == text
    job = {name: 2.0 + place for place, name in enumerate(NAMES)}
    before, after = score(tree, job), score(again.tree, job)
    assert before == pytest.approx(after, rel=1e-12)


@given(trees, st.lists(st.lists(values, min_size=11, max_size=11), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_the_compiled_evaluator_agrees_with_the_plain_one(tree: Node, jobs: list[list[float]]) -> None:
    fast = Policy(tree).scores(np.array(jobs).T)
    for found, job in zip(fast, jobs, strict=True):
        expected = score(tree, dict(zip(NAMES, job, strict=True)))
        assert math.isfinite(found)
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-300)


def test_queues_longer_than_a_block_are_scored_to_the_end() -> None:
    table = np.ones((11, BLOCK * 2 + 3))
    table[0] = np.arange(table.shape[1])
    assert np.array_equal(Policy.parse("wait + 1").scores(table), table[0] + 1)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("mul(weight, div(add(wait, 60), runtime))", "weight * ((wait + 60) / runtime)"),
        ("wait-(limit-gpus)", "wait - (limit - gpus)"),
        ("((wait))", "wait"),
        ("-wait*2", "(-wait) * 2"),
        ("1e3*wait", "1000 * wait"),
        ("sqrt(max(gpus,1))", "sqrt(max(gpus, 1))"),
    ],
)
def test_both_notations_become_one_canonical_text(text: str, canonical: str) -> None:
    assert Policy.parse(text).text == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wiat + 1", "unknown name 'wiat'; did you mean wait"),
        ("wait +", "ends too early at position 7"),
        ("wait wait", "did not expect 'wait' at position 6"),
        ("max(wait)", "max takes 2 arguments, not 1"),
        ("(wait", "expected '\\)'"),
        ("wait $ 2", "did not expect '\\$' at position 6"),
        ("", "ends too early"),
        ("1e999", "too large a number"),
        ("(" * 400 + "wait", "nested too deeply"),
        ("+".join(["wait"] * 200), "too large: 399 nodes"),
        ("__import__('os')", "unknown name '__import__'"),
    ],
)
def test_bad_text_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Policy.parse(text)


def test_the_shipped_policy_passes_its_own_admission() -> None:
    assert problems(Policy.default()) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 - wait", "falls as a job waits"),
        ("limit * limit * limit * limit * limit * limit * limit * 1e270", "not a finite number"),
        ("wait / (wait * wait / 1000000 + 1)", "falls as a job waits"),
    ],
)  # fmt: skip
def test_a_policy_that_starves_or_overflows_is_refused(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        admitted(text)


def test_a_score_is_told_by_its_factors() -> None:
    job = dict.fromkeys(NAMES, 2.0)
    assert Policy.parse("weight * (wait + 60) / runtime").terms(job) == [
        ("weight", 2.0),
        ("wait + 60", 62.0),
        ("inv(runtime)", 0.5),
    ]


def test_a_sum_is_told_by_its_summands_each_whole() -> None:
    job = dict.fromkeys(NAMES, 2.0)
    policy = Policy.parse("3 * weight - (wait * wait - 5 * runtime / gpus) + 1")
    told = policy.terms(job)
    assert told == [("3 * weight", 6.0), ("neg(wait * wait)", -4.0), ("5 * runtime / gpus", 5.0), ("1", 1.0)]
    assert sum(value for _, value in told) == score(policy.tree, job)


@pytest.mark.parametrize("text", ["+".join(["wait"] * 2000), "*".join(["wait"] * 2000), "max(" * 300 + "wait"])
def test_an_endless_expression_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(PolicyError, match=r"too large|nested too deeply"):
        Policy.parse(text)


def test_the_formula_can_be_typeset() -> None:
    formula = Policy.parse("weight * (wait + 60) / (runtime * max(gpus, 1))").latex()
    assert formula == r"\frac{v \cdot \left(w + 60\right)}{r \cdot \max\left(g, 1\right)}"
    assert Policy.parse("wait * 2.5e-07").latex() == r"w \cdot 2.5 \cdot 10^{-7}"
    assert Policy.default().latex() == r"\frac{v \cdot \left(w + 60\right)}{\sqrt{\sqrt{r}}}"
