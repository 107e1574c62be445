"""The priorities to beat, from the literature and from Slurm. Larger runs first, so all scores are negated costs.

Sources: RLScheduler (Zhang et al., SC'20) and SchedInspector for the list, F1 to F4 from Carastan-Santos and
de Camargo (SC'17), WFP3 and UNICEF from Tang et al. (CLUSTER'09), QSSF from Hu et al. (Helios, SC'21).
``runtime`` is the prediction, never the true running time.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from slurm_evo.model import PolicyError
from slurm_evo.policy import DEFAULT_TEXT, Policy
from slurm_evo.sim.priorities import Priority, Scored
from slurm_evo.sim.workload import Workload

AS_TEXT: Mapping[str, str] = MappingProxyType(
    {
        "fifo": "wait",
        "sjf": "-runtime",
        "saf": "-(runtime * gpus)",
        "smallest": "-gpus",
        "wfp3": "(wait / runtime) * (wait / runtime) * (wait / runtime) * gpus",
        # Of one GPU the published form divides by log2(1) = 0: hence gpus + 1.
        "unicef": "wait / (log(gpus + 1) * runtime)",
        "expansion": "(wait + runtime) / runtime",
        "qssf": "-(runtime * gpus)",
        # Slurm's PriorityWeightAge and PriorityWeightJobSize, equal; PriorityMaxAge 7 days.
        "multifactor": "min(wait / 604800, 1) + gpus / {fleet_gpus}",
        "default": DEFAULT_TEXT,
        "by-hand-area": "weight * (wait + 60) / (runtime * max(gpus, 1))",
        "by-hand-fair": "weight * wait / sqrt(runtime)",
    }
)
"""Baselines that are expressions."""

BY_SUBMIT_TIME = ("f1", "f2", "f3", "f4")
"""Baselines that speak of the submit time, which no terminal does."""

NAMES = (*AS_TEXT, *BY_SUBMIT_TIME)


def baseline(name: str, jobs: Workload, fleet_gpus: int) -> Priority:
    """One of ``NAMES``.

    F1 to F4 take the submit time in seconds since the first submission, plus one: on an epoch clock its
    logarithm hardly changes, and they would order by area alone.

    Raises:
        PolicyError: no such name; the message lists them.
    """
    if name in AS_TEXT:
        return Policy.parse(AS_TEXT[name].format(fleet_gpus=max(fleet_gpus, 1)))
    if name not in BY_SUBMIT_TIME:
        raise PolicyError(f"no baseline {name!r}; there are {', '.join(NAMES)}")
    runtime = np.maximum(jobs.estimate, 1).astype(np.float64)
    gpus = jobs.gpus.astype(np.float64)
    since = np.log10(jobs.submit - (jobs.submit[0] if len(jobs) else 0) + 1.0)
    if name == "f1":
        cost = np.log10(runtime) * gpus + 870 * since
    elif name == "f2":
        cost = np.sqrt(runtime) * gpus + 25_600 * since
    elif name == "f3":
        cost = runtime * gpus + 6_860_000 * since
    else:
        cost = runtime * np.sqrt(gpus) + 530_000 * since
    return Scored(-cost)
