"""Hypothesis strategies: small workloads and fleets where much collides."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from slurm_evo.sim.fleet import FleetShape, Limits, NodeShape, OutOfService, RunningLimit, Why
from slurm_evo.sim.rules import Backfill, Fixed, LayerOne, Placement, Race, Rules
from slurm_evo.sim.workload import Workload

SECONDS = st.one_of(st.integers(1, 20), st.integers(1, 150))


def column(draw, size, strategy):
    return np.array(draw(st.lists(strategy, min_size=size, max_size=size)), dtype=np.int64)


@st.composite
def workloads(draw, clusters=3, most=25):
    n = draw(st.integers(1, most))
    submit = np.sort(column(draw, n, st.integers(0, 150)))
    gpus = column(draw, n, st.sampled_from([0, 1, 1, 1, 2, 2, 3, 4, 5, 8, 12]))
    cpus = np.maximum(column(draw, n, st.integers(0, 12)), gpus == 0)
    patience = column(draw, n, st.sampled_from([-1, -1, -1, 0, 5, 60]))
    return Workload(
        submit=submit,
        runtime=column(draw, n, st.one_of(st.just(0), SECONDS)),
        limit=column(draw, n, SECONDS),
        estimate=column(draw, n, SECONDS),
        gpus=gpus,
        nodes=column(draw, n, st.sampled_from([0, 0, 0, 0, 1, 2])),
        cpus=cpus,
        memory=column(draw, n, st.sampled_from([0, 0, 10, 50])),
        gpu_type=column(draw, n, st.sampled_from([-1, -1, -1, 0, 1])),
        user=column(draw, n, st.integers(0, 3)),
        partition=column(draw, n, st.sampled_from([0, 0, 0, 1])),
        qos=column(draw, n, st.integers(0, 1)),
        weight=column(draw, n, st.integers(1, 4)).astype(np.float64),
        clusters=column(draw, n, st.integers(1, 2**clusters - 1)),
        home=column(draw, n, st.integers(0, clusters - 1)),
        cancel=np.where(patience < 0, -1, submit + patience),
    )


NODES = st.builds(
    NodeShape,
    gpus=st.sampled_from([0, 1, 2, 4, 4, 8]),
    gpu_type=st.integers(0, 1),
    cpus=st.integers(1, 16),
    memory=st.sampled_from([64, 100]),
    partitions=st.sampled_from([frozenset({0}), frozenset({0, 1}), frozenset({1})]),
)
ROOMS = st.builds(NodeShape, gpus=st.just(4), cpus=st.just(16))
A_LIMIT = st.builds(RunningLimit, gpus=st.none() | st.integers(1, 8), jobs=st.none() | st.integers(1, 3))


@st.composite
def fleets(draw, clusters=3):
    node = draw(st.sampled_from([NODES, ROOMS]))
    shapes = tuple(tuple(draw(st.lists(node, min_size=1, max_size=4))) for _ in range(clusters))
    count = sum(map(len, shapes))
    out = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 4]))):
        start = draw(st.integers(0, 400))
        end = start + draw(st.integers(1, 200))
        out.append(
            OutOfService(
                node=draw(st.integers(0, count - 1)), start=start, end=end, why=draw(st.sampled_from(list(Why)))
            )
        )
    some = st.dictionaries(st.integers(0, 3), A_LIMIT, max_size=3)
    limits = draw(st.just(Limits()) | st.builds(Limits, user=some, qos=some, qos_user=some))
    most = draw(st.sampled_from([{}, {}, {0: 100}]))
    speed = draw(st.sampled_from([(), (), (1.0, 2.0, 0.7)]))
    return FleetShape(clusters=shapes, out_of_service=tuple(out), limits=limits, partition_limit=most, speed=speed)


RULES = st.one_of(
    st.builds(Rules.every_event, st.sampled_from(list(Backfill))),
    st.builds(
        Rules,
        backfill=st.sampled_from(list(Backfill)),
        priority_calc_period=st.sampled_from([0, 7, 40]),
        sched_interval=st.sampled_from([0, 13, 60]),
        default_queue_depth=st.sampled_from([0, 1, 3]),
        bf_interval=st.sampled_from([7, 10, 30]),
        bf_window=st.sampled_from([20, 100, 10_000]),
        bf_max_job_test=st.sampled_from([1, 3, 100]),
        bf_resolution=st.sampled_from([1, 7, 60]),
        will_run_window=st.sampled_from([1, 5, 30]),
        placement=st.sampled_from(list(Placement)),
        batch_sched_delay=st.sampled_from([0, 0, 3, 20]),
        sched_tick=st.sampled_from([1, 1, 5]),
        reaction=st.sampled_from([0, 0, 1, 4]),
        time_limit_check=st.sampled_from([0, 0, 30]),
        time_limit_first=st.sampled_from([0, 7]),
        sched_first=st.sampled_from([0, 0, 4, 20]),
        sched_last=st.sampled_from([0, 2, 10_000]),
        bf_first=st.sampled_from([0, 0, 2, 15]),
    ),
)


def shuffle(seen):
    """A layer 1 that changes its mind a lot, yet decides the same on the same view."""
    return (seen.jobs * 7919 + seen.now * 31 + len(seen.running) + 5 * seen.rank) % (2**3) & seen.feasible


def tightest(seen):
    """A layer 1 that sends a job to the lowest feasible cluster, and elsewhere later."""
    lowest = seen.feasible & -seen.feasible
    return np.where(seen.now % 3 == 0, lowest, seen.feasible)


def allocations(jobs):
    """Every kind, for these jobs."""
    at_home = st.just(1 << jobs.home)
    anywhere = arrays(np.int64, len(jobs), elements=st.integers(0, 2**3 - 1))
    return st.one_of(
        st.sampled_from([*Fixed, Race()]),
        st.builds(
            LayerOne,
            decide=st.sampled_from([shuffle, tightest]),
            cycle=st.sampled_from([5, 30]),
            move_s=st.sampled_from([0, 0, 3]),
            entry=st.one_of(st.none(), at_home, anywhere),
        ),
    )
