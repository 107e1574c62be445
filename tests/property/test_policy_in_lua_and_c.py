"""One semantics: numba, plain Python, Lua and C give the same scores, and with them the same order.

Tolerance: 1e-12 of the larger of two scores. Only the logarithm may differ at all, by the last bit of its result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from evo_library import LUAS, CPolicy, FloatArray, Refused, lua_runtime
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_evo.model import PolicyError
from slurm_evo.policy import TERMINALS, Policy, compact, lua
from slurm_evo.policy.expression import ARITY, Call, Constant, Name, Node
from slurm_evo.policy.plain import score

NAMES = [terminal.name for terminal in TERMINALS]
TOLERANCE = 1e-12
NASTY = (0.0, -0.0, 0.001, -0.001, 0.0011, -0.0011, 1e-9, 1.0, -1.0, 1e6, 5e6, 1e154, 1e308, -1e308, 2**53, 2**63)
CORPUS = (
    "weight * (wait + 60) / sqrt(sqrt(runtime))",
    "weight * (wait + 60) / (runtime * gpus)",
    "wait / runtime * nodes * cpus",
    "log(wait) - log(runtime) * log(gpus + 1)",
    "max(wait, limit) - min(runtime, user_usage) / user_pending",
    "inv(load) + inv(pressure) - neg(abs(wait))",
    "wait - wait",
    "2",
    "-wait * -3",
    "1e300 * limit * limit - 1e300 * limit * limit",
    "div(gpus, nodes) + 9007199254740993",
)

leaves = st.sampled_from(NAMES).map(Name) | st.floats(-1e6, 1e6).map(Constant)


def calls(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.sampled_from(sorted(ARITY)).flatmap(
        lambda operator: st.tuples(*[children] * ARITY[operator]).map(lambda args: Call(operator, args))
    )


trees = st.recursive(leaves, calls, max_leaves=12)
values = st.floats(-1e12, 1e12) | st.sampled_from(NASTY) | st.integers(0, 10**6).map(float)
jobs = st.lists(st.lists(values, min_size=11, max_size=11), min_size=1, max_size=8)


def in_lua(policy: Policy, table: FloatArray, version: str = "lua54") -> FloatArray:
    runtime = lua_runtime(version)
    module = runtime.execute(lua.export(policy))
    assert module.id == compact.policy_id(policy)
    rows = [runtime.table_from(dict(zip(NAMES, column, strict=True))) for column in table.T.tolist()]
    return np.array([module.score(row) for row in rows], np.float64)


def in_c(policy: Policy, table: FloatArray) -> FloatArray:
    return CPolicy(compact.dump(policy).encode()).scores(table)


def plainly(policy: Policy, table: FloatArray) -> FloatArray:
    return np.array(
        [score(policy.tree, dict(zip(NAMES, column, strict=True))) for column in table.T.tolist()], np.float64
    )


def agree(one: FloatArray, other: FloatArray) -> None:
    """Equal within the tolerance, and in the same order but for jobs whose scores are equal within it."""
    assert np.isfinite(one).all()
    assert np.isfinite(other).all()
    scale = np.maximum(np.abs(one), np.abs(other))
    with np.errstate(over="ignore"):
        assert (np.abs(one / 2 - other / 2) <= TOLERANCE * scale + 1e-300).all()
    ordered = other[np.argsort(one, kind="stable")]
    room = TOLERANCE * np.maximum(np.abs(ordered[1:]), np.abs(ordered[:-1])) + 1e-300
    assert (ordered[1:] / 2 - ordered[:-1] / 2 >= -2 * room).all()


def stable(policy: Policy, table: FloatArray) -> bool:
    """No difference of nearly equal logarithms: there one last bit may become anything."""
    return "log(" not in policy.text or bool(
        np.allclose(policy.scores(table), plainly(policy, table), rtol=TOLERANCE, atol=1e-300)
    )


@given(trees, jobs)
@settings(max_examples=400, deadline=None)
def test_four_evaluators_agree_on_any_expression(tree: Node, rows: list[list[float]]) -> None:
    policy, table = Policy(tree), np.array(rows).T
    if not stable(policy, table):
        return
    with np.errstate(all="ignore"):
        fast = policy.scores(table)
    agree(fast, plainly(policy, table))
    agree(fast, in_c(policy, table))
    agree(fast, in_lua(policy, table))


@pytest.mark.parametrize("version", LUAS)
@pytest.mark.parametrize("text", CORPUS)
def test_every_lua_that_slurm_may_have_agrees(version: str, text: str) -> None:
    policy = Policy.parse(text)
    rng = np.random.default_rng(7)
    table = np.vstack([rng.choice(NASTY, (20, 11)), rng.uniform(0, 1e5, (40, 11))]).T
    agree(in_c(policy, table), in_lua(policy, table, version))
    agree(plainly(policy, table), in_lua(policy, table, version))


@pytest.mark.parametrize(("text", "score"), [("max({0}, gpus)", 8), ("min({0}, gpus)", 8), ("max(gpus, {0})", 8)])
def test_a_nan_inside_max_and_min_gives_way_everywhere(text: str, score: float) -> None:
    policy = Policy.parse(text.format("(limit * limit - limit * limit)"))
    table = np.full((11, 3), 1e200)
    table[3] = 8
    for found in (policy.scores(table), plainly(policy, table), in_c(policy, table), in_lua(policy, table)):
        assert found.tolist() == [score] * 3


def test_whole_numbers_do_not_wrap_around_in_lua() -> None:
    runtime = lua_runtime("lua54")
    module = runtime.execute(lua.export(Policy.parse("wait * limit * runtime + 1")))
    row = runtime.eval("{wait = 4611686018427387904, limit = 4, runtime = 1}")
    assert module.score(row) == pytest.approx(4611686018427387904.0 * 4, rel=1e-15)


@given(trees)
@settings(max_examples=100, deadline=None)
def test_a_policy_file_reads_back_as_the_same_policy(tree: Node) -> None:
    text = compact.dump(Policy(tree))
    if Policy.parse(Policy(tree).text).tree == tree:
        assert compact.load(text).tree == tree
    CPolicy(text.encode())


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_policy_file_is_refused_by_both_readers(data: st.DataObject) -> None:
    whole = compact.dump(Policy.default()).encode()
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = data.draw(
        st.sampled_from([whole[:at], whole[:at] + b"nan" + whole[at:], whole[:at] + b"\0" + whole[at + 1 :]])
    )
    with pytest.raises(Refused):
        CPolicy(broken)
    with pytest.raises(PolicyError):
        compact.load(broken.decode())


def test_code_that_is_not_the_expressions_is_refused() -> None:
    lines = compact.unsealed(compact.dump(Policy.parse("wait + limit")))
    other = compact.sealed([line.replace("code add", "code sub") for line in lines])
    CPolicy(other.encode())  # C trusts a right checksum
    with pytest.raises(PolicyError, match="not what its expression compiles to"):
        compact.load(other)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ({"registers": "registers 900"}, "1 to 32 registers"),
        ({"terminals": "terminals 12"}, "12 terminals, this plugin knows 11"),
        ({"const": "const nan"}, "not a finite number"),
        ({"code": "code add 0 170 0"}, "operand that does not exist"),
        ({"slurm-evo-policy": "slurm-evo-policy 2"}, "begins with"),
    ],
)
def test_c_says_what_is_wrong_with_a_file(lines: dict[str, str], reason: str) -> None:
    good = compact.unsealed(compact.dump(Policy.parse("wait + 60")))
    bad: list[Any] = [lines.get(line.split()[0], line) for line in good]
    with pytest.raises(Refused, match=reason):
        CPolicy(compact.sealed(bad).encode())
