"""The compiled inside of `slurm_evo.sim.forecast`; import it late, since it brings numba (0.3 s) with it.

Functions of a module, not of a function: numba keeps the compiled code of these between runs, and compiling
takes seconds.
"""

from __future__ import annotations

import numpy as np

from slurm_evo.kernels import kernel


@kernel()
def place(low, high, kind, free, cpus_free, want, each, count, cpus_each, out):  # type: ignore[no-untyped-def]
    """Find nodes: the tightest for one, else the first ones. Indices go to ``out``; False if too few."""
    found = 0
    tightest = 1 << 60
    for k in range(low, high):
        if free[k] >= each and cpus_free[k] >= cpus_each and (want < 0 or kind[k] == want):
            if count == 1:
                if free[k] < tightest:
                    out[0], tightest, found = k, free[k], 1
            else:
                out[found] = k
                found += 1
                if found == count:
                    return True
    return found == count


@kernel()
def insert(a, value, before, after, by, head):  # type: ignore[no-untyped-def]
    """Put an allocation into a cluster's list, sorted by ``by``; returns the new head."""
    last, here = -1, head
    while here >= 0 and by[here] < value:
        last, here = here, after[here]
    before[a], after[a] = last, here
    if here >= 0:
        before[here] = a
    if last < 0:
        return a
    after[last] = a
    return head


@kernel()
def at_limit(left, by_gpus, of, times, holder, c, gpus):  # type: ignore[no-untyped-def]
    """Does a limit keep a job of this holder from starting on this cluster?"""
    for k in range(of.shape[2]):
        m = of[holder, c, k]
        if m < 0:
            break
        takes = gpus if by_gpus[m] else times[holder, c, k]
        if takes > 0 and left[m] < takes:
            return True
    return False


@kernel()
def give(left, by_gpus, of, times, holder, c, gpus, sign):  # type: ignore[no-untyped-def]
    """A job stops (1) or begins (-1) to count against its holder's limits."""
    for k in range(of.shape[2]):
        m = of[holder, c, k]
        if m < 0:
            break
        left[m] += sign * (gpus if by_gpus[m] else times[holder, c, k])


@kernel()
def run(  # type: ignore[no-untyped-def]
    first, kind, total, free_now, cpus_now, speed,
    rel_node, rel_gpus, rel_cpus, rel_end, rel_limit, rel_holder, rel_size,
    gpus, want, nodes, cpus, runtime, limit, holder,
    left_now, by_gpus, caps_of, times,
    masks, ready, depth, room, starts, where,
):  # fmt: skip
    """See `slurm_evo.sim.forecast.forecast_many`; writes ``starts`` and ``where``, (p, n) both."""
    capped = left_now.size > 0
    allowance = left_now.copy()
    clusters = first.size - 1
    n = gpus.size
    # How many nodes each job takes in each cluster, and how many devices on each; 0 where it never can.
    counts = np.zeros((clusters, n), np.int64)
    each_of = np.zeros((clusters, n), np.int64)
    cpus_of = np.zeros((clusters, n), np.int64)
    for c in range(clusters):
        low, high = first[c], first[c + 1]
        asked, largest, alike = -2, 0, 0
        for j in range(n):
            if want[j] != asked:
                asked, largest, alike = want[j], 0, 0
                for k in range(low, high):
                    if asked < 0 or kind[k] == asked:
                        alike += 1
                        largest = max(largest, total[k])
            if gpus[j] > 0 and largest == 0:
                continue
            count = max(nodes[j], 1)
            if gpus[j] > largest * count:
                count = (gpus[j] + largest - 1) // largest
            if count > alike:
                continue
            counts[c, j] = count
            each_of[c, j] = (gpus[j] + count - 1) // count
            cpus_of[c, j] = (cpus[j] + count - 1) // count
    a_node = np.empty(room, np.int64)
    a_gpus = np.empty(room, np.int64)
    a_cpus = np.empty(room, np.int64)
    # Whose limits get something back, and the GPUs of the whole job; one of a job's parts speaks for it.
    a_holder = np.full(room, -1, np.int64)
    a_size = np.zeros(room, np.int64)
    a_end = np.empty(room, np.float64)
    a_limit = np.empty(room, np.float64)
    end_before = np.empty(room, np.int64)
    end_after = np.empty(room, np.int64)
    limit_before = np.empty(room, np.int64)
    limit_after = np.empty(room, np.int64)
    unused = np.empty(room, np.int64)
    ends = np.empty(clusters, np.int64)
    limits = np.empty(clusters, np.int64)
    of_node = np.empty(kind.size, np.int64)
    for c in range(clusters):
        of_node[first[c] : first[c + 1]] = c
    # Each cluster's queue: a chain through the jobs that name it.
    heads = np.empty(clusters, np.int64)
    chain = np.empty((clusters, n), np.int64)
    out = np.empty(max(kind.size, 1), np.int64)
    reserved = np.zeros(kind.size, np.bool_)
    free = np.empty(kind.size, np.int64)
    cpus_free = np.empty(kind.size, np.int64)
    shadow_free = np.empty(kind.size, np.int64)
    shadow_cpus = np.empty(kind.size, np.int64)
    dirty = np.empty(clusters, np.bool_)
    for candidate in range(masks.shape[0]):
        mask, start, place_of = masks[candidate], starts[candidate], where[candidate]
        for k in range(kind.size):
            free[k], cpus_free[k] = free_now[k], cpus_now[k]
        allowance[:] = left_now
        spare = 0
        for a in range(room - 1, rel_node.size - 1, -1):
            unused[spare] = a
            spare += 1
        for c in range(clusters):
            ends[c], limits[c], heads[c], dirty[c] = -1, -1, -1, True
        for a in range(rel_node.size):
            a_node[a], a_gpus[a], a_cpus[a] = rel_node[a], rel_gpus[a], rel_cpus[a]
            a_end[a], a_limit[a] = rel_end[a], rel_limit[a]
            a_holder[a], a_size[a] = rel_holder[a], rel_size[a]
            c = of_node[a_node[a]]
            ends[c] = insert(a, a_end[a], end_before, end_after, a_end, ends[c])
            limits[c] = insert(a, a_limit[a], limit_before, limit_after, a_limit, limits[c])
        left = n
        # Jobs that are not there yet, soonest first.
        late = ready[candidate]
        coming = np.flatnonzero(late > 0.0)
        coming = coming[np.argsort(late[coming], kind="mergesort")]
        came = 0
        for c in range(clusters):
            bit = np.uint64(1) << np.uint64(c)
            for j in range(n - 1, -1, -1):
                if mask[j] & bit != 0:
                    chain[c, j] = heads[c]
                    heads[c] = j
        now = 0.0
        while left > 0:
            for c in range(clusters):
                if not dirty[c]:
                    continue
                dirty[c] = False
                low, high = first[c], first[c + 1]
                most = -1  # no node has more free devices, so what asks for more is passed by at once
                for k in range(low, high):
                    most = max(most, free[k])
                blocked = False
                shadow = np.inf
                looked = 0
                last, j = -1, heads[c]
                while j >= 0:
                    if start[j] != np.inf:  # another cluster was first: out of this chain
                        j = chain[c, j]
                        if last < 0:
                            heads[c] = j
                        else:
                            chain[c, last] = j
                        continue
                    if late[j] > now:
                        last, j = j, chain[c, j]
                        continue
                    who = holder[j] if capped else -1
                    if who >= 0 and at_limit(allowance, by_gpus, caps_of, times, who, c, gpus[j]):
                        last, j = j, chain[c, j]  # held back by a limit, it blocks nobody
                        continue
                    if blocked:
                        looked += 1
                        if looked > depth:
                            break
                    each, count, cpus_each = each_of[c, j], counts[c, j], cpus_of[c, j]
                    fits = (
                        count > 0
                        and each <= most
                        and place(low, high, kind, free, cpus_free, want[j], each, count, cpus_each, out)
                    )
                    if fits and blocked and now + limit[j] > shadow:
                        # It would still run when the reservation begins: only beside the reserved nodes.
                        for k in range(low, high):
                            shadow_free[k] = -1 if reserved[k] else free[k]
                        fits = place(low, high, kind, shadow_free, cpus_free, want[j], each, count, cpus_each, out)
                    if fits:
                        slowest = speed[out[0]] if gpus[j] > 0 else 1.0
                        for i in range(1, count if gpus[j] > 0 else 0):
                            slowest = min(slowest, speed[out[i]])
                        for i in range(count):
                            k = out[i]
                            free[k] -= each
                            cpus_free[k] -= cpus_each
                            spare -= 1
                            a = unused[spare]
                            a_node[a], a_gpus[a], a_cpus[a] = k, each, cpus_each
                            a_end[a] = now + min(runtime[j] / slowest, limit[j])
                            a_limit[a] = now + limit[j]
                            a_holder[a], a_size[a] = who if i == 0 else -1, gpus[j]
                            ends[c] = insert(a, a_end[a], end_before, end_after, a_end, ends[c])
                            limits[c] = insert(a, a_limit[a], limit_before, limit_after, a_limit, limits[c])
                        most = -1
                        for k in range(low, high):
                            most = max(most, free[k])
                        if who >= 0:
                            give(allowance, by_gpus, caps_of, times, who, c, gpus[j], -1)
                        start[j], place_of[j] = now, c
                        left -= 1
                        continue  # the chain drops it
                    if not blocked and count > 0:
                        # The first blocked job: when will it fit, if everything runs to its limit, and where?
                        for k in range(low, high):
                            shadow_free[k], shadow_cpus[k] = free[k], cpus_free[k]
                            reserved[k] = False
                        a = limits[c]
                        while a >= 0 and not blocked:
                            instant = a_limit[a]
                            enough = False
                            while a >= 0 and a_limit[a] == instant:
                                k = a_node[a]
                                shadow_free[k] += a_gpus[a]
                                shadow_cpus[k] += a_cpus[a]
                                enough |= shadow_free[k] >= each and shadow_cpus[k] >= cpus_each
                                a = limit_after[a]
                            # Only what a release made large enough can make room.
                            if enough:
                                blocked = place(
                                    low, high, kind, shadow_free, shadow_cpus,
                                    want[j], each, count, cpus_each, out,
                                )  # fmt: skip
                                shadow = max(instant, now)
                        if blocked:
                            for i in range(count):
                                reserved[out[i]] = True
                        # Else it can never start here and holds nobody up.
                    last, j = j, chain[c, j]
            # On to the next end.
            following = np.inf
            for c in range(clusters):
                if ends[c] >= 0:
                    following = min(following, a_end[ends[c]])
            if came < coming.size:
                following = min(following, late[coming[came]])
            if following == np.inf:
                break
            now = max(now, following)
            while came < coming.size and late[coming[came]] <= now:
                for c in range(clusters):
                    dirty[c] |= (mask[coming[came]] >> np.uint64(c)) & np.uint64(1) != 0
                came += 1
            for c in range(clusters):
                while ends[c] >= 0 and a_end[ends[c]] <= now:
                    a = ends[c]
                    free[a_node[a]] += a_gpus[a]
                    cpus_free[a_node[a]] += a_cpus[a]
                    dirty[c] = True
                    if a_holder[a] >= 0:
                        give(allowance, by_gpus, caps_of, times, a_holder[a], c, a_size[a], 1)
                    ends[c] = end_after[a]
                    if ends[c] >= 0:
                        end_before[ends[c]] = -1
                    back, ahead = limit_before[a], limit_after[a]
                    if ahead >= 0:
                        limit_before[ahead] = back
                    if back >= 0:
                        limit_after[back] = ahead
                    else:
                        limits[c] = ahead
                    unused[spare] = a
                    spare += 1
