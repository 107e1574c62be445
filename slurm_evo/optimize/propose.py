"""From the front to a plan: choose by the weights, demand a margin, undo what does not help."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from slurm_evo.model import Placement, Plan
from slurm_evo.optimize.evaluate import Judge, Judged, gain
from slurm_evo.optimize.queue import Queue
from slurm_evo.optimize.search import evolve

PRUNE_TRIALS = 64
HARM_S, HARM_SHARE = 300.0, 0.05
"""A changed job may be expected to start this much later than without the change: noise of the forecast."""
HARM_ROUNDS = 5
SAME = 1e-6
"""Gains that differ by less count as equal."""


def propose(
    queue: Queue,
    *,
    objectives: Mapping[str, float],
    margin: float,
    max_moves: int,
    rng: np.random.Generator,
    budget_s: float,
    clock: Callable[[], float],
    generations: int | None = None,
) -> Plan:
    """Choose where the movable jobs may run.

    Args:
        queue: the standing problem.
        objectives: weights of average_wait, maximum_wait and utilization.
        margin: the least gain over «change nothing», as a share of its scores (see `gain`).
        max_moves: at most this many jobs change.
        rng: drives the search.
        budget_s: seconds; the search ends within one evaluation of it.
        clock: seconds, monotonic.
        generations: ends the search after so many; with an infinite budget the plan is deterministic.

    Returns:
        A plan, always: «change nothing» where nothing better was found in time.
    """
    judge = Judge(queue)
    nothing = judge.nothing
    if not queue.movable.any():
        return _plan(queue, nothing, nothing, [nothing], "nothing may be moved")
    if not np.any((nothing.starts_s > 0) & queue.movable):
        return _plan(queue, nothing, nothing, [nothing], "every movable job can start where it is")
    if max_moves == 0:
        return _plan(queue, nothing, nothing, [nothing], "as many moves are under way as are allowed at once")
    deadline = clock() + budget_s

    def stop(generation: int) -> bool:
        return clock() >= deadline or (generations is not None and generation >= generations)

    front = evolve(queue, judge, rng=rng, stop=stop)

    def gain_of(judged: Judged) -> float:
        """The mean gain over the futures; a candidate that loses in any of them counts by its worst."""
        pairs = zip(judged.futures, nothing.futures, strict=True)
        each = [gain(scores, before, objectives) for scores, before in pairs]
        return min(each) if min(each) < 0 else sum(each) / len(each)

    best = max(front, key=lambda judged: (gain_of(judged), -judged.scores.moves))
    if gain_of(best) <= SAME:
        return _plan(queue, nothing, nothing, front, "kept as it is: no plan is better")
    # Pruning gets half the budget again; trials are few and each only simplifies.
    deadline = clock() + budget_s / 2
    best = _pruned(queue, judge, best, gain_of, lambda: clock() >= deadline)
    best = _harmless(queue, judge, best, nothing)
    best = _limited(queue, judge, best, nothing, max_moves)
    found = gain_of(best)
    if found < margin:
        why = f"kept as it is: the best plan gains {found:.1%}, less than the margin of {margin:.0%}"
        return _plan(queue, nothing, nothing, [*front, best], why)
    return _plan(queue, best, nothing, [*front, best], _why(best, nothing))


def _why(best: Judged, nothing: Judged) -> str:
    moves = best.scores.moves
    return (
        f"{moves} move{'s' * (moves != 1)}: average weighted wait {nothing.scores.average_wait_s:.0f} -> "
        f"{best.scores.average_wait_s:.0f} s, maximum {nothing.scores.maximum_wait_s:.0f} -> "
        f"{best.scores.maximum_wait_s:.0f} s, utilization {nothing.scores.utilization:.0%} -> "
        f"{best.scores.utilization:.0%} expected"
    )


def _pruned(
    queue: Queue, judge: Judge, best: Judged, gain_of: Callable[[Judged], float], late: Callable[[], bool]
) -> Judged:
    """Undo changes that do not help: halves first, then smaller and smaller groups."""
    group = best.scores.moves
    trials = 0
    while group >= 1:
        changed = np.flatnonzero(best.masks != queue.viable)
        # Jobs that gain nothing themselves are tried first.
        own = judge.nothing.starts_s[changed] - best.starts_s[changed]
        changed = changed[np.argsort(np.nan_to_num(own, posinf=1e18, neginf=-1e18), kind="stable")]
        undone = False
        for begin in range(0, changed.size, group):
            if late() or trials >= PRUNE_TRIALS:
                return best
            masks = best.masks.copy()
            some = changed[begin : begin + group]
            masks[some] = queue.viable[some]
            trial = judge(masks)
            trials += 1
            if gain_of(trial) >= gain_of(best) - SAME and trial.scores.moves < best.scores.moves:
                best, undone = trial, True
                break
        if not undone:
            group //= 2
        else:
            group = min(group, best.scores.moves)
    return best


def _harmless(queue: Queue, judge: Judge, best: Judged, nothing: Judged) -> Judged:
    """Undo the changes that make the changed job itself start later in any future, beyond a bound.

    What is known of running times is too little to ask a job to wait for others.
    """
    for _ in range(HARM_ROUNDS):
        harmed = np.zeros(best.masks.size, np.bool_)
        for after, before in zip(best.every_start_s, nothing.every_start_s, strict=True):
            bound = np.where(np.isfinite(before), before + np.maximum(HARM_S, HARM_SHARE * before), np.inf)
            harmed |= after > bound
        undone = harmed & (best.masks != queue.viable)
        if not undone.any():
            return best
        best = judge(np.where(undone, queue.viable, best.masks))
    return nothing


def _limited(queue: Queue, judge: Judge, best: Judged, nothing: Judged, max_moves: int) -> Judged:
    """Keep the most valuable moves: those that save the most weighted waiting."""
    changed = np.flatnonzero(best.masks != queue.viable)
    if changed.size <= max_moves:
        return best
    cap = 2 * judge.horizon_s
    saved = queue.weight * (np.minimum(nothing.starts_s, cap) - np.minimum(best.starts_s, cap))
    dropped = changed[np.argsort(-saved[changed], kind="stable")][max_moves:]
    masks = best.masks.copy()
    masks[dropped] = queue.viable[dropped]
    return judge(masks)


def _plan(queue: Queue, chosen: Judged, nothing: Judged, front: list[Judged], why: str) -> Plan:
    placements = []
    for row in np.flatnonzero(queue.movable):
        start, before = float(chosen.starts_s[row]), float(nothing.starts_s[row])
        where = int(chosen.where[row])
        after, was = queue.names(int(chosen.masks[row])), queue.names(int(queue.viable[row]))
        cluster = queue.clusters[where] if where >= 0 else None
        placements.append(
            Placement(
                job=queue.keys[row],
                clusters=after,
                before=was,
                expected_cluster=cluster,
                expected_start_s=start if np.isfinite(start) else None,
                expected_start_before_s=before if np.isfinite(before) else None,
                reason=_reason(after, was, cluster, start, before),
            )
        )
    scores = list(dict.fromkeys(judged.scores for judged in front))
    return Plan(tuple(placements), chosen.scores, nothing.scores, tuple(scores), why)


def _reason(after: frozenset[str], was: frozenset[str], cluster: str | None, start: float, before: float) -> str:
    """One sentence for ``explain``."""
    then = "not within the forecast" if not np.isfinite(before) else f"in {_minutes(before)}"
    now = "not within the forecast" if not np.isfinite(start) else f"in {_minutes(start)} at {cluster}"
    if after == was:
        return f"stays as it is; expected to start {now}"
    change = []
    if after - was:
        change.append(f"may also run at {', '.join(sorted(after - was))}")
    if was - after:
        change.append(f"no longer waits at {', '.join(sorted(was - after))}")
    return f"{' and '.join(change)}: expected to start {now}, {then} without the change"


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
