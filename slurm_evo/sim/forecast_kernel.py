"""The compiled part of `forecast`: importing this imports numba, so it is done on the first forecast only."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def wanted_nodes(gpus, nodes, largest):  # type: ignore[no-untyped-def]
    """How many nodes the job takes, and how many devices on each."""
    count = max(nodes, 1)
    if largest > 0 and gpus > largest * count:
        count = (gpus + largest - 1) // largest
    return count, (gpus + count - 1) // count


@njit(cache=True, nogil=True)
def place(low, high, kind, total, free, cpus_free, gpus, want, nodes, cpus, out):  # type: ignore[no-untyped-def]
    """Find nodes; their indices go to ``out``. Returns how many, 0 if it does not fit now."""
    largest = 0
    for k in range(low, high):
        if (want < 0 or kind[k] == want) and total[k] > largest:
            largest = total[k]
    if gpus > 0 and largest == 0:
        return 0
    count, each = wanted_nodes(gpus, nodes, largest)
    cpus_each = (cpus + count - 1) // count
    if count == 1:
        best, best_free = -1, 1 << 60
        for k in range(low, high):
            if (
                (want < 0 or kind[k] == want)
                and free[k] >= each
                and cpus_free[k] >= cpus_each
                and free[k] < best_free
            ):
                best, best_free = k, free[k]
        if best < 0:
            return 0
        out[0] = best
        return 1
    found = 0
    for k in range(low, high):
        if (want < 0 or kind[k] == want) and free[k] >= each and cpus_free[k] >= cpus_each:
            out[found] = k
            found += 1
            if found == count:
                return found
    return 0


@njit(cache=True, nogil=True)
def run(  # type: ignore[no-untyped-def]
    first, kind, total, free, cpus_free,
    rel_node, rel_gpus, rel_cpus, rel_end, rel_limit,
    gpus, want, nodes, cpus, runtime, limit,
    masks, depth, starts, where,
):  # fmt: skip
    """Fill ``starts`` and ``where``; see `slurm_evo.sim.forecast.forecast`."""
    clusters = first.size - 1
    n = gpus.size
    # Allocations, one for each job and node; jobs may need as many as there are nodes.
    room = rel_node.size + 64
    a_node = np.empty(room, np.int64)
    a_gpus = np.empty(room, np.int64)
    a_cpus = np.empty(room, np.int64)
    a_end = np.empty(room, np.float64)
    a_limit = np.empty(room, np.float64)
    used = rel_node.size
    for r in range(used):
        a_node[r], a_gpus[r], a_cpus[r] = rel_node[r], rel_gpus[r], rel_cpus[r]
        a_end[r], a_limit[r] = rel_end[r], rel_limit[r]
    pending = np.arange(n)
    left = n
    out = np.empty(max(free.size, 1), np.int64)
    reserved = np.zeros(free.size, np.bool_)
    shadow_free = np.empty(free.size, np.int64)
    shadow_cpus = np.empty(free.size, np.int64)
    now = 0.0
    dirty = np.ones(clusters, np.bool_)
    while left > 0:
        started_any = False
        for c in range(clusters):
            if not dirty[c]:
                continue
            dirty[c] = False
            low, high = first[c], first[c + 1]
            bit = np.uint64(1) << np.uint64(c)
            blocked = False
            shadow = np.inf
            looked = 0
            for p in range(left):
                j = pending[p]
                if starts[j] != np.inf or masks[j] & bit == 0:
                    continue
                if blocked:
                    looked += 1
                    if looked > depth:
                        break
                count = place(low, high, kind, total, free, cpus_free, gpus[j], want[j], nodes[j], cpus[j], out)
                if count > 0 and blocked and now + limit[j] > shadow:
                    # It would still run when the reservation begins: only beside the reserved nodes.
                    for k in range(low, high):
                        shadow_free[k] = -1 if reserved[k] else free[k]
                    count = place(
                        low,
                        high,
                        kind,
                        total,
                        shadow_free,
                        cpus_free,
                        gpus[j],
                        want[j],
                        nodes[j],
                        cpus[j],
                        out,
                    )
                if count > 0:
                    each = (gpus[j] + count - 1) // count
                    cpus_each = (cpus[j] + count - 1) // count
                    if used + count > room:
                        # Ended allocations are dropped first; only then more room is taken.
                        more = max(2 * room, used + count)
                        a_node = np.concatenate((a_node, np.empty(more - room, np.int64)))
                        a_gpus = np.concatenate((a_gpus, np.empty(more - room, np.int64)))
                        a_cpus = np.concatenate((a_cpus, np.empty(more - room, np.int64)))
                        a_end = np.concatenate((a_end, np.empty(more - room, np.float64)))
                        a_limit = np.concatenate((a_limit, np.empty(more - room, np.float64)))
                        room = more
                    for i in range(count):
                        k = out[i]
                        free[k] -= each
                        cpus_free[k] -= cpus_each
                        a_node[used], a_gpus[used], a_cpus[used] = k, each, cpus_each
                        a_end[used], a_limit[used] = now + runtime[j], now + limit[j]
                        used += 1
                    starts[j], where[j] = now, c
                    started_any = True
                    continue
                if blocked:
                    continue
                # The first blocked job: when will it fit, if everything runs to its limit, and where?
                blocked = True
                for k in range(low, high):
                    shadow_free[k], shadow_cpus[k] = free[k], cpus_free[k]
                    reserved[k] = False
                here = 0
                mine = np.empty(used, np.int64)
                for a in range(used):
                    if low <= a_node[a] < high:
                        mine[here] = a
                        here += 1
                order = np.argsort(a_limit[mine[:here]], kind="mergesort")
                count = 0
                place_at = 0
                while place_at < here:
                    instant = a_limit[mine[order[place_at]]]
                    while place_at < here and a_limit[mine[order[place_at]]] == instant:
                        a = mine[order[place_at]]
                        shadow_free[a_node[a]] += a_gpus[a]
                        shadow_cpus[a_node[a]] += a_cpus[a]
                        place_at += 1
                    count = place(
                        low, high, kind, total, shadow_free, shadow_cpus,
                        gpus[j], want[j], nodes[j], cpus[j], out,
                    )  # fmt: skip
                    if count > 0:
                        shadow = max(instant, now)
                        break
                if count > 0:
                    for i in range(count):
                        reserved[out[i]] = True
                else:
                    blocked = False  # it can never start here: it holds nobody up
        if started_any:
            kept = 0
            for p in range(left):
                if starts[pending[p]] == np.inf:
                    pending[kept] = pending[p]
                    kept += 1
            left = kept
        # On to the next end.
        following = np.inf
        for a in range(used):
            following = min(following, a_end[a])
        if following == np.inf:
            break
        now = max(now, following)
        a = 0
        while a < used:
            if a_end[a] <= now:
                k = a_node[a]
                free[k] += a_gpus[a]
                cpus_free[k] += a_cpus[a]
                for c in range(clusters):
                    if first[c] <= k < first[c + 1]:
                        dirty[c] = True
                used -= 1
                a_node[a], a_gpus[a], a_cpus[a] = a_node[used], a_gpus[used], a_cpus[used]
                a_end[a], a_limit[a] = a_end[used], a_limit[used]
            else:
                a += 1
