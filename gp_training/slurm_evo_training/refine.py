"""The constants of a good policy made better by CMA-ES (pymoo's, on Hansen's cma)."""

from __future__ import annotations

import zlib

import numpy as np

from slurm_evo_training.fitness import Evaluator, admissible
from slurm_evo_training.island import Candidate, Recipe, constants_of, race, with_constants

MOST_CONSTANTS = 12


def refine(
    candidate: Candidate, evaluator: Evaluator, *, weight: float, evaluations: int, recipe: Recipe
) -> list[Candidate]:
    """Search around the constants of a candidate, each on a logarithmic scale that keeps its sign.

    Args:
        candidate: where to start.
        evaluator: of the problem.
        weight: of the logarithm of the average; that of the maximum has the rest.
        evaluations: policies to try.
        recipe: its seed and bounds.

    Returns:
        Every admissible policy tried, on all scenes; empty if there is no constant to refine.
    """
    from pymoo.algorithms.soo.nonconvex.cmaes import CMAES

    first = np.array(constants_of(candidate.policy))
    moving = np.flatnonzero(first != 0)
    if not len(moving) or len(moving) > MOST_CONSTANTS:
        return []
    from pymoo.core.problem import Problem as Space

    found: list[Candidate] = []

    def cost(steps: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        changed = first.copy()
        changed[moving] = first[moving] * np.exp(steps)
        policy = with_constants(candidate.policy, [float(f"{value:.4g}") for value in changed])
        if not admissible(policy, most_nodes=recipe.most_nodes):
            return 10.0
        reached = race(policy, (), evaluator)
        if reached is None:
            return 10.0
        found.append(reached)
        average, maximum = np.log(reached.objectives[:2])
        return float(weight * average + (1 - weight) * maximum)

    space = Space(n_var=len(moving), n_obj=1, xl=-3.0, xu=3.0)
    # A seed of the start and the weight: the same wherever and in whatever order it is run.
    seed = zlib.crc32(f"{recipe.seed} {weight:.6f} {candidate.policy.text}".encode()) or 1
    search = CMAES(x0=np.zeros(len(moving)), sigma=0.15, normalize=False, maxfevals=evaluations, seed=seed)
    search.setup(space, termination=("n_eval", evaluations), seed=seed, verbose=False)
    tried = 0
    while search.has_next() and tried < evaluations:
        asked = search.ask()
        if asked is None or not len(asked):
            break
        values = np.array([[cost(row)] for row in asked.get("X")])
        tried += len(asked)
        asked.set("F", values)
        for one in asked:
            one.evaluated.add("F")
        search.tell(infills=asked)
    return found
