"""gplearn's programs and genetic operators over our terminals: the one module that imports gplearn.

gplearn (0.4.x) has no hook for a fitness that is not a function of rows, so its evolution loop cannot be used
here; `evolution` has its own. `gplearn._program` is private: whatever changes there is to be mended here.
Programs are flat lists in prefix order: functions, feature numbers (int) and constants (float).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gplearn._program import _Program
from gplearn.functions import _function_map

from slurm_evo.model import PolicyError
from slurm_evo.policy import TERMINALS, Policy
from slurm_evo.policy.expression import ARITY, Call, Constant, Name, Node

FUNCTIONS = tuple(_function_map[name] for name in ARITY)
"""gplearn's protected functions for every operator of an expression, in the same order."""
_BY_ARITY = {
    arity: [function for function in FUNCTIONS if function.arity == arity] for arity in sorted(set(ARITY.values()))
}
_BY_NAME = dict(zip(ARITY, FUNCTIONS, strict=True))
_ROWS = {terminal.name: row for row, terminal in enumerate(TERMINALS)}

Flat = list[Any]
"""A program as gplearn holds it."""


class Breeder:
    """Makes programs out of nothing and out of other programs; deterministic for its random state.

    Args:
        random: a legacy numpy generator: gplearn takes no other.
        terminals: names new programs may speak of.
        depth: least and most levels of a newly grown program.
        constants: range new constants are drawn from, evenly.
        point_rate: chance of each node to be changed by a point mutation.
    """

    def __init__(
        self,
        random: np.random.RandomState,
        *,
        terminals: tuple[str, ...] = tuple(_ROWS),
        depth: tuple[int, int] = (2, 4),
        constants: tuple[float, float] = (-3.0, 3.0),
        point_rate: float = 0.15,
    ) -> None:
        unknown = set(terminals) - set(_ROWS)
        if unknown or not terminals:
            raise PolicyError(f"terminals must be some of {', '.join(_ROWS)}, not {sorted(unknown)}")
        self.random = random
        self._rows = [_ROWS[name] for name in terminals]
        self._place = {row: place for place, row in enumerate(self._rows)}
        self._depth, self._constants, self._point_rate = depth, constants, point_rate

    def grow(self) -> Policy:
        """A new random policy (gplearn's half and half)."""
        return self._policy(self._program(None).program)

    def cross(self, policy: Policy, donor: Policy) -> Policy:
        """One subtree of the policy replaced by one of the donor's."""
        return self._policy(self._program(policy).crossover(self._flat(donor), self.random)[0])

    def replace_subtree(self, policy: Policy) -> Policy:
        """One subtree replaced by a new random one."""
        return self._policy(self._program(policy).subtree_mutation(self.random)[0])

    def hoist(self, policy: Policy) -> Policy:
        """One subtree replaced by a part of itself: never larger."""
        return self._policy(self._program(policy).hoist_mutation(self.random)[0])

    def change_points(self, policy: Policy) -> Policy:
        """Some nodes replaced by others of the same kind."""
        return self._policy(self._program(policy).point_mutation(self.random)[0])

    def _program(self, policy: Policy | None) -> Any:
        return _Program(
            function_set=list(FUNCTIONS),
            arities=_BY_ARITY,
            init_depth=self._depth,
            init_method="half and half",
            n_features=len(self._rows),
            const_range=self._constants,
            metric=None,
            p_point_replace=self._point_rate,
            parsimony_coefficient=0.0,
            random_state=self.random,
            program=None if policy is None else self._flat(policy),
        )

    def _flat(self, policy: Policy) -> Flat:
        """Only the terminals it may draw are numbered from 0 for gplearn; others keep a number beyond."""
        beyond = len(self._rows)
        return [
            self._place.get(item, beyond + item) if isinstance(item, int) else item for item in flat_of(policy)
        ]

    def _policy(self, flat: Flat) -> Policy:
        beyond = len(self._rows)
        return policy_of(
            [
                item if not isinstance(item, int) else self._rows[item] if item < beyond else item - beyond
                for item in flat
            ]
        )


def flat_of(policy: Policy) -> Flat:
    """The program of a policy; feature numbers are rows of the feature table."""
    flat: Flat = []

    def put(node: Node) -> None:
        if isinstance(node, Name):
            flat.append(_ROWS[node.name])
        elif isinstance(node, Constant):
            flat.append(float(node.value))
        else:
            flat.append(_BY_NAME[node.operator])
            for argument in node.arguments:
                put(argument)

    put(policy.tree)
    return flat


def policy_of(flat: Flat) -> Policy:
    """The policy of a program.

    Raises:
        PolicyError: it is no complete program over our functions and terminals.
    """
    items = iter(flat)

    def take() -> Node:
        try:
            item = next(items)
        except StopIteration:
            raise PolicyError(f"the program ends too early: {len(flat)} items") from None
        if isinstance(item, (int, np.integer)):
            if not 0 <= item < len(TERMINALS):
                raise PolicyError(f"the program speaks of feature {item}, there are {len(TERMINALS)}")
            return Name(TERMINALS[int(item)].name)
        if isinstance(item, (float, np.floating)):
            return Constant(float(item))
        if getattr(item, "name", None) not in ARITY:
            raise PolicyError(f"the program has {item!r}, which no expression has")
        return Call(item.name, tuple(take() for _ in range(ARITY[item.name])))

    tree = take()
    if next(items, None) is not None:
        raise PolicyError("the program goes on after its end")
    return Policy(tree)


def execute(policy: Policy, table: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, Any]:
    """Scores by gplearn's own ``execute``: the oracle of the evaluator, and its yardstick.

    Args:
        policy: any.
        table: (11, n) float64, as for `Policy.scores`.

    Returns:
        (n,) float64; not made finite.
    """
    breeder = Breeder(np.random.RandomState(0))
    found = breeder._program(policy).execute(np.ascontiguousarray(table.T))  # noqa: SLF001 - own class
    return np.asarray(found, np.float64)
