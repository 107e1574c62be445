"""Jobs that are expected to come: as often as they came, and like them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from builders import MEMBERS, NOW, fleet, job, key, names

from slurm_evo.config import Settings
from slurm_evo.model import FleetView, Job
from slurm_evo.optimize import Expected, queue_from
from slurm_evo.policy import Policy
from slurm_evo_daemon.arrivals import Arrivals
from slurm_evo_daemon.decide import decide
from slurm_evo_daemon.learning import RunningTimes


def looks(hours: int, per_hour: int) -> list[FleetView]:
    """One look an hour; so many new jobs at each, which are gone at the next."""
    found = []
    for hour in range(hours + 1):
        now = NOW + timedelta(hours=hour)
        records = [job(1 + hour * per_hour + place, gpus=2, submitted=now) for place in range(per_hour)]
        found.append(fleet(records, now=now))
    return found


def test_as_many_are_expected_as_came() -> None:
    arrivals = Arrivals()
    for view in looks(10, 20):
        arrivals.watch(view)
    rng = np.random.default_rng(1)
    draws = [arrivals.drawn(NOW + timedelta(hours=10), rng) for _ in range(200)]
    assert sum(map(len, draws)) / len(draws) == pytest.approx(11, rel=0.1)
    for one in draws[0]:
        assert one.job.job.gpus == 2
        assert one.job.key.id < 0
        assert 0 <= one.at_s <= 1800


def test_jobs_from_before_the_first_look_and_of_yesterday_do_not_count() -> None:
    arrivals = Arrivals()
    views = looks(40, 1)
    old = [job(1000 + number, submitted=NOW - timedelta(hours=1)) for number in range(500)]
    arrivals.watch(fleet(old, now=NOW))
    for view in views[1:]:
        arrivals.watch(view)
    rng = np.random.default_rng(1)
    draws = [len(arrivals.drawn(NOW + timedelta(hours=40), rng)) for _ in range(400)]
    assert sum(draws) / len(draws) == pytest.approx(0.5, rel=0.25)


def test_a_history_of_an_hour_foretells_nothing() -> None:
    arrivals = Arrivals()
    for view in looks(1, 50):
        arrivals.watch(view)
    assert arrivals.drawn(NOW + timedelta(hours=1), np.random.default_rng(1)) == ()


def expected(record: Job, score: float, *clusters: str) -> Expected:
    return Expected(job=record, clusters=names(*clusters), at_s=60.0, score=score, runtime_s=100.0, weight=1.0)


def test_they_stand_among_the_pending_jobs_by_their_scores() -> None:
    queue = queue_from(
        fleet([job(1), job(2), job(3)]),
        scores={key(1): 3.0, key(2): 2.0, key(3): 1.0},
        runtimes={},
        weights={},
        movable={},
        expected=[[
            expected(job(-1), 2.5, "alpha", "beta"), expected(job(-2), 9.0, "beta"),
            expected(job(-3), 0.0, "gamma"), expected(job(-4), 5.0, "nowhere"),
        ]],
        now=NOW,
    )  # fmt: skip
    assert queue.coming is not None
    assert queue.coming.before.tolist() == [0, 1, 3]
    assert [queue.names(int(mask)) for mask in queue.coming.allowed] == [
        names("beta"), names("alpha", "beta"), names("gamma"),
    ]  # fmt: skip


def test_a_decision_with_jobs_to_come_touches_only_jobs_that_are_there() -> None:
    times = RunningTimes()
    views = looks(6, 30)
    for view in views:
        times.watch(view)
    last = replace(views[-1], now=views[-1].now)
    ticks = itertools.count()
    made = decide(
        last, {}, Settings.model_validate({"moves": {"respect_user_clusters": False}}), Policy.default(), times,
        rng=np.random.default_rng(1), stopwatch=lambda: next(ticks) / 100,
    )  # fmt: skip
    assert made.plan is not None
    assert {placement.job for placement in made.plan.placements} <= set(last.jobs)
    assert set(made.memories) == set(last.jobs)
    assert all(intent.action.job in last.jobs for intent in made.intents)
    assert all(name in MEMBERS for placement in made.plan.placements for name in placement.clusters)
