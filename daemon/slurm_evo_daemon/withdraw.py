"""Undo everything: the reverse of the daemon, for the day an administrator wants Slurm alone again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurm_evo.config import Settings
from slurm_evo.model import SetClusters, SetSiteFactor, StoreError
from slurm_evo.store import Intent
from slurm_evo_daemon.act import act
from slurm_evo_daemon.cycle import Surroundings
from slurm_evo_daemon.decide import recall
from slurm_evo_daemon.observe import observe
from slurm_evo_daemon.plugin_files import hold_nobody_back
from slurm_evo_daemon.rules import judge
from slurm_evo_daemon.words import held_back


def withdraw(
    around: Surroundings,
    settings: Settings,
    holder: str,
    *,
    really: bool,
    unseen: Callable[[str, str], None] = lambda *_: None,
) -> list[dict[str, Any]]:
    """Give pending jobs back what they had before slurm-evo: one row for each change.

    The user's own viable set is restored by one update that contains the clusters where the job waits now only
    if the user asked for them; a job that waits at none of those keeps its set, since taking it away from the
    only cluster that has it could strand it. ``unseen`` is told of each cluster that was not seen, with the
    reason: its jobs stay as they are. Nobody is held back at submission any more.

    Raises:
        StoreError: a daemon holds the lease, the journal failed, or a hook's file could not be removed.
    """
    view = observe(around.ports, around.clock())
    for name, error in sorted(view.unseen.items()):
        unseen(name, error.message)
    known = around.journal.jobs()
    intents: list[Intent] = []
    memories = {}
    for key, job in view.jobs.items():
        if not job.pending or not (key in known or held_back(job)):
            continue
        # the hook may have held a job back that no cycle has seen
        memory = recall(job, known.get(key), view)
        verdict = judge(job, view, settings.rules, asked=memory.asked, respect_user_clusters=True, refused={})
        if verdict.untouchable or job.on(key.cluster) is None:
            continue
        memories[key] = memory.but(wanted=None, widening_since=None, site_factor=None)
        if (memory.moves or held_back(job)) and job.viable != memory.asked and memory.asked:
            action = SetClusters(key, tuple(sorted(memory.asked)))
            safe = bool(memory.asked & job.waiting_on)
            # Without a common cluster the set is widened first; a second withdraw narrows it.
            if not safe:
                action = SetClusters(key, tuple(sorted(memory.asked | job.waiting_on)))
            intents.append(Intent(action=action, before={"clusters": sorted(job.viable)}, reason="withdrawn"))
        seen = {record.site_factor for record in job.records if record.waiting_here}
        if memory.site_factor is not None and seen != {0}:
            before = {"site_factor": memory.site_factor}
            intents.append(Intent(action=SetSiteFactor(key, 0), before=before, reason="withdrawn"))
    rows = [{"job": str(i.action.job), "what": _what(i), "why": i.reason, "answer": "not sent"} for i in intents]
    if not really:
        return rows
    lease = around.journal.acquire(holder, now=around.clock(), length_s=settings.cycle.lease_s)
    if lease is None:
        raise StoreError("a daemon acts on this fleet: stop it first, or it would do everything again")
    try:
        hold_nobody_back(settings)
    except OSError as failure:
        around.journal.release(lease, now=around.clock())
        told = (
            f"{failure.filename}: {failure.strerror}: nothing was withdrawn; remove it, or new jobs are held back"
        )
        raise StoreError(told) from failure
    if not intents:
        around.journal.release(lease, now=around.clock())
        return rows
    number = around.journal.begin_cycle(now=around.clock(), lease=lease)
    outcomes = act(
        number, intents, memories, known, ports=around.ports, journal=around.journal, lease=lease,
        clock=around.clock, refusal_s=settings.moves.refusal_s,
    )  # fmt: skip
    why = f"withdrawn: {len(intents)} changes put back"
    around.journal.end_cycle(number, now=around.clock(), seconds={}, counts={}, sentence=why)
    around.journal.release(lease, now=around.clock())
    for row, outcome in zip(rows, outcomes, strict=True):
        row |= {"answer": str(outcome.answer), "message": outcome.message}
    return rows


def _what(intent: Intent) -> str:
    action = intent.action
    return f"clusters {','.join(action.clusters)}" if isinstance(action, SetClusters) else "site factor 0"
