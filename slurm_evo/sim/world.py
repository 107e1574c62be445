"""The arrays one replay runs on: what the engine reads and changes, and nothing else.

Rows hold the fields of one thing side by side, so that touching a job or a cluster touches one cache line;
only the queues and the nodes, which are scanned as a whole, hold one field after the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

NEVER = np.int32(2**31 - 1)
LATER = np.int64(2**62)
GONE = np.int64(-(2**63))
"""A key that never wins: the slot is out of the pass."""

# World.job: (n, 13) int64; RUNS becomes what it really runs when a job starts, ENTRY is where it waits first
SUBMIT, RUNS, LIMIT, GPUS, KIND, PARTITION, USER, QOS, FEASIBLE, HOME, CANCEL, KILLED, ENTRY = range(13)

# World.life: (n, 7) int64
START, ON, STATE, QUEUE, SLOT, PLACES, WHERE = range(7)
PENDING_STATE, RUNNING_STATE, DONE_STATE, CANCELLED_STATE, REJECTED_STATE, FUTURE_STATE = range(6)

# World.kind: (kinds, clusters, 5) int32. Nodes 0: this cluster can never run it.
K_NODES, K_GPUS, K_CPUS, K_MEMORY, K_CLASS = range(5)

# World.node: (12, nodes) int32
FREE_GPUS, FREE_CPUS, FREE_MEMORY = 0, 1, 2
UNTIL = 3
"""Last instant (inclusive) at which a job started now may end; -1: takes no job now."""
PASS = 4
"""The same within one pass, where planned jobs stand in the way too."""
SPARE_GPUS, SPARE_CPUS, SPARE_MEMORY = 5, 6, 7
"""What EASY's protected job leaves over."""
ALL_GPUS, ALL_CPUS, ALL_MEMORY = 8, 9, 10
DRAINS = 11

# World.run: (nodes, most jobs on a node, 5) int64, ascending by the instant of the limit
R_END, R_GPUS, R_CPUS, R_MEMORY, R_JOB = range(5)

# World.cluster: (clusters, 12) int64
(
    C_LOW,
    C_HIGH,
    C_GPUS,
    C_BUSY,
    C_ASKED,
    C_AHEAD,
    C_QUEUE,
    C_TOUCHED,
    C_CHANGED,
    C_LAST,
    C_WANTS,
    C_SPEED,
) = range(12)
# C_SPEED: in thousandths; running times are divided by it

# World.column: (queues, 7, capacity) int32
Q_JOB, Q_KIND, Q_PARTITION, Q_NEED, Q_LIMIT, Q_USER, Q_QOS = range(7)

# World.clock: (28,) int64
(
    NOW,
    ORIGIN,
    NEXT_JOB,
    NEXT_CANCEL,
    NEXT_OUTAGE,
    RUNNING,
    NEXT_SCHED,
    NEXT_BACKFILL,
    NEXT_CALC,
    WAKE,
    WAITING,
    ASKED_GPUS,
    BUSY_GPUS,
    FLEET_GPUS,
    PLANS,
    PLACED,
    TURN,
    LAST_CHANCES,
    EVENTS,
    PASSES,
    STARTS,
    QUEUE_AREA,
    BACKFILLED,
    MOST_WAITING,
    NEXT_LOOK,
    SCHED_ORIGIN,
    BACKFILL_ORIGIN,
    LIMIT_ORIGIN,
) = range(28)

# World.rule: (17,) int64
(
    BACKFILL,
    CALC_PERIOD,
    SCHED_INTERVAL,
    DEPTH,
    BF_INTERVAL,
    BF_WINDOW,
    BF_TESTS,
    BF_RESOLUTION,
    ALLOCATION,
    LIMITED,
    DYNAMIC,
    SCHED_DELAY,
    REACTION,
    LIMIT_CHECK,
    WINDOW,
    PLACEMENT,
    SCHED_TICK,
) = range(17)
ALLOCATE_RACE = 10
"""Follows the values of rules.Fixed: all jobs wait in one queue, on sets of clusters."""

# World.user_usage: (users, 3) float64
U_USED, U_AT, U_RUNNING = range(3)

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


class World(NamedTuple):
    """Everything a replay reads and changes; shapes above, n jobs, N nodes, C clusters."""

    job: I64
    life: I64
    kind: I32
    ok: npt.NDArray[np.uint8]
    """(classes, N): may a job of this partition and GPU type use the node?"""
    node: I32
    node_partitions: I64
    """(N,) bits."""
    run: I64
    run_count: I64
    """(N,)"""
    reserved: I64
    """(m, 2) start and end of reservations, by node, then start."""
    reserved_at: I64
    """(N + 1,) where a node's rows of ``reserved`` begin."""
    plan: I64
    """(most plans, 3) start, end, next entry of the same node or -1; of one backfill pass."""
    plan_first: I64
    """(N,) first entry, or -1."""
    earliest: I64
    """(N,) scratch of planning."""
    good: I64
    """(N,) scratch of placing: not 0 where a node may be chosen."""
    reach: I64
    """(most GPUs of a node + 1,) scratch: the latest end some node would take, by GPUs asked of it."""
    chosen: I32
    """(N,) scratch: nodes found for one job."""
    places: I32
    """Nodes of every job that started, one job after the other; ``life[j, PLACES]`` is where j's begin."""
    outage: I64
    """(e, 3) instant, node, drains to add."""
    cancel: I64
    """(m, 2) instant, job; ascending."""
    heap: I64
    """Running jobs: end << 32 | job, a binary heap."""
    cluster: I64
    blocker: I64
    """(C, partitions) the job that stopped the last pass of that partition, or -1."""
    key: I64
    """(queues, capacity) score and job as one ordered integer."""
    work: I64
    """(capacity,) the keys that are left in a pass."""
    column: I32
    where: I64
    """(queues, capacity) bits of clusters."""
    waiting: I64
    """(queues,) filled slots."""
    limit_user: I64
    """(users, 2) GPUs, jobs; LATER where unlimited. The next two likewise."""
    limit_qos: I64
    limit_qos_user: I64
    use_user: I64
    """(C, users, 2)"""
    use_qos: I64
    use_qos_user: I64
    """(C, qos, users, 2)"""
    user_usage: npt.NDArray[np.float64]
    user_asked: I64
    """(users,) GPUs asked by pending jobs."""
    score: npt.NDArray[np.float32]
    """(n,) of a policy that does not depend on time; else (1,)."""
    feature: npt.NDArray[np.float64]
    """(n, 6) terminals 1 to 6, for a policy that depends on time; else (1, 6)."""
    table: npt.NDArray[np.float64]
    """(queues, 6, capacity) terminals 1 to 6 of waiting jobs."""
    scratch: npt.NDArray[np.float64]
    """(11 * capacity,) scratch: the table a policy is evaluated on."""
    value: npt.NDArray[np.float64]
    """(capacity,) scratch: scores."""
    clock: I64
    rule: I64
