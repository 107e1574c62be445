"""The compiled simulator and its plain twin give the same schedule, whatever they are fed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twins.plain_simulator import Plain
from twins.stories import RULES, allocations, fleets, workloads

from slurm_evo.policy import Policy
from slurm_evo.sim.fleet import FleetShape, NodeShape
from slurm_evo.sim.replay import End, replay
from slurm_evo.sim.rules import Backfill, Race, Rules
from slurm_evo.sim.workload import Workload

EXPRESSIONS = [
    "wait",
    "-limit",
    "weight * (wait + 60) / (runtime * gpus)",
    "-user_usage",
    "user_pending * load - wait * pressure",
    "sqrt(wait) - log(limit)",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_engine_and_twin_start_every_job_at_the_same_time_and_place(text, data):
    jobs = data.draw(workloads())
    fleet = data.draw(fleets())
    allocation = data.draw(allocations(jobs))
    rules = data.draw(RULES)
    priority = Policy.parse(text)
    twin = Plain(jobs, fleet, priority, allocation, rules).run()
    ours = replay(jobs, fleet, priority, allocation, rules)
    assert ours.start.tolist() == twin.start
    assert ours.cluster.tolist() == twin.cluster
    assert [End(s).name for s in ours.state] == twin.state
    assert [ours.nodes(j) for j in range(len(jobs))] == twin.nodes
    assert ours.counts.starts == int(np.count_nonzero(ours.start >= 0))


def test_a_job_past_its_limit_still_has_its_share_of_a_node():
    """It runs on until limits are looked at; the next job goes where least is free besides."""
    fleet = FleetShape(clusters=((NodeShape(gpus=2, cpus=2), NodeShape(gpus=1, cpus=2)),))
    jobs = Workload(
        submit=np.array([0, 20]),
        runtime=np.array([100, 5]),
        limit=np.array([10, 10]),
        gpus=np.array([2, 0]),
        cpus=np.array([1, 1]),
    )
    rules = replace(Rules.every_event(), backfill=Backfill.NONE, time_limit_check=30)
    twin = Plain(jobs, fleet, Policy.parse("wait"), Race(), rules).run()
    ours = replay(jobs, fleet, Policy.parse("wait"), Race(), rules)
    assert [ours.nodes(j) for j in range(2)] == twin.nodes == [(0,), (0,)]
