"""The compiled simulator and its plain twin give the same schedule, whatever they are fed."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twins.plain_simulator import Plain
from twins.stories import ALLOCATIONS, RULES, fleets, workloads

from slurm_evo.policy import Policy
from slurm_evo.sim.replay import End, replay

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
    allocation = data.draw(ALLOCATIONS)
    rules = data.draw(RULES)
    priority = Policy.parse(text)
    twin = Plain(jobs, fleet, priority, allocation, rules).run()
    ours = replay(jobs, fleet, priority, allocation, rules)
    assert ours.start.tolist() == twin.start
    assert ours.cluster.tolist() == twin.cluster
    assert [End(s).name for s in ours.state] == twin.state
    assert [ours.nodes(j) for j in range(len(jobs))] == twin.nodes
    assert ours.counts.starts == int(np.count_nonzero(ours.start >= 0))
