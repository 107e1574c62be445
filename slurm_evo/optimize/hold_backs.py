"""Hold-backs: clusters where long jobs do not wait at first, though they might run there.

What starts at once starts before any cycle looks at it, so this is for the moment of submission; later a job that
waits too long is let in everywhere. Nothing like it is in Slurm (cf. slurm.conf(5), partition MaxTime, which knows
no way back).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_evo.model import ConfigError
from slurm_evo.sim.fleet import FleetShape
from slurm_evo.sim.forecast import FloatArray, MaskArray
from slurm_evo.sim.rules import LayerOne, Waiting
from slurm_evo.sim.tables import feasible
from slurm_evo.sim.workload import Ints, Workload

UNTIL_S = 14_400.0
CYCLE_S = 60
"""In a replay jobs that have waited long enough are looked for so often."""


@dataclass(frozen=True, slots=True)
class HoldBack:
    """One cluster, and which jobs do not wait there."""

    cluster: int
    """Its bit."""
    over_s: float
    """Expected running times above this, seconds on GPUs of speed 1."""
    until_s: float = UNTIL_S
    """Jobs that have waited so long are let in, seconds."""


def masks_without(
    may: MaskArray, runtime_s: FloatArray, held: Sequence[HoldBack], waited_s: FloatArray | float = 0.0
) -> MaskArray:
    """Take clusters away from jobs, one hold-back after the other, and never the last one.

    Args:
        may: (n,) uint64, clusters as bits.
        runtime_s: (n,) expected.
        held: the hold-backs; earlier ones count first.
        waited_s: (n,) so far, or the same for all.

    Returns:
        (n,) uint64, a part of ``may``; empty only where that is.
    """
    left = may
    for one in held:
        less = left & ~np.uint64(1 << one.cluster)
        long = (runtime_s > one.over_s) & (np.asarray(waited_s) < one.until_s)
        left = np.where((less != 0) & long, less, left)
    return left


def held_race(jobs: Workload, shape: FleetShape, held: Sequence[HoldBack]) -> LayerOne:
    """Slurm's federation race with hold-backs, for replays; without any it is the race."""
    runtime_s = jobs.estimate.astype(np.float64)
    entry = masks_without(feasible(jobs, shape).astype(np.uint64), runtime_s, held)

    def decide(seen: Waiting) -> Ints:
        waited = (seen.now - jobs.submit[seen.jobs]).astype(np.float64)
        left = masks_without(seen.feasible.astype(np.uint64), runtime_s[seen.jobs], held, waited)
        return left.astype(np.int64) | seen.clusters

    return LayerOne(decide=decide, cycle=CYCLE_S, entry=entry.astype(np.int64))


def hold_back_of(text: str, clusters: Sequence[str]) -> HoldBack:
    """Read ``CLUSTER=SECONDS`` or ``CLUSTER=SECONDS:SECONDS``, the second one being how long.

    Raises:
        ConfigError: it is neither, or there is no such cluster.
    """
    name, _, numbers = text.partition("=")
    over, colon, until = numbers.partition(":")
    if name not in clusters:
        raise ConfigError(f"hold-back {text!r}: no cluster {name!r}; there are {', '.join(clusters)}")
    try:
        found = HoldBack(clusters.index(name), float(over), float(until) if colon else UNTIL_S)
    except ValueError:
        raise ConfigError(f"hold-back {text!r}: write CLUSTER=SECONDS, such as {name}=3600") from None
    if not (found.over_s > 0 and found.until_s > 0):
        raise ConfigError(f"hold-back {text!r}: seconds must be above 0")
    return found
