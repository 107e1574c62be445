"""Predictions as they would have been: each job's from jobs that ended before it was submitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from slurm_evo.predict.predictor import Asked, Predictor

Floats = NDArray[np.float64]


def as_it_was(
    jobs: Sequence[Asked], submit_s: Floats, end_s: Floats, ran_s: Floats, predictor: Predictor
) -> Floats:
    """Predict every job at its submission; the predictor learns each one when it ends.

    Args:
        jobs: n jobs, any order.
        submit_s: (n,).
        end_s: (n,) when each ended in the history; not finite: it never did.
        ran_s: (n,) how long it ran.
        predictor: what it knows already; it learns on.

    Returns:
        (n,) seconds.
    """
    found = np.empty(len(jobs))
    in_order(
        submit_s,
        end_s,
        asked=lambda place: found.__setitem__(place, predictor.predict(jobs[place])),
        ended=lambda place: predictor.learn(jobs[place], float(ran_s[place])),
    )
    return found


def in_order(
    submit_s: Floats, end_s: Floats, *, asked: Callable[[int], None], ended: Callable[[int], None]
) -> None:
    """Call for each submission and each end in the order of time; what ends in a second is known in it."""
    submits = np.argsort(submit_s, kind="stable")
    ends = np.argsort(end_s, kind="stable")
    ends = ends[np.isfinite(end_s[ends])]
    done = 0
    for place in submits:
        while done < len(ends) and end_s[ends[done]] <= submit_s[place]:
            ended(int(ends[done]))
            done += 1
        asked(int(place))
    for place in ends[done:]:
        ended(int(place))


def user_last_two(jobs: Sequence[Asked], submit_s: Floats, end_s: Floats, ran_s: Floats) -> Floats:
    """Tsafrir's predictor, for comparison: the mean of the user's two latest jobs, at most the limit."""
    past: dict[str, list[float]] = {}
    found = np.array([float(job.limit_s) for job in jobs])

    def asked(place: int) -> None:
        if known := past.get(jobs[place].user):
            found[place] = min(sum(known) / len(known), found[place])

    def ended(place: int) -> None:
        past[jobs[place].user] = [*past.get(jobs[place].user, [])[-1:], float(ran_s[place])]

    in_order(submit_s, end_s, asked=asked, ended=ended)
    at_least: Floats = np.maximum(found, 1.0)
    return at_least


def accuracy(predicted_s: Floats, ran_s: Floats) -> dict[str, float]:
    """How good predictions are: 1 is perfect in ``accuracy``, 0 in the others.

    ``accuracy`` is the mean of the smaller over the larger of prediction and truth; ``log_error`` the mean
    absolute error of the natural logarithm; ``mean_error_h`` of the hours; ``rank_loss`` 1 minus Spearman's
    correlation.
    """
    truth, guess = np.maximum(ran_s, 1.0), np.maximum(predicted_s, 1.0)
    places = [np.argsort(np.argsort(values, kind="stable"), kind="stable") for values in (truth, guess)]
    return {
        "accuracy": float(np.mean(np.minimum(truth, guess) / np.maximum(truth, guess))),
        "log_error": float(np.mean(np.abs(np.log(truth / guess)))),
        "mean_error_h": float(np.mean(np.abs(truth - guess)) / 3600),
        "rank_loss": float(1 - np.corrcoef(places[0], places[1])[0, 1]) if len(truth) > 1 else 0.0,
    }
