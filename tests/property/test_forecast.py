"""The forecast: equal to its plain twin, and never more than there is."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from twins.plain_forecast import plain_forecast

from slurm_evo.sim.forecast import Caps, Devices, Releases, Waiting, forecast

Standing = tuple[Devices, Releases, Waiting, np.ndarray, int, np.ndarray, Caps | None]


@st.composite
def limits(draw: st.DrawFn, clusters: int) -> Caps:
    """Up to four limits, met by one or two holders on any of the clusters."""
    count, holders = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    met = [
        [sorted(draw(st.sets(st.integers(0, count - 1), max_size=2))) for _ in range(clusters)]
        for _ in range(holders)
    ]
    of = np.full((holders, clusters, 2), -1, np.int64)
    for h, each in enumerate(met):
        for c, some in enumerate(each):
            of[h, c, : len(some)] = some
    return Caps(
        left=np.array([draw(st.integers(-2, 8)) for _ in range(count)], np.int64),
        by_gpus=np.array([draw(st.booleans()) for _ in range(count)], np.bool_),
        of=of,
        times=np.array([draw(st.integers(1, 2)) for _ in range(of.size)], np.int64).reshape(of.shape),
    )


@st.composite
def standing_queues(draw: st.DrawFn) -> Standing:
    clusters = draw(st.integers(1, 3))
    nodes = sorted(draw(st.lists(st.integers(0, clusters - 1), min_size=1, max_size=6)))
    k = len(nodes)
    gpus = draw(st.lists(st.sampled_from([0, 2, 4, 8]), min_size=k, max_size=k))
    taken: list[tuple[int, int, int, float, float]] = []
    free, cpus_free = list(gpus), [16] * k
    for node, g, c, end, extra in draw(
        st.lists(
            st.tuples(
                st.integers(0, k - 1),
                st.integers(0, 4),
                st.integers(1, 8),
                st.integers(0, 9),
                st.integers(0, 9),
            ),
            max_size=6,
        )
    ):
        if free[node] >= g and cpus_free[node] >= c:
            free[node] -= g
            cpus_free[node] -= c
            taken.append((node, g, c, float(end), float(end + extra)))
    n = draw(st.integers(0, 8))

    def column(values: st.SearchStrategy[int]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=n, max_size=n)), np.int64)

    caps = draw(st.one_of(st.none(), limits(clusters)))
    holders = -1 if caps is None else len(caps.of) - 1
    runtime = column(st.integers(1, 9)).astype(float)
    waiting = Waiting(
        gpus=column(st.sampled_from([0, 1, 2, 4, 8, 12, 16])),
        kind=column(st.sampled_from([-1, -1, 0, 1])),
        nodes=column(st.sampled_from([1, 1, 1, 2])),
        cpus=column(st.integers(1, 20)),
        runtime_s=runtime,
        limit_s=runtime + column(st.integers(0, 9)),
        holder=column(st.integers(-1, holders)),
    )
    columns = list(zip(*taken, strict=True)) if taken else [()] * 5
    devices = Devices(
        cluster=np.array(nodes, np.int64),
        kind=np.array(draw(st.lists(st.sampled_from([0, 1]), min_size=k, max_size=k)), np.int64),
        gpus=np.array(gpus, np.int64),
        free_gpus=np.array(free, np.int64),
        free_cpus=np.array(cpus_free, np.int64),
        clusters=clusters,
        speed=draw(st.sampled_from([None, np.array([1.0, 2.0, 0.5, 1.0, 4.0, 1.5][:k])])),
    )
    releases = Releases(
        node=np.array(columns[0], np.int64),
        gpus=np.array(columns[1], np.int64),
        cpus=np.array(columns[2], np.int64),
        end_s=np.array(columns[3], np.float64),
        limit_s=np.array(columns[4], np.float64),
        holder=np.array([draw(st.integers(-1, holders)) for _ in taken], np.int64),
        size=np.array([draw(st.integers(0, 8)) for _ in taken], np.int64),
    )
    masks = column(st.integers(0, 2**clusters - 1)).astype(np.uint64)
    ready = column(st.sampled_from([0, 0, 0, 1, 3, 5])).astype(float)
    return devices, releases, waiting, masks, draw(st.sampled_from([0, 1, 200])), ready, caps


@given(standing_queues())
@settings(max_examples=400, deadline=None)
def test_it_equals_its_plain_twin(queue: Standing) -> None:
    devices, releases, waiting, masks, depth, ready, caps = queue
    starts, where = forecast(devices, releases, waiting, masks, caps=caps, ready_s=ready, depth=depth)
    expected = plain_forecast(
        devices, releases, waiting, [int(mask) for mask in masks], depth, ready.tolist(), caps
    )
    assert (starts.tolist(), where.tolist()) == expected


@given(standing_queues())
@settings(max_examples=200, deadline=None)
def test_capacity_is_never_exceeded_and_sets_are_kept(
    queue: Standing,
) -> None:
    devices, releases, waiting, masks, depth, ready, caps = queue
    starts, where = forecast(devices, releases, waiting, masks, caps=caps, ready_s=ready, depth=depth)
    for instant in [0.0, *starts[np.isfinite(starts)]]:
        for cluster in range(devices.clusters):
            here = devices.cluster == cluster
            still = (releases.end_s > instant) & here[releases.node] if releases.node.size else np.zeros(0, bool)
            busy = releases.gpus[still].sum() if releases.node.size else 0
            runs = (where == cluster) & (starts <= instant) & (starts + waiting.runtime_s > instant)
            assert busy + waiting.gpus[runs].sum() <= devices.gpus[here].sum()
    for job in range(waiting.gpus.size):
        assert (where[job] == -1) == np.isinf(starts[job])
        assert where[job] == -1 or int(masks[job]) >> int(where[job]) & 1


@given(standing_queues())
@settings(max_examples=200, deadline=None)
def test_no_limit_is_ever_exceeded(queue: Standing) -> None:
    devices, releases, waiting, masks, depth, ready, caps = queue
    if caps is None or waiting.holder is None or releases.holder is None or releases.size is None:
        return
    starts, where = forecast(devices, releases, waiting, masks, caps=caps, ready_s=ready, depth=depth)
    speed = np.ones(devices.gpus.size) if devices.speed is None else devices.speed
    for m, left in enumerate(caps.left.tolist()):

        def much(holder: int, cluster: int, gpus: int, m: int = m) -> int:
            for found, times in zip(caps.of[holder, cluster], caps.times[holder, cluster], strict=True):
                if found == m and holder >= 0:
                    return gpus if caps.by_gpus[m] else int(times)
            return 0

        for instant in [0.0, *starts[np.isfinite(starts)]]:
            given = sum(
                much(int(holder), int(devices.cluster[node]), int(size))
                for holder, node, size, end in zip(
                    releases.holder, releases.node, releases.size, releases.end_s, strict=True
                )
                if end <= instant
            )
            # At the fastest it runs so long: what surely runs still.
            begun = [
                much(int(waiting.holder[job]), int(where[job]), int(waiting.gpus[job]))
                for job in np.flatnonzero((starts <= instant) & (where >= 0))
                if starts[job] + min(waiting.runtime_s[job] / speed.max(), waiting.limit_s[job]) > instant
            ]
            assert sum(begun) <= max(left + given, 0)
