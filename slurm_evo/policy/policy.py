"""A policy: an expression that scores pending jobs; larger runs first."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from slurm_evo.model import PolicyError
from slurm_evo.policy import expression, plain
from slurm_evo.policy.expression import Call, Constant, Name, Node, walk
from slurm_evo.policy.parse import parse
from slurm_evo.policy.terminals import TERMINALS

if TYPE_CHECKING:
    from slurm_evo.policy.machine import FloatArray, Program

DEFAULT_TEXT = "weight * (wait + 60) / sqrt(sqrt(runtime))"
"""Hand-written for a site without a history: short jobs first, but mildly. Until a predictor is trained the
running time is the limit, which says little, and the sharper `weight * (wait + 60) / (runtime * gpus)` buys its
shorter average with a longer maximum. On the demo's sample workload (500 jobs, 2 days, load 0.9, without moves)
its average and maximum weighted waits were 0.87 and 0.72, 0.86 and 1.00, 0.94 and 0.78, 0.90 and 1.14 of a
plain federation's with seeds 1, 2, 4 and 5; the sharper one had 0.81 and 0.93, 0.75 and 0.47, 0.93 and 2.44,
0.74 and 1.04. Every job's score grows without bound as it waits."""


@dataclass(frozen=True)
class Policy:
    """An expression as a value."""

    tree: Node

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Read infix or gplearn's prefix form.

        Raises:
            PolicyError: what is wrong and where.
        """
        return cls(parse(text))

    @classmethod
    def default(cls) -> Policy:
        """The shipped one."""
        return cls.parse(DEFAULT_TEXT)

    @property
    def text(self) -> str:
        """Canonical infix; `parse` reads it back as the same policy."""
        return expression.text(self.tree)

    def latex(self) -> str:
        """For a report."""
        return expression.latex(self.tree, {terminal.name: terminal.symbol for terminal in TERMINALS})

    @property
    def depth(self) -> int:
        """Levels of the tree."""
        return expression.depth(self.tree)

    @property
    def size(self) -> int:
        """Nodes of the tree."""
        return sum(1 for _ in walk(self.tree))

    @property
    def terminals(self) -> frozenset[str]:
        """The names it speaks of."""
        return frozenset(node.name for node in walk(self.tree) if isinstance(node, Name))

    @property
    def changes_with_time(self) -> bool:
        """The score of a waiting job may change."""
        return any(terminal.moves and terminal.name in self.terminals for terminal in TERMINALS)

    @cached_property
    def program(self) -> Program:
        """Compiled for `machine.evaluator`."""
        from slurm_evo.policy.machine import compile_tree

        return compile_tree(self.tree)

    def scores(self, table: FloatArray) -> FloatArray:
        """Scores of n jobs from their (11, n) feature table; finite, larger runs first."""
        from slurm_evo.policy.machine import scores

        return scores(self.program, table)

    def terms(self, job: dict[str, float]) -> list[tuple[str, float]]:
        """What one job's score is made of: each top-level summand or factor with its value.

        Args:
            job: terminal values by name.
        """
        return [(expression.text(part), plain.value(part, job)) for part in _parts(self.tree)]


def _parts(tree: Node) -> list[Node]:
    """Summands of a sum, each whole; else the factors of a product, a divisor as its inverse; else the tree."""
    return _summands(tree) if isinstance(tree, Call) and tree.operator in ("add", "sub") else _factors(tree)


def _summands(tree: Node) -> list[Node]:
    if not isinstance(tree, Call) or tree.operator not in ("add", "sub"):
        return [tree]
    left, right = map(_summands, tree.arguments)
    return [*left, *(right if tree.operator == "add" else map(_negated, right))]


def _negated(tree: Node) -> Node:
    return tree.arguments[0] if isinstance(tree, Call) and tree.operator == "neg" else Call("neg", (tree,))


def _factors(tree: Node) -> list[Node]:
    if not isinstance(tree, Call) or tree.operator not in ("mul", "div"):
        return [tree]
    left, right = tree.arguments
    return [*_factors(left), *(_factors(right) if tree.operator == "mul" else [Call("inv", (right,))])]


def problems(policy: Policy) -> tuple[str, ...]:
    """Why a policy must not be put in force; empty if nothing was found.

    Checked on every combination of the ends and the middle of the ranges of the terminals it uses, and, for
    waiting, along its whole range: the score must be a finite number and must never fall as a job waits.

    Raises nothing; cost grows with 3 to the number of terminals, at most 3^11.
    """
    used = [terminal for terminal in TERMINALS if terminal.name in policy.terminals]
    base = {terminal.name: terminal.low for terminal in TERMINALS}
    found: list[str] = []
    corners = [
        (terminal.low, (terminal.low * terminal.high) ** 0.5, terminal.high)
        for terminal in used
        if terminal.name != "wait"
    ]
    waits = [0.0, 1.0, 60.0, 600.0, 3600.0, 43_200.0, 86_400.0, 604_800.0, 5e6]
    others = [terminal.name for terminal in used if terminal.name != "wait"]
    for corner in itertools.islice(itertools.product(*corners), 60_000):
        job = {**base, **dict(zip(others, corner, strict=True))}
        row = [plain.value(policy.tree, {**job, "wait": wait}) for wait in waits]
        at = ", ".join(f"{name}={value:g}" for name, value in zip(others, corner, strict=True)) or "any job"
        if not all(-1e300 < value < 1e300 for value in row):
            found.append(f"its score is not a finite number for {at}")
            break
        falls = [
            waits[place + 1]
            for place in range(len(row) - 1)
            if row[place + 1] < row[place] - 1e-9 * abs(row[place])
        ]
        if falls:
            found.append(f"its score falls as a job waits (before {falls[0]:g} s, for {at})")
            break
    return tuple(found)


def admitted(text: str) -> Policy:
    """Parse and check.

    Raises:
        PolicyError: it cannot be read, or `problems` found one.
    """
    policy = Policy.parse(text)
    found = problems(policy)
    if found:
        raise PolicyError(f"refused: {'; '.join(found)}: {policy.text}")
    return policy


__all__ = ["DEFAULT_TEXT", "Constant", "Policy", "admitted", "problems"]
