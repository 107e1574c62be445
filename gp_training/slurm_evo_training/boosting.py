"""scikit-learn's gradient boosting as a running-time predictor: what the shipped one is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slurm_evo.predict import Asked, stem

Floats = NDArray[np.float64]


def boosted(
    jobs: Sequence[Asked],
    submit_s: Floats,
    end_s: Floats,
    ran_s: Floats,
    *,
    since_s: float,
    hints: Sequence[Floats] = (),
) -> Floats:
    """Predictions of a model trained once on the jobs that ended before ``since_s``.

    Args:
        jobs: n jobs.
        submit_s: (n,).
        end_s: (n,).
        ran_s: (n,).
        since_s: nothing that ended later is learned from.
        hints: (n,) each: other predictions, known at submission.

    Returns:
        (n,) seconds, at most the limit.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    limits = np.array([float(job.limit_s) for job in jobs])
    users = _numbered([job.user for job in jobs])
    names = _numbered([stem(job.name) for job in jobs])
    columns = [
        np.log(limits),
        np.array([float(job.size) for job in jobs]),
        users,
        names,
        submit_s % 86_400 / 3600,
        submit_s // 86_400 % 7,
        *(np.log(np.maximum(hint, 1.0)) for hint in hints),
    ]
    table = np.column_stack(columns)
    known = end_s < since_s
    if not known.any():
        return limits
    model = HistGradientBoostingRegressor(loss="absolute_error", max_iter=200, random_state=0)
    model.fit(table[known], np.log(np.maximum(ran_s[known], 1.0)))
    found: Floats = np.minimum(np.exp(model.predict(table)), limits)
    return found


def _numbered(words: list[str]) -> Floats:
    """Ranks by the first appearance: the trees split on ranges of them."""
    number: dict[str, int] = {}
    return np.array([float(number.setdefault(word, len(number))) for word in words])
