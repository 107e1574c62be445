"""What a plan may not do, however much it gains: bounds on what it does to jobs, users and accounts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slurm_evo.optimize.evaluate import Judge, Judged
from slurm_evo.optimize.queue import Queue
from slurm_evo.sim.forecast import FloatArray, IntArray, MaskArray

ROUNDS = 6
"""Attempts to make a plan harmless; after that nothing changes."""
Marks = NDArray[np.bool_]
Reasons = dict[int, str]
"""By row of the queue: why a change was turned down, for ``explain``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """How much later a plan may let jobs start than «change nothing» would.

    Each bound is so many seconds, or that share of the expected wait if it is more.
    """

    harm_s: float = 300.0
    """A job that is changed: the noise of a forecast."""
    harm_share: float = 0.05
    others_s: float = 1800.0
    """A job that is left as it is, and meets others at its clusters."""
    others_share: float = 0.25
    mean_s: float = 900.0
    """The jobs of one user, and of one account, on average."""
    mean_share: float = 0.15
    max_user: int = 0
    """Jobs of one user that change at once; 0: no limit."""
    max_account: int = 0
    """Jobs of one account that change at once; 0: no limit."""


def undone(queue: Queue, best: Judged, rows: IntArray) -> MaskArray:
    """(n,) the candidate's sets, with some jobs as they are."""
    masks: MaskArray = best.masks[0].copy()
    masks[rows] = queue.viable[rows]
    return masks


def harmless(queue: Queue, judge: Judge, best: Judged, care: Care) -> tuple[Judged, Reasons]:
    """Undo changes until nobody is expected to start later, beyond the bounds.

    As expected, and on average over the futures: one bad future is no reason, since every cycle decides anew.
    """
    before = _expected_and_mean(judge.nothing)
    reasons: Reasons = {}
    for _ in range(ROUNDS):
        after = _expected_and_mean(best)
        changed = best.masks[0] != queue.viable
        own = changed & _beyond(before, after, care.harm_s, care.harm_share).any(axis=0)
        late = ~changed & _beyond(before, after, care.others_s, care.others_share).any(axis=0)
        poor = _of_poor(queue, before, after, care, judge) & ~changed
        if not (own.any() or late.any() or poor.any()):
            return best, reasons
        for row in np.flatnonzero(own).tolist():
            reasons[row] = "it would be expected to start later itself"
        for victims, why in (
            (late, "jobs that wait there would be expected to start too late"),
            (poor, "jobs of another user or account would on average start too late"),
        ):
            for row in _culprits(queue, judge, best, changed & ~own, victims).tolist():
                own[row] = True
                reasons[row] = why
        if not own.any():
            break
        best = judge(undone(queue, best, np.flatnonzero(own)))
    for row in np.flatnonzero(best.masks[0] != queue.viable).tolist():
        reasons[row] = "others would be expected to start too late"
    return judge.nothing, reasons


def _expected_and_mean(judged: Judged) -> FloatArray:
    """(2, n) starts of one candidate."""
    return np.stack([judged.starts_s[0, 0], judged.starts_s[0].mean(axis=0)])


def _beyond(before: FloatArray, after: FloatArray, seconds: float, share: float) -> Marks:
    """(2, n) later than the bound; what would never start anyway has none."""
    bound = np.where(np.isfinite(before), before + np.maximum(seconds, share * before), np.inf)
    late: Marks = after > bound
    return late


def _of_poor(queue: Queue, before: FloatArray, after: FloatArray, care: Care, judge: Judge) -> Marks:
    """(n,) delayed jobs of users and accounts whose jobs start too late on average."""
    cap = 2 * judge.horizon_s
    was, becomes = np.minimum(before, cap), np.minimum(after, cap)
    found = np.zeros(before.shape[1], np.bool_)
    for group in (queue.user, queue.account):
        if not group.size:
            continue
        count = np.maximum(np.bincount(group), 1)
        for old, new in zip(was, becomes, strict=True):
            mean = np.bincount(group, old) / count
            later = np.bincount(group, new) / count - mean
            poor = later > np.maximum(care.mean_s, care.mean_share * mean)
            found |= poor[group] & (new > old)
    return found


def _culprits(queue: Queue, judge: Judge, best: Judged, changed: Marks, victims: Marks) -> IntArray:
    """Changed jobs that start before a victim where it would have started: the half that saves least."""
    found = np.zeros(changed.size, np.bool_)
    where, starts = judge.nothing.where[0], best.starts_s[0, 0]
    for c in np.unique(where[victims & (where >= 0)]):
        latest = starts[victims & (where == c)].max()
        found |= changed & (best.where[0] == c) & (starts <= latest)
    if victims.any() and not found.any():
        found = changed
    rows = np.flatnonzero(found)
    least = rows[np.argsort(saved(queue, judge, best)[rows], kind="stable")]
    return least[: -(-least.size // 2)]


def bound_late(queue: Queue, judge: Judge, best: Judged) -> tuple[Judged, Reasons]:
    """Undo moves without federation to clusters that would not start the job soon: it can be moved then.

    Jobs of a whole node or more are let go early: only where they wait is room made for them.
    """
    small = queue.waiting.gpus < queue.devices.gpus.max(initial=1)
    soon = best.starts_s[0, 0] <= queue.soon_s
    early = queue.single & small & (best.masks[0] != queue.viable) & ~soon
    if not early.any():
        return best, {}
    rows = np.flatnonzero(early)
    why = f"it would not start there within {queue.soon_s:.0f} s, and can be moved when it would"
    return judge(undone(queue, best, rows)), dict.fromkeys(rows.tolist(), why)


def saved(queue: Queue, judge: Judge, best: Judged) -> FloatArray:
    """(n,) weighted seconds by which each job starts earlier."""
    cap = 2 * judge.horizon_s
    before, after = judge.nothing.starts_s[0, 0], best.starts_s[0, 0]
    found: FloatArray = queue.weight * (np.minimum(before, cap) - np.minimum(after, cap))
    return found


def own_gain(queue: Queue, judge: Judge, best: Judged) -> float:
    """By what share the changed jobs wait less from now on, as expected and on average the less; -1 for none."""
    changed = best.masks[0] != queue.viable
    cap = 2 * judge.horizon_s
    weight = queue.weight[changed]
    before = np.minimum(_expected_and_mean(judge.nothing)[:, changed], cap) @ weight
    after = np.minimum(_expected_and_mean(best)[:, changed], cap) @ weight
    return float((1.0 - after / before).min()) if (before > 0).all() else -1.0


def limited(queue: Queue, judge: Judge, best: Judged, max_moves: int, care: Care) -> tuple[Judged, Reasons]:
    """Keep the most valuable changes that the numbers allow: those that save the most weighted waiting."""
    changed = np.flatnonzero(best.masks[0] != queue.viable)
    order = changed[np.argsort(-saved(queue, judge, best)[changed], kind="stable")]
    reasons: Reasons = {}
    users: dict[int, int] = {}
    accounts: dict[int, int] = {}
    kept = 0
    for row in order.tolist():
        user, account = int(queue.user[row]), int(queue.account[row])
        if kept >= max_moves:
            reasons[row] = "as many jobs as may change at once gain more"
        elif care.max_user and users.get(user, 0) >= care.max_user:
            reasons[row] = f"{care.max_user} jobs of its user, as many as may change at once, gain more"
        elif care.max_account and accounts.get(account, 0) >= care.max_account:
            reasons[row] = f"{care.max_account} jobs of its account, as many as may change at once, gain more"
        else:
            kept += 1
            users[user] = users.get(user, 0) + 1
            accounts[account] = accounts.get(account, 0) + 1
    if not reasons:
        return best, reasons
    return judge(undone(queue, best, np.array(list(reasons), np.int64))), reasons
