"""What must hold of any schedule, checked on the answer alone."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twins.stories import RULES, allocations, fleets, workloads

from slurm_evo.policy import Policy
from slurm_evo.sim.bounds import lower_bound
from slurm_evo.sim.fleet import FleetShape, Why
from slurm_evo.sim.metrics import average_weighted_wait
from slurm_evo.sim.priorities import Scored
from slurm_evo.sim.replay import End, replay
from slurm_evo.sim.rules import Backfill, Race, Rules
from slurm_evo.sim.workload import Workload

SWEEP, REACTION = 31, 4
"""More than the longest a job past its limit may wait for its end, and the slowest controller, in RULES."""
CALM = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def replays(draw):
    jobs, fleet = draw(workloads()), draw(fleets())
    policy = Policy.parse(draw(st.sampled_from(["wait", "-limit", "wait / runtime - user_usage"])))
    return jobs, fleet, replay(jobs, fleet, policy, draw(allocations(jobs)), draw(RULES))


@CALM
@given(replays())
def test_no_node_and_no_cluster_is_ever_overfull(replayed):
    jobs, fleet, done = replayed
    started = np.flatnonzero(done.start >= 0)
    shapes = fleet.nodes
    for now in np.unique(done.start[started]):
        gpus, cpus, memory = (np.zeros(len(shapes)) for _ in range(3))
        for j in started:
            if done.start[j] <= now < done.end[j]:
                nodes = done.nodes(j)
                assert len(set(nodes)) == len(nodes) >= max(1, jobs.nodes[j])
                for v in nodes:
                    gpus[v] += jobs.gpus[j] / len(nodes)
                    cpus[v] += jobs.cpus[j] / len(nodes)
                    memory[v] += jobs.memory[j] / len(nodes)
        assert (gpus <= [s.gpus + 1e-9 for s in shapes]).all()
        assert (cpus <= [s.cpus + 1e-9 for s in shapes]).all()
        assert (memory <= [s.memory + 1e-9 for s in shapes]).all()


@CALM
@given(replays())
def test_a_job_runs_where_it_may_once_and_not_before_it_is_submitted(replayed):
    jobs, fleet, done = replayed
    ends = np.cumsum([len(cluster) for cluster in fleet.clusters])
    assert done.counts.starts == (done.start >= 0).sum()
    for j in np.flatnonzero(done.start >= 0):
        assert done.start[j] >= jobs.submit[j]
        assert jobs.clusters[j] >> done.cluster[j] & 1
        for v in done.nodes(j):
            assert np.searchsorted(ends, v, side="right") == done.cluster[j]
            assert jobs.partition[j] in fleet.nodes[v].partitions
            if jobs.gpus[j] and jobs.gpu_type[j] >= 0:
                assert fleet.nodes[v].gpu_type == jobs.gpu_type[j]


@CALM
@given(replays())
def test_every_job_has_one_end_and_the_killed_are_killed_at_their_limit(replayed):
    jobs, fleet, done = replayed
    states = [End(state) for state in done.state]
    for j, state in enumerate(states):
        ran = state in (End.COMPLETED, End.TIMEOUT)
        assert ran == (done.start[j] >= 0) == (done.cluster[j] >= 0) == (done.node_count[j] > 0)
        if ran:
            took = done.end[j] - done.start[j]
            runs = -(-jobs.runtime[j] * 1000 // fleet.thousandths[done.cluster[j]])
            if state is End.COMPLETED:
                assert took == runs < jobs.limit[j] + SWEEP
            else:
                assert jobs.limit[j] <= took < min(jobs.limit[j] + SWEEP, runs)
        if state is End.CANCELLED:
            assert jobs.cancel[j] >= 0
        if jobs.cancel[j] >= 0:
            assert state is not End.WAITING
            assert done.start[j] < jobs.cancel[j] + REACTION or not ran


@CALM
@given(replays())
def test_drained_nodes_take_nothing_and_reservations_are_kept_free(replayed):
    jobs, fleet, done = replayed
    for out in fleet.out_of_service:
        for j in np.flatnonzero(done.start >= 0):
            if out.node not in done.nodes(j):
                continue
            if out.why is Why.DRAIN:
                assert not out.start <= done.start[j] < out.end
            else:
                assert done.start[j] >= out.end or done.start[j] + jobs.limit[j] <= out.start


@CALM
@given(replays())
def test_running_limits_are_kept_on_each_cluster(replayed):
    jobs, fleet, done = replayed
    started = np.flatnonzero(done.start >= 0)
    for now in np.unique(done.start[started]):
        for c in range(len(fleet.clusters)):
            here = [j for j in started if done.cluster[j] == c and done.start[j] <= now < done.end[j]]
            for who, limits in ((jobs.user, fleet.limits.user), (jobs.qos, fleet.limits.qos)):
                for index, limit in limits.items():
                    mine = [j for j in here if who[j] == index]
                    assert limit.jobs is None or len(mine) <= limit.jobs
                    assert limit.gpus is None or jobs.gpus[mine].sum() <= limit.gpus


@CALM
@given(workloads(), st.sampled_from(list(Backfill)))
def test_no_cluster_idles_while_the_first_in_line_could_run(jobs, backfill):
    fleet = FleetShape.uniform(clusters=3, nodes=2, gpus=4)
    free = Workload(submit=jobs.submit, runtime=jobs.runtime, limit=jobs.limit, gpus=np.maximum(jobs.gpus, 1))
    done = replay(free, fleet, Policy.parse("wait"), Race(), Rules.every_event(backfill))
    for now in np.unique(np.concatenate([done.start, done.end])):
        waiting = np.flatnonzero((free.submit <= now) & (done.start > now))
        if len(waiting):
            first = int(waiting[0])
            for cluster in range(3):
                used = np.zeros(6)
                for j in np.flatnonzero((done.start <= now) & (now < done.end)):
                    for v in done.nodes(int(j)):
                        used[v] += min(4, free.gpus[j]) if len(done.nodes(int(j))) == 1 else 4
                room = 4 - used[2 * cluster : 2 * cluster + 2]
                fits = room.max() >= free.gpus[first] or (room == 4).sum() * 4 >= free.gpus[first] > 4
                assert not fits


@CALM
@given(workloads())
def test_the_bound_is_below_every_schedule_of_gpu_jobs(jobs):
    some = Workload(
        submit=jobs.submit,
        runtime=jobs.runtime,
        limit=jobs.limit,
        gpus=np.clip(jobs.gpus, 1, 4),
        weight=jobs.weight,
    )
    fleet = FleetShape.uniform(clusters=2, nodes=1, gpus=4)
    for backfill in Backfill:
        done = replay(some, fleet, Policy.default(), Race(), Rules.every_event(backfill))
        average = average_weighted_wait(done.start - some.submit, some.weight)
        assert lower_bound(some, fleet).average_wait_s <= average + 1e-6


def test_the_same_replay_gives_the_same_schedule():
    rng = np.random.default_rng(3)
    n = 400
    jobs = Workload(
        submit=np.sort(rng.integers(0, 5000, n)),
        runtime=rng.integers(1, 500, n),
        limit=rng.integers(100, 1000, n),
        gpus=rng.integers(1, 9, n),
        user=rng.integers(0, 9, n),
    )
    fleet = FleetShape.uniform(clusters=2, nodes=4, gpus=8)
    once, again = (replay(jobs, fleet, Policy.parse("wait - user_usage"), Race()) for _ in range(2))
    assert once.start.tolist() == again.start.tolist()
    assert once.counts == again.counts


def test_queues_grow_beyond_their_first_size():
    n = 5000
    jobs = Workload(submit=np.zeros(n), runtime=np.full(n, 10), limit=np.full(n, 10), gpus=np.ones(n))
    done = replay(jobs, FleetShape.uniform(clusters=1, nodes=1, gpus=8), Scored(np.zeros(n)), Race())
    assert (done.start >= 0).all()
    assert done.counts.most_waiting == n


@pytest.mark.parametrize("order", ["wait", "-limit"])
def test_a_single_gpu_serves_one_job_after_the_other(order):
    jobs = Workload(submit=[0, 0, 0], runtime=[5, 5, 5], limit=[30, 20, 10], gpus=[1, 1, 1])
    fleet = FleetShape.uniform(clusters=1, nodes=1, gpus=1)
    done = replay(jobs, fleet, Policy.parse(order), Race(), Rules.every_event(Backfill.NONE))
    assert done.start.tolist() == ([0, 5, 10] if order == "wait" else [10, 5, 0])
