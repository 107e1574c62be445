"""Brings a federated job's viable set from what it is to what is wanted, one safe step a cycle.

Slurm has five sharp edges here; each is answered by looking again, never by remembering what was sent:

1. A destination may turn a job away after the origin was told it is there, and a job whose only viable
   cluster did so waits nowhere. So: *add before remove*. The set is first widened; it is narrowed only when
   the wanted clusters list the job in their own queues. A job we changed that no cluster lists any more
   goes back to its origin.
2. A sibling made later has its priority pinned (direct-priority mode): it is brought back by one update
   that also restores Nice, since that update resets it. The command line needs two commands for it: while it is
   not known that both came through, the memory owes the job its Nice.
3. A sibling made later has lost its age: the memory keeps the first submit time, and SiteFactor makes up
   for what the age factor lost.
4. All siblings share one priority value: see ``decide``.
5. Only the origin can change a job: while it is not seen, nothing is sent.

All functions are pure. Because every step starts from what was seen, a daemon that dies between any two
steps leaves a state from which the next cycle goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from slurm_evo.config import MoveSettings
from slurm_evo.model import (
    Action,
    Answer,
    ClusterName,
    FleetJob,
    FleetView,
    Hold,
    Job,
    Outcome,
    SetClusters,
    SetSiteFactor,
    Unpin,
)
from slurm_evo.store import JobMemory
from slurm_evo_daemon.words import held_back


@dataclass(frozen=True, slots=True)
class Step:
    """What is done for one job in this cycle."""

    memory: JobMemory
    """What to remember, to be journaled before the action is sent."""
    action: Action | None = None
    note: str = ""
    """One sentence for ``explain``; empty if there is nothing to say."""


def step(job: FleetJob, memory: JobMemory, view: FleetView, moves: MoveSettings, site_factor: int) -> Step:
    """The next step for one pending federated job that the rules let us touch.

    Args:
        job: the job with every record that was seen.
        memory: what is known of it from before; ``wanted`` is where it is being brought.
        view: the fleet, for who was seen at all.
        moves: the configured times.
        site_factor: the value the job is to have, sent along when its priority must be unpinned.
    """
    origin = job.on(job.key.cluster)
    if origin is None:
        note = f"its origin {job.key.cluster} was not seen with it: nothing is changed"
        return Step(paused(memory, view.now), note=note)
    if origin.hold is not Hold.NONE:
        note = f"held by its {origin.hold}: nothing is changed until it is released"
        return Step(paused(memory, view.now), note=note)
    if not job.waiting_on:
        return _rescue(job, memory, view, moves)
    memory = memory.but(stranded_since=None, age_lost_s=_age_lost_s(job, memory))
    if memory.wanted is not None:
        moved = _towards(job, memory, memory.wanted, view, moves)
        if moved.action is not None or moved.memory.wanted is not None:
            return moved
        memory = moved.memory
    return _heal(job, origin, memory, view, moves, site_factor)


def paused(memory: JobMemory, now: datetime) -> JobMemory:
    """Patience begins anew: what could not be looked at, or was held, shows nothing of who would take the job.

    While a job is held no other cluster lists it; Slurm sends it to them again a moment after its release.
    """
    return memory.but(widening_since=memory.widening_since and now, stranded_since=None)


def _towards(
    job: FleetJob, memory: JobMemory, wanted: frozenset[ClusterName], view: FleetView, moves: MoveSettings
) -> Step:
    """Widen, wait for the wanted clusters' own word, narrow."""
    now, viable = view.now, job.viable
    if memory.widening_since is None:
        if viable == wanted:
            return Step(memory.but(wanted=None))
        if viable > wanted and wanted <= job.waiting_on:
            return _send(job, memory, wanted, view, f"narrowed to {_names(wanted)}: confirmed there")
        return _send(
            job,
            memory.but(widening_since=now),
            viable | wanted,
            view,
            f"widened by {_names(wanted - viable)}",
        )
    missing = wanted - job.waiting_on
    if not missing:
        if viable == wanted:
            return Step(memory.but(wanted=None, widening_since=None), note=f"waits at {_names(wanted)}")
        return _send(job, memory, wanted, view, f"narrowed to {_names(wanted)}: confirmed there")
    if not wanted <= viable and now - memory.widening_since < timedelta(seconds=moves.confirm_s):
        # Slurm's answer was not unwilling, and yet the origin does not show it, or not yet: idempotent.
        return _send(job, memory, viable | wanted, view, f"widened by {_names(wanted - viable)}")
    waiting = f"waiting for {_names(missing)} to list it"
    if any(view.cluster(name) is None for name in missing):
        return Step(paused(memory, now), note=waiting)
    if now - memory.widening_since < timedelta(seconds=moves.confirm_s):
        return Step(memory, note=waiting)
    return _turned_away(job, memory, wanted, missing, view, moves)


def _turned_away(
    job: FleetJob,
    memory: JobMemory,
    wanted: frozenset[ClusterName],
    missing: frozenset[ClusterName],
    view: FleetView,
    moves: MoveSettings,
) -> Step:
    """Some wanted clusters never listed it: do without them, and do not ask them again for a while."""
    until = view.now + timedelta(seconds=moves.refusal_s)
    memory = memory.but(refusing={**memory.refusing, **dict.fromkeys(missing, until)})
    # Never narrower than the clusters that list it: those are the only ones known to take it.
    left = (wanted - missing) or job.waiting_on
    note = f"{_names(missing)} did not take it within {moves.confirm_s:g} s"
    if left == job.viable:
        return Step(memory.but(wanted=None, widening_since=None), note=note)
    # Wanted until it is seen: Slurm answers «no longer pending» while some cluster tries to start the job.
    memory = memory.but(wanted=left, widening_since=None)
    return _send(job, memory, left, view, f"{note}; it stays at {_names(left)}")


def _rescue(job: FleetJob, memory: JobMemory, view: FleetView, moves: MoveSettings) -> Step:
    """No cluster lists it: wait a little (updates travel), then bring it back to its origin."""
    unseen = {name for name in job.viable if view.cluster(name) is None}
    if unseen:
        note = f"{_names(unseen)} was not seen and may have it: nothing is changed"
        return Step(paused(memory, view.now), note=note)
    since = memory.stranded_since or view.now
    memory = memory.but(stranded_since=since)
    if not memory.moves and not held_back(job):
        return Step(memory, note="no cluster lists it, and slurm-evo did not move it: look at it by hand")
    if view.now - since < timedelta(seconds=moves.stranded_s):
        return Step(memory, note="no cluster lists it yet")
    until = view.now + timedelta(seconds=moves.refusal_s)
    lost = job.viable - {job.key.cluster}
    memory = memory.but(
        wanted=None,
        widening_since=None,
        stranded_since=None,
        refusing={**memory.refusing, **dict.fromkeys(lost, until)},
    )
    home = frozenset((job.key.cluster,))
    return _send(job, memory, home, view, "stranded: no cluster listed it; brought back to its origin")


def _heal(
    job: FleetJob,
    origin: Job,
    memory: JobMemory,
    view: FleetView,
    moves: MoveSettings,
    site_factor: int,
) -> Step:
    """Unpin a sibling that Slurm made with a fixed priority; leave one that an administrator fixed."""
    waiting = [record for record in job.records if record.waiting_here]
    # Slurm re-sends siblings after a hold and release with their Nice lost, though not pinned (seen on 26.05).
    pinned = [record for record in waiting if record.direct_priority or record.nice != origin.nice]
    if memory.nice_owed is not None and origin.nice:
        memory = memory.but(nice_owed=None)
    if memory.nice_owed is not None:
        action = Unpin(job.key, memory.nice_owed, site_factor)
        return Step(memory.but(healed_at=view.now), action, f"its Nice {memory.nice_owed} is given back")
    if not pinned:
        return Step(memory)
    if not memory.moves:
        return Step(memory, note="its priority is fixed, and slurm-evo did not move it: left as it is")
    healed_at = memory.healed_at
    if healed_at is not None and all(record.submitted <= healed_at for record in pinned):
        # A sibling that Slurm made anew has a later submit time; this one was fixed by somebody, or it was so new
        # that it came into being with a fixed priority just after the others were freed: that one is tried again.
        confirm = timedelta(seconds=moves.confirm_s)
        if view.now - healed_at < confirm:
            return Step(memory, note="waiting for its priority to be computed again")
        if all(record.submitted <= healed_at - confirm for record in pinned):
            return Step(memory, note="its priority was fixed after we freed it: left as somebody wanted it")
    where = _names(record.cluster for record in pinned)
    action = Unpin(job.key, origin.nice, site_factor)
    return Step(memory.but(healed_at=view.now), action, f"priority was fixed at {where}: freed again")


def after(outcome: Outcome, memory: JobMemory, now: datetime, refusal_s: float) -> JobMemory:
    """What Slurm's answer changes in the memory; of most things the next look tells."""
    action = outcome.action
    unchanged = outcome.answer in (Answer.UNKNOWN, Answer.GONE)  # or not known to be changed
    if isinstance(action, Unpin) and unchanged:
        return memory.but(healed_at=None, nice_owed=action.nice or None)
    if isinstance(action, Unpin) and outcome.answer is Answer.REFUSED:
        return memory.but(nice_owed=None)  # asked again every cycle, it would be refused every cycle
    if isinstance(action, SetClusters) and unchanged:
        return memory.but(widening_since=None)  # begun again, from what is seen then
    if isinstance(action, SetSiteFactor | Unpin) and outcome.answer is Answer.DONE:
        value = action.value if isinstance(action, SetSiteFactor) else action.site_factor
        owed = None if isinstance(action, Unpin) else memory.nice_owed
        return memory.but(site_factor=value, nice_owed=owed)
    if isinstance(action, SetClusters) and outcome.answer is Answer.REFUSED:
        until = now + timedelta(seconds=refusal_s)
        refusing = {name: until for name in action.clusters if name != action.job.cluster}
        return memory.but(wanted=None, widening_since=None, refusing={**memory.refusing, **refusing})
    return memory


def _send(job: FleetJob, memory: JobMemory, clusters: frozenset[ClusterName], view: FleetView, note: str) -> Step:
    action = SetClusters(job.key, tuple(sorted(clusters)))
    return Step(memory.but(moved_at=view.now, moves=memory.moves + 1), action, note)


def _age_lost_s(job: FleetJob, memory: JobMemory) -> float:
    """Seconds of waiting that the youngest waiting sibling does not know of."""
    return max(
        0.0,
        *((record.submitted - memory.submitted).total_seconds() for record in job.records if record.waiting_here),
    )


def _names(clusters: Iterable[ClusterName]) -> str:
    return ", ".join(sorted(clusters))
