"""What goes into the journal and comes out of it: frozen values, no database objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from slurm_evo.model import Action, ClusterName, JobKey, Placement, Plan

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Mode(StrEnum):
    """Whether a cycle may act."""

    LIVE = "live"
    DRY = "dry"
    """Decides and explains, changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRecord:
    """One pass of the loop, as the journal keeps it."""

    number: int
    """Rises, never used twice."""
    mode: Mode
    started: datetime
    ended: datetime | None = None
    """None while it runs, and for ever if the daemon died in it."""
    epoch: int | None = None
    """Of the lease it ran under; None for a dry cycle."""
    seconds: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    """By phase: observe, decide, act, report."""
    counts: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    sentence: str = ""
    """Why the cycle did what it did."""


class ActionState(StrEnum):
    """How far an action got."""

    INTENDED = "intended"
    """Written down before it was asked; no answer is known yet."""
    DONE = "done"
    GONE = "gone"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An action about to be asked of Slurm, with what it would change."""

    action: Action
    before: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """What was seen before, enough to put it back; JSON values."""
    reason: str = ""
    """One sentence for ``explain``."""
    cluster: ClusterName | None = None
    """Who is asked; None for the job's own (origin) cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournaledAction:
    """An action with what is known of it."""

    id: int
    cycle: int
    cluster: ClusterName
    """Who was asked."""
    action: Action
    before: Mapping[str, Any]
    reason: str
    state: ActionState
    message: str
    """Slurm's own words."""
    intended_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMemory:
    """What slurm-evo must not forget about one job that waits."""

    key: JobKey
    submitted: datetime
    """The first submit time seen: a sibling made by a move reports a later one."""
    asked: frozenset[ClusterName]
    """The viable set when the job was first seen: what its user asked for."""
    seen_at: datetime
    """When it was last seen."""
    site_factor: int | None = None
    """The last value Slurm accepted from us; None if never sent."""
    age_lost_s: float = 0.0
    """Seconds of waiting that a move took out of Slurm's age factor."""
    age_points: int = 0
    """Points of priority in ``site_factor`` that make up for the lost age."""
    moved_at: datetime | None = None
    """When its viable set was last changed."""
    moves: int = 0
    wanted: frozenset[ClusterName] | None = None
    """The viable set being worked towards; None if none is under way."""
    widening_since: datetime | None = None
    """Since when its viable set is wider than wanted, to be narrowed after confirmation."""
    stranded_since: datetime | None = None
    """Since when no cluster lists it; None while one does."""
    healed_at: datetime | None = None
    """When its pinned priority was last freed."""
    nice_owed: int | None = None
    """The Nice to be given back where it is not known that an `Unpin`, which resets it, came to its end."""
    refusing: Mapping[ClusterName, datetime] = field(default_factory=dict)
    """Clusters that did not take it, and until when they are not asked again."""

    def but(self, **changes: Any) -> JobMemory:
        """The same memory with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRecord:
    """One move of a job between clusters that share no federation."""

    id: int = 0
    """0 before it was first written."""
    job: JobKey
    to: ClusterName
    copy: int | None
    """The job's number at the destination, once it is known."""
    phase: str
    closed: bool
    """Nothing is left to do."""
    began: datetime
    phase_since: datetime
    fields: str
    """Fingerprint of what was submitted."""
    image: Mapping[str, Any] | None
    """What is submitted, script and environment and all; dropped when the move is over. JSON values."""
    site_factor: int
    why: str
    owner: str = ""
    """Login name; empty in moves of versions that did not keep it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A plan with the cycle that made it."""

    cycle: int
    plan: Plan
    weights: Mapping[str, float]
    """By objective: what chose on the front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRecord:
    """One job's placement with the cycle that made it."""

    cycle: int
    at: datetime
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a job was left alone; the journal keeps the latest of each job."""

    job: JobKey
    reasons: tuple[str, ...]
    cycle: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """An expression that scores jobs, with where it comes from."""

    id: str
    text: str
    source: str
    """Where it comes from: ``shipped``, a file, a training run."""
    created: datetime
    promoted_at: datetime | None = None
    """When it was put in force; None if it is not on the stack of promoted ones."""
    provenance: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """Data, windows, seeds, versions, measured values; JSON values, empty where only the source is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to act, until an instant."""

    holder: str
    epoch: int
    """Rises with every acquisition: it fences off whoever held the lease before."""
    until: datetime

    def valid(self, now: datetime) -> bool:
        """It has not run out."""
        return now < self.until
