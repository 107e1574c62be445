"""What can go wrong between slurm-evo and a simulated cluster, switched on by a test or a demo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from slurm_evo.model import Action


@dataclass(slots=True)
class Faults:
    """Faults of the way in; the clusters themselves go on (``stop_controller`` takes one down)."""

    unreachable: set[str] = field(default_factory=set)
    """Clusters that do not answer."""
    half_answers: set[str] = field(default_factory=set)
    """Clusters that do what is asked, but whose answers cannot be read."""
    starting: set[str] = field(default_factory=set)
    """Origins whose jobs some cluster is just trying to start: «no longer pending», and they wait on."""
    slow_s: dict[str, int] = field(default_factory=dict)
    """Seconds that pass after a cluster has looked at itself and before its answer is there."""
    before_apply: Callable[[Action], None] | None = None
    """Called before an action reaches its cluster: the place for a job to start or be cancelled."""
