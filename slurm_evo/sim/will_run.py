"""When and where Slurm's backfill believes that a job can start. Compiled; the plain twin is in the tests.

backfill.c tries one stretch between two planned starts or ends after the other: the nodes that no plan needs
from the stretch's beginning on for the job's time limit are handed to select/cons_tres, whose will-run test
(job_test.c) lets running jobs end at their limits, window by window, until the job fits on the nodes that are
free then. So a planned start is the last end of a window, later than the first instant that would do.
"""

from __future__ import annotations

import numpy as np

from slurm_evo.sim.placing import choose_planned, compiled, plan_start
from slurm_evo.sim.world import (
    BF_RESOLUTION,
    BF_WINDOW,
    C_HIGH,
    C_LOW,
    DRAINS,
    FREE_CPUS,
    FREE_GPUS,
    FREE_MEMORY,
    K_CLASS,
    K_CPUS,
    K_GPUS,
    K_MEMORY,
    K_NODES,
    KIND,
    LATER,
    LIMIT,
    NOW,
    PLACEMENT,
    PLANS,
    R_CPUS,
    R_END,
    R_GPUS,
    R_MEMORY,
    WINDOW,
)


@compiled
def fits_at(w, v, kind, at):  # type: ignore[no-untyped-def]
    """Has this node room once every job whose limit ends by then is gone?"""
    gpus = np.int64(w.node[FREE_GPUS, v])
    cpus = np.int64(w.node[FREE_CPUS, v])
    memory = np.int64(w.node[FREE_MEMORY, v])
    x = 0
    while x < w.run_count[v] and w.run[v, x, R_END] <= at:
        gpus += w.run[v, x, R_GPUS]
        cpus += w.run[v, x, R_CPUS]
        memory += w.run[v, x, R_MEMORY]
        x += 1
    return gpus >= kind[K_GPUS] and cpus >= kind[K_CPUS] and memory >= kind[K_MEMORY]


@compiled
def planned_between(w, v, first, last):  # type: ignore[no-untyped-def]
    """Does a plan or a reservation need this node in [first, last]?"""
    e = w.plan_first[v]
    while e >= 0:
        if w.plan[e, 0] <= last and w.plan[e, 1] > first:
            return True
        e = w.plan[e, 2]
    for r in range(w.reserved_at[v], w.reserved_at[v + 1]):
        if w.reserved[r, 0] <= last and w.reserved[r, 1] > first:
            return True
    return False


@compiled
def edge(w, c, than, before):  # type: ignore[no-untyped-def]
    """When a plan begins or ends: the last ``before`` an instant, or else the first after it; -1, LATER: none."""
    found = np.int64(-1) if before else LATER
    for e in range(w.clock[PLANS]):
        for side in range(2):
            at = w.plan[e, side]
            if before and at < than:
                found = max(found, at)
            elif not before and at > than:
                found = min(found, at)
    for r in range(w.reserved_at[w.cluster[c, C_LOW]], w.reserved_at[w.cluster[c, C_HIGH]]):
        for side in range(2):
            at = w.reserved[r, side]
            if before and at < than:
                found = max(found, at)
            elif not before and at > than:
                found = min(found, at)
    return found


@compiled
def count_fitting(w, c, kind, at, good):  # type: ignore[no-untyped-def]
    """Of the nodes in ``earliest`` (1: may be used), mark in ``good`` those with room at an instant."""
    count = 0
    for v in range(w.cluster[c, C_LOW], w.cluster[c, C_HIGH]):
        good[v] = w.earliest[v] != 0 and fits_at(w, v, kind, at)
        count += good[v]
    return count >= kind[K_NODES]


@compiled
def ends_on(w, c, above, upto):  # type: ignore[no-untyped-def]
    """Limits of jobs on usable nodes: the last in (above, upto] or -1, and the first after upto."""
    last = np.int64(-1)
    following = LATER
    for v in range(w.cluster[c, C_LOW], w.cluster[c, C_HIGH]):
        if w.earliest[v] != 0:
            for x in range(w.run_count[v]):
                end = w.run[v, x, R_END]
                if end > upto:
                    following = min(following, end)
                elif end > above:
                    last = max(last, end)
    return last, following


@compiled
def will_run(w, c, kind, since, stop):  # type: ignore[no-untyped-def]
    """The start on the nodes in ``earliest``, and ``good``: those with room then. LATER: none by ``stop``."""
    now = w.clock[NOW]
    above = np.int64(-1)
    if since > now:
        if count_fitting(w, c, kind, since, w.good):
            return since
        above = since
    following = ends_on(w, c, above, above)[1]
    if following == LATER or following > stop:
        return LATER
    window = w.rule[WINDOW]
    base = following + window - following % window
    while following < LATER:
        while following > base + window:
            window *= 2
        last, following = ends_on(w, c, above, min(base + window, stop))
        if last < 0:
            return LATER
        above = last
        if count_fitting(w, c, kind, last, w.good):
            return max(last, now + 1)
        if following > stop:
            return LATER
        window *= 2
    return LATER


@compiled
def overlaps_plan(w, wanted, at, limit):  # type: ignore[no-untyped-def]
    """Would a plan for ``chosen``, rounded, come in the way of another?"""
    grid = w.rule[BF_RESOLUTION]
    first = at // grid * grid
    last = (at + limit + grid - 1) // grid * grid
    found = False
    for k in range(wanted):
        found |= planned_between(w, w.chosen[k], first, last - 1)
    return found


@compiled
def backfill_start(w, c, j):  # type: ignore[no-untyped-def]
    """When Slurm's backfill plans this job; fills ``chosen``. LATER if not within its window."""
    kind = w.kind[w.job[j, KIND], c]
    low = w.cluster[c, C_LOW]
    high = w.cluster[c, C_HIGH]
    now = w.clock[NOW]
    limit = w.job[j, LIMIT]
    wanted = kind[K_NODES]
    # No answer can be earlier than the first instant that would do: the stretches before need no look.
    soonest = plan_start(
        w.node, w.ok, w.run, w.run_count, w.reserved, w.reserved_at, w.plan, w.plan_first, w.earliest,
        kind, low, high, now, limit,
    )  # fmt: skip
    if soonest > now + w.rule[BF_WINDOW]:
        return LATER
    since = max(edge(w, c, soonest, True), now)
    while since <= now + w.rule[BF_WINDOW]:
        later = edge(w, c, since, False)
        count = 0
        for v in range(low, high):
            usable = w.ok[kind[K_CLASS], v] != 0 and w.node[DRAINS, v] == 0
            w.earliest[v] = usable and not planned_between(w, v, since, since + limit)
            count += w.earliest[v]
        at = will_run(w, c, kind, since, later) if count >= wanted else LATER
        if at < LATER and at <= later:
            consecutive = w.rule[PLACEMENT] != 0
            choose_planned(w.node, w.run, w.run_count, w.good, low, high, wanted, at, consecutive, w.chosen)
            if not overlaps_plan(w, wanted, at, limit):
                return at
            if at > since:
                since = at
                continue
        since = later
    return LATER
