"""The event loop of a replay: ends, drains, cancellations, arrivals, then the clusters look. Compiled once.

One pass per instant, in this order:

1. jobs that end, nodes that leave or return, owners who give up, new jobs;
2. scores, once, before anything starts;
3. clusters that something happened to, lowest index first, until none is left: a start may take a
   job away that stopped another cluster.
"""

from __future__ import annotations

import numpy as np

from slurm_evo.sim.passes import change_running, compiled, count_use, leave_queue, look, pop
from slurm_evo.sim.placing import vacate
from slurm_evo.sim.ranking import key_of, score_slots
from slurm_evo.sim.world import (
    ALLOCATE_RACE,
    ALLOCATION,
    ASKED_GPUS,
    BACKFILL,
    BACKFILL_ORIGIN,
    BF_INTERVAL,
    BUSY_GPUS,
    C_AHEAD,
    C_ASKED,
    C_BUSY,
    C_CHANGED,
    C_GPUS,
    C_LAST,
    C_QUEUE,
    C_TOUCHED,
    C_WANTS,
    CALC_PERIOD,
    CANCELLED_STATE,
    DEPTH,
    DONE_STATE,
    DRAINS,
    DYNAMIC,
    ENTRY,
    EVENTS,
    FEASIBLE,
    GPUS,
    HOME,
    K_GPUS,
    K_NODES,
    KIND,
    LAST_CHANCES,
    LATER,
    LIMIT,
    LIMITED,
    MOST_WAITING,
    NEVER,
    NEXT_BACKFILL,
    NEXT_CALC,
    NEXT_CANCEL,
    NEXT_JOB,
    NEXT_LOOK,
    NEXT_OUTAGE,
    NEXT_SCHED,
    NOW,
    ON,
    ORIGIN,
    PARTITION,
    PENDING_STATE,
    PLACES,
    Q_JOB,
    Q_KIND,
    Q_LIMIT,
    Q_NEED,
    Q_PARTITION,
    Q_QOS,
    Q_USER,
    QOS,
    QUEUE,
    QUEUE_AREA,
    REACTION,
    REJECTED_STATE,
    RUNNING,
    SCHED_DELAY,
    SCHED_INTERVAL,
    SCHED_ORIGIN,
    SCHED_TICK,
    SLOT,
    START,
    STARTS,
    STATE,
    SUBMIT,
    TURN,
    UNTIL,
    USER,
    WAITING,
    WAKE,
)

OVER, PAUSED, FULL = 0, 1, 2
SLURM = 2
LAYER_ONE = ALLOCATE_RACE + 1


@compiled
def end_job(w, j):  # type: ignore[no-untyped-def]
    """A running job gives everything back."""
    c = w.life[j, ON]
    gpus = w.job[j, GPUS]
    for k in range(w.kind[w.job[j, KIND], c, K_NODES]):
        vacate(w.node, w.run, w.run_count, w.places[w.life[j, PLACES] + k], j)
    w.life[j, STATE] = DONE_STATE
    w.clock[RUNNING] -= 1
    w.clock[BUSY_GPUS] -= gpus
    w.cluster[c, C_BUSY] -= gpus
    w.cluster[c, C_AHEAD] -= gpus * (w.life[j, START] + w.job[j, LIMIT])
    w.cluster[c, C_TOUCHED] = 1
    if w.rule[LIMITED]:
        count_use(w, c, j, -1)
    if w.rule[DYNAMIC]:
        change_running(w.user_usage, w.job[j, USER], w.clock[NOW], -gpus)


@compiled
def change_service(w, v, drains):  # type: ignore[no-untyped-def]
    """A drain begins or ends on a node, or a reservation does (drains 0)."""
    now = w.clock[NOW]
    w.node[DRAINS, v] += drains
    until = np.int64(NEVER)
    for r in range(w.reserved_at[v], w.reserved_at[v + 1]):
        if w.reserved[r, 0] <= now < w.reserved[r, 1]:
            until = -1
        elif w.reserved[r, 0] > now:
            until = min(until, w.reserved[r, 0])
    w.node[UNTIL, v] = -1 if w.node[DRAINS, v] > 0 else np.int32(until)


@compiled
def choose_cluster(w, j):  # type: ignore[no-untyped-def]
    """The cluster of a new job under a fixed allocation; -1 if it can run nowhere. Ties: the lowest index."""
    places = w.job[j, FEASIBLE]
    how = w.rule[ALLOCATION]
    clusters = w.cluster.shape[0]
    if how == 0:
        home = w.job[j, HOME]
        return home if home < clusters and (places >> home) & 1 else -1
    if how == 1:
        for step in range(clusters):
            c = (w.clock[TURN] + step) % clusters
            if (places >> c) & 1:
                w.clock[TURN] = (c + 1) % clusters
                return c
        return -1
    best = -1
    best_load = 0.0
    for c in range(clusters):
        if (places >> c) & 1:
            size = max(w.cluster[c, C_GPUS], 1)
            if how == 2:
                load = (w.cluster[c, C_BUSY] + w.cluster[c, C_ASKED]) / size
            else:
                load = (w.cluster[c, C_AHEAD] - w.cluster[c, C_BUSY] * w.clock[NOW]) / size
            if best < 0 or load < best_load:
                best = c
                best_load = load
    return best


@compiled
def enter_queue(w, j, q, where):  # type: ignore[no-untyped-def]
    """A new job waits."""
    x = w.waiting[q]
    w.waiting[q] = x + 1
    w.life[j, STATE] = PENDING_STATE
    w.life[j, QUEUE] = q
    w.life[j, SLOT] = x
    w.where[q, x] = where
    w.column[q, Q_JOB, x] = j
    w.column[q, Q_KIND, x] = w.job[j, KIND]
    w.column[q, Q_PARTITION, x] = w.job[j, PARTITION]
    w.column[q, Q_LIMIT, x] = w.job[j, LIMIT]
    w.column[q, Q_USER, x] = w.job[j, USER]
    w.column[q, Q_QOS, x] = w.job[j, QOS]
    need = NEVER
    for c in range(w.cluster.shape[0]):
        if (w.job[j, FEASIBLE] >> c) & 1:
            need = min(need, w.kind[w.job[j, KIND], c, K_GPUS])
    w.column[q, Q_NEED, x] = need
    if w.rule[DYNAMIC]:
        for f in range(6):
            w.table[q, f, x] = w.feature[j, f]
    else:
        w.key[q, x] = key_of(w.score[j], j)
    gpus = w.job[j, GPUS]
    w.clock[WAITING] += 1
    w.clock[ASKED_GPUS] += gpus
    w.user_asked[w.job[j, USER]] += gpus
    for c in range(w.cluster.shape[0]):
        if (where >> c) & 1:
            w.cluster[c, C_TOUCHED] = 1
    if w.rule[ALLOCATION] < ALLOCATE_RACE:
        w.cluster[q, C_ASKED] += gpus
        w.cluster[q, C_AHEAD] += gpus * w.job[j, LIMIT]


@compiled
def admit(w, j):  # type: ignore[no-untyped-def]
    """A job is submitted: to its cluster's queue, to the common one, or refused."""
    places = w.job[j, FEASIBLE]
    if w.rule[ALLOCATION] < ALLOCATE_RACE:
        c = choose_cluster(w, j)
        if c < 0:
            w.life[j, STATE] = REJECTED_STATE
        else:
            enter_queue(w, j, c, np.int64(1) << c)
    elif places == 0:
        w.life[j, STATE] = REJECTED_STATE
    else:
        enter_queue(w, j, 0, w.job[j, ENTRY])


@compiled
def give_up(w, j):  # type: ignore[no-untyped-def]
    """An owner cancels a job that still waits."""
    where = w.where[w.life[j, QUEUE], w.life[j, SLOT]]
    leave_queue(w, j)
    w.life[j, STATE] = CANCELLED_STATE
    for c in range(w.cluster.shape[0]):
        if (where >> c) & 1:
            w.cluster[c, C_TOUCHED] = 1


@compiled
def happen(w, now):  # type: ignore[no-untyped-def]
    """Everything that happens at one instant before anybody looks; returns the number of events."""
    clock = w.clock
    count = 0
    while clock[RUNNING] > 0 and (w.heap[0] >> 32) == now:
        j = pop(w.heap, clock[RUNNING]) & np.int64(0xFFFFFFFF)
        end_job(w, j)
        count += 1
    while clock[NEXT_OUTAGE] < w.outage.shape[0] and w.outage[clock[NEXT_OUTAGE], 0] == now:
        change = clock[NEXT_OUTAGE]
        v = w.outage[change, 1]
        change_service(w, v, np.int32(w.outage[change, 2]))
        w.cluster[w.outage[change, 3], C_TOUCHED] = 1
        clock[NEXT_OUTAGE] += 1
        count += 1
    while clock[NEXT_JOB] < w.job.shape[0] and w.job[clock[NEXT_JOB], SUBMIT] + w.rule[REACTION] == now:
        admit(w, clock[NEXT_JOB])
        clock[NEXT_JOB] += 1
        count += 1
    while clock[NEXT_CANCEL] < w.cancel.shape[0] and w.cancel[clock[NEXT_CANCEL], 0] == now:
        j = w.cancel[clock[NEXT_CANCEL], 1]
        if w.life[j, STATE] == PENDING_STATE:
            give_up(w, j)
        clock[NEXT_CANCEL] += 1
        count += 1
    clock[EVENTS] += count
    return count


@compiled
def rank_waiting(w, before, calculates, program):  # type: ignore[no-untyped-def]
    """Scores of this instant: of every job if they are due, else only of those that have just come."""
    for q in range(w.waiting.shape[0]):
        if w.waiting[q] == 0:
            continue
        if calculates:
            score_slots(w, q, 0, w.waiting[q], program)
        else:
            for x in range(w.waiting[q]):
                if w.column[q, Q_JOB, x] >= before:
                    score_slots(w, q, x, x + 1, program)


@compiled
def next_on_grid(origin, period, now):  # type: ignore[no-untyped-def]
    """The first instant after ``now`` that is a whole number of periods from the origin."""
    return origin + ((now - origin) // period + 1) * period


@compiled
def next_event(w):  # type: ignore[no-untyped-def]
    """When something happens by itself; LATER if nothing will."""
    clock = w.clock
    at = min(clock[WAKE], clock[NEXT_LOOK])
    if clock[NEXT_JOB] < w.job.shape[0]:
        at = min(at, w.job[clock[NEXT_JOB], SUBMIT] + w.rule[REACTION])
    if clock[RUNNING] > 0:
        at = min(at, w.heap[0] >> 32)
    if clock[NEXT_OUTAGE] < w.outage.shape[0]:
        at = min(at, w.outage[clock[NEXT_OUTAGE], 0])
    if clock[NEXT_CANCEL] < w.cancel.shape[0]:
        at = min(at, w.cancel[clock[NEXT_CANCEL], 0])
    return at


@compiled
def next_tick(w):  # type: ignore[no-untyped-def]
    """When a period ends that matters to a job that waits; LATER if none."""
    clock = w.clock
    at = LATER
    if clock[WAITING] > 0:
        if w.rule[DYNAMIC] and w.rule[CALC_PERIOD] > 0:
            at = min(at, clock[NEXT_CALC])
        if w.rule[SCHED_INTERVAL] > 0:
            at = min(at, clock[NEXT_SCHED])
        if w.rule[BACKFILL] == SLURM:
            at = min(at, clock[NEXT_BACKFILL])
    return at


@compiled
def has_room(w, now):  # type: ignore[no-untyped-def]
    """Do the queues hold every job that comes at this instant?"""
    most = np.int64(0)
    for q in range(w.waiting.shape[0]):
        most = max(most, w.waiting[q])
    j = w.clock[NEXT_JOB]
    while j < w.job.shape[0] and w.job[j, SUBMIT] + w.rule[REACTION] == now:
        j += 1
    return most + j - w.clock[NEXT_JOB] <= w.work.shape[0]


@compiled
def due(w, which, origin, period, now):  # type: ignore[no-untyped-def]
    """Does this period end at this instant? An instant can come twice. Moves the period on."""
    if period <= 0 or now < origin:
        return False
    if w.clock[which] <= now:
        w.clock[which] = next_on_grid(origin, period, now)
    return w.clock[which] - period == now


@compiled
def last_pass(w, c):  # type: ignore[no-untyped-def]
    """When this cluster last made a main pass, those of ``sched_interval`` included."""
    period = w.rule[SCHED_INTERVAL]
    if period <= 0 or w.clock[NOW] < w.clock[SCHED_ORIGIN]:
        return w.cluster[c, C_LAST]
    return max(w.cluster[c, C_LAST], next_on_grid(w.clock[SCHED_ORIGIN], period, w.clock[NOW]) - period)


@compiled
def next_pass(w, c):  # type: ignore[no-untyped-def]
    """The first instant from now on at which this cluster makes a main pass that something asks for."""
    at = max(last_pass(w, c) + w.rule[SCHED_DELAY], w.clock[NOW])
    return at + (w.clock[SCHED_ORIGIN] - at) % w.rule[SCHED_TICK]


@compiled
def may_pass(w, c, at_once, wanted):  # type: ignore[no-untyped-def]
    """Is it time for a main pass? One that something asks for too soon after the last is put off."""
    if not (at_once or wanted):
        return False
    if not at_once and w.clock[NOW] < next_pass(w, c):
        w.cluster[c, C_WANTS] = 1
        return False
    w.cluster[c, C_WANTS] = 0
    w.cluster[c, C_LAST] = w.clock[NOW]
    return True


@compiled
def next_look(w):  # type: ignore[no-untyped-def]
    """When the first pass is due that was put off; LATER if none is."""
    at = LATER
    for c in range(w.cluster.shape[0]):
        if w.cluster[c, C_WANTS]:
            at = min(at, next_pass(w, c))
    return at


@compiled
def look_around(w, scheds, backfills, woken):  # type: ignore[no-untyped-def]
    """Let clusters look, lowest index first, until nothing more happens. What layer 1 did is never put off."""
    clusters = w.cluster.shape[0]
    again = True
    if scheds:
        w.cluster[:, C_WANTS] = 0
    for c in range(clusters):
        if w.cluster[c, C_WANTS] and w.clock[NOW] == next_pass(w, c):
            w.cluster[c, C_TOUCHED] |= 4
        if w.waiting[w.cluster[c, C_QUEUE]] == 0:
            continue
        if scheds or (backfills and (w.cluster[c, C_CHANGED] or w.rule[DYNAMIC])):
            w.cluster[c, C_TOUCHED] |= 2
    while again:
        again = False
        for c in range(clusters):
            touched = w.cluster[c, C_TOUCHED]
            if touched:
                w.cluster[c, C_TOUCHED] = 0
                w.cluster[c, C_CHANGED] |= touched & 1
                passes = may_pass(w, c, scheds or (woken and touched & 5), touched & 5)
                look(w, c, passes, 0 if scheds else w.rule[DEPTH], backfills)
                again = True
                break


@compiled
def had_last_chance(w):  # type: ignore[no-untyped-def]
    """Nothing will happen any more, and since the last time something did, each period has ended once."""
    wanted = np.int64(w.rule[SCHED_INTERVAL] > 0) | np.int64(w.rule[BACKFILL] == SLURM) << 1
    return (w.clock[LAST_CHANCES] & wanted) == wanted


@compiled
def advance(w, program, until):  # type: ignore[no-untyped-def]
    """Run all events up to and including ``until``.

    Returns OVER when nothing is left, PAUSED at ``until``, FULL when a queue must grow before it goes on.
    """
    clock = w.clock
    while True:
        event = next_event(w)
        tick = next_tick(w)
        if event == LATER and (tick == LATER or had_last_chance(w)):
            return OVER
        now = min(event, tick)
        if now > until:
            return PAUSED
        if not has_room(w, now):
            return FULL
        clock[QUEUE_AREA] += clock[WAITING] * (now - clock[NOW])
        clock[NOW] = now
        before = clock[NEXT_JOB]
        started = clock[STARTS]
        happened = happen(w, now)
        woken = clock[WAKE] == now
        clock[WAKE] = LATER
        clock[MOST_WAITING] = max(clock[MOST_WAITING], clock[WAITING])
        calculates = w.rule[CALC_PERIOD] == 0 or due(w, NEXT_CALC, clock[ORIGIN], w.rule[CALC_PERIOD], now)
        scheds = due(w, NEXT_SCHED, clock[SCHED_ORIGIN], w.rule[SCHED_INTERVAL], now)
        backfills = False
        if w.rule[BACKFILL] == SLURM:
            backfills = due(w, NEXT_BACKFILL, clock[BACKFILL_ORIGIN], w.rule[BF_INTERVAL], now)
        if clock[WAITING] > 0:
            if w.rule[DYNAMIC] and (calculates or clock[NEXT_JOB] > before):
                rank_waiting(w, before, calculates, program)
            look_around(w, scheds, backfills, woken)
        else:
            w.cluster[:, C_TOUCHED] = 0
            w.cluster[:, C_WANTS] = 0
        clock[NEXT_LOOK] = next_look(w)
        if happened or clock[STARTS] > started:
            clock[LAST_CHANCES] = 0
        else:
            clock[LAST_CHANCES] |= np.int64(scheds) | np.int64(backfills) << 1
