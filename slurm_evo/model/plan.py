"""What the optimizer proposes: candidates with their scores, and the plan that was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_evo.model.job import ClusterName, JobKey

Changes = Mapping[JobKey, frozenset[ClusterName]]
"""What one candidate changes: the viable sets of some jobs."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The objectives of one candidate; less is better for waits and moves, more for utilization."""

    average_wait_s: float
    """Sum of weight × queuing time over sum of weights, seconds."""
    maximum_wait_s: float
    """Largest weight × queuing time over the mean weight, seconds."""
    utilization: float
    """GPU-seconds used over GPU-seconds available inside the horizon, 0 to 1."""
    moves: int = 0
    """Jobs whose viable set the candidate changes."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one job may run from now on."""

    job: JobKey
    clusters: frozenset[ClusterName]
    """Its viable set under the plan."""
    before: frozenset[ClusterName]
    """Its viable set when the plan was made."""
    expected_cluster: ClusterName | None = None
    """Where it is expected to start; None if nowhere inside the horizon."""
    expected_start_s: float | None = None
    """Seconds from the plan's instant."""
    expected_start_before_s: float | None = None
    """The same if nothing were changed."""
    reason: str = ""
    """One sentence for ``explain``."""

    @property
    def changed(self) -> bool:
        """The plan differs from what is."""
        return self.clusters != self.before


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen placements, and why."""

    placements: tuple[Placement, ...]
    """One for each movable job the optimizer considered, changed or not."""
    chosen: Scores
    nothing: Scores
    """The candidate «change nothing», judged like the others."""
    front: tuple[Scores, ...]
    """All non-dominated candidates that were found, the chosen one and nothing included."""
    why: str
    """One sentence."""
    found: tuple[Changes, ...] = ()
    """The best candidates of the front: the next search begins with them."""

    @property
    def changes(self) -> tuple[Placement, ...]:
        """The placements that differ from what is."""
        return tuple(placement for placement in self.placements if placement.changed)
