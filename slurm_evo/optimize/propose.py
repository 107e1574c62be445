"""From the front to a plan: choose by the weights, demand a margin, undo what does not help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from slurm_evo.model import Placement, Plan, Scores
from slurm_evo.optimize.evaluate import Judge, Judged, gains
from slurm_evo.optimize.queue import Queue
from slurm_evo.optimize.search import evolve
from slurm_evo.sim.forecast import FloatArray, IntArray, MaskArray

PRUNE_TRIALS = 64
HARM_ROUNDS = 5
PATIENCE = 15
"""Generations without a better plan after which the search ends early."""
SAME = 1e-6
"""Gains that differ by less count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """What a plan may not do, however much it gains."""

    harm_s: float = 300.0
    """A changed job may be expected to start this much later than without the change, or"""
    harm_share: float = 0.05
    """this share of its expected wait, whichever is more: the noise of a forecast."""


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
    care: Care | None = None,
    samples: int = 2,
    prune_trials: int = PRUNE_TRIALS,
) -> Plan:
    """Choose where the movable jobs may run.

    Args:
        queue: the standing problem.
        objectives: weights of average_wait, maximum_wait and utilization.
        margin: the least gain over «change nothing», as a share of its scores (see `gains`).
        max_moves: at most this many jobs change.
        rng: drives the search.
        budget_s: seconds; the search ends within one call of the judge of it, or when it no longer finds
            anything better.
        clock: seconds, monotonic.
        generations: ends the search after so many; with an infinite budget the plan is deterministic.
        care: bounds on what the plan may do to single jobs.
        samples: futures besides the expected one.
        prune_trials: at most so many attempts to do with fewer changes.

    Returns:
        A plan, always: «change nothing» where nothing better was found in time.
    """
    if not queue.movable.any():
        judge = Judge(queue, samples=0)
        return _plan(queue, judge.nothing, judge, judge.nothing, "nothing may be moved")
    deadline = clock() + budget_s
    judge = Judge(queue, samples=samples)
    nothing = judge.nothing
    if why := _hopeless(queue, judge, objectives, margin, max_moves):
        return _plan(queue, nothing, judge, nothing, why)
    best, best_gain, best_at = nothing, 0.0, 0

    def gain_of(judged: Judged) -> FloatArray:
        return gains(judged.values, nothing.values[0], objectives)

    def stop(generation: int, judged: Judged) -> bool:
        nonlocal best, best_gain, best_at
        found = gain_of(judged)
        # Of equal gains the one with fewer moves.
        first = int(np.lexsort((judged.moves, -found))[0])
        if found[first] > best_gain + SAME:
            best, best_gain, best_at = judged.one(first), float(found[first]), generation
        late = clock() >= deadline or generation - best_at >= PATIENCE
        return late or (generations is not None and generation >= generations)

    front = evolve(queue, judge, rng=rng, stop=stop)
    if best is nothing:
        return _plan(queue, nothing, judge, front, "kept as it is: no plan is better")
    # Pruning gets half the budget again; trials are few and each only simplifies.
    deadline = clock() + budget_s / 2
    best = _pruned(queue, judge, best, gain_of, lambda: clock() >= deadline, prune_trials)
    best = _harmless(queue, judge, best, care or Care())
    best = _limited(queue, judge, best, max_moves)
    gain = float(gain_of(best)[0])
    front = front.and_also(best)
    if gain < margin or gain <= SAME:
        why = f"kept as it is: the best plan gains {gain:.1%}, less than the margin of {margin:.0%}"
        return _plan(queue, nothing, judge, front, why)
    return _plan(queue, best, judge, front, _why(best.scores[0], nothing.scores[0]))


def _hopeless(
    queue: Queue, judge: Judge, objectives: Mapping[str, float], margin: float, max_moves: int
) -> str | None:
    """Why a search cannot help, told without one."""
    nothing = judge.nothing
    if max_moves == 0:
        return "as many moves are under way as are allowed at once"
    if not np.any((nothing.starts_s[0, 0] > 0) & queue.movable):
        return "every movable job can start where it is"
    if not np.any(queue.movable & (queue.allowed != 0) & ((queue.allowed & (queue.allowed - np.uint64(1))) != 0)):
        return "no movable job has another cluster to go to"
    # Every job started now, and so every GPU as busy as it can be: no plan does better.
    if (most := float(gains(judge.ideal, nothing.values[0], objectives)[0])) < margin:
        return f"kept as it is: no plan can gain more than {most:.1%}, less than the margin of {margin:.0%}"
    return None


def _why(best: Scores, nothing: Scores) -> str:
    moves = best.moves
    return (
        f"{moves} move{'s' * (moves != 1)}: average weighted wait {nothing.average_wait_s:.0f} -> "
        f"{best.average_wait_s:.0f} s, maximum {nothing.maximum_wait_s:.0f} -> "
        f"{best.maximum_wait_s:.0f} s, utilization {nothing.utilization:.0%} -> "
        f"{best.utilization:.0%} expected"
    )


def _pruned(
    queue: Queue,
    judge: Judge,
    best: Judged,
    gain_of: Callable[[Judged], FloatArray],
    late: Callable[[], bool],
    most: int,
) -> Judged:
    """Undo changes that do not help: halves first, then smaller and smaller groups."""
    group = int(best.moves[0])
    trials = 0
    while group >= 1:
        changed = np.flatnonzero(best.masks[0] != queue.viable)
        # Jobs that gain nothing themselves are tried first.
        own = judge.nothing.starts_s[0, 0, changed] - best.starts_s[0, 0, changed]
        changed = changed[np.argsort(np.nan_to_num(own, posinf=1e18, neginf=-1e18), kind="stable")]
        undone = False
        for begin in range(0, changed.size, group):
            if late() or trials >= most:
                return best
            some = changed[begin : begin + group]
            trial = judge(_undo(queue, best, some))
            trials += 1
            if gain_of(trial)[0] >= gain_of(best)[0] - SAME:
                best, undone = trial, True
                break
        group = min(group, int(best.moves[0])) if undone else group // 2
    return best


def _undo(queue: Queue, best: Judged, rows: IntArray) -> MaskArray:
    masks: MaskArray = best.masks[0].copy()
    masks[rows] = queue.viable[rows]
    return masks


def _harmless(queue: Queue, judge: Judge, best: Judged, care: Care) -> Judged:
    """Undo the changes that make the changed job itself start later, beyond a bound.

    As expected, and on average over the futures: one bad future is no reason, since every cycle decides anew.
    """
    before = _expected_and_mean(judge.nothing)
    bound = np.where(np.isfinite(before), before + np.maximum(care.harm_s, care.harm_share * before), np.inf)
    for _ in range(HARM_ROUNDS):
        harmed = (_expected_and_mean(best) > bound).any(axis=0) & (best.masks[0] != queue.viable)
        if not harmed.any():
            return best
        best = judge(_undo(queue, best, np.flatnonzero(harmed)))
    return judge.nothing


def _expected_and_mean(judged: Judged) -> FloatArray:
    """(2, n) starts of one candidate."""
    return np.stack([judged.starts_s[0, 0], judged.starts_s[0].mean(axis=0)])


def _limited(queue: Queue, judge: Judge, best: Judged, max_moves: int) -> Judged:
    """Keep the most valuable moves: those that save the most weighted waiting."""
    changed = np.flatnonzero(best.masks[0] != queue.viable)
    if changed.size <= max_moves:
        return best
    cap = 2 * judge.horizon_s
    before, after = judge.nothing.starts_s[0, 0], best.starts_s[0, 0]
    saved = queue.weight * (np.minimum(before, cap) - np.minimum(after, cap))
    return judge(_undo(queue, best, changed[np.argsort(-saved[changed], kind="stable")][max_moves:]))


def _plan(queue: Queue, chosen: Judged, judge: Judge, front: Judged, why: str) -> Plan:
    nothing = judge.nothing
    placements = []
    for row in np.flatnonzero(queue.movable):
        start, before = float(chosen.starts_s[0, 0, row]), float(nothing.starts_s[0, 0, row])
        where = int(chosen.where[0, row])
        after, was = queue.names(int(chosen.masks[0, row])), queue.names(int(queue.viable[row]))
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
    scores = dict.fromkeys([*front.scores, *nothing.scores, *chosen.scores])
    return Plan(tuple(placements), chosen.scores[0], nothing.scores[0], tuple(scores), why)


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
