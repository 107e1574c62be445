"""Nodes for a job: now, and planned. Compiled; the plain twin is in the tests."""

from __future__ import annotations

import numpy as np

from slurm_evo.kernels import kernel
from slurm_evo.sim.world import (
    ALL_CPUS,
    ALL_GPUS,
    ALL_MEMORY,
    DRAINS,
    FREE_CPUS,
    FREE_GPUS,
    FREE_MEMORY,
    K_CLASS,
    K_CPUS,
    K_GPUS,
    K_MEMORY,
    K_NODES,
    LATER,
    NEVER,
    PASS,
    R_CPUS,
    R_END,
    R_GPUS,
    R_JOB,
    R_MEMORY,
    SPARE_CPUS,
    SPARE_GPUS,
    SPARE_MEMORY,
)

allocating = kernel(boundscheck=False, error_model="numpy", _nrt=True)
"""For the few compiled functions that make arrays."""

compiled = kernel(boundscheck=False, error_model="numpy", _nrt=False)
"""For all others: without reference counts, which cost more than the work where many arrays are passed."""

inlined = kernel(boundscheck=False, error_model="numpy", _nrt=False, forceinline=True)
"""For what is called once for every node or slot."""

# compiled functions take flat arrays: a tuple of all of them is slow to pass


@inlined
def best_node(node, ok, low, high, gpus, cpus, memory, end, above, spare):  # type: ignore[no-untyped-def]
    """The usable node with fewest free GPUs, then the lowest index, as one number; LATER if there is none.

    ``above`` leaves out what a call before returned. ``spare`` also keeps what EASY protects.
    """
    best = LATER
    first = np.uint64(low)
    for i in range(np.uint64(high - low)):
        v = first + np.uint64(i)
        good = (
            (node[FREE_GPUS, v] >= gpus)
            & (node[FREE_CPUS, v] >= cpus)
            & (node[FREE_MEMORY, v] >= memory)
            & (node[PASS, v] >= end)
            & (ok[v] != 0)
        )
        if spare:
            good &= (
                (node[SPARE_GPUS, v] >= gpus) & (node[SPARE_CPUS, v] >= cpus) & (node[SPARE_MEMORY, v] >= memory)
            )
        name = (np.int64(node[FREE_GPUS, v]) << 32) | np.int64(v)
        best = min(best, name if good and name > above else LATER)
    return best


@compiled
def choose_run(good, low, high, wanted, chosen):  # type: ignore[no-untyped-def]
    """Fill ``chosen`` from the nodes where ``good`` is not 0, as Placement.CONSECUTIVE says; False: too few."""
    filled = 0
    while filled < wanted:
        need = wanted - filled
        best_start = low
        best_length = 0
        v = low
        while v < high:
            if good[v] == 0:
                v += 1
                continue
            start = v
            while v < high and good[v] != 0:
                v += 1
            length = v - start
            if length >= need:
                better = best_length < need or length < best_length
            else:
                better = length > best_length and best_length < need
            if better:
                best_start = start
                best_length = length
        if best_length == 0:
            return False
        for u in range(best_start, best_start + min(best_length, need)):
            chosen[filled] = np.int32(u)
            good[u] = 0
            filled += 1
    return True


@compiled
def find_run(node, ok, kind, low, high, end, spare, good, chosen):  # type: ignore[no-untyped-def]
    """``find_nodes`` under Placement.CONSECUTIVE; ``good`` is scratch."""
    gpus = kind[K_GPUS]
    cpus = kind[K_CPUS]
    memory = kind[K_MEMORY]
    count = 0
    for v in range(np.uint64(low), np.uint64(high)):
        fits = (
            (node[FREE_GPUS, v] >= gpus)
            & (node[FREE_CPUS, v] >= cpus)
            & (node[FREE_MEMORY, v] >= memory)
            & (node[PASS, v] >= end)
            & (ok[v] != 0)
        )
        if spare:
            fits &= (
                (node[SPARE_GPUS, v] >= gpus) & (node[SPARE_CPUS, v] >= cpus) & (node[SPARE_MEMORY, v] >= memory)
            )
        good[v] = fits
        count += fits
    return count >= kind[K_NODES] and choose_run(good, low, high, kind[K_NODES], chosen)


@compiled
def find_nodes(node, ok, kind, low, high, end, spare, consecutive, good, chosen):  # type: ignore[no-untyped-def]
    """Fill ``chosen`` with the nodes for a job that starts now and would end at ``end``; False if it cannot."""
    above = np.int64(-1)
    stop = np.int32(min(end, NEVER - 1))
    if consecutive:
        return find_run(node, ok, kind, low, high, stop, spare, good, chosen)
    for k in range(kind[K_NODES]):
        above = best_node(node, ok, low, high, kind[K_GPUS], kind[K_CPUS], kind[K_MEMORY], stop, above, spare)
        if above == LATER:
            return False
        chosen[k] = np.int32(above & np.int64(0xFFFFFFFF))
    return True


@compiled
def occupy(node, run, run_count, v, gpus, cpus, memory, end, job):  # type: ignore[no-untyped-def]
    """A job takes its share of one node."""
    node[FREE_GPUS, v] -= gpus
    node[FREE_CPUS, v] -= cpus
    node[FREE_MEMORY, v] -= memory
    at = run_count[v]
    while at > 0 and run[v, at - 1, R_END] > end:
        for f in range(5):
            run[v, at, f] = run[v, at - 1, f]
        at -= 1
    run[v, at, R_END] = end
    run[v, at, R_GPUS] = gpus
    run[v, at, R_CPUS] = cpus
    run[v, at, R_MEMORY] = memory
    run[v, at, R_JOB] = job
    run_count[v] += 1


@compiled
def vacate(node, run, run_count, v, job):  # type: ignore[no-untyped-def]
    """A job gives its share of one node back."""
    at = 0
    while run[v, at, R_JOB] != job:
        at += 1
    node[FREE_GPUS, v] += np.int32(run[v, at, R_GPUS])
    node[FREE_CPUS, v] += np.int32(run[v, at, R_CPUS])
    node[FREE_MEMORY, v] += np.int32(run[v, at, R_MEMORY])
    run_count[v] -= 1
    for x in range(at, run_count[v]):
        for f in range(5):
            run[v, x, f] = run[v, x + 1, f]


@inlined
def free_gpus_at(node, run, run_count, v, instant):  # type: ignore[no-untyped-def]
    """Free GPUs of a node once every job whose limit ends by then is gone."""
    free = np.int64(node[FREE_GPUS, v])
    x = 0
    while x < run_count[v] and run[v, x, R_END] <= instant:
        free += run[v, x, R_GPUS]
        x += 1
    return free


@inlined
def next_fit(node, run, run_count, reserved, reserved_at, plan, plan_first, v, since, kind, limit, bound):  # type: ignore[no-untyped-def]
    """The first instant from ``since`` at which this node can hold the job for its whole limit; LATER: never.

    Jobs are taken to run until their limits, as Slurm's will-run test does. Answers after ``bound`` may be LATER.
    """
    if (
        node[DRAINS, v] > 0
        or node[ALL_GPUS, v] < kind[K_GPUS]
        or node[ALL_CPUS, v] < kind[K_CPUS]
        or node[ALL_MEMORY, v] < kind[K_MEMORY]
    ):
        return LATER
    at = since
    gpus = np.int64(node[FREE_GPUS, v])
    cpus = np.int64(node[FREE_CPUS, v])
    memory = np.int64(node[FREE_MEMORY, v])
    x = 0
    while gpus < kind[K_GPUS] or cpus < kind[K_CPUS] or memory < kind[K_MEMORY]:
        gpus += run[v, x, R_GPUS]
        cpus += run[v, x, R_CPUS]
        memory += run[v, x, R_MEMORY]
        at = max(at, run[v, x, R_END])
        x += 1
    moved = True
    while moved:
        if at > bound:
            return LATER
        moved = False
        for r in range(reserved_at[v], reserved_at[v + 1]):
            if reserved[r, 0] < at + limit and reserved[r, 1] > at:
                at = reserved[r, 1]
                moved = True
        e = plan_first[v]
        while e >= 0:
            if plan[e, 0] < at + limit and plan[e, 1] > at:
                at = plan[e, 1]
                moved = True
            e = plan[e, 2]
    return at


@compiled
def kth_smallest(values, low, high, k, least):  # type: ignore[no-untyped-def]
    """The k-th smallest of values[low:high], none of which is below ``least``; LATER if there are fewer."""
    bottom = least
    top = np.int64(NEVER) * 2
    while bottom < top:
        middle = (bottom + top) >> 1
        count = 0
        for v in range(low, high):
            count += values[v] <= middle
        if count >= k:
            top = middle
        else:
            bottom = middle + 1
    return bottom if bottom < np.int64(NEVER) * 2 else LATER


@compiled
def plan_start(  # type: ignore[no-untyped-def]
    node, ok, run, run_count, reserved, reserved_at, plan, plan_first, earliest, kind, low, high, now, limit
):
    """The first instant at which enough nodes can hold the job together; LATER if never.

    Leaves each node's own first instant, counted from the answer, in ``earliest``.
    """
    wanted = kind[K_NODES]
    at = now
    while True:
        least = LATER
        for v in range(low, high):
            earliest[v] = LATER
            if ok[kind[K_CLASS], v]:
                earliest[v] = next_fit(
                    node, run, run_count, reserved, reserved_at, plan, plan_first, v, at, kind, limit,
                    least if wanted == 1 else LATER,
                )  # fmt: skip
                least = min(least, earliest[v])
        if least == LATER:
            return LATER
        found = least if wanted == 1 else kth_smallest(earliest, low, high, wanted, least)
        if found == LATER:
            return LATER
        together = 0
        for v in range(low, high):
            together += earliest[v] == found
        if together >= wanted:
            return found
        at = found


@compiled
def choose_planned(node, run, run_count, good, low, high, wanted, at, consecutive, chosen):  # type: ignore[no-untyped-def]
    """Fill ``chosen`` with nodes for a start at an instant to come, of those where ``good`` is not 0."""
    if consecutive:
        choose_run(good, low, high, wanted, chosen)
        return
    above = np.int64(-1)
    for k in range(wanted):
        best = LATER
        for v in range(low, high):
            if good[v] != 0:
                name = (free_gpus_at(node, run, run_count, v, at) << 32) | np.int64(v)
                if above < name < best:
                    best = name
        above = best
        chosen[k] = np.int32(best & np.int64(0xFFFFFFFF))
