"""What can be said of an expression without a simulation: units, and how its score moves as a job waits."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from slurm_evo.policy import ROW, TERMINALS, Policy
from slurm_evo.policy.expression import Call, Constant, Name, Node
from slurm_evo.policy.plain import value

WAITS = (0.0, 1.0, 60.0, 600.0, 3600.0, 43_200.0, 86_400.0, 604_800.0, 5e6)
"""Seconds at which scores are compared, as in `slurm_evo.policy.problems`."""
MOST_TERMINALS = 6
"""More than a person reads in one line; and the check looks at 3 to this power of corners."""

Unit = tuple[Fraction, Fraction]
"""Powers of seconds and of GPUs."""
_RATIO: Unit = (Fraction(0), Fraction(0))
_UNITS: dict[str, Unit] = {
    "s": (Fraction(1), Fraction(0)),
    "GPU": (Fraction(0), Fraction(1)),
    "GPU·s": (Fraction(1), Fraction(1)),
    "1": _RATIO,
}
_OF_TERMINAL = {terminal.name: _UNITS[terminal.unit] for terminal in TERMINALS}


def unit_faults(policy: Policy) -> int:
    """How many sums, differences and comparisons put unlike units together.

    A constant takes whatever unit is needed beside it. A logarithm is a plain number: that of its argument by one
    unit of it.
    """
    return _units(policy.tree)[1]


def _units(node: Node) -> tuple[Unit | None, int]:
    """The unit of a node, None for any; and the faults below it."""
    if isinstance(node, Constant):
        return None, 0
    if isinstance(node, Name):
        return _OF_TERMINAL[node.name], 0
    parts = [_units(argument) for argument in node.arguments]
    faults = sum(part[1] for part in parts)
    unit, other = parts[0][0], parts[-1][0]
    match node.operator:
        case "add" | "sub" | "max" | "min":
            if unit is not None and other is not None and unit != other:
                return unit, faults + 1
            return (other if unit is None else unit), faults
        case "mul" | "div":
            sign = 1 if node.operator == "mul" else -1
            if unit is None and other is None:
                return None, faults
            left, right = unit or _RATIO, other or _RATIO
            return (left[0] + sign * right[0], left[1] + sign * right[1]), faults
        case "sqrt":
            return (None if unit is None else (unit[0] / 2, unit[1] / 2)), faults
        case "inv":
            return (None if unit is None else (-unit[0], -unit[1])), faults
        case "log":
            return _RATIO, faults
        case _:
            return unit, faults


def sound(policy: Policy) -> bool:
    """The quick form of `slurm_evo.policy.problems`: finite, and never falling as a job waits.

    The same corners of the terminals' ranges, all at once. False for more than `MOST_TERMINALS`.
    """
    used = [terminal for terminal in TERMINALS if terminal.name in policy.terminals and terminal.name != "wait"]
    if len(used) > MOST_TERMINALS:
        return False
    ends = [(terminal.low, (terminal.low * terminal.high) ** 0.5, terminal.high) for terminal in used]
    corners = np.array(list(itertools.product(*ends)), np.float64).reshape(3 ** len(used), len(used))
    table = np.empty((len(ROW), len(corners) * len(WAITS)))
    table[:] = np.array([terminal.low for terminal in TERMINALS])[:, None]
    for column, terminal in enumerate(used):
        table[ROW[terminal.name]] = np.repeat(corners[:, column], len(WAITS))
    table[ROW["wait"]] = np.tile(WAITS, len(corners))
    scores = policy.scores(table).reshape(len(corners), len(WAITS))
    if not (np.abs(scores) < 1e300).all():
        return False
    before, after = scores[:, :-1], scores[:, 1:]
    return bool((after >= before - 1e-9 * np.abs(before)).all())


def folded(policy: Policy) -> Policy:
    """The same scores with fewer nodes: parts without terminals become numbers, double negations vanish."""
    return Policy(_fold(policy.tree))


def _fold(node: Node) -> Node:
    if not isinstance(node, Call):
        return node
    arguments = tuple(_fold(argument) for argument in node.arguments)
    if all(isinstance(argument, Constant) for argument in arguments):
        number = value(Call(node.operator, arguments), {})
        if np.isfinite(number):
            return Constant(float(number))
    inner = arguments[0]
    if isinstance(inner, Call) and node.operator == "neg" and inner.operator == "neg":
        return inner.arguments[0]
    if isinstance(inner, Call) and node.operator == "abs" and inner.operator in ("abs", "sqrt"):
        return Call("abs", inner.arguments) if inner.operator == "abs" else inner
    return Call(node.operator, arguments)
