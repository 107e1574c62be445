"""From a front to one policy: on windows it was not trained on, by the weights of the objectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slurm_evo.policy import Policy
from slurm_evo_training.evolution import evaluate
from slurm_evo_training.fitness import Evaluator, Problem
from slurm_evo_training.seeds import by_hand

Floats = NDArray[np.float64]
WEIGHTS: Mapping[str, float] = {"average_wait": 1.0, "maximum_wait": 0.5, "utilization": 0.5}
"""The defaults of the configuration's [objectives]."""
RESAMPLED = 2000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """One of some policies, and why."""

    place: int
    """Among them."""
    policy: Policy
    scores: Floats
    """(front,) weighted score of each on the choose windows; the smallest was taken."""
    values: Floats
    """(front, scenes, 3) shares of the reference's average, maximum and idle time."""


def weighted(values: Floats, weights: Mapping[str, float]) -> Floats:
    """One number for each policy, smaller is better: the weighted mean of logarithms of the shares.

    Args:
        values: (policies, scenes, 3).
        weights: by objective of the configuration; only their ratios count.
    """
    shares = np.log(np.maximum(values.mean(axis=1), 1e-9))
    by = np.array([weights["average_wait"], weights["maximum_wait"], weights["utilization"]])
    found: Floats = shares @ by / by.sum()
    return found


def beside(front: Sequence[Policy], problem: Problem) -> dict[str, Policy]:
    """By name what people wrote, so far as it ranks otherwise than all of a front, and each order once.

    A policy that did badly on the windows trained on may do well on others: it is to be had for nothing.
    """
    evaluator = Evaluator(problem=problem)
    known, found = {evaluator.meaning(policy) for policy in front}, {}
    for name, policy in by_hand(int(problem.fleet.gpus.sum())):
        meaning = evaluator.meaning(policy)
        if meaning not in known:
            known.add(meaning)
            found[name] = policy
    return found


def choose(
    front: Sequence[Policy], problem: Problem, weights: Mapping[str, float] = WEIGHTS, *, workers: int = 1
) -> Chosen:
    """Run policies through the choose windows and take the best by the weights."""
    values = evaluate(problem, front, workers=workers)
    scores = weighted(values, weights)
    place = int(np.argmin(scores))
    return Chosen(place=place, policy=front[place], scores=scores, values=values)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % confidence interval."""

    mean: float
    low: float
    high: float


def interval(values: Floats, seed: int = 1) -> Interval:
    """Bootstrap of a mean over scenes; a single scene has no width to tell.

    Args:
        values: (scenes,).
        seed: of the resampling.
    """
    if len(values) < 2:
        return Interval(float(values.mean()), float("nan"), float("nan"))
    picks = np.random.default_rng(seed).integers(0, len(values), (RESAMPLED, len(values)))
    low, high = np.quantile(values[picks].mean(axis=1), (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high))


def paired(new: Floats, old: Floats, weights: Mapping[str, float], seed: int = 1) -> Interval:
    """How much better a policy is than another on the same scenes: negative is better.

    Args:
        new: (scenes, 3) shares.
        old: (scenes, 3) shares.
        weights: by objective.
        seed: of the resampling.

    Returns:
        The weighted mean of the logarithms of new / old, with its interval over scenes.
    """
    by = np.array([weights["average_wait"], weights["maximum_wait"], weights["utilization"]])
    ratios = np.log(np.maximum(new, 1e-9)) - np.log(np.maximum(old, 1e-9))
    return interval(ratios @ by / by.sum(), seed)
