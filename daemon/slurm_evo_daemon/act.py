"""Ask Slurm for what was decided: everything is in the journal before the first word is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from slurm_evo.model import (
    Answer,
    ClusterError,
    ClusterName,
    ClusterPort,
    JobKey,
    Outcome,
    SetClusters,
)
from slurm_evo.store import Intent, JobMemory, Journal, Lease
from slurm_evo_daemon import moves

Clock = Callable[[], datetime]


def recover(journal: Journal, known: Mapping[JobKey, JobMemory], clock: Clock) -> dict[JobKey, JobMemory]:
    """Close what an earlier run left open: what it did is not known, so the next look has to tell.

    Returns:
        The memories with what is no longer certain taken back, journaled.
    """
    left = journal.open_actions()
    outcomes = [Outcome(item.action, Answer.UNKNOWN, "the daemon ended before the answer came") for item in left]
    memories = dict(known)
    changed = _learn(outcomes, memories, clock(), 0.0)
    journal.remember(changed.values())
    journal.settle([item.id for item in left], outcomes, now=clock())
    return memories


def act(
    cycle: int,
    intents: Sequence[Intent],
    memories: Mapping[JobKey, JobMemory],
    known: Mapping[JobKey, JobMemory],
    *,
    ports: Mapping[ClusterName, ClusterPort],
    journal: Journal,
    lease: Lease,
    clock: Clock,
    refusal_s: float,
) -> tuple[Outcome, ...]:
    """Journal the intents, carry them out side by side on their clusters, journal the answers.

    Args:
        cycle: its number in the journal.
        intents: in the order each cluster is to be asked: sets of clusters before priorities.
        memories: what to remember of every pending job; written before anything is sent.
        known: what the journal already holds, so that only changes are written.
        ports: by cluster.
        journal: where it all goes.
        lease: the right to act; checked when intents are written and again for every action.
        clock: aware, for the lease and the times in the journal.
        refusal_s: how long a refusal lasts.

    Returns:
        One outcome for each intent, in order.

    Raises:
        LeaseLost: another daemon may act: nothing (more) was sent.
        StoreError: the journal failed: nothing was sent, or the answers could not be kept.
    """
    # Intents first: a death between the two leaves open actions, which the next start takes as unknown. The
    # other way round it would remember priorities as freed that nobody ever asked Slurm to free.
    ids = journal.intend(cycle, intents, lease=lease, now=clock())
    journal.remember(memory for key, memory in memories.items() if known.get(key) != memory)
    by_cluster: dict[ClusterName, list[int]] = {}
    for place, intent in enumerate(intents):
        by_cluster.setdefault(intent.cluster or intent.action.job.cluster, []).append(place)
    outcomes: list[Outcome] = [
        Outcome(intent.action, Answer.UNKNOWN, "not sent: the cluster was not reached") for intent in intents
    ]
    with ThreadPoolExecutor(max_workers=max(1, len(by_cluster)), thread_name_prefix="act") as pool:
        jobs = [
            pool.submit(_ask, ports[name], [(place, intents[place]) for place in places], outcomes, lease, clock)
            for name, places in by_cluster.items()
        ]
        for job in jobs:
            job.result()
    learned = _learn(outcomes, dict(memories), clock(), refusal_s)
    for outcome in outcomes:
        key = outcome.action.job
        if outcome.answer is not Answer.DONE and not isinstance(outcome.action, SetClusters) and key in memories:
            # The SiteFactor is still the old one, and so is the age in it.
            points = known[key].age_points if key in known else 0
            learned[key] = learned.get(key, memories[key]).but(age_points=points)
    journal.remember(learned.values())
    journal.settle(ids, outcomes, now=clock())
    return tuple(outcomes)


def _ask(
    port: ClusterPort,
    intents: Iterable[tuple[int, Intent]],
    outcomes: list[Outcome],
    lease: Lease,
    clock: Clock,
) -> None:
    """Ask one cluster in order; stop at the first sign that it no longer answers or we may no longer ask."""
    for place, intent in intents:
        if not lease.valid(clock()):
            outcomes[place] = Outcome(intent.action, Answer.UNKNOWN, "not sent: the lease ran out")
            return
        try:
            outcomes[place] = port.apply(intent.action)
        except ClusterError as failure:
            outcomes[place] = Outcome(intent.action, Answer.UNKNOWN, str(failure))
        if outcomes[place].answer is Answer.UNKNOWN:
            return


def _learn(
    outcomes: Iterable[Outcome],
    memories: dict[JobKey, JobMemory],
    now: datetime,
    refusal_s: float,
) -> dict[JobKey, JobMemory]:
    """Update ``memories`` in place by the answers; the changed ones are returned."""
    changed: dict[JobKey, JobMemory] = {}
    for outcome in outcomes:
        key = outcome.action.job
        if key not in memories:
            continue
        memory = moves.after(outcome, memories[key], now, refusal_s)
        if memory != memories[key]:
            memories[key] = changed[key] = memory
    return changed
