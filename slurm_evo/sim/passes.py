"""What one cluster does when it looks at its queue: the main pass and backfill. Compiled."""

from __future__ import annotations

import numpy as np

from slurm_evo.sim.placing import (
    choose_planned,
    compiled,
    find_nodes,
    free_gpus_at,
    occupy,
    plan_start,
)
from slurm_evo.sim.ranking import best_key, change_running, job_of
from slurm_evo.sim.will_run import backfill_start
from slurm_evo.sim.world import (
    ALLOCATE_RACE,
    ALLOCATION,
    ASKED_GPUS,
    BACKFILL,
    BACKFILLED,
    BF_RESOLUTION,
    BF_TESTS,
    BUSY_GPUS,
    C_AHEAD,
    C_ASKED,
    C_BUSY,
    C_CHANGED,
    C_HIGH,
    C_LOW,
    C_QUEUE,
    C_SPEED,
    C_TOUCHED,
    DYNAMIC,
    FREE_CPUS,
    FREE_GPUS,
    FREE_MEMORY,
    GONE,
    GPUS,
    K_CLASS,
    K_CPUS,
    K_GPUS,
    K_MEMORY,
    K_NODES,
    KILLED,
    KIND,
    LATER,
    LIMIT,
    LIMIT_CHECK,
    LIMIT_ORIGIN,
    LIMITED,
    NEVER,
    NOW,
    ON,
    PARTITION,
    PASS,
    PASSES,
    PLACED,
    PLACEMENT,
    PLACES,
    PLANS,
    Q_JOB,
    Q_KIND,
    Q_LIMIT,
    Q_NEED,
    Q_PARTITION,
    Q_QOS,
    Q_USER,
    QOS,
    QUEUE,
    R_CPUS,
    R_END,
    R_MEMORY,
    REACTION,
    RUNNING,
    RUNNING_STATE,
    RUNS,
    SLOT,
    SPARE_CPUS,
    SPARE_GPUS,
    SPARE_MEMORY,
    START,
    STARTS,
    STATE,
    UNTIL,
    USER,
    WAITING,
)

EASY, SLURM = 1, 2


@compiled
def push(heap, count, item):  # type: ignore[no-untyped-def]
    """Add to a binary heap of ``count`` items."""
    at = count
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent] <= item:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = item


@compiled
def pop(heap, count):  # type: ignore[no-untyped-def]
    """Take the least off a binary heap of ``count`` items."""
    least = heap[0]
    count -= 1
    item = heap[count]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= item:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = item
    return least


@compiled
def within_limits(w, c, j):  # type: ignore[no-untyped-def]
    """Would the limits of user and QOS let this job run here now?"""
    user = w.job[j, USER]
    qos = w.job[j, QOS]
    gpus = w.job[j, GPUS]
    return (
        w.use_user[c, user, 0] + gpus <= w.limit_user[user, 0]
        and w.use_user[c, user, 1] + 1 <= w.limit_user[user, 1]
        and w.use_qos[c, qos, 0] + gpus <= w.limit_qos[qos, 0]
        and w.use_qos[c, qos, 1] + 1 <= w.limit_qos[qos, 1]
        and w.use_qos_user[c, qos, user, 0] + gpus <= w.limit_qos_user[qos, 0]
        and w.use_qos_user[c, qos, user, 1] + 1 <= w.limit_qos_user[qos, 1]
    )


@compiled
def count_use(w, c, j, sign):  # type: ignore[no-untyped-def]
    """The job begins (1) or stops (-1) to count against limits."""
    user = w.job[j, USER]
    qos = w.job[j, QOS]
    gpus = sign * w.job[j, GPUS]
    w.use_user[c, user, 0] += gpus
    w.use_user[c, user, 1] += sign
    w.use_qos[c, qos, 0] += gpus
    w.use_qos[c, qos, 1] += sign
    w.use_qos_user[c, qos, user, 0] += gpus
    w.use_qos_user[c, qos, user, 1] += sign


@compiled
def leave_queue(w, j):  # type: ignore[no-untyped-def]
    """Take a job out of its queue; the last slot moves into its place."""
    q = w.life[j, QUEUE]
    x = w.life[j, SLOT]
    last = w.waiting[q] - 1
    w.waiting[q] = last
    w.life[j, QUEUE] = -1
    if x != last:
        w.key[q, x] = w.key[q, last]
        w.where[q, x] = w.where[q, last]
        w.work[x] = w.work[last]
        for f in range(7):
            w.column[q, f, x] = w.column[q, f, last]
        if w.rule[DYNAMIC]:
            for f in range(6):
                w.table[q, f, x] = w.table[q, f, last]
        w.life[w.column[q, Q_JOB, x], SLOT] = x
    gpus = w.job[j, GPUS]
    w.clock[WAITING] -= 1
    w.clock[ASKED_GPUS] -= gpus
    w.user_asked[w.job[j, USER]] -= gpus
    if w.rule[ALLOCATION] < ALLOCATE_RACE:
        w.cluster[q, C_ASKED] -= gpus
        w.cluster[q, C_AHEAD] -= gpus * w.job[j, LIMIT]


@compiled
def start_job(w, c, j):  # type: ignore[no-untyped-def]
    """Start a job on the nodes in ``chosen`` and take it out of its queue."""
    now = w.clock[NOW]
    kind = w.kind[w.job[j, KIND], c]
    end = now + w.job[j, LIMIT]
    w.life[j, PLACES] = w.clock[PLACED]
    for k in range(kind[K_NODES]):
        v = w.chosen[k]
        w.places[w.clock[PLACED]] = v
        w.clock[PLACED] += 1
        occupy(w.node, w.run, w.run_count, v, kind[K_GPUS], kind[K_CPUS], kind[K_MEMORY], end, j)
    leave_queue(w, j)
    w.life[j, START] = now
    dies = end
    if w.rule[LIMIT_CHECK] > 0:
        dies += (w.clock[LIMIT_ORIGIN] - end) % w.rule[LIMIT_CHECK]
    w.job[j, RUNS] = -(-w.job[j, RUNS] * 1000 // w.cluster[c, C_SPEED])
    if now + w.job[j, RUNS] > dies:
        w.job[j, RUNS] = dies - now
        w.job[j, KILLED] = 1
    w.life[j, ON] = c
    w.life[j, STATE] = RUNNING_STATE
    push(w.heap, w.clock[RUNNING], ((now + w.job[j, RUNS] + w.rule[REACTION]) << 32) | j)
    w.clock[RUNNING] += 1
    w.clock[STARTS] += 1
    gpus = w.job[j, GPUS]
    w.clock[BUSY_GPUS] += gpus
    w.cluster[c, C_BUSY] += gpus
    w.cluster[c, C_AHEAD] += gpus * end
    w.cluster[c, C_CHANGED] = 1
    if w.rule[LIMITED]:
        count_use(w, c, j, 1)
    if w.rule[DYNAMIC]:
        change_running(w.user_usage, w.job[j, USER], now, gpus)
    # A job that stopped another cluster's pass is gone from there: that cluster has to look again.
    partition = w.job[j, PARTITION]
    for other in range(w.cluster.shape[0]):
        if other != c and w.blocker[other, partition] == j:
            w.cluster[other, C_TOUCHED] = 1


@compiled
def begin_pass(w, c):  # type: ignore[no-untyped-def]
    """Fill ``work`` with the keys of what waits for this cluster, PASS with what its nodes allow now."""
    q = w.cluster[c, C_QUEUE]
    count = w.waiting[q]
    bit = np.int64(1) << c
    for x in range(np.uint64(count)):
        w.work[x] = w.key[q, x] if w.where[q, x] & bit else GONE
    for v in range(w.cluster[c, C_LOW], w.cluster[c, C_HIGH]):
        w.node[PASS, v] = w.node[UNTIL, v]


@compiled
def measure_reach(w, c, shadow):  # type: ignore[no-untyped-def]
    """Fill ``reach``: by GPUs asked of a node, the latest end of a job that some node would take now.

    A job within reach may still not fit, by cores, memory, type or number of nodes; one beyond cannot.
    """
    w.reach[:] = -1
    for v in range(np.uint64(w.cluster[c, C_LOW]), np.uint64(w.cluster[c, C_HIGH])):
        free = w.node[FREE_GPUS, v]
        until = np.int64(w.node[PASS, v])
        w.reach[free] = max(w.reach[free], min(until, shadow))
        if shadow < LATER:
            spare = min(free, w.node[SPARE_GPUS, v])
            if spare >= 0:
                w.reach[spare] = max(w.reach[spare], until)
    for gpus in range(w.reach.size - 2, -1, -1):
        w.reach[gpus] = max(w.reach[gpus], w.reach[gpus + 1])


@compiled
def may_start(w, c):  # type: ignore[no-untyped-def]
    """Is a job left in ``work`` that is within reach? If not, none of them can start."""
    measure_reach(w, c, LATER)
    q = w.cluster[c, C_QUEUE]
    now = w.clock[NOW]
    for x in range(w.waiting[q]):
        end = min(now + w.column[q, Q_LIMIT, x], np.int64(NEVER) - 1)
        if w.work[x] != GONE and end <= w.reach[w.column[q, Q_NEED, x]]:
            return True
    return False


@compiled
def keep_startable(w, c, shadow):  # type: ignore[no-untyped-def]
    """Leave out of ``work`` every job beyond reach: what is free only gets less within a pass."""
    measure_reach(w, c, shadow)
    q = w.cluster[c, C_QUEUE]
    now = w.clock[NOW]
    for x in range(np.uint64(w.waiting[q])):
        end = min(now + w.column[q, Q_LIMIT, x], np.int64(NEVER) - 1)
        w.work[x] = w.work[x] if end <= w.reach[w.column[q, Q_NEED, x]] else GONE


@compiled
def drop_limited(w, q, j):  # type: ignore[no-untyped-def]
    """Leave out a job its limits hold, and all of that user and QOS that ask for as many GPUs."""
    user = w.job[j, USER]
    qos = w.job[j, QOS]
    gpus = w.job[j, GPUS]
    for x in range(w.waiting[q]):
        if (
            w.column[q, Q_USER, x] == user
            and w.column[q, Q_QOS, x] == qos
            and w.job[w.column[q, Q_JOB, x], GPUS] >= gpus
        ):
            w.work[x] = GONE


@compiled
def drop_partition(w, c, q, partition):  # type: ignore[no-untyped-def]
    """Slurm's main pass: a job that must wait stops its partition, and keeps that partition's nodes."""
    for x in range(np.uint64(w.waiting[q])):
        w.work[x] = GONE if w.column[q, Q_PARTITION, x] == partition else w.work[x]
    bit = np.int64(1) << partition
    for v in range(w.cluster[c, C_LOW], w.cluster[c, C_HIGH]):
        if w.node_partitions[v] & bit:
            w.node[PASS, v] = -1


@compiled
def try_now(w, c, j, spare):  # type: ignore[no-untyped-def]
    """Find nodes for a job to start now."""
    kind = w.kind[w.job[j, KIND], c]
    end = w.clock[NOW] + w.job[j, LIMIT]
    low = w.cluster[c, C_LOW]
    high = w.cluster[c, C_HIGH]
    consecutive = w.rule[PLACEMENT] != 0
    return find_nodes(w.node, w.ok[kind[K_CLASS]], kind, low, high, end, spare, consecutive, w.good, w.chosen)


@compiled
def main_pass(w, c, depth):  # type: ignore[no-untyped-def]
    """Start jobs in order; the first that cannot start stops its partition (Slurm's job_scheduler.c)."""
    for p in range(w.blocker.shape[1]):
        w.blocker[c, p] = -1
    q = w.cluster[c, C_QUEUE]
    if w.waiting[q] == 0:
        return
    begin_pass(w, c)
    if not may_start(w, c):
        return
    w.clock[PASSES] += 1
    tested = 0
    while depth == 0 or tested < depth:
        best = best_key(w.work, w.waiting[q])
        if best == GONE:
            break
        j = job_of(best)
        if w.rule[LIMITED] and not within_limits(w, c, j):
            drop_limited(w, q, j)
            continue
        tested += 1
        if try_now(w, c, j, False):
            start_job(w, c, j)
        else:
            w.blocker[c, w.job[j, PARTITION]] = j
            drop_partition(w, c, q, w.job[j, PARTITION])


@compiled
def protect_head(w, c, j, at):  # type: ignore[no-untyped-def]
    """EASY: note what the first job that waits leaves over on its nodes at the instant it can start."""
    kind = w.kind[w.job[j, KIND], c]
    for v in range(w.cluster[c, C_LOW], w.cluster[c, C_HIGH]):
        w.node[SPARE_GPUS, v] = NEVER
        w.node[SPARE_CPUS, v] = NEVER
        w.node[SPARE_MEMORY, v] = NEVER
    for k in range(kind[K_NODES]):
        v = w.chosen[k]
        cpus = np.int64(w.node[FREE_CPUS, v])
        memory = np.int64(w.node[FREE_MEMORY, v])
        for x in range(w.run_count[v]):
            if w.run[v, x, R_END] <= at:
                cpus += w.run[v, x, R_CPUS]
                memory += w.run[v, x, R_MEMORY]
        w.node[SPARE_GPUS, v] = np.int32(free_gpus_at(w.node, w.run, w.run_count, v, at) - kind[K_GPUS])
        w.node[SPARE_CPUS, v] = np.int32(cpus - kind[K_CPUS])
        w.node[SPARE_MEMORY, v] = np.int32(memory - kind[K_MEMORY])


@compiled
def plan_job(w, c, j):  # type: ignore[no-untyped-def]
    """When and where this job could start; fills ``chosen``. LATER if never."""
    kind = w.kind[w.job[j, KIND], c]
    low = w.cluster[c, C_LOW]
    high = w.cluster[c, C_HIGH]
    at = plan_start(
        w.node, w.ok, w.run, w.run_count, w.reserved, w.reserved_at, w.plan, w.plan_first, w.earliest,
        kind, low, high, w.clock[NOW], w.job[j, LIMIT],
    )  # fmt: skip
    if at < LATER:
        for v in range(low, high):
            w.good[v] = w.earliest[v] == at
        consecutive = w.rule[PLACEMENT] != 0
        choose_planned(w.node, w.run, w.run_count, w.good, low, high, kind[K_NODES], at, consecutive, w.chosen)
    return at


@compiled
def drop_alike(w, q, j):  # type: ignore[no-untyped-def]
    """Leave out every job that asks for the same and runs as long: it cannot start in this pass either."""
    kind = w.job[j, KIND]
    limit = w.job[j, LIMIT]
    for x in range(np.uint64(w.waiting[q])):
        alike = (w.column[q, Q_KIND, x] == kind) & (w.column[q, Q_LIMIT, x] >= limit)
        w.work[x] = GONE if alike else w.work[x]


@compiled
def start_behind(w, c, j, shadow):  # type: ignore[no-untyped-def]
    """Start a job found by EASY; what it holds past the shadow is no longer spare."""
    kind = w.kind[w.job[j, KIND], c]
    if w.clock[NOW] + w.job[j, LIMIT] > shadow:
        for k in range(kind[K_NODES]):
            v = w.chosen[k]
            if w.node[SPARE_GPUS, v] != NEVER:
                w.node[SPARE_GPUS, v] -= kind[K_GPUS]
                w.node[SPARE_CPUS, v] -= kind[K_CPUS]
                w.node[SPARE_MEMORY, v] -= kind[K_MEMORY]
    start_job(w, c, j)
    w.clock[BACKFILLED] += 1


@compiled
def easy_pass(w, c):  # type: ignore[no-untyped-def]
    """EASY: later jobs start if the first one that waits is not delayed, by time limits."""
    q = w.cluster[c, C_QUEUE]
    if w.waiting[q] == 0:
        return
    begin_pass(w, c)
    if not may_start(w, c):
        return
    shadow = LATER
    protected = False
    while True:
        best = best_key(w.work, w.waiting[q])
        if best == GONE:
            return
        j = job_of(best)
        if w.rule[LIMITED] and not within_limits(w, c, j):
            drop_limited(w, q, j)
            continue
        beyond = w.clock[NOW] + w.job[j, LIMIT] > shadow
        if try_now(w, c, j, beyond):
            start_behind(w, c, j, shadow)
            if protected:
                keep_startable(w, c, shadow)
        elif protected:
            drop_alike(w, q, j)
        else:
            protected = True
            w.blocker[c, w.job[j, PARTITION]] = j
            at = plan_job(w, c, j)
            if at < LATER:
                shadow = at
                protect_head(w, c, j, at)
            w.work[w.life[j, SLOT]] = GONE
            keep_startable(w, c, shadow)


@compiled
def slurm_pass(w, c):  # type: ignore[no-untyped-def]
    """Slurm's backfill: plan jobs in order by time limits; each plan keeps whole nodes (backfill.c).

    Only starts have an effect after the pass, so it ends as soon as nothing that is left could start now.
    Returns 1 if the next pass may find more to start although nothing happens until then.
    """
    q = w.cluster[c, C_QUEUE]
    if w.waiting[q] == 0:
        return 0
    again = 0
    begin_pass(w, c)
    low = w.cluster[c, C_LOW]
    high = w.cluster[c, C_HIGH]
    for v in range(low, high):
        w.plan_first[v] = -1
    w.clock[PLANS] = 0
    tested = 0
    resolution = w.rule[BF_RESOLUTION]
    while tested < w.rule[BF_TESTS] and may_start(w, c):
        j = job_of(best_key(w.work, w.waiting[q]))
        if w.rule[LIMITED] and not within_limits(w, c, j):
            drop_limited(w, q, j)
            continue
        tested += 1
        if try_now(w, c, j, False):
            start_job(w, c, j)
            w.clock[BACKFILLED] += 1
            again = 1
            continue
        w.work[w.life[j, SLOT]] = GONE
        at = backfill_start(w, c, j)
        if at == LATER:
            again = 1
            continue
        first = at // resolution * resolution
        last = (at + w.job[j, LIMIT] + resolution - 1) // resolution * resolution
        for k in range(w.kind[w.job[j, KIND], c, K_NODES]):
            v = w.chosen[k]
            e = w.clock[PLANS]
            w.clock[PLANS] += 1
            w.plan[e, 0] = first
            w.plan[e, 1] = last
            w.plan[e, 2] = w.plan_first[v]
            w.plan_first[v] = e
            w.node[PASS, v] = min(w.node[PASS, v], np.int32(min(first - 1, NEVER)))
    for v in range(low, high):
        w.plan_first[v] = -1
    return again


@compiled
def look(w, c, starts, depth, backfills):  # type: ignore[no-untyped-def]
    """All a cluster does at one instant: the main pass, EASY with it, Slurm's backfill if it is due."""
    if starts:
        main_pass(w, c, depth)
        if w.rule[BACKFILL] == EASY:
            easy_pass(w, c)
    if backfills:
        w.cluster[c, C_CHANGED] = slurm_pass(w, c)
