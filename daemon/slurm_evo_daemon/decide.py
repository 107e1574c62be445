"""What to do, from what was seen: a pure function of the view, the memory, the settings and the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from slurm_evo.config import Settings
from slurm_evo.model import (
    Changes,
    ClusterName,
    FleetJob,
    FleetView,
    Hold,
    Job,
    JobKey,
    Plan,
    SetSiteFactor,
    Unpin,
)
from slurm_evo.optimize import Care, Expected, Words, propose, queue_from
from slurm_evo.policy import Policy
from slurm_evo.store import Intent, JobMemory
from slurm_evo_daemon import moves, priorities
from slurm_evo_daemon.features import Standing, standing
from slurm_evo_daemon.hold_backs import kept_off
from slurm_evo_daemon.learning import RunningTimes
from slurm_evo_daemon.rules import Verdict, in_words_of, judge
from slurm_evo_daemon.transfers import WantedTransfer, chosen_transfers, tables_of
from slurm_evo_daemon.words import held_back

if TYPE_CHECKING:
    import numpy as np

Limited = Mapping[JobKey, Mapping[ClusterName, str]]
NONE_MOVING: Mapping[JobKey, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Rank:
    """Where a job stands among those it competes with."""

    place: int
    """1 runs first."""
    of: int
    score: float
    site_factor: int
    """The value that puts it there."""
    before: int | None
    """The value seen."""
    age_points: int = 0
    """Points in it that make up for age lost by a move."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Everything a cycle wants done, and everything needed to explain it."""

    verdicts: Mapping[JobKey, Verdict]
    standing: Standing | None
    """Features and scores of the pending jobs; None if there are none."""
    plan: Plan | None
    """None where moving is switched off or nothing may be moved."""
    ranks: Mapping[JobKey, Rank]
    memories: Mapping[JobKey, JobMemory]
    """What to remember of every pending job from now on."""
    intents: tuple[Intent, ...]
    """Actions in the order in which each cluster is to be asked."""
    notes: Mapping[JobKey, str] = field(default_factory=dict)
    """One sentence a job, where there is something to say."""
    transfers: tuple[WantedTransfer, ...] = ()
    """Plain jobs to be moved to another cluster."""
    limited: Limited = field(default_factory=dict)
    """Jobs that a limit holds back where they wait, with the limits in words."""


def decide(
    view: FleetView,
    known: Mapping[JobKey, JobMemory],
    settings: Settings,
    policy: Policy,
    times: RunningTimes,
    *,
    rng: np.random.Generator,
    stopwatch: Callable[[], float],
    moving: Mapping[JobKey, str] = NONE_MOVING,
    inside: frozenset[ClusterName] = frozenset(),
    last: Sequence[Changes] = (),
) -> Decision:
    """Judge, rank and place every pending job; propose the next safe step for each.

    Args:
        view: what was seen.
        known: the memory of jobs seen before; others are new.
        settings: the configuration in force.
        policy: the expression in force.
        times: what is known of running times; only asked.
        rng: drives the search; the same generator state gives the same plan for the same budget.
        stopwatch: seconds, monotonic; bounds the search.
        moving: plain jobs whose move to another cluster is under way, with a word on it.
        inside: clusters whose own plugin ranks: no SiteFactor is sent for what waits only there.
        last: `Plan.found` of the cycle before; the search begins with it.
    """
    pending = {key: job for key, job in view.jobs.items() if job.pending}
    memories = {key: recall(job, known.get(key), view) for key, job in pending.items()}
    verdicts = {key: _judge(job, memories[key], view, settings) for key, job in pending.items()}
    if not pending:
        return Decision({}, None, None, {}, {}, ())
    now = standing(view, pending.values(), memories, settings, policy, times)
    verdicts = kept_off(verdicts, memories, view, now, settings)
    foreseen = _foreseen(view, pending, memories, settings, policy, times, rng)
    plan, notes, limited = _place(view, now, foreseen, verdicts, memories, settings, rng, stopwatch, moving, last)
    transfers, more = chosen_transfers(plan, view, settings)
    notes |= more
    ranks = _rank(pending, now, verdicts, memories, view, settings, inside)
    intents: list[Intent] = []
    for key, job in pending.items():
        memories[key] = _settle_memory(job, memories[key], verdicts[key], view.now)
        if not verdicts[key].rankable or not job.job.federated:
            continue
        rank = ranks.get(key)
        value = rank.site_factor if rank else _seen_site_factor(job, memories[key], inside) or 0
        step = moves.step(job, memories[key], view, settings.moves, value)
        memories[key] = step.memory
        if step.note:
            notes[key] = step.note
        if step.action is not None:
            before = {"clusters": sorted(job.viable), "nice": job.job.nice, "site_factor": value}
            intents.append(Intent(action=step.action, before=before, reason=step.note))
    unpinned = {intent.action.job for intent in intents if isinstance(intent.action, Unpin)}
    pushed = {key: rank for key, rank in ranks.items() if not pending[key].waiting_on <= inside}
    intents += _pushes(pushed, unpinned, settings)
    for intent in intents:
        key = intent.action.job
        if isinstance(intent.action, SetSiteFactor | Unpin) and key in ranks:
            memories[key] = memories[key].but(age_points=ranks[key].age_points)
    return Decision(verdicts, now, plan, ranks, memories, tuple(intents), notes, transfers, limited)


def recall(job: FleetJob, known: JobMemory | None, view: FleetView) -> JobMemory:
    """The memory of a job, begun at first sight; one that was held back had asked for its whole federation."""
    if known is not None:
        return known
    first = min(record.submitted for record in job.records)
    asked, origin = job.viable, view.cluster(job.key.cluster)
    if origin is not None and held_back(job):
        asked |= frozenset(origin.facts.federation_clusters)
    return JobMemory(key=job.key, submitted=first, asked=asked, seen_at=view.now)


def _judge(job: FleetJob, memory: JobMemory, view: FleetView, settings: Settings) -> Verdict:
    refused = {
        name: f"asked again after {until:%H:%M} UTC" for name, until in memory.refusing.items() if until > view.now
    }
    return judge(
        job,
        view,
        settings.rules,
        asked=memory.asked,
        respect_user_clusters=settings.moves.respect_user_clusters,
        refused=refused,
        plain=tables_of(settings),
    )


def _place(
    view: FleetView,
    now: Standing,
    foreseen: Sequence[Sequence[Expected]],
    verdicts: Mapping[JobKey, Verdict],
    memories: dict[JobKey, JobMemory],
    settings: Settings,
    rng: np.random.Generator,
    stopwatch: Callable[[], float],
    moving: Mapping[JobKey, str],
    last: Sequence[Changes],
) -> tuple[Plan | None, dict[JobKey, str], Limited]:
    """Ask layer 1, and write what it wants into the memories."""
    notes: dict[JobKey, str] = {}
    if not settings.moves.enabled:
        return None, notes, {}
    movable: dict[JobKey, frozenset[ClusterName]] = {}
    for key, verdict in verdicts.items():
        memory = memories[key]
        if key in moving:
            notes[key] = moving[key]
            continue
        if not verdict.movable:
            continue
        if memory.wanted is not None:
            notes[key] = "a move is under way"
        elif memory.moved_at and view.now - memory.moved_at < timedelta(seconds=settings.moves.cooldown_s):
            notes[key] = f"moved less than {settings.moves.cooldown_s:g} s ago: it stays for now"
        else:
            movable[key] = verdict.allowed
    queue = queue_from(
        view,
        scores=now.score_of,
        runtimes=now.runtime_of,
        weights=now.weight_of,
        movable=movable,
        asked={key: memories[key].asked for key in movable},
        assumed={key: memory.wanted for key, memory in memories.items() if memory.wanted is not None},
        expected=foreseen,
        speeds=settings.gpu_speed,
        words=_words_of(settings),
        now=view.now,
    )
    under_way = sum(memory.wanted is not None for memory in memories.values()) + len(moving)
    plan = propose(
        queue,
        objectives=settings.objectives.as_mapping(),
        margin=settings.optimizer.margin,
        max_moves=max(0, settings.moves.max_per_cycle - under_way),
        rng=rng,
        budget_s=settings.optimizer.budget_s,
        clock=stopwatch,
        care=_care(settings),
        last=last,
    )
    for placement in plan.changes:
        job = view.jobs[placement.job]
        if not job.job.federated:
            continue
        # A cluster that was not seen may still start the job: it is never taken away unseen.
        unseen = {name for name in job.viable if view.cluster(name) is None}
        wanted = placement.clusters | unseen
        if wanted != job.viable:
            memories[placement.job] = memories[placement.job].but(wanted=wanted, widening_since=None)
            notes[placement.job] = placement.reason
    return plan, notes, queue.limited


def _words_of(settings: Settings) -> Words:
    """Plain jobs as the tables of other clusters call them; federated ones are called the same everywhere."""
    plain = tables_of(settings)

    def words(job: Job, name: ClusterName) -> Job:
        return (
            in_words_of(job, plain[name]) if name in plain and name != job.cluster and not job.federated else job
        )

    return words


def _foreseen(
    view: FleetView,
    pending: Mapping[JobKey, FleetJob],
    memories: Mapping[JobKey, JobMemory],
    settings: Settings,
    policy: Policy,
    times: RunningTimes,
    rng: np.random.Generator,
) -> list[list[Expected]]:
    """Two draws of the jobs that may come, scored as if they had just been submitted."""
    if not settings.moves.enabled:
        return []
    first = times.arrivals.drawn(view.now, rng)
    draws = (first, times.arrivals.drawn(view.now, rng, after=len(first)))
    found = [one for draw in draws for one in draw]
    if not found:
        return []
    new = {
        one.job.key: JobMemory(key=one.job.key, submitted=view.now, asked=one.clusters, seen_at=view.now)
        for one in found
    }
    jobs = [*pending.values(), *(one.job for one in found)]
    told = standing(view, jobs, {**memories, **new}, settings, policy, times)
    return [
        [
            Expected(
                job=one.job.job,
                clusters=one.clusters,
                at_s=one.at_s,
                score=told.score_of[one.job.key],
                runtime_s=told.runtime_of[one.job.key],
                weight=told.weight_of[one.job.key],
            )
            for one in draw
        ]
        for draw in draws
    ]


def _care(settings: Settings) -> Care:
    """What a plan may not do, as configured."""
    bounds, moving = settings.optimizer, settings.moves
    return Care(
        harm_s=bounds.harm_s,
        harm_share=bounds.harm_share,
        others_s=bounds.others_s,
        others_share=bounds.others_share,
        mean_s=bounds.mean_s,
        mean_share=bounds.mean_share,
        max_user=moving.max_per_user,
        max_account=moving.max_per_account,
    )


def _settle_memory(job: FleetJob, memory: JobMemory, verdict: Verdict, now: datetime) -> JobMemory:
    """Drop what no longer holds; a held job's move waits, any other untouchable one's ends here."""
    held = any(record.hold is not Hold.NONE for record in job.records)
    if held:
        memory = moves.paused(memory, now)
    elif verdict.untouchable and memory.wanted is not None:
        memory = memory.but(wanted=None, widening_since=None)
    if memory.refusing and min(memory.refusing.values()) <= now:
        memory = memory.but(refusing={name: at for name, at in memory.refusing.items() if at > now})
    return memory if now - memory.seen_at < timedelta(hours=1) else memory.but(seen_at=now)


def _rank(
    pending: Mapping[JobKey, FleetJob],
    now: Standing,
    verdicts: Mapping[JobKey, Verdict],
    memories: Mapping[JobKey, JobMemory],
    view: FleetView,
    settings: Settings,
    inside: frozenset[ClusterName],
) -> dict[JobKey, Rank]:
    """SiteFactors for the jobs of each federation (siblings share one value) and of each plain cluster."""
    if not settings.priority.push:
        return {}
    groups: dict[str, list[JobKey]] = {}
    for key, job in pending.items():
        origin = view.cluster(key.cluster)
        if verdicts[key].rankable and origin is not None and origin.facts.multifactor and job.waiting_on:
            groups.setdefault(origin.facts.federation or f"cluster {key.cluster}", []).append(key)
    ranks: dict[JobKey, Rank] = {}
    for keys in groups.values():
        keys.sort(key=lambda key: (now.score_of[key], -memories[key].submitted.timestamp(), -key.id))
        keys = keys[-settings.priority.band :]  # noqa: PLW2901 - the lowest stay unranked where the band is full
        seen = [_seen_site_factor(pending[key], memories[key], inside) for key in keys]
        restored = [_restored_age(memories[key], view, settings) for key in keys]
        # What was sent for lost age is taken off to see the place, and what is due now is put on.
        plain = [
            None if value is None else value - memories[key].age_points
            for key, value in zip(keys, seen, strict=True)
        ]
        values = priorities.assign(plain, settings.priority.band)
        for place, (key, value, extra, before) in enumerate(zip(keys, values, restored, seen, strict=True)):
            ranks[key] = Rank(len(keys) - place, len(keys), now.score_of[key], value + extra, before, extra)
    return ranks


def _seen_site_factor(job: FleetJob, memory: JobMemory, inside: frozenset[ClusterName]) -> int | None:
    """The value its waiting siblings agree on; what was last sent where no way in can read it back.

    Clusters that rank by themselves (``inside``) have their own values, which say nothing of what was sent.
    """
    waiting = [
        record
        for record in job.records
        if record.waiting_here and not record.direct_priority and record.cluster not in inside
    ]
    values = {record.site_factor for record in waiting if record.site_factor is not None}
    if not values:
        return memory.site_factor
    return values.pop() if len(values) == 1 else None


def _restored_age(memory: JobMemory, view: FleetView, settings: Settings) -> int:
    """What Slurm's age factor lost by a move, in points of priority (slurm.conf(5), PriorityWeightAge)."""
    origin = view.cluster(memory.key.cluster)
    if origin is None or not settings.priority.restore_age:
        return 0
    facts = origin.facts
    lost = min(memory.age_lost_s / max(facts.priority_max_age_s, 1), 1.0)
    return round(facts.priority_weights.get("age", 0) * lost)


def _pushes(ranks: Mapping[JobKey, Rank], unpinned: Iterable[JobKey], settings: Settings) -> list[Intent]:
    """The updates that differ from what Slurm has, those that run first leading; a limit cuts the tail."""
    already = set(unpinned)
    wanted = [
        (rank.place, key) for key, rank in ranks.items() if rank.site_factor != rank.before and key not in already
    ]
    wanted.sort()
    if settings.priority.max_updates_per_cycle:
        wanted = wanted[: settings.priority.max_updates_per_cycle]
    return [
        Intent(
            action=SetSiteFactor(key, ranks[key].site_factor),
            before={"site_factor": ranks[key].before},
            reason=f"rank {ranks[key].place} of {ranks[key].of}",
        )
        for _, key in wanted
    ]
