"""From the front to a plan: choose by the weights, demand a margin, undo what does not help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from slurm_evo.model import Changes, Placement, Plan, Scores
from slurm_evo.optimize.care import Care, Reasons, bound_late, harmless, limited, own_gain, saved, undone
from slurm_evo.optimize.evaluate import Judge, Judged, gains
from slurm_evo.optimize.queue import Queue
from slurm_evo.optimize.search import evolve
from slurm_evo.sim.forecast import FloatArray, MaskArray

PRUNE_TRIALS = 64
SEARCHING = 0.75
"""Of the budget."""
PATIENCE = 15
"""Generations without a better plan after which the search ends early."""
MOST_KEPT = 8
"""Candidates of a front handed to the next search."""
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
    care: Care | None = None,
    samples: int = 2,
    prune_trials: int = PRUNE_TRIALS,
    last: Sequence[Changes] = (),
) -> Plan:
    """Choose where the movable jobs may run.

    Args:
        queue: the standing problem.
        objectives: weights of average_wait, maximum_wait and utilization.
        margin: the least gain over «change nothing», as a share of its scores (see `gains`), or of what the
            changed jobs themselves wait if all in all it gains at all. What layer 1 itself took away has to be
            worth it again every time: «nothing» gives it back.
        max_moves: at most this many jobs change.
        rng: drives the search.
        budget_s: seconds, three quarters of them for the search and the rest for doing with less; it ends within
            one call of the judge of it, or when it no longer finds anything better. The bounds are checked after.
        clock: seconds, monotonic.
        generations: ends the search after so many; with an infinite budget the plan is deterministic.
        care: bounds on what the plan may do to single jobs.
        samples: futures besides the expected one.
        prune_trials: at most so many attempts to do with fewer changes.
        last: `Plan.found` of the cycle before, to begin with: jobs that are gone drop out of it, new ones
            keep what they have.

    Returns:
        A plan, always: «change nothing» where nothing better was found in time.
    """
    was, queue = queue.viable, _given_back(queue, max_moves)
    if not queue.movable.any():
        judge = Judge(queue, samples=0)
        return _plan(queue, was, judge.nothing, judge, judge.nothing, "nothing may be moved", found=last)
    began = clock()
    max_moves -= int((queue.viable != was).sum())
    judge = Judge(queue, samples=samples)
    nothing = judge.nothing
    if why := _hopeless(queue, judge, objectives, margin, max_moves):
        return _plan(queue, was, nothing, judge, nothing, why, found=last)
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
        late = clock() >= began + SEARCHING * budget_s or generation - best_at >= PATIENCE
        return late or (generations is not None and generation >= generations)

    front = evolve(queue, judge, also=was, last=[_again(queue, changes) for changes in last], rng=rng, stop=stop)
    found = _best_of(queue, front, gain_of(front))
    if best is nothing:
        return _plan(queue, was, nothing, judge, front, "kept as it is: no plan is better", found=found)
    care, wished = care or Care(), best
    best = _pruned(queue, judge, best, gain_of, lambda: clock() >= began + budget_s, prune_trials)
    reasons = dict.fromkeys(_dropped(wished, best), "the plan is no worse without")
    best, early = bound_late(queue, judge, best)
    best, refused = harmless(queue, judge, best, care)
    best, beyond = limited(queue, judge, best, max_moves, care)
    reasons |= early | refused | beyond
    # The search chose it for how it does in its futures: others tell how much of that was luck.
    other = Judge(replace(queue, coming=queue.again or queue.coming), samples=2 * samples, seed=1)

    def worth(plan: Judged) -> tuple[bool, float]:
        """Does it gain enough, here and there; the lesser gain."""
        again = other(plan.masks)
        found = float(gain_of(plan)[0]), float(gains(again.values, other.nothing.values[0], objectives)[0])
        gain = min(found)
        owns = min(own_gain(queue, judge, plan), own_gain(queue, other, again))
        return gain > SAME and max(gain, owns) >= margin, gain

    enough, gain = worth(best)
    if not enough:
        # Perhaps those alone that start earlier themselves.
        idle = np.flatnonzero((best.masks[0] != queue.viable) & (saved(queue, judge, best) <= 0))
        fewer = judge(undone(queue, best, idle)) if idle.size else best
        enough, gain_of_fewer = worth(fewer) if idle.size else (False, 0.0)
        if enough:
            reasons |= dict.fromkeys(idle.tolist(), f"all in all that gains {gain:.1%}, less than the margin")
            best, gain = fewer, gain_of_fewer
    front = front.and_also(best)
    if not enough:
        why = f"the best plan gains {gain:.1%}, less than the margin of {margin:.0%}"
        reasons |= dict.fromkeys(_dropped(best, nothing), why)
        refusals = _refusals(queue, wished, reasons)
        return _plan(queue, was, nothing, judge, front, f"kept as it is: {why}", refusals, found)
    why = _why(best.scores[0], nothing.scores[0])
    return _plan(queue, was, best, judge, front, why, _refusals(queue, wished, reasons), found)


def _given_back(queue: Queue, most: int) -> Queue:
    """As if layer 1 had held back nothing, from so many jobs."""
    if queue.opened is None:
        return queue
    held = np.flatnonzero(queue.movable & (queue.opened != queue.viable))[:most]
    viable = queue.viable.copy()
    viable[held] = queue.opened[held]
    return replace(queue, viable=viable)


def _best_of(queue: Queue, front: Judged, gain: FloatArray) -> tuple[Changes, ...]:
    """What the best candidates change, the best first; «change nothing» has nothing to say."""
    found: list[Changes] = []
    for row in np.argsort(-gain, kind="stable"):
        changed = np.flatnonzero(front.masks[row] != queue.viable)
        if changed.size and len(found) < MOST_KEPT:
            found.append({queue.keys[job]: queue.names(int(front.masks[row, job])) for job in changed})
    return tuple(found)


def _again(queue: Queue, changes: Changes) -> MaskArray:
    """(n,) what a candidate of another cycle is now."""
    masks: MaskArray = queue.viable.copy()
    bit = {name: 1 << place for place, name in enumerate(queue.clusters)}
    for row in np.flatnonzero(queue.movable).tolist():
        names = changes.get(queue.keys[row], frozenset())
        masks[row] = np.uint64(sum(bit.get(name, 0) for name in names)) & queue.allowed[row] or masks[row]
    return masks


def _dropped(wished: Judged, kept: Judged) -> list[int]:
    """Rows whose change is gone."""
    rows: list[int] = np.flatnonzero(wished.masks[0] != kept.masks[0]).tolist()
    return rows


def _refusals(queue: Queue, wished: Judged, reasons: Reasons) -> Reasons:
    """By row, what was turned down and why."""
    found = {}
    for row, why in reasons.items():
        after, was = queue.names(int(wished.masks[0, row])), queue.names(int(queue.viable[row]))
        if after != was:
            found[row] = f"{_change(after, was)}: turned down, since {why}"
    return found


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
        fewer = False
        for begin in range(0, changed.size, group):
            if late() or trials >= most:
                return best
            some = changed[begin : begin + group]
            trial = judge(undone(queue, best, some))
            trials += 1
            if gain_of(trial)[0] >= gain_of(best)[0] - SAME:
                best, fewer = trial, True
                break
        group = min(group, int(best.moves[0])) if fewer else group // 2
    return best


def _plan(
    queue: Queue,
    viable: MaskArray,
    chosen: Judged,
    judge: Judge,
    front: Judged,
    why: str,
    refusals: Reasons | None = None,
    found: Sequence[Changes] = (),
) -> Plan:
    """Placements; ``viable`` is what each job has."""
    nothing = judge.nothing
    placements = []
    for row in np.flatnonzero(queue.movable):
        start, before = float(chosen.starts_s[0, 0, row]), float(nothing.starts_s[0, 0, row])
        where = int(chosen.where[0, row])
        after, was = queue.names(int(chosen.masks[0, row])), queue.names(int(viable[row]))
        cluster = queue.clusters[where] if where >= 0 else None
        placements.append(
            Placement(
                job=queue.keys[row],
                clusters=after,
                before=was,
                expected_cluster=cluster,
                expected_start_s=start if np.isfinite(start) else None,
                expected_start_before_s=before if np.isfinite(before) else None,
                reason=_reason(after, was, cluster, start, before, (refusals or {}).get(int(row), ""))
                if chosen.masks[0, row] != queue.viable[row] or after == was
                else f"{_change(after, was)}: nothing is gained any more by keeping it from there",
            )
        )
    scores = dict.fromkeys([*front.scores, *nothing.scores, *chosen.scores])
    return Plan(tuple(placements), chosen.scores[0], nothing.scores[0], tuple(scores), why, tuple(found))


def _reason(
    after: frozenset[str], was: frozenset[str], cluster: str | None, start: float, before: float, refusal: str
) -> str:
    """One sentence for ``explain``."""
    then = "not within the forecast" if not np.isfinite(before) else f"in {_minutes(before)}"
    now = "not within the forecast" if not np.isfinite(start) else f"in {_minutes(start)} at {cluster}"
    if after == was:
        stays = f"stays as it is; expected to start {now}"
        return f"{stays}. A change was looked at ({refusal})" if refusal else stays
    return f"{_change(after, was)}: expected to start {now}, {then} without the change"


def _change(after: frozenset[str], was: frozenset[str]) -> str:
    """In words."""
    change = []
    if after - was:
        change.append(f"may also run at {', '.join(sorted(after - was))}")
    if was - after:
        change.append(f"no longer waits at {', '.join(sorted(was - after))}")
    return " and ".join(change)


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
