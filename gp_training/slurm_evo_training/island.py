"""One independent evolution: a population, its random state, and how the next generation comes about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_evo.policy import Policy
from slurm_evo.policy.expression import Call, Constant, Node
from slurm_evo_training.fitness import Evaluator, admissible
from slurm_evo_training.gplearn_port import Breeder
from slurm_evo_training.seeds import by_hand, drawn
from slurm_evo_training.soundness import folded

Value = tuple[float, float, float]
"""Shares of the reference's average, maximum and idle time on one scene."""
REGION = (2.0, 2.0)
"""Policies worse than so many times the reference in average or maximum rank behind all others."""
SLACK = 1.02
"""A candidate is given up after a scene when several others beat it there by this factor in both waits."""
BEATEN_BY = 3
TRIES = 30
"""Attempts at an admissible, new child before a newly drawn one is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How an evolution is run."""

    islands: int = 2
    population: int = 32
    """On each island."""
    children: int = 24
    """New policies tried in each generation of each island."""
    generations: int = 32
    migrate_every: int = 4
    """Generations between two exchanges of policies."""
    migrants: int = 3
    """Policies each island takes from its neighbour."""
    refined: int = 4
    """Policies of the last front whose constants are refined."""
    refine_evaluations: int = 40
    """Policies tried for each of them."""
    most_nodes: int = 40
    terminals: tuple[str, ...] = ("wait", "limit", "runtime", "gpus", "weight", "user_usage", "user_pending",
                                  "load", "pressure")  # fmt: skip
    minutes: float = 10.0
    """No further exchange is begun after this time; what is best by then is kept."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy with what it reached."""

    policy: Policy
    values: tuple[Value, ...]
    """On each scene; fewer where it was given up."""
    objectives: tuple[float, ...]
    """The four of `fitness.NAMES`."""


@dataclass(slots=True)
class Island:
    """Its state between generations; `as_json` and `from_json` are exact."""

    number: int
    random: np.random.RandomState
    population: list[Candidate] = field(default_factory=list)
    generation: int = 0
    tried: int = 0
    """Policies put to the race."""
    given_up: int = 0
    """Of those, how many ended before the last scene."""

    @classmethod
    def new(cls, number: int, seed: int) -> Island:
        """An empty one; different numbers draw differently from the same seed."""
        bits = np.random.MT19937(np.random.SeedSequence([seed, number]))
        return cls(number, np.random.RandomState(bits))

    def as_json(self) -> dict[str, Any]:
        """Plain values; what is not here is worked out again."""
        state: Any = self.random.get_state(legacy=False)
        return {
            "number": self.number,
            "generation": self.generation,
            "tried": self.tried,
            "given_up": self.given_up,
            "random": {
                **state,
                "state": {"key": state["state"]["key"].tolist(), "pos": int(state["state"]["pos"])},
            },
            "population": [candidate_json(one) for one in self.population],
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Island:
        """The inverse of `as_json`."""
        random = np.random.RandomState()
        state = found["random"]
        key = np.array(state["state"]["key"], np.uint32)
        random.set_state({**state, "state": {"key": key, "pos": state["state"]["pos"]}})
        return cls(
            found["number"],
            random,
            [candidate_of(one) for one in found["population"]],
            found["generation"],
            found["tried"],
            found["given_up"],
        )


def candidate_json(one: Candidate) -> dict[str, Any]:
    """A candidate as plain values."""
    return {"policy": one.policy.text, "values": one.values, "objectives": one.objectives}


def candidate_of(found: dict[str, Any]) -> Candidate:
    """The inverse of `candidate_json`."""
    return Candidate(
        Policy.parse(found["policy"]),
        tuple(tuple(value) for value in found["values"]),
        tuple(found["objectives"]),
    )


def advance(
    island: Island,
    recipe: Recipe,
    evaluator: Evaluator,
    generations: int,
    arrived: Sequence[Candidate] = (),
    late: Callable[[], bool] = lambda: False,
) -> Island:
    """Some generations later, fewer if it is late. The island given is left as it was, but for its random state.

    Args:
        island: an empty one is settled first, which counts as a generation.
        recipe: the run's.
        evaluator: of the problem.
        generations: how many.
        arrived: candidates of other islands, taken in before the first.
        late: asked before every policy; once it is true, what is there is sorted and returned. What people
            wrote is always tried: it comes first on an empty island.
    """
    must = len(by_hand(int(evaluator.problem.fleet.gpus.sum())))
    now = replace(island, population=list(island.population))
    known = {evaluator.meaning(one.policy) for one in now.population}
    for one in arrived:
        if (meaning := evaluator.meaning(one.policy)) not in known:
            known.add(meaning)
            now.population.append(one)
    for _ in range(generations):
        breeder = Breeder(now.random, terminals=recipe.terminals)
        if now.population:
            offspring = _offspring(now, recipe, evaluator, breeder, known)
        else:
            offspring = _settlers(now, recipe, evaluator, breeder, known)
        for policy in offspring:
            if late() and len(now.population) + now.given_up >= must:
                break
            candidate = race(policy, now.population, evaluator)
            now.tried += 1
            if candidate is None:
                now.given_up += 1
            else:
                now.population.append(candidate)
        now.population = survive(now.population, recipe.population)
        now.generation += 1
        if late():
            break
    return now


def race(policy: Policy, others: Sequence[Candidate], evaluator: Evaluator) -> Candidate | None:
    """Run a policy through the scenes, the cheap one first; None if it falls behind too far."""
    values: list[Value] = []
    scenes = len(evaluator.problem.scenes)
    for scene in range(scenes):
        value = evaluator.value(policy, scene)
        values.append(value)
        if scene + 1 < scenes:
            so_far = np.array(values).mean(axis=0)
            beaten_by = sum(
                bool(SLACK * average <= so_far[0] and SLACK * maximum <= so_far[1])
                for average, maximum, _ in (np.mean(one.values[: scene + 1], axis=0) for one in others)
            )
            if beaten_by >= BEATEN_BY:
                return None
    return Candidate(policy, tuple(values), evaluator.objectives(policy, values))


def survive(population: list[Candidate], count: int) -> list[Candidate]:
    """The best by non-dominated sorting, within the last front those that stand apart (NSGA-II, Deb 2002).

    The best in order of rank: the first are the front.
    """
    order, _, _ = ranked(population)
    return [population[place] for place in order[:count]]


def ranked(population: Sequence[Candidate]) -> tuple[list[int], NDArray[np.int64], NDArray[np.float64]]:
    """Places in order, best first; the rank and the crowding distance of each place."""
    from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    values = np.array([one.objectives for one in population])
    # Differences smaller than these are not worth a place of their own.
    values = np.column_stack(
        [np.round(np.log(values[:, :2]), 3), np.round(values[:, 2] / 0.01), np.ceil(values[:, 3] / 4)]
    )
    limit = np.log(np.array(REGION))
    outside = np.maximum(values[:, :2] - limit, 0.0).sum(axis=1)
    inside = np.flatnonzero(outside == 0)
    rank = np.full(len(population), len(population), np.int64)
    crowd = np.zeros(len(population))
    order: list[int] = []
    for level, front in enumerate(NonDominatedSorting().do(values[inside])):
        places = inside[np.asarray(front, np.int64)]
        # Crowding in the two waits only: the front is to be spread where people choose on it.
        crowd[places] = calc_crowding_distance(values[places, :2])
        rank[places] = level
        order += [int(places[at]) for at in np.lexsort((places, -crowd[places]))]
    order += [int(place) for place in np.argsort(outside, kind="stable") if outside[place] > 0]
    return order, rank, crowd


def _settlers(
    island: Island, recipe: Recipe, evaluator: Evaluator, breeder: Breeder, known: set[bytes]
) -> list[Policy]:
    """What people wrote, draws of the family, and some grown at random."""
    fleet_gpus = int(evaluator.problem.fleet.gpus.sum())
    pool = [policy for _, policy in by_hand(fleet_gpus)]
    pool += [drawn(island.random) for _ in range(recipe.population)]
    pool += [_new(island, recipe, evaluator, breeder.grow, known) for _ in range(recipe.population // 4)]
    return [policy for policy in pool if _is_new(policy, recipe, evaluator, known)]


def _offspring(
    island: Island, recipe: Recipe, evaluator: Evaluator, breeder: Breeder, known: set[bytes]
) -> list[Policy]:
    _, rank, crowd = ranked(island.population)

    def parent() -> Policy:
        one, other = island.random.randint(len(island.population), size=2)
        better = min((int(rank[place]), -float(crowd[place]), int(place)) for place in (one, other))[2]
        return island.population[better].policy

    def child() -> Policy:
        way = island.random.uniform()
        if way < 0.35:
            return breeder.cross(parent(), parent())
        if way < 0.50:
            return breeder.replace_subtree(parent())
        if way < 0.58:
            return breeder.hoist(parent())
        if way < 0.66:
            return breeder.change_points(parent())
        if way < 0.72:
            return drawn(island.random)
        return vary_constants(parent(), island.random)

    made = []
    for _ in range(recipe.children):
        policy = _new(island, recipe, evaluator, child, known)
        known.add(evaluator.meaning(policy))
        made.append(policy)
    return made


def _new(
    island: Island, recipe: Recipe, evaluator: Evaluator, make: Callable[[], Policy], known: set[bytes]
) -> Policy:
    """A policy of this kind that is admissible and not known yet; else a drawn one."""
    for _ in range(TRIES):
        policy = folded(make())
        if (
            admissible(policy, most_nodes=recipe.most_nodes)
            and evaluator.tells_jobs_apart(policy)
            and evaluator.meaning(policy) not in known
        ):
            return policy
    return drawn(island.random)


def _is_new(policy: Policy, recipe: Recipe, evaluator: Evaluator, known: set[bytes]) -> bool:
    if not admissible(policy, most_nodes=recipe.most_nodes):
        return False
    meaning = evaluator.meaning(policy)
    if meaning in known:
        return False
    known.add(meaning)
    return True


def vary_constants(policy: Policy, random: np.random.RandomState) -> Policy:
    """Some constants multiplied by a number near 1, sometimes far from it; rounded to three digits."""
    values = constants_of(policy)
    if not values:
        return policy
    spread = 0.8 if random.uniform() < 0.25 else 0.25
    changed = [
        float(f"{value * np.exp(random.normal(0.0, spread)):.3g}") if random.uniform() < 0.6 else value
        for value in values
    ]
    return with_constants(policy, changed)


def constants_of(policy: Policy) -> list[float]:
    """In prefix order."""
    from slurm_evo.policy.expression import walk

    return [node.value for node in walk(policy.tree) if isinstance(node, Constant)]


def with_constants(policy: Policy, values: Sequence[float]) -> Policy:
    """The same tree with other constants, in prefix order."""
    left = iter(values)

    def build(node: Node) -> Node:
        if isinstance(node, Constant):
            return Constant(next(left))
        if isinstance(node, Call):
            return Call(node.operator, tuple(build(argument) for argument in node.arguments))
        return node

    return Policy(build(policy.tree))
