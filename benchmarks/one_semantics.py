"""A million random jobs through numba, plain Python, Lua and C: how far scores and orders differ.

``python benchmarks/one_semantics.py`` (about a minute). Random expressions come from a seeded generator; each
scores its own jobs, half of which are drawn from the ranges of the terminals and half from values at which
protected operators switch. Needs gcc, make and lupa.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np
from evo_library import CPolicy, FloatArray, lua_runtime

from slurm_evo.policy import TERMINALS, Policy, compact, lua
from slurm_evo.policy.expression import ARITY, Call, Constant, Name, Node
from slurm_evo.policy.plain import score

NAMES = [terminal.name for terminal in TERMINALS]
NASTY = np.array([0.0, 0.001, -0.001, 0.0011, -0.0011, 1e-9, 1.0, -1.0, 1e6, 5e6, 1e154, 1e308, -1e308, 2.0**53])
TOLERANCE = 1e-12


def grown(rng: np.random.Generator, depth: int) -> Node:
    """A random expression."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.7:
            return Name(str(rng.choice(NAMES)))
        return Constant(float(np.round(rng.normal() * 10.0 ** rng.integers(-4, 5), 6)))
    operator = str(rng.choice(sorted(ARITY)))
    return Call(operator, tuple(grown(rng, depth - 1) for _ in range(ARITY[operator])))


def drawn(rng: np.random.Generator, count: int) -> FloatArray:
    """(11, count)."""
    table = np.array([rng.uniform(terminal.low, terminal.high, count) for terminal in TERMINALS])
    nasty = rng.random(count) < 0.5
    places = (rng.random(table.shape) < 0.4) & nasty
    table[places] = rng.choice(NASTY, int(places.sum()))
    return table


def in_lua(policy: Policy, table: FloatArray) -> FloatArray:
    """The exported module, called for every job from inside Lua."""
    runtime = lua_runtime()
    module = runtime.execute(lua.export(policy))
    loop = runtime.eval(
        "function(score, columns, count, names, out) for i = 1, count do local f = {} "
        "for k = 1, #names do f[names[k]] = columns[k][i] end out[i] = score(f) end return out end"
    )
    columns = runtime.table_from([runtime.table_from(row) for row in table.tolist()])
    out = loop(module.score, columns, table.shape[1], runtime.table_from(NAMES), runtime.table())
    return np.array([out[place + 1] for place in range(table.shape[1])])


def apart(one: FloatArray, other: FloatArray) -> float:
    """The largest difference, relative to the larger score."""
    scale = np.maximum(np.abs(one), np.abs(other))
    with np.errstate(all="ignore"):
        share = np.abs(one / 2 - other / 2) * 2 / scale
    return float(np.nan_to_num(share, nan=0.0).max())


def disorder(one: FloatArray, other: FloatArray) -> int:
    """Neighbours by one's order that stand the other way round by the other's, beyond the tolerance."""
    ordered = other[np.argsort(one, kind="stable")]
    with np.errstate(all="ignore"):
        falls = ordered[:-1] / 2 - ordered[1:] / 2
        room = 2 * TOLERANCE * np.maximum(np.abs(ordered[1:]), np.abs(ordered[:-1]))
    return int((falls > room).sum())


def main() -> int:
    """Exit code 1 if anything disagrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--expressions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    each = given.jobs // given.expressions
    worst = dict.fromkeys(("plain", "lua", "c"), 0.0)
    wrong = dict.fromkeys(worst, 0)
    spent = dict.fromkeys(("numba", *worst), 0.0)
    unlike = []
    for number in range(given.expressions):
        policy, table = Policy(grown(rng, 5)), drawn(rng, each)
        found = {}
        for name, run in (
            ("numba", lambda p=policy, t=table: p.scores(t)),
            ("plain", lambda p=policy, t=table: np.array(
                [score(p.tree, dict(zip(NAMES, column, strict=True))) for column in t.T.tolist()])),
            ("lua", lambda p=policy, t=table: in_lua(p, t)),
            ("c", lambda p=policy, t=table: CPolicy(compact.dump(p).encode()).scores(t)),
        ):  # fmt: skip
            began = time.perf_counter()
            with np.errstate(all="ignore"):
                found[name] = run()
            spent[name] += time.perf_counter() - began
        for name in worst:
            difference = apart(found["numba"], found[name])
            worst[name] = max(worst[name], difference)
            wrong[name] += disorder(found["numba"], found[name])
            if difference > TOLERANCE:
                unlike.append((name, difference, policy.text))
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{given.expressions} expressions", end="", file=sys.stderr)
    for name, difference, text in unlike[:10]:
        print(f"{name} differs by {difference:.2g}: {text}")
    result = {
        "jobs": each * given.expressions, "expressions": given.expressions, "seed": given.seed,
        "largest_relative_difference": worst, "neighbours_out_of_order": wrong, "tolerance": TOLERANCE,
        "seconds": {name: round(value, 2) for name, value in spent.items()},
    }  # fmt: skip
    print(json.dumps(result))
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
