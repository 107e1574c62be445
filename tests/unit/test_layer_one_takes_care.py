"""What layer 1 may not do, however much it gains; and that it says what it turned down, and why."""

from __future__ import annotations

import itertools
from datetime import timedelta

import numpy as np
import pytest
from builders import MEMBERS, NOW, fleet, job, key

from slurm_evo.config import Settings
from slurm_evo.model import Job, JobState, Placement, Plan
from slurm_evo.optimize import Care, Queue, propose, queue_from
from slurm_evo.policy import Policy
from slurm_evo.store import JobMemory
from slurm_evo_daemon.decide import decide
from slurm_evo_daemon.explain import explain
from slurm_evo_daemon.learning import RunningTimes


def running(number: int, node: str, hours: float, gpus: int = 8) -> Job:
    cluster = node.rstrip("0123456789")
    return job(
        number, cluster, state=JobState.RUNNING, gpus=gpus, limit_s=int(hours * 3600), nodelist=(node,),
        started=NOW, viable=(cluster,),
    )  # fmt: skip


def full_alpha(hours: float = 2.0) -> list[Job]:
    return [running(100 + node, f"alpha{node}", hours) for node in range(1, 5)]


def queue_of(
    records: list[Job], stays: frozenset[int] = frozenset(), asked: dict[int, frozenset] | None = None
) -> Queue:
    view = fleet(records)
    pending = [found for found in view.jobs.values() if found.pending]
    return queue_from(
        view,
        scores={found.key: 1.0 / (1 + place) for place, found in enumerate(pending)},
        runtimes={},
        weights={},
        movable={found.key: frozenset(MEMBERS) for found in pending if found.key.id not in stays},
        asked={key(number): names for number, names in (asked or {}).items()},
        now=NOW,
    )


def plan_of(queue: Queue, **changes: object) -> Plan:
    wishes: dict = {
        "objectives": {"average_wait": 1.0, "maximum_wait": 0.5, "utilization": 0.5}, "margin": 0.0,
        "max_moves": 100, "rng": np.random.default_rng(1), "budget_s": float("inf"), "clock": lambda: 0.0,
        "generations": 20,
    }  # fmt: skip
    return propose(queue, **{**wishes, **changes})


def placed(plan: Plan) -> dict[int, Placement]:
    return {placement.job.id: placement for placement in plan.placements}


def crowded(seed: int) -> list[Job]:
    """Alpha is full and much is submitted to it; beta has a queue of its own, of jobs that stay there."""
    rng = np.random.default_rng(seed)
    busy = [running(200 + node, f"beta{node}", float(rng.uniform(0.1, 0.5))) for node in (1, 2)]
    theirs = [
        job(number, "beta", origin="beta", viable=("beta",), active=("beta",), user="bob", account="biology",
            gpus=int(rng.choice([2, 4, 8])), limit_s=int(rng.integers(600, 4000)))
        for number in range(50, 56)
    ]  # fmt: skip
    ours = [
        job(number, gpus=int(rng.choice([1, 2, 4, 8])), limit_s=int(rng.integers(600, 20_000)))
        for number in range(1, 25)
    ]
    return [*full_alpha(), *busy, *ours, *theirs]


@pytest.mark.parametrize("seed", range(4))
def test_jobs_that_stay_never_wait_much_longer_for_those_that_come(seed: int) -> None:
    """The plan is judged again without its own bounds: they hold."""
    queue = queue_of(crowded(seed), stays=frozenset(range(50, 56)))
    care = Care(others_s=300.0, others_share=0.0, mean_s=1e9)
    free = Care(harm_s=1e9, others_s=1e9, mean_s=1e9)
    bold, careful = (delays(queue, plan_of(queue, care=some)) for some in (free, care))
    assert careful.max(initial=0.0) <= 300.0
    assert bold.max(initial=0.0) >= careful.max(initial=0.0)


def delays(queue: Queue, plan: Plan) -> np.ndarray:
    """By how much later each job that stays is expected to start."""
    from slurm_evo.optimize.evaluate import Judge

    judge = Judge(queue, samples=2)
    masks = queue.viable.copy()
    bits = {name: 1 << place for place, name in enumerate(queue.clusters)}
    for placement in plan.changes:
        masks[queue.keys.index(placement.job)] = sum(bits[name] for name in placement.clusters)
    stays = masks == queue.viable
    after = judge(masks).starts_s[0]
    return np.asarray((after - judge.nothing.starts_s[0])[0][stays])


def test_without_a_bound_somebody_would_wait_longer() -> None:
    """So the bounds above are tested on plans that need them."""
    free = Care(harm_s=1e9, others_s=1e9, mean_s=1e9)
    worst = []
    for seed in range(4):
        queue = queue_of(crowded(seed), stays=frozenset(range(50, 56)))
        worst.append(delays(queue, plan_of(queue, care=free)).max())
    assert max(worst) > 300.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("who", ["user", "account"])
def test_the_jobs_of_nobody_wait_much_longer_on_average(seed: int, who: str) -> None:
    queue = queue_of(crowded(seed), stays=frozenset(range(50, 56)))
    group = getattr(queue, who)
    care = Care(others_s=1e9, mean_s=60.0, mean_share=0.0)
    plan = placed(plan_of(queue, care=care))
    later = dict.fromkeys(range(queue.user.size), 0.0)
    found = delays_of_all(queue, plan)
    for row, delay in enumerate(found):
        later[int(group[row])] += delay
    counts = np.bincount(group)
    assert all(later[number] / counts[number] <= 60.0 + 1e-6 for number in range(counts.size))


def delays_of_all(queue: Queue, plan: dict[int, Placement]) -> np.ndarray:
    from slurm_evo.optimize.evaluate import Judge

    judge = Judge(queue, samples=2)
    masks = queue.viable.copy()
    bits = {name: 1 << place for place, name in enumerate(queue.clusters)}
    for row, name in enumerate(queue.keys):
        if name.id in plan:
            masks[row] = sum(bits[cluster] for cluster in plan[name.id].clusters)
    cap = 2 * judge.horizon_s
    return np.asarray(np.minimum(judge(masks).starts_s[0, 0], cap) - np.minimum(judge.nothing.starts_s[0, 0], cap))


def test_only_so_many_jobs_of_a_user_and_of_an_account_change() -> None:
    records = [
        *full_alpha(),
        *(
            job(number, user="ada" if number % 3 else "bob", account="a" if number % 2 else "b")
            for number in range(1, 13)
        ),
    ]
    queue = queue_of(records)
    assert len(plan_of(queue).changes) == 12
    by_user = plan_of(queue, care=Care(max_user=2))
    users = [int(queue.user[queue.keys.index(placement.job)]) for placement in by_user.changes]
    assert np.bincount(users).tolist() == [2, 2]
    by_account = plan_of(queue, care=Care(max_account=1))
    assert len(by_account.changes) == 2
    said = [placement.reason for placement in by_user.placements if not placement.changed]
    assert len(said) == 8
    assert all("2 jobs of its user, as many as may change at once, gain more" in reason for reason in said)


def test_a_change_that_was_turned_down_says_why() -> None:
    queue = queue_of([*full_alpha(), *(job(number) for number in range(1, 9))])
    few = placed(plan_of(queue, max_moves=3))
    left = [placement.reason for placement in few.values() if not placement.changed]
    assert len(left) == 5
    for reason in left:
        assert "A change was looked at (may also run at" in reason
        assert "turned down, since as many jobs as may change at once gain more" in reason


def test_a_plan_that_gains_too_little_is_turned_down_as_a_whole() -> None:
    """Beta is free a little earlier than alpha: a job or two would wait a little less."""
    busy = [running(200 + node, f"beta{node}", 1.6) for node in (1, 2)]
    busy += [running(300 + node, f"gamma{node}", 9.0, 4) for node in range(1, 5)]
    queue = queue_of([*full_alpha(), *busy, *(job(number, gpus=8) for number in range(1, 7))])
    assert plan_of(queue, margin=0.0).changes
    vain = plan_of(queue, margin=0.5)
    assert vain.changes == ()
    assert "less than the margin of 50%" in vain.why
    assert any("turned down, since the best plan gains" in placement.reason for placement in vain.placements)


def test_explain_shows_what_was_turned_down_and_a_job_that_has_just_moved() -> None:
    records = [*full_alpha(), *(job(number) for number in range(1, 6))]
    view = fleet(records)
    settings = Settings.model_validate(
        {"moves": {"max_per_cycle": 2, "cooldown_s": 600, "respect_user_clusters": False}}
    )
    moved = JobMemory(
        key=key(1), submitted=NOW, asked=frozenset(MEMBERS[:1]), seen_at=NOW, moved_at=NOW - timedelta(seconds=60)
    )
    known = {key(number): JobMemory(key=key(number), submitted=NOW, asked=frozenset(MEMBERS[:1]), seen_at=NOW)
             for number in range(2, 6)} | {key(1): moved}  # fmt: skip
    ticks = itertools.count()
    made = decide(
        view, known, settings, Policy.default(), RunningTimes(), rng=np.random.default_rng(1),
        stopwatch=lambda: next(ticks) / 100,
    )  # fmt: skip
    assert made.plan is not None
    assert len(made.plan.changes) == 2
    told = {number: " ".join(explain(key(number), view, made, Policy.default(), (), ()).sentences())
            for number in range(1, 6)}  # fmt: skip
    assert "moved less than 600 s ago: it stays for now" in told[1]
    refused = [number for number in range(2, 6) if key(number) not in {each.job for each in made.plan.changes}]
    assert len(refused) == 2
    for number in refused:
        assert "turned down, since as many jobs as may change at once gain more" in told[number]


def test_what_layer_1_took_away_is_given_back_unless_it_is_worth_it_again() -> None:
    """Job 1 was kept from beta, where it could start by now."""
    busy = [running(200 + node, f"beta{node}", 0.01) for node in (1, 2)]
    records = [*full_alpha(), *busy, job(1, gpus=8)]
    queue = queue_of(records, asked={1: frozenset(MEMBERS[:2])})
    plan = plan_of(queue, margin=10.0)
    (given,) = plan.changes
    assert given.clusters == frozenset(MEMBERS[:2])
    assert "nothing is gained any more by keeping it from there" in given.reason
    assert plan_of(queue_of(records), margin=10.0).changes == ()
    assert plan_of(queue, margin=10.0, max_moves=0).changes == ()


@pytest.mark.parametrize("budget", [0.0, 1.0, 3.0, 10.0, 40.0])
def test_interrupted_at_any_moment_there_is_a_valid_plan_that_is_no_worse_than_nothing(budget: float) -> None:
    queue = queue_of(crowded(1))
    ticks = itertools.count()
    plan = plan_of(queue, budget_s=budget, clock=lambda: float(next(ticks)), generations=None)
    assert len(plan.placements) == 30
    for placement in plan.placements:
        assert placement.clusters
        assert placement.clusters <= frozenset(MEMBERS)
        if placement.changed:
            assert placement.expected_cluster in placement.clusters
    before, after = plan.nothing, plan.chosen
    gain = (
        1.0
        - after.average_wait_s / before.average_wait_s
        + (1.0 - after.maximum_wait_s / before.maximum_wait_s) / 2
    )
    assert gain + (after.utilization / before.utilization - 1.0) / 2 >= 0.0
    if not plan.changes:
        assert after == before
