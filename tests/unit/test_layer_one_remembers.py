"""The front of one cycle is where the next search begins: a help where it holds, no harm where it does not."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from builders import MEMBERS, NOW, fleet, job, key, names

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, FleetView, Job, JobKey, JobState, Plan
from slurm_evo.optimize import Queue, propose, queue_from
from slurm_evo.optimize.choices import choices
from slurm_evo.optimize.evaluate import Judge
from slurm_evo.optimize.search import evolve
from slurm_evo.policy import Policy
from slurm_evo_daemon.decide import decide
from slurm_evo_daemon.learning import RunningTimes


def running(number: int, node: str, gpus: int, hours: float) -> Job:
    cluster = node.rstrip("0123456789")
    return job(
        number, cluster, state=JobState.RUNNING, gpus=gpus, limit_s=int(hours * 3600), nodelist=(node,),
        started=NOW, viable=(cluster,),
    )  # fmt: skip


def view_of(jobs: int, gone: int = 0, largest: int = 8) -> FleetView:
    """Alpha is full for three hours, beta for one; gamma, with small nodes, is free in part."""
    busy = [running(100 + node, f"alpha{node}", 8, 3.0) for node in range(1, 5)]
    busy += [running(200 + node, f"beta{node}", 8, 1.0) for node in (1, 2)]
    busy += [running(300 + node, f"gamma{node}", 4, 2.0) for node in (1, 2, 3)]
    rng = np.random.default_rng(3)
    sizes, limits = np.minimum(rng.choice([1, 2, 4, 8], jobs), largest), rng.integers(600, 20_000, jobs)
    waiting = [
        job(number, gpus=int(gpus), limit_s=int(limit))
        for number, (gpus, limit) in enumerate(zip(sizes, limits, strict=True), 1)
    ][gone:]
    return fleet([*busy, *waiting])


def queue_of(jobs: int, gone: int = 0, largest: int = 8) -> Queue:
    view = view_of(jobs, gone, largest)
    pending = [found.key for found in view.jobs.values() if found.pending]
    return queue_from(
        view,
        scores={found: -float(found.id) for found in pending},
        runtimes={},
        weights={},
        movable=dict.fromkeys(pending, frozenset(MEMBERS)),
        now=NOW,
    )


def plan_of(queue: Queue, **changes: Any) -> Plan:
    wishes: dict[str, Any] = {
        "objectives": {"average_wait": 1.0}, "margin": 0.0, "max_moves": 100, "rng": np.random.default_rng(1),
        "budget_s": float("inf"), "clock": lambda: 0.0, "generations": 30,
    }  # fmt: skip
    return propose(queue, **{**wishes, **changes})


def best_average(queue: Queue, last: list[Any]) -> float:
    """Of a search that only judges what it begins with."""
    front = evolve(queue, Judge(queue), rng=np.random.default_rng(1), stop=lambda *_: True, last=last)
    return min(scores.average_wait_s for scores in front.scores)


def test_a_search_that_has_no_time_begins_where_the_one_before_ended() -> None:
    queue = queue_of(12)
    found = plan_of(queue).found
    assert 0 < len(found) <= 8
    assert all(found), "«change nothing» is not worth remembering"
    short, long = plan_of(queue, generations=0), plan_of(queue, generations=0, last=found)
    assert long.chosen.average_wait_s <= short.chosen.average_wait_s
    fresh = min(scores.average_wait_s for scores in short.front)
    assert min(scores.average_wait_s for scores in long.front) < fresh, "else this story tells nothing"


def test_jobs_that_are_gone_drop_out_and_new_ones_keep_what_they_have() -> None:
    found = plan_of(queue_of(12)).found
    later = queue_of(16, gone=4)
    plan = plan_of(later, last=found)
    assert {placement.job for placement in plan.placements} == set(later.keys)
    assert all(set(changes) <= set(later.keys) for changes in plan.found)
    assert plan.chosen.average_wait_s <= plan.nothing.average_wait_s


def test_what_is_stale_does_no_harm() -> None:
    """Clusters that are gone, jobs that never were, and sets that are no longer allowed."""
    queue = queue_of(12)
    stale = (
        {key(number): frozenset({ClusterName("closed")}) for number in range(1, 13)},
        {JobKey(ClusterName("closed"), 7): names("alpha")},
        {},
    )
    assert plan_of(queue, last=stale) == plan_of(queue)
    narrow = replace(queue, allowed=queue.viable | np.uint64(0b010))
    elsewhere = ({key(number): names("gamma") for number in range(1, 13)},)
    for placement in plan_of(narrow, last=elsewhere).placements:
        assert placement.clusters <= names("alpha", "beta")


def test_it_is_no_reason_to_search_where_there_is_nothing_to_find() -> None:
    """Everybody waits everywhere on clusters that are alike: that is left to the race."""
    queue = queue_of(12, largest=2)
    open_queue = replace(queue, viable=queue.allowed, opened=None)
    judge = Judge(open_queue)
    evolve(
        open_queue, judge, rng=np.random.default_rng(1), stop=lambda generation, _: generation > 2,
        last=[np.full(12, 0b001, np.uint64)],
    )  # fmt: skip
    assert judge.evaluations == 1, "«change nothing» alone"


def test_more_beginnings_than_a_population_are_all_judged() -> None:
    queue = queue_of(40)
    options = choices(queue)
    rng = np.random.default_rng(2)
    many = options.decode(queue, (rng.random((40, 40)) * options.counts).astype(np.int16))
    judged = Judge(queue)
    evolve(queue, judged, rng=rng, stop=lambda generation, _: generation >= 1, last=list(many))
    assert judged.evaluations > 40


def test_the_daemon_hands_it_on() -> None:
    settings = Settings.model_validate({"moves": {"respect_user_clusters": False}})

    def decided(step_s: float, last: Any = ()) -> Plan:
        """The clock goes on by so much whenever it is read."""
        ticks = itertools.count()
        made = decide(
            view_of(12), {}, settings, Policy.default(), RunningTimes(), rng=np.random.default_rng(1),
            stopwatch=lambda: next(ticks) * step_s, last=last,
        )  # fmt: skip
        assert made.plan is not None
        return made.plan

    def best(plan: Plan) -> float:
        return min(scores.average_wait_s for scores in plan.front)

    long = decided(0.001)
    assert best(decided(100.0, long.found)) < best(decided(100.0)), "there is no time to find it again"
