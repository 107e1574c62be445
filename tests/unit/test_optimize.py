"""Layer 1: near the best there is on small cases, careful on all."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from builders import MEMBERS, NOW, fleet, job, key, names, siblings

from slurm_evo.model import Hold, Job, JobState, Plan, Scores
from slurm_evo.optimize import Queue, propose, queue_from
from slurm_evo.optimize.evaluate import Judge
from slurm_evo.optimize.search import evolve

WEIGHTS = {"average_wait": 1.0, "maximum_wait": 0.5, "utilization": 0.5}


def queue_of(records: list[Job], movable: dict[int, frozenset] | None = None) -> Queue:
    view = fleet(records)
    pending = [found for found in view.jobs.values() if found.pending]
    allowed = {key(number): clusters for number, clusters in (movable or {}).items()}
    if movable is None:
        allowed = {found.key: frozenset(MEMBERS) for found in pending}
    return queue_from(
        view,
        scores={found.key: 1.0 / (1 + place) for place, found in enumerate(pending)},
        runtimes={},
        weights={},
        movable=allowed,
        now=NOW,
    )


def plan_of(queue: Queue, **changes: object) -> Plan:
    wishes: dict = {
        "objectives": WEIGHTS, "margin": 0.05, "max_moves": 100, "rng": np.random.default_rng(1),
        "budget_s": float("inf"), "clock": lambda: 0.0, "generations": 20,
    }  # fmt: skip
    return propose(queue, **{**wishes, **changes})


def running(number: int, node: str, gpus: int, hours: float) -> Job:
    cluster = node.rstrip("0123456789")
    return job(
        number, cluster, state=JobState.RUNNING, gpus=gpus, limit_s=int(hours * 3600), nodelist=(node,),
        started=NOW, viable=(cluster,),
    )  # fmt: skip


def full_alpha(hours: float = 2.0) -> list[Job]:
    return [running(100 + node, f"alpha{node}", 8, hours) for node in range(1, 5)]


def test_jobs_of_an_overloaded_cluster_are_let_into_an_idle_one() -> None:
    plan = plan_of(queue_of([*full_alpha(), *(job(number, gpus=4) for number in range(1, 5))]))
    assert {placement.job for placement in plan.changes} == {key(number) for number in range(1, 5)}
    for placement in plan.changes:
        assert placement.expected_start_s == 0
        assert placement.expected_start_before_s == pytest.approx(7200)
    assert plan.chosen.average_wait_s < plan.nothing.average_wait_s
    assert plan.nothing in plan.front
    assert plan.chosen in plan.front


def test_what_can_start_where_it_is_stays() -> None:
    plan = plan_of(queue_of([job(1, gpus=4)]))
    assert plan.changes == ()
    assert plan.why == "every movable job can start where it is"


def test_nothing_movable_is_said_at_once() -> None:
    assert plan_of(queue_of([*full_alpha(), job(1)], movable={})).why == "nothing may be moved"


def test_a_gain_below_the_margin_changes_nothing() -> None:
    waiting = [job(number, gpus=8) for number in range(1, 9)]
    busy = [
        running(200 + node, f"beta{node}", 8, 1.0) for node in (1, 2)
    ] + [running(300 + node, f"gamma{node}", 4, 1.0) for node in range(1, 5)]  # fmt: skip
    queue = queue_of([*full_alpha(), *busy, *waiting])
    eager, careful = plan_of(queue, margin=0.0), plan_of(queue, margin=10.0)
    assert eager.changes
    assert careful.changes == ()
    assert "less than the margin of 1000%" in careful.why


def test_only_as_many_moves_as_allowed_and_the_most_valuable_ones() -> None:
    waiting = [job(number, gpus=1) for number in range(1, 9)]
    plan = plan_of(queue_of([*full_alpha(), *waiting]), max_moves=3, margin=0.0)
    assert len(plan.changes) == 3
    assert all(placement.expected_start_s == 0 for placement in plan.changes)


def test_a_search_that_is_late_before_it_began_still_has_a_plan() -> None:
    ticks = itertools.count()
    queue = queue_of([*full_alpha(), *(job(number) for number in range(1, 30))])
    plan = plan_of(queue, budget_s=0.0, clock=lambda: float(next(ticks)), generations=None)
    assert len(plan.placements) == 29
    assert all(placement.clusters for placement in plan.placements)


def test_the_same_seed_gives_the_same_plan() -> None:
    queue = queue_of([*full_alpha(), *(job(number, gpus=2) for number in range(1, 12))])
    assert plan_of(queue) == plan_of(queue)


def test_no_job_ever_gets_an_empty_set_or_a_cluster_it_may_not_use() -> None:
    allowed = {number: names("alpha", "beta") for number in range(1, 9)}
    plan = plan_of(queue_of([*full_alpha(), *(job(number, gpus=4) for number in range(1, 9))], allowed))
    for placement in plan.placements:
        assert placement.clusters
        assert placement.clusters <= names("alpha", "beta")


@pytest.mark.parametrize("seed", range(5))
def test_small_cases_come_within_two_percent_of_the_best_of_each_objective(seed: int) -> None:
    rng = np.random.default_rng(seed)
    waiting = [
        job(number, gpus=int(rng.choice([1, 2, 4, 8])), limit_s=int(rng.integers(600, 20_000)))
        for number in range(1, 5)
    ]
    busy = [
        running(200 + node, f"beta{node}", int(rng.integers(2, 9)), float(rng.uniform(0.2, 3))) for node in (1, 2)
    ]
    queue = queue_of([*full_alpha(float(rng.uniform(0.5, 3))), *busy, *waiting])
    judge = Judge(queue)
    every = _everything(queue, judge)
    front = evolve(queue, judge, rng=rng, stop=lambda generation, _: generation >= 60).scores
    for objective, sign in (("average_wait_s", 1), ("maximum_wait_s", 1), ("utilization", -1)):
        best = min(sign * getattr(scores, objective) for scores in every)
        found = min(sign * getattr(scores, objective) for scores in front)
        assert found <= best + 0.02 * abs(best)


@pytest.mark.parametrize("seed", range(4))
def test_no_changed_job_is_asked_to_wait_for_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    waiting = [
        job(number, gpus=int(rng.choice([1, 4, 8, 16])), limit_s=int(rng.integers(600, 40_000)), viable=MEMBERS)
        for number in range(1, 15)
    ]
    busy = [running(200 + node, f"beta{node}", 8, float(rng.uniform(0.2, 3))) for node in (1, 2)]
    plan = plan_of(queue_of([*full_alpha(), *busy, *waiting]), margin=0.0)
    for placement in plan.changes:
        before, after = placement.expected_start_before_s, placement.expected_start_s
        assert before is None or (after is not None and after <= before + max(300.0, 0.05 * before))


def _everything(queue: Queue, judge: Judge) -> list[Scores]:
    """Every candidate: any set of allowed clusters for each job."""
    sets = range(1, 1 << len(queue.clusters))
    options = [[mask for mask in sets if mask & ~allowed == 0] for allowed in queue.allowed.tolist()]
    return judge(np.array(list(itertools.product(*options)), np.uint64)).scores


def test_the_queue_holds_each_federated_job_once_and_only_those_that_may_start() -> None:
    records = [
        *siblings(1, "alpha", "beta"),
        *siblings(2, "beta", viable=("beta",)),
        *siblings(3, viable=("beta",)),
        job(4, hold=Hold.USER),
        job(5, dependency="afterok:1"),
        job(6, eligible=NOW + timedelta(hours=1)),
        running(7, "gamma1", 4, 1.0),
    ]
    queue = queue_of(records)
    assert set(queue.keys) == {key(1), key(2)}
    assert queue.names(int(queue.viable[queue.keys.index(key(1))])) == names("alpha", "beta")
    assert queue.names(int(queue.viable[queue.keys.index(key(2))])) == names("beta")
    assert queue.releases.gpus.tolist() == [4]


def test_a_move_under_way_counts_as_made() -> None:
    view = fleet([*full_alpha(), job(1, gpus=8), job(2, gpus=8), job(3, gpus=8)])
    beta = names("beta")
    queue = queue_from(
        view, scores={}, runtimes={}, weights={}, movable={}, assumed={key(1): beta, key(2): beta}, now=NOW
    )
    assert [queue.names(int(mask)) for mask in queue.viable] == [beta, beta, names("alpha")]
    assert Judge(queue).nothing.starts_s[0, 0].tolist() == [0.0, 0.0, 7200.0]


def test_nodes_that_are_down_or_reserved_give_nothing() -> None:
    view = fleet([job(1)])
    beta = view.seen[1]
    nodes = (replace(beta.nodes[0], up=False), replace(beta.nodes[1], reserved=True))
    broken = replace(view, seen=(view.seen[0], replace(beta, nodes=nodes), *view.seen[2:]))
    queue = queue_from(broken, scores={}, runtimes={}, weights={}, movable={}, now=NOW)
    place = queue.clusters.index(MEMBERS[1])
    assert not (queue.devices.cluster == place).any()
