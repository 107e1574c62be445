"""Whether a trained policy may be put in force: sound everywhere, and better than the present one beyond noise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from slurm_evo.policy import Policy, problems
from slurm_evo_training.choose import paired

MOST_WORSE = 1.5
"""The longest weighted waits may not grow beyond this times the incumbent's, however good the average."""


def refusals(
    policy: Policy,
    values: NDArray[np.float64],
    incumbent: NDArray[np.float64],
    weights: Mapping[str, float],
) -> tuple[str, ...]:
    """Why not; empty if it may.

    Args:
        policy: the candidate.
        values: (scenes, 3) its shares of average, maximum and idle time on the choose windows.
        incumbent: (scenes, 3) those of the policy in force, on the same scenes.
        weights: of the objectives.
    """
    found = list(problems(policy))
    gain = paired(values, incumbent, weights)
    if gain.mean >= 0:
        found.append(
            "it is no better than the policy in force on the choose windows: its weighted waits and idle time are "
            f"{_percent(gain.mean)} more"
        )
    elif not gain.high < 0:
        found.append(
            f"it is better than the policy in force by {_percent(-gain.mean)} on the choose windows, "
            f"which is within noise (95 % interval {_percent(-gain.high)} to {_percent(-gain.low)})"
        )
    worst = float(values[:, 1].mean() / max(incumbent[:, 1].mean(), 1e-9))
    if worst > MOST_WORSE:
        found.append(f"the mean of its longest weighted waits is {worst:.2f} times that of the policy in force")
    return tuple(found)


def _percent(of: float) -> str:
    return "unknown" if np.isnan(of) else f"{100 * of:.1f} %"
