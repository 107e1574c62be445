"""Layer 1 in the loop of a replay: jobs sent to a full cluster run on an idle one, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from slurm_evo.compare import Run, rules_of
from slurm_evo.compare.contest import schedule
from slurm_evo.model import ConfigError
from slurm_evo.optimize.evaluate import Judge
from slurm_evo.optimize.in_simulation import LayerOneInReplay
from slurm_evo.policy import Policy
from slurm_evo.sim.fleet import FleetShape, Limits, NodeShape, RunningLimit
from slurm_evo.sim.replay import replay
from slurm_evo.sim.rules import LayerOne, Rules, Waiting
from slurm_evo.sim.workload import Workload
from slurm_evo.trace.capacity import Capacity

TWO = Capacity(shape=FleetShape.uniform(clusters=2, nodes=2, gpus=8), names=("alpha", "beta"))


def overloaded(n: int = 24) -> Workload:
    """Everything is sent to alpha, which is full for long; beta is idle."""
    return Workload(
        submit=np.arange(n) * 10,
        runtime=np.full(n, 1800),
        limit=np.full(n, 3600),
        gpus=np.full(n, 4),
        home=np.zeros(n),
        user=np.arange(n) % 3,
    )


def test_jobs_leave_a_full_cluster() -> None:
    jobs = overloaded()
    home = schedule(Run(policy="default", allocation="home", seed=1), jobs, TWO, rules_of("slurm"))
    race = schedule(Run(policy="default", allocation="race", seed=1), jobs, TWO, rules_of("slurm"))
    moved = schedule(Run(policy="default", allocation="layer-1", seed=1), jobs, TWO, rules_of("slurm"))
    waits = {name: float((done.start - jobs.submit).mean()) for name, done in
             (("home", home), ("race", race), ("moved", moved))}  # fmt: skip
    assert waits["moved"] < waits["home"] / 1.5
    assert waits["moved"] < waits["race"] + 120, "a decision a minute costs no more than that"
    assert set(moved.cluster.tolist()) == {0, 1}


def test_a_replay_with_layer_one_is_the_same_again() -> None:
    jobs = overloaded()
    run = Run(policy="default", allocation="layer-1", seed=7)
    first, second = (schedule(run, jobs, TWO, rules_of("slurm")) for _ in range(2))
    assert np.array_equal(first.start, second.start)
    assert np.array_equal(first.cluster, second.cluster)


def test_where_every_job_can_start_nothing_is_changed() -> None:
    jobs = overloaded(4)
    decide = LayerOneInReplay(jobs, TWO.shape, Policy.default())
    replay(jobs, TWO.shape, Policy.default(), LayerOne(decide=decide, entry=1 << jobs.home), rules_of("slurm"))
    assert decide.changed == 0


def test_a_job_is_never_sent_where_its_gpu_type_is_not() -> None:
    shape = FleetShape(clusters=((NodeShape(gpus=8, gpu_type=0),), (NodeShape(gpus=8, gpu_type=1),)))
    fleet = Capacity(shape=shape, names=("alpha", "beta"), gpu_types=("a100", "v100"))
    jobs = overloaded(12)
    tied = Workload(
        **{
            **{name: getattr(jobs, name) for name in ("submit", "runtime", "limit", "gpus", "home", "user")},
            "gpu_type": np.where(np.arange(12) % 2, 0, -1),
        }
    )
    done = schedule(Run(policy="default", allocation="layer-1", seed=1), tied, fleet, rules_of("slurm"))
    assert (done.cluster[tied.gpu_type == 0] == 0).all()
    assert (done.cluster[tied.gpu_type < 0] == 1).any()


def test_a_ranking_that_is_no_expression_is_refused() -> None:
    with pytest.raises(ConfigError, match="f1 is no expression, and layer 1 forecasts by one"):
        schedule(Run(policy="f1", allocation="layer-1", seed=1), overloaded(), TWO, rules_of("slurm"))


def test_a_user_at_its_limit_is_spread_over_clusters() -> None:
    """Ada may use a quarter of each cluster; her jobs wait for that, and bob's are not held up by them."""
    shape = FleetShape(clusters=((NodeShape(gpus=8),) * 2,) * 2, limits=Limits(user={0: RunningLimit(gpus=4)}))
    jobs = Workload(
        submit=np.zeros(8), runtime=np.full(8, 3600), limit=np.full(8, 3600), gpus=np.full(8, 4),
        home=np.zeros(8), user=np.array([0, 0, 0, 0, 1, 1, 1, 1]),
    )  # fmt: skip
    policy = Policy.parse("-gpus")
    decide = LayerOneInReplay(jobs, shape, policy, seed=1)
    done = replay(jobs, shape, policy, LayerOne(decide=decide, entry=1 << jobs.home), Rules.every_event())
    hers = np.sort(done.start[:4])
    assert hers.tolist() == [0, 60, 3600, 3660] or hers.tolist() == [0, 0, 3600, 3600]
    assert (done.start[4:] < 120).all()
    assert {0, 1} == set(done.cluster[:4].tolist())


def test_layer_one_foresees_the_limits_of_a_replay() -> None:
    """One job of a user may run on each cluster: a second waits an hour at home, and elsewhere not at all."""
    shape = FleetShape(clusters=((NodeShape(gpus=8),),) * 2, limits=Limits(qos_user={0: RunningLimit(jobs=1)}))
    jobs = Workload(
        submit=np.zeros(2), runtime=np.full(2, 3600), limit=np.full(2, 3600), gpus=np.ones(2), home=np.zeros(2)
    )
    decide = LayerOneInReplay(jobs, shape, None, seed=1)
    seen = Waiting(
        now=0, jobs=np.array([1]), clusters=np.array([1]), feasible=np.array([3]), rank=np.array([0]),
        running=np.array([0]), running_on=np.array([0]), running_since=np.array([0]), running_parts=np.array([1]),
        running_nodes=np.array([0]), free_gpus=np.array([7, 8]),
    )  # fmt: skip
    queue = decide.queue(seen, np.array([0]))
    assert Judge(queue, samples=0).nothing.starts_s[0, 0].tolist() == [3600.0]
    assert Judge(queue, samples=0)(np.array([3], np.uint64)).starts_s[0, 0].tolist() == [0.0]
