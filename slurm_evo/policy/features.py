"""From jobs to the feature table: one piece of array code for training and for the daemon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slurm_evo.policy.terminals import HALF_LIFE_S, ROW, TERMINALS

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobColumns:
    """n pending jobs; every array is (n,)."""

    since_s: FloatArray
    """When each could first have started, seconds on any clock."""
    limit_s: FloatArray
    runtime_s: FloatArray
    gpus: FloatArray
    nodes: FloatArray
    cpus: FloatArray
    weight: FloatArray
    user: NDArray[np.int64]
    """Index into ``usage_gpu_s``."""


def feature_table(
    jobs: JobColumns, *, now_s: float, usage_gpu_s: FloatArray, busy_gpus: float, fleet_gpus: float
) -> FloatArray:
    """The rows of `TERMINALS` for these jobs at one instant.

    Args:
        jobs: the pending jobs.
        now_s: on the clock of ``since_s``.
        usage_gpu_s: (users,) decayed GPU-seconds of each user.
        busy_gpus: devices in use in the fleet.
        fleet_gpus: all devices of nodes that are up.

    Returns:
        (11, n) float64.
    """
    table = np.empty((len(TERMINALS), jobs.gpus.size), np.float64)
    asked = np.bincount(jobs.user, weights=jobs.gpus, minlength=usage_gpu_s.size)
    everything = max(fleet_gpus, 1.0)
    table[ROW["wait"]] = np.maximum(now_s - jobs.since_s, 0.0)
    table[ROW["limit"]] = jobs.limit_s
    table[ROW["runtime"]] = jobs.runtime_s
    table[ROW["gpus"]] = jobs.gpus
    table[ROW["nodes"]] = jobs.nodes
    table[ROW["cpus"]] = jobs.cpus
    table[ROW["weight"]] = jobs.weight
    table[ROW["user_usage"]] = usage_gpu_s[jobs.user]
    table[ROW["user_pending"]] = asked[jobs.user]
    table[ROW["load"]] = min(busy_gpus / everything, 1.0)
    table[ROW["pressure"]] = jobs.gpus.sum() / everything
    return table


def decayed(usage_gpu_s: FloatArray, elapsed_s: float) -> FloatArray:
    """Usage after some time without any: it halves every 7 days."""
    factor: float = 0.5 ** (elapsed_s / HALF_LIFE_S)
    return usage_gpu_s * factor
