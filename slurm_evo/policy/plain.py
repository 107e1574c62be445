"""The evaluator once more in plain Python: slow, obvious, the oracle of `machine`."""

from __future__ import annotations

import math
from collections.abc import Mapping

from slurm_evo.policy.expression import PROTECTED, Constant, Name, Node

LARGEST = 1.7976931348623157e308


def score(tree: Node, job: Mapping[str, float]) -> float:
    """One job's score; ``job`` maps terminal names to values. Agrees with `machine` to 1e-12 relative."""
    found = value(tree, job)
    if math.isnan(found):
        return -LARGEST
    return min(max(found, -LARGEST), LARGEST)


def value(tree: Node, job: Mapping[str, float]) -> float:
    """The value of a sub-expression; may be infinite or NaN."""
    if isinstance(tree, Name):
        return job[tree.name]
    if isinstance(tree, Constant):
        return tree.value
    return apply(tree.operator, *(value(argument, job) for argument in tree.arguments))


def apply(operator: str, x: float, y: float = 0.0) -> float:
    """One protected operator, with IEEE results on overflow instead of exceptions."""
    match operator:
        case "add":
            return x + y
        case "sub":
            return x - y
        case "mul":
            return x * y
        case "div":
            return x / y if abs(y) > PROTECTED else 1.0
        case "max":
            return y if y > x or math.isnan(x) else x
        case "min":
            return y if y < x or math.isnan(x) else x
        case "sqrt":
            return math.sqrt(abs(x))
        case "log":
            return math.log(abs(x)) if abs(x) > PROTECTED else 0.0
        case "abs":
            return abs(x)
        case "neg":
            return -x
        case "inv":
            return 1.0 / x if abs(x) > PROTECTED else 0.0
    raise ValueError(f"no operator {operator!r}")
