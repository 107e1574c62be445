"""How a schedule is judged: queuing times, weighted and raw, and GPU-time utilization. Pure functions.

All arrays have shape (n,), one entry a job that has started; times in seconds from any common origin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64] | npt.NDArray[np.int64]

SLOWDOWN_BOUND_S = 10.0
"""Jobs shorter than this count as this long (Feitelson's bounded slowdown)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The numbers of one schedule."""

    jobs: int
    average_wait_s: float
    """Σ weight × wait / Σ weight, seconds."""
    maximum_wait_s: float
    """max(weight × wait) / mean(weight), seconds."""
    mean_wait_s: float
    p95_wait_s: float
    p99_wait_s: float
    max_wait_s: float
    bounded_slowdown: float
    """Mean of max(1, (wait + running) / max(running, 10 s))."""
    utilization: float
    """GPU-seconds used inside the window over GPU-seconds there were, 0 to 1."""


def average_weighted_wait(wait_s: Array, weight: Array) -> float:
    """Σ weight × wait / Σ weight, seconds; 0 for no job."""
    return float(np.dot(wait_s, weight) / weight.sum()) if len(wait_s) else 0.0


def maximum_weighted_wait(wait_s: Array, weight: Array) -> float:
    """max(weight × wait) / mean(weight), seconds; 0 for no job."""
    return float((wait_s * weight).max() / weight.mean()) if len(wait_s) else 0.0


def bounded_slowdown(wait_s: Array, running_s: Array) -> float:
    """Mean of max(1, (wait + running) / max(running, 10 s)); 1 for no job."""
    if not len(wait_s):
        return 1.0
    return float(np.maximum(1.0, (wait_s + running_s) / np.maximum(running_s, SLOWDOWN_BOUND_S)).mean())


def utilization(
    start_s: Array, end_s: Array, gpus: Array, *, window_s: tuple[float, float], available_gpu_s: float
) -> float:
    """GPU-seconds used inside the window over GPU-seconds available there, 0 to 1.

    Args:
        start_s: when jobs started.
        end_s: when they ended.
        gpus: whole devices each.
        window_s: first and last second; the window in which jobs arrive judges best.
        available_gpu_s: what there was inside the window, drained and reserved time taken out.

    Raises:
        ValueError: nothing was available.
    """
    if available_gpu_s <= 0:
        raise ValueError(f"utilization needs GPU-seconds to be used, not {available_gpu_s}")
    first, last = window_s
    inside = np.clip(np.minimum(end_s, last) - np.maximum(start_s, first), 0, None)
    return float(np.dot(inside, gpus) / available_gpu_s)


def measure(
    *,
    submit_s: Array,
    start_s: Array,
    end_s: Array,
    gpus: Array,
    weight: Array,
    window_s: tuple[float, float],
    available_gpu_s: float,
) -> Metrics:
    """All numbers of one schedule.

    Args:
        submit_s: when jobs were submitted.
        start_s: when they started.
        end_s: when they ended.
        gpus: whole devices each.
        weight: positive; what a second of waiting costs.
        window_s: see ``utilization``.
        available_gpu_s: see ``utilization``.

    Raises:
        ValueError: arrays of different lengths, a job that starts before it is submitted, a weight
            that is not positive, or nothing available.
    """
    if len({len(each) for each in (submit_s, start_s, end_s, gpus, weight)}) != 1:
        raise ValueError("submit, start, end, gpus and weight need one entry a job each")
    wait_s = start_s - submit_s
    if len(wait_s) and (wait_s.min() < 0 or weight.min() <= 0):
        raise ValueError("a job starts before it is submitted, or its weight is not positive")
    quantiles = np.quantile(wait_s, (0.95, 0.99, 1.0)) if len(wait_s) else np.zeros(3)
    return Metrics(
        jobs=len(wait_s),
        average_wait_s=average_weighted_wait(wait_s, weight),
        maximum_wait_s=maximum_weighted_wait(wait_s, weight),
        mean_wait_s=float(wait_s.mean()) if len(wait_s) else 0.0,
        p95_wait_s=float(quantiles[0]),
        p99_wait_s=float(quantiles[1]),
        max_wait_s=float(quantiles[2]),
        bounded_slowdown=bounded_slowdown(wait_s, end_s - start_s),
        utilization=utilization(start_s, end_s, gpus, window_s=window_s, available_gpu_s=available_gpu_s),
    )
