"""A decision: ranks, moves and the next step of each job, from what was seen and nothing else."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from builders import NOW, fleet, job, key, names, siblings

from slurm_evo.config import Settings
from slurm_evo.model import FleetView, Hold, Job, JobKey, JobState, SetClusters, SetSiteFactor, Unpin
from slurm_evo.policy import Policy
from slurm_evo.store import JobMemory
from slurm_evo_daemon.decide import Decision, decide
from slurm_evo_daemon.learning import RunningTimes

STILL: dict[str, Any] = {"moves": {"enabled": False}}


def decided(
    records: list[Job] | FleetView,
    settings: dict[str, Any] | None = None,
    known: dict[JobKey, JobMemory] | None = None,
) -> Decision:
    view = records if isinstance(records, FleetView) else fleet(records)
    values = Settings.model_validate(STILL if settings is None else settings)
    rng = np.random.default_rng(1)
    # A clock that moves by a hundredth of a second whenever it is read: the search ends at the same candidate.
    ticks = itertools.count()
    clock = lambda: next(ticks) / 100  # noqa: E731 - a clock is a function
    return decide(view, known or {}, values, Policy.default(), RunningTimes(), rng=rng, stopwatch=clock)


def sent(decision: Decision) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for intent in decision.intents:
        found.setdefault(intent.action.job.id, []).append(intent.action.kind)
    return found


def applied(records: list[Job], decision: Decision) -> list[Job]:
    """The same records after Slurm took every SiteFactor."""
    values = {i.action.job.id: i.action.value for i in decision.intents if isinstance(i.action, SetSiteFactor)}
    return [replace(record, site_factor=values.get(record.id, record.site_factor)) for record in records]


def test_shorter_jobs_rank_first_and_weights_count() -> None:
    records = [job(1, limit_s=7200), job(2, limit_s=600), job(3, limit_s=7200, qos="high"), job(4, limit_s=1200)]
    decision = decided(records, {**STILL, "weights": {"qos": {"high": 100.0}}})
    assert [decision.ranks[key(number)].place for number in (3, 2, 4, 1)] == [1, 2, 3, 4]
    values = [decision.ranks[key(number)].site_factor for number in (1, 4, 2, 3)]
    assert values == sorted(set(values))


def test_a_second_look_with_nothing_new_sends_nothing() -> None:
    records = [job(number, limit_s=600 * number) for number in range(1, 20)]
    first = decided(records)
    assert len(first.intents) == 19
    assert decided(applied(records, first)).intents == ()


def test_a_newcomer_is_the_only_one_to_be_sent() -> None:
    records = [job(number, limit_s=600 * number) for number in range(1, 20)]
    settled = applied(records, decided(records))
    assert sent(decided([*settled, job(99, limit_s=3333)])) == {99: ["set_site_factor"]}


def test_untouchable_jobs_are_judged_and_left_alone() -> None:
    decision = decided([job(1), job(2, array_id=2), job(3, hold=Hold.USER), job(4, comment="slurm-evo:stay")])
    assert set(sent(decision)) == {1}
    assert not any(decision.verdicts[key(number)].rankable for number in (2, 3, 4))


def test_a_plain_cluster_is_ranked_by_itself() -> None:
    plain = job(7, "delta", origin=None, limit_s=60)
    decision = decided([job(1), job(2), plain])
    assert decision.ranks[key(7, "delta")].of == 1
    assert decision.ranks[key(1)].of == 2


def test_nothing_is_pushed_where_site_factors_have_no_effect() -> None:
    view = fleet([job(1)], changes={"alpha": {}})
    basic = replace(view.seen[0], facts=replace(view.seen[0].facts, priority_type="priority/basic"))
    assert decided(FleetView(NOW, (basic, *view.seen[1:]))).intents == ()


def test_a_limit_on_updates_keeps_those_that_run_first() -> None:
    records = [job(number, limit_s=600 * number) for number in range(1, 10)]
    decision = decided(records, {**STILL, "priority": {"max_updates_per_cycle": 3}})
    assert set(sent(decision)) == {1, 2, 3}


def test_priorities_can_be_left_to_slurm() -> None:
    assert decided([job(1)], {**STILL, "priority": {"push": False}}).intents == ()


def test_lost_age_is_made_up_for_in_the_site_factor() -> None:
    view = fleet(siblings(1, "beta", viable=("beta",), submitted=NOW - timedelta(hours=1)))
    facts = replace(view.seen[0].facts, priority_weights={"age": 1000}, priority_max_age_s=7 * 86_400)
    view = FleetView(NOW, (replace(view.seen[0], facts=facts), *view.seen[1:]))
    memory = JobMemory(
        key=key(1), submitted=NOW - timedelta(days=3.5, hours=1), asked=names("alpha"), seen_at=NOW,
        moves=1, age_lost_s=3.5 * 86_400,
    )  # fmt: skip
    with_age = decided(view, known={key(1): memory}).ranks[key(1)].site_factor
    without = decided(view, {**STILL, "priority": {"restore_age": False}}, {key(1): memory})
    assert with_age - without.ranks[key(1)].site_factor == 500


def test_a_lone_job_gets_its_lost_age_on_top_of_what_it_has_and_only_once() -> None:
    def seen(site_factor: int) -> FleetView:
        records = siblings(
            1, "beta", viable=("beta",), submitted=NOW - timedelta(hours=1), site_factor=site_factor
        )
        view = fleet(records)
        facts = replace(view.seen[0].facts, priority_weights={"age": 1000}, priority_max_age_s=7 * 86_400)
        return FleetView(NOW, (replace(view.seen[0], facts=facts), *view.seen[1:]))

    memory = JobMemory(
        key=key(1), submitted=NOW - timedelta(days=3.5, hours=1), asked=names("alpha"), seen_at=NOW, moves=1,
        age_lost_s=3.5 * 86_400,
    )  # fmt: skip
    decision = decided(seen(1000), known={key(1): memory})
    assert decision.ranks[key(1)].site_factor == 1500
    again = decided(seen(1500), known={key(1): decision.memories[key(1)]})
    assert again.intents == ()


def test_a_job_that_is_being_unpinned_gets_its_site_factor_with_it() -> None:
    records = [
        job(1, flags=frozenset({"REVOKED"}), viable=("beta",)),
        job(1, "beta", viable=("beta",), direct_priority=True, site_factor=None),
    ]
    memory = JobMemory(key=key(1), submitted=NOW, asked=names("alpha"), seen_at=NOW, moves=1)
    decision = decided(records, known={key(1): memory})
    assert sent(decision) == {1: ["unpin"]}
    action = decision.intents[0].action
    assert isinstance(action, Unpin)
    assert action.site_factor == decision.ranks[key(1)].site_factor


def overloaded() -> list[Job]:
    """Alpha is full for an hour, beta is idle, and four jobs of alpha wait."""
    busy = [
        job(
            100 + node, state=JobState.RUNNING, gpus=8, limit_s=7200, nodelist=(f"alpha{node}",),
            started=NOW - timedelta(hours=1),
        )
        for node in range(1, 5)
    ]  # fmt: skip
    return [*busy, *(job(number, gpus=4, limit_s=1800) for number in range(1, 5))]


def test_an_idle_cluster_is_opened_to_jobs_that_wait_elsewhere() -> None:
    decision = decided(overloaded(), {"moves": {"respect_user_clusters": False}, "optimizer": {"budget_s": 5}})
    assert decision.plan is not None
    moved = {intent.action.job.id for intent in decision.intents if isinstance(intent.action, SetClusters)}
    assert moved == {1, 2, 3, 4}
    for intent in decision.intents:
        if isinstance(intent.action, SetClusters):
            assert "alpha" in intent.action.clusters, "add before remove"
            assert intent.before["clusters"] == ["alpha"]
    assert "4 moves" in decision.plan.why


def test_a_job_that_moved_a_moment_ago_stays() -> None:
    memories = {
        key(number): JobMemory(
            key=key(number), submitted=NOW, asked=names("alpha"), seen_at=NOW, moves=1,
            moved_at=NOW - timedelta(seconds=5),
        )
        for number in range(1, 5)
    }  # fmt: skip
    decision = decided(overloaded(), {"moves": {"respect_user_clusters": False}}, memories)
    assert not any(isinstance(intent.action, SetClusters) for intent in decision.intents)
    assert "stays for now" in decision.notes[key(1)]


def test_a_move_under_way_goes_on_and_is_not_planned_anew() -> None:
    memory = JobMemory(key=key(1), submitted=NOW, asked=names("alpha"), seen_at=NOW, wanted=names("beta"))
    decision = decided(overloaded(), {"moves": {"respect_user_clusters": False}}, {key(1): memory})
    assert decision.memories[key(1)].wanted == names("beta")
    assert all(placement.job != key(1) for placement in (decision.plan.placements if decision.plan else ()))


def test_a_held_jobs_move_waits_and_an_opted_out_jobs_move_ends() -> None:
    memory = JobMemory(key=key(1), submitted=NOW, asked=names("alpha"), seen_at=NOW, wanted=names("beta"))
    held = decided([job(1, hold=Hold.USER)], known={key(1): memory})
    assert held.intents == ()
    assert held.memories[key(1)].wanted == names("beta")
    begun = replace(memory, widening_since=NOW - timedelta(hours=1))
    patient = decided([job(1, hold=Hold.USER)], known={key(1): begun})
    assert patient.memories[key(1)].widening_since == NOW, "a hold eats the destination's time"
    released = decided([job(1, eligible=NOW + timedelta(seconds=1))], known=dict(patient.memories))
    assert released.memories[key(1)].wanted == names("beta"), "released while it was looked at: its move goes on"
    out = decided([job(1, comment="slurm-evo:stay")], known={key(1): memory})
    assert out.intents == ()
    assert out.memories[key(1)].wanted is None


def test_the_first_submit_time_is_kept() -> None:
    early = JobMemory(key=key(1), submitted=NOW - timedelta(days=2), asked=names("alpha"), seen_at=NOW)
    decision = decided([job(1), job(2)], known={key(1): early})
    assert decision.ranks[key(1)].place == 1
    assert decision.standing is not None
    assert decision.standing.terminals(key(1))["wait"] == 2 * 86_400


def test_no_job_no_decision() -> None:
    decision = decided([])
    assert decision.intents == ()
    assert decision.plan is None
