"""Build the engine's arrays from a workload, a fleet, rules and an allocation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from slurm_evo.model import ConfigError
from slurm_evo.sim import world as at
from slurm_evo.sim.fleet import FleetShape, Limits, RunningLimit, Why
from slurm_evo.sim.placing import allocating
from slurm_evo.sim.rules import Allocation, Fixed, LayerOne, Rules
from slurm_evo.sim.workload import Ints, Workload
from slurm_evo.sim.world import I32, I64, LATER, NEVER, World

FIRST_CAPACITY = 1024
"""Slots a queue begins with; it doubles when full."""
MOST_ON_A_NODE = 20_000
_KINDS: WeakKeyDictionary[Workload, tuple[ref[FleetShape], Any]] = WeakKeyDictionary()
LAYER_ONE_RULE = at.ALLOCATE_RACE + 1


@allocating
def _shape_kinds(asks, classes, ok, node, low_high, out):  # type: ignore[no-untyped-def]
    """How each kind of request is cut into nodes on each cluster; nodes 0 where it can never run.

    As cons_tres does by default: as few nodes as can hold it, one if possible. A job of more GPUs than
    any of its nodes has takes whole nodes.
    """
    for k in range(asks.shape[0]):
        gpus, nodes, cpus, memory = asks[k, 0], asks[k, 1], asks[k, 2], asks[k, 3]
        fit = ok[classes[k]]
        for c in range(low_high.shape[0]):
            out[k, c, at.K_CLASS] = classes[k]
            most = np.zeros(3, dtype=np.int64)
            for v in range(low_high[c, 0], low_high[c, 1]):
                if fit[v]:
                    for d in range(3):
                        most[d] = max(most[d], node[at.ALL_GPUS + d, v])
            wanted = nodes
            if wanted == 0:
                wanted = 1
                for ask, has in ((gpus, most[0]), (cpus, most[1]), (memory, most[2])):
                    if ask > 0:
                        wanted = max(wanted, -(-ask // has) if has > 0 else np.int64(NEVER))
            each = -(-gpus // wanted)
            if nodes == 0 and gpus > most[0]:
                each = most[0]
            cpus_each = -(-cpus // wanted)
            memory_each = -(-memory // wanted)
            found = 0
            for v in range(low_high[c, 0], low_high[c, 1]):
                found += (
                    fit[v] != 0
                    and node[at.ALL_GPUS, v] >= each
                    and node[at.ALL_CPUS, v] >= cpus_each
                    and node[at.ALL_MEMORY, v] >= memory_each
                )
            if found >= wanted:
                out[k, c, at.K_NODES] = wanted
                out[k, c, at.K_GPUS] = each
                out[k, c, at.K_CPUS] = cpus_each
                out[k, c, at.K_MEMORY] = memory_each


def _nodes(fleet: FleetShape) -> tuple[I32, I64, I64]:
    """The node table, the partitions of each node, and where each cluster's nodes begin and end."""
    shapes = fleet.nodes
    node = np.zeros((12, len(shapes)), dtype=np.int32)
    for row, name in enumerate(("gpus", "cpus", "memory")):
        node[at.ALL_GPUS + row] = [getattr(shape, name) for shape in shapes]
    node[at.FREE_GPUS : at.FREE_MEMORY + 1] = node[at.ALL_GPUS : at.ALL_MEMORY + 1]
    parts = np.array([sum(1 << p for p in shape.partitions) for shape in shapes], dtype=np.int64)
    ends = np.cumsum([len(nodes) for nodes in fleet.clusters])
    low_high = np.stack([ends - [len(nodes) for nodes in fleet.clusters], ends], axis=1)
    return node, parts, low_high.astype(np.int64)


def _distinct_rows(rows: Ints) -> tuple[Ints, Ints]:
    """``np.unique(rows, axis=0, return_inverse=True)``, by sorting numbers instead of rows: 20 times as fast."""
    code = np.zeros(len(rows), dtype=np.int64)
    first = np.zeros(0, dtype=np.int64)
    for column in rows.T:
        values, place = np.unique(column, return_inverse=True)
        _, first, code = np.unique(code * len(values) + place, return_index=True, return_inverse=True)
    return rows[first], code


def _kinds(
    jobs: Workload, fleet: FleetShape, node: I32, parts: I64, low_high: I64
) -> tuple[Ints, I32, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """Distinct requests: the kind of each job, their shapes per cluster, and which nodes each class may use."""
    asks = np.stack(
        [jobs.partition, jobs.gpu_type, jobs.gpus > 0, jobs.gpus, jobs.nodes, jobs.cpus, jobs.memory], axis=1
    )
    distinct, kind_of = _distinct_rows(asks)
    classes, class_of = np.unique(distinct[:, :3], axis=0, return_inverse=True)
    types = np.array([shape.gpu_type for shape in fleet.nodes])
    ok = np.zeros((len(classes), node.shape[1]), dtype=np.uint8)
    for row, (partition, gpu_type, needs_gpu) in enumerate(classes):
        ok[row] = (parts >> partition) & 1
        if needs_gpu and gpu_type >= 0:
            ok[row] &= types == gpu_type
    out = np.zeros((len(distinct), len(low_high), 5), dtype=np.int32)
    _shape_kinds(np.ascontiguousarray(distinct[:, 3:]), class_of.reshape(-1), ok, node, low_high, out)
    return kind_of.reshape(-1), out, ok


def _known_kinds(
    jobs: Workload, fleet: FleetShape, node: I32, parts: I64, low_high: I64
) -> tuple[Ints, I32, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """The same, worked out once for a workload on a fleet: training replays both thousands of times."""
    known = _KINDS.get(jobs)
    if known is None or known[0]() is not fleet:
        known = _KINDS[jobs] = (ref(fleet), _kinds(jobs, fleet, node, parts, low_high))
    kind_of, out, ok = known[1]
    return kind_of, out.copy(), ok.copy()


def _limit_table(limits: Mapping[int, RunningLimit], count: int) -> I64:
    table = np.full((count, 2), LATER, dtype=np.int64)
    for index, limit in limits.items():
        if 0 <= index < count:
            for column, value in enumerate((limit.gpus, limit.jobs)):
                if value is not None:
                    table[index, column] = value
    return table


def _outages(fleet: FleetShape, low_high: I64) -> tuple[I64, I64, I64]:
    """Events (instant, node, drains to add, cluster); reservations by node; where each node's begin."""
    events = []
    reserved = []
    for out in fleet.out_of_service:
        step = 1 if out.why is Why.DRAIN else 0
        cluster = int(np.searchsorted(low_high[:, 1], out.node, side="right"))
        events += [(out.start, out.node, step, cluster), (out.end, out.node, -step, cluster)]
        if out.why is Why.RESERVATION:
            reserved.append((out.node, out.start, out.end))
    begins = np.searchsorted([node for node, _, _ in sorted(reserved)], np.arange(fleet.node_count + 1))
    return (
        np.array(sorted(events), dtype=np.int64).reshape(-1, 4),
        np.array([span for _, *span in sorted(reserved)], dtype=np.int64).reshape(-1, 2),
        begins.astype(np.int64),
    )


def _rule_row(rules: Rules, allocation: Allocation, limits: Limits, *, dynamic: bool) -> I64:
    rule = np.zeros(17, dtype=np.int64)
    rule[at.BACKFILL] = rules.backfill
    rule[at.CALC_PERIOD] = rules.priority_calc_period
    rule[at.SCHED_INTERVAL] = rules.sched_interval
    rule[at.DEPTH] = rules.default_queue_depth
    rule[at.BF_INTERVAL] = rules.bf_interval
    rule[at.BF_WINDOW] = rules.bf_window
    rule[at.BF_TESTS] = rules.bf_max_job_test
    rule[at.BF_RESOLUTION] = rules.bf_resolution
    rule[at.SCHED_DELAY] = rules.batch_sched_delay
    rule[at.SCHED_TICK] = rules.sched_tick
    rule[at.REACTION] = rules.reaction
    rule[at.WINDOW] = rules.will_run_window
    rule[at.PLACEMENT] = rules.placement
    rule[at.LIMIT_CHECK] = rules.time_limit_check
    rule[at.LIMITED] = bool(limits)
    rule[at.DYNAMIC] = dynamic
    if isinstance(allocation, Fixed):
        rule[at.ALLOCATION] = allocation
    elif isinstance(allocation, LayerOne):
        rule[at.ALLOCATION] = LAYER_ONE_RULE
    else:
        rule[at.ALLOCATION] = at.ALLOCATE_RACE
    return rule


def _jobs(jobs: Workload, fleet: FleetShape, kind_of: Ints, kind: I32) -> I64:
    job = np.zeros((len(jobs), 13), dtype=np.int64)
    job[:, at.SUBMIT] = jobs.submit
    job[:, at.RUNS] = jobs.runtime
    job[:, at.LIMIT] = jobs.limit
    job[:, at.GPUS] = jobs.gpus
    job[:, at.KIND] = kind_of
    job[:, at.PARTITION] = jobs.partition
    job[:, at.USER] = jobs.user
    job[:, at.QOS] = jobs.qos
    job[:, at.HOME] = jobs.home
    job[:, at.CANCEL] = jobs.cancel
    bits = np.int64(1) << np.arange(len(fleet.clusters))
    job[:, at.FEASIBLE] = jobs.clusters & ((kind[:, :, at.K_NODES] > 0) @ bits)[kind_of]
    for partition, most in fleet.partition_limit.items():
        job[(jobs.partition == partition) & (jobs.limit > most), at.FEASIBLE] = 0
    return job


def feasible(jobs: Workload, fleet: FleetShape) -> Ints:
    """(n,) bits: the clusters that could ever run each job."""
    node, parts, low_high = _nodes(fleet)
    kind_of, kind, _ = _known_kinds(jobs, fleet, node, parts, low_high)
    return _jobs(jobs, fleet, kind_of, kind)[:, at.FEASIBLE].copy()


def _most_places(job: I64, kind: I32) -> int:
    """Nodes all jobs take together at most, each counted on its most scattered cluster."""
    return int(kind[:, :, at.K_NODES].max(axis=1).astype(np.int64)[job[:, at.KIND]].sum()) if len(job) else 0


def build(  # one array after the other
    jobs: Workload,
    fleet: FleetShape,
    rules: Rules,
    allocation: Allocation,
    *,
    score: np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None,
) -> World:
    """All arrays of one replay before its first event.

    Args:
        jobs: n jobs.
        fleet: where they run.
        rules: how clusters schedule.
        allocation: how jobs come to clusters.
        score: (n,) of a policy that does not depend on time; None for one that does.

    Raises:
        ConfigError: a job's home is no cluster of the fleet.
    """
    n = len(jobs)
    clusters = len(fleet.clusters)
    if n and int(jobs.home.max()) >= clusters:
        raise ConfigError(f"home cluster {int(jobs.home.max())} is not one of the {clusters} of the fleet")
    dynamic = score is None
    node, parts, low_high = _nodes(fleet)
    kind_of, kind, ok = _known_kinds(jobs, fleet, node, parts, low_high)
    job = _jobs(jobs, fleet, kind_of, kind)
    job[:, at.ENTRY] = job[:, at.FEASIBLE]
    if isinstance(allocation, LayerOne) and allocation.entry is not None:
        job[:, at.ENTRY] &= allocation.entry
    outage, reserved, reserved_at = _outages(fleet, low_high)
    rule = _rule_row(rules, allocation, fleet.limits, dynamic=dynamic)
    queues = clusters if rule[at.ALLOCATION] < at.ALLOCATE_RACE else 1
    cluster = np.zeros((clusters, 12), dtype=np.int64)
    cluster[:, at.C_LOW : at.C_HIGH + 1] = low_high
    cluster[:, at.C_GPUS] = fleet.gpus
    cluster[:, at.C_SPEED] = fleet.thousandths
    cluster[:, at.C_QUEUE] = np.arange(clusters) if queues > 1 else 0
    life = np.zeros((n, 7), dtype=np.int64)
    life[:, [at.START, at.ON, at.QUEUE]] = -1
    life[:, at.STATE] = at.FUTURE_STATE
    users = int(jobs.user.max(initial=0)) + 1
    qos = int(jobs.qos.max(initial=0)) + 1
    on_node = _most_on_a_node(jobs, fleet)
    clock = np.zeros(28, dtype=np.int64)
    clock[at.ORIGIN] = clock[at.NEXT_CALC] = jobs.submit[0] if n else 0
    clock[at.SCHED_ORIGIN] = clock[at.NEXT_SCHED] = clock[at.ORIGIN] + rules.sched_first
    clock[at.BACKFILL_ORIGIN] = clock[at.NEXT_BACKFILL] = clock[at.ORIGIN] + rules.bf_first
    clock[at.LIMIT_ORIGIN] = clock[at.ORIGIN] + rules.time_limit_first
    clock[at.FLEET_GPUS] = max(int(fleet.gpus.sum()), 1)
    clock[at.WAKE] = clock[at.NEXT_LOOK] = LATER
    cluster[:, at.C_LAST] = clock[at.ORIGIN] - rules.sched_last
    leaving = np.flatnonzero(jobs.cancel >= 0)
    cancel = np.stack([jobs.cancel[leaving] + rules.reaction, leaving], axis=1).astype(np.int64)
    nodes = node.shape[1]
    first_reserved = np.full(nodes, int(NEVER))
    for v in range(nodes):
        if reserved_at[v] < reserved_at[v + 1]:
            first_reserved[v] = reserved[reserved_at[v], 0]
    node[at.UNTIL] = first_reserved
    plans = rules.bf_max_job_test * int((low_high[:, 1] - low_high[:, 0]).max())
    tracked = users if fleet.limits else 1
    return World(
        job=job,
        life=life,
        kind=kind,
        ok=ok,
        node=node,
        node_partitions=parts,
        run=np.zeros((nodes, on_node, 5), dtype=np.int64),
        run_count=np.zeros(nodes, dtype=np.int64),
        reserved=reserved,
        reserved_at=reserved_at,
        plan=np.zeros((plans, 3), dtype=np.int64),
        plan_first=np.full(nodes, -1, dtype=np.int64),
        earliest=np.zeros(nodes, dtype=np.int64),
        good=np.zeros(nodes, dtype=np.int64),
        reach=np.zeros(int(node[at.ALL_GPUS].max()) + 1, dtype=np.int64),
        chosen=np.zeros(nodes, dtype=np.int32),
        places=np.zeros(_most_places(job, kind), dtype=np.int32),
        outage=outage,
        cancel=cancel[np.lexsort((cancel[:, 1], cancel[:, 0]))],
        heap=np.zeros(min(n, nodes * on_node) + 1, dtype=np.int64),
        cluster=cluster,
        blocker=np.full((clusters, int(jobs.partition.max(initial=0)) + 1), -1, dtype=np.int64),
        key=np.zeros((queues, FIRST_CAPACITY), dtype=np.int64),
        work=np.zeros(FIRST_CAPACITY, dtype=np.int64),
        column=np.zeros((queues, 7, FIRST_CAPACITY), dtype=np.int32),
        where=np.zeros((queues, FIRST_CAPACITY), dtype=np.int64),
        waiting=np.zeros(queues, dtype=np.int64),
        limit_user=_limit_table(fleet.limits.user, users),
        limit_qos=_limit_table(fleet.limits.qos, qos),
        limit_qos_user=_limit_table(fleet.limits.qos_user, qos),
        use_user=np.zeros((clusters, tracked, 2), dtype=np.int64),
        use_qos=np.zeros((clusters, qos, 2), dtype=np.int64),
        use_qos_user=np.zeros((clusters, qos, tracked, 2), dtype=np.int64),
        user_usage=np.zeros((users, 3)),
        user_asked=np.zeros(users, dtype=np.int64),
        score=np.zeros(1, dtype=np.float32) if score is None else score,
        feature=static_terminals(jobs) if dynamic else np.zeros((1, 6)),
        table=np.zeros((queues, 6, FIRST_CAPACITY if dynamic else 1)),
        scratch=np.zeros(11 * FIRST_CAPACITY),
        value=np.zeros(FIRST_CAPACITY),
        clock=clock,
        rule=rule,
    )


def static_terminals(jobs: Workload) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Terminals 1 to 6 (limit, runtime, gpus, nodes, cpus, weight), (n, 6)."""
    nodes = np.maximum(jobs.nodes, 1)
    columns = (jobs.limit, jobs.estimate, jobs.gpus, nodes, jobs.cpus, jobs.weight)
    return np.stack(columns, axis=1).astype(np.float64)


def _most_on_a_node(jobs: Workload, fleet: FleetShape) -> int:
    """More jobs than this never share a node: each takes a GPU, or else a core."""
    without_gpu = int((jobs.gpus == 0).sum())
    most = max(node.gpus + min(node.cpus, without_gpu) for node in fleet.nodes)
    if most > MOST_ON_A_NODE:
        raise ConfigError(f"up to {most} jobs on one node: say how many cores the nodes have")
    return min(most, len(jobs)) + 1


def grown(w: World) -> World:
    """The same replay with room for twice as many waiting jobs per queue."""

    def double(array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> I64:
        return np.concatenate([array, np.zeros_like(array)], axis=-1)

    wider = {name: double(getattr(w, name)) for name in ("key", "work", "column", "where", "value", "scratch")}
    if w.rule[at.DYNAMIC]:
        wider["table"] = double(w.table)
    return w._replace(**wider)
