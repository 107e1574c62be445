"""What the journal promises, told once; run on every kind of database. A test class gives the `journal`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from builders import NOW, key, names
from sqlalchemy import text

from slurm_evo.model import (
    Action,
    Answer,
    ClusterName,
    LeaseLost,
    Outcome,
    Placement,
    Plan,
    Scores,
    SetClusters,
    SetSiteFactor,
    StoreError,
    Unpin,
)
from slurm_evo.store import ActionState, Intent, JobMemory, Journal, Lease, Mode
from slurm_evo.store.tables import Table

Reopen = Callable[[], Journal]
"""Opens the same database once more, as another process would."""

AT = NOW.replace(microsecond=123_457)
EVERY_ACTION: tuple[Action, ...] = (
    SetClusters(key(7), (ClusterName("alpha"), ClusterName("beta"))),
    SetSiteFactor(key(8, "beta"), -2_000_000_000),
    Unpin(key(9), nice=-100, site_factor=42),
)


def later(seconds: float) -> datetime:
    """An instant of the story."""
    return AT + timedelta(seconds=seconds)


def held(journal: Journal, holder: str = "a", *, now: datetime = AT, length_s: float = 60.0) -> Lease:
    """The lease, which must be free."""
    lease = journal.acquire(holder, now=now, length_s=length_s)
    assert lease is not None
    return lease


def memory(number: int, **changes: Any) -> JobMemory:
    """Of a job seen now, asked for alpha and beta."""
    plain = {"key": key(number), "submitted": later(-600), "asked": names("alpha", "beta"), "seen_at": AT}
    return JobMemory(**{**plain, **changes})


def plan(*placements: Placement) -> Plan:
    """A plan with figures that need all digits."""
    chosen, nothing = Scores(1 / 3, 7200.5, 0.1 + 0.2, 2), Scores(900.0, 1e9, 0.0, 0)
    return Plan(placements, chosen, nothing, (chosen, nothing), "waits are a third shorter — «beta» is idle")


MOVED = Placement(key(7), names("beta", "gamma"), names("alpha"), ClusterName("beta"), 12.25, None, "beta is idle")
STAYS = Placement(key(8), names("alpha"), names("alpha"))


class JournalStories:
    """Round trips and promises."""

    def test_a_cycle_comes_back_as_it_was_written(self, journal: Journal, reopen: Reopen) -> None:
        assert journal.last_cycle() is None
        lease = held(journal)
        number = journal.begin_cycle(now=AT, lease=lease)
        running = journal.last_cycle()
        assert running is not None
        assert (running.mode, running.epoch, running.ended) == (Mode.LIVE, lease.epoch, None)
        journal.end_cycle(
            number,
            now=later(2),
            seconds={"observe": 0.1},
            counts={"moves": 3},
            sentence="held: «γ» did not answer",
        )
        with reopen() as other:
            seen = other.last_cycle()
        assert seen is not None
        assert (seen.number, seen.started, seen.ended) == (number, AT, later(2))
        assert (seen.seconds, seen.counts) == ({"observe": 0.1}, {"moves": 3})
        assert seen.sentence == "held: «γ» did not answer"

    def test_a_dry_cycle_needs_no_lease_and_numbers_rise(self, journal: Journal) -> None:
        first = journal.begin_cycle(now=AT, lease=None)
        second = journal.begin_cycle(now=later(1), lease=None)
        assert second > first
        assert [cycle.number for cycle in journal.cycles()] == [second, first]
        assert [cycle.mode for cycle in journal.cycles(limit=1)] == [Mode.DRY]
        assert journal.cycles()[0].epoch is None

    def test_a_cycle_that_was_never_begun_cannot_end(self, journal: Journal) -> None:
        with pytest.raises(StoreError, match="has no cycle 99"):
            journal.end_cycle(99, now=AT, seconds={}, counts={}, sentence="")

    def test_a_plan_comes_back_to_the_last_digit(self, journal: Journal) -> None:
        assert journal.plan() is None
        cycle = journal.begin_cycle(now=AT, lease=None)
        journal.record_plan(cycle, plan(MOVED, STAYS), weights={"average_wait": 1.0, "utilization": 0.5})
        seen = journal.plan()
        assert seen is not None
        assert seen.plan == plan(MOVED, STAYS)
        assert seen == journal.plan(cycle)
        assert seen.weights == {"average_wait": 1.0, "utilization": 0.5}
        assert journal.plan(cycle + 1) is None

    def test_a_cycle_has_one_plan_and_a_plan_has_a_cycle(self, journal: Journal) -> None:
        cycle = journal.begin_cycle(now=AT, lease=None)
        journal.record_plan(cycle, plan(MOVED), weights={})
        for wrong in (cycle, cycle + 1):
            with pytest.raises(StoreError, match="could not be written"):
                journal.record_plan(wrong, plan(STAYS), weights={})
        seen = journal.plan()
        assert seen is not None
        assert seen.plan.placements == (MOVED,)

    def test_unchanged_placements_are_kept_of_the_newest_plan_only(self, journal: Journal) -> None:
        first = journal.begin_cycle(now=AT, lease=None)
        journal.record_plan(first, plan(MOVED, STAYS), weights={})
        second = journal.begin_cycle(now=later(30), lease=None)
        journal.record_plan(second, plan(MOVED, STAYS), weights={})
        old, new = journal.plan(first), journal.plan(second)
        assert old is not None
        assert new is not None
        assert old.plan.placements == (MOVED,)
        assert new.plan.placements == (MOVED, STAYS)
        history = journal.placements(MOVED.job)
        assert [(one.cycle, one.at, one.placement) for one in history] == [
            (second, later(30), MOVED),
            (first, AT, MOVED),
        ]
        assert [one.cycle for one in journal.placements(STAYS.job)] == [second]
        assert len(journal.placements(MOVED.job, limit=1)) == 1

    def test_every_kind_of_action_comes_back(self, journal: Journal) -> None:
        lease = held(journal)
        cycle = journal.begin_cycle(now=AT, lease=lease)
        intents = [
            Intent(action=action, before={"viable": ["alpha"], "nice": 0}, reason="«why»", cluster=cluster)
            for action, cluster in zip(EVERY_ACTION, (None, ClusterName("gamma"), None), strict=True)
        ]
        ids = journal.intend(cycle, intents, lease=lease, now=later(1))
        seen = journal.open_actions()
        assert tuple(one.id for one in seen) == ids == tuple(sorted(ids))
        assert tuple(one.action for one in seen) == EVERY_ACTION
        assert [one.cluster for one in seen] == ["alpha", "gamma", "alpha"]
        assert {one.state for one in seen} == {ActionState.INTENDED}
        assert all(one.before == {"viable": ["alpha"], "nice": 0} and one.reason == "«why»" for one in seen)
        assert all((one.cycle, one.intended_at, one.settled_at) == (cycle, later(1), None) for one in seen)
        assert seen == journal.actions_of(cycle)

    def test_many_intents_keep_their_order(self, journal: Journal) -> None:
        lease = held(journal)
        cycle = journal.begin_cycle(now=AT, lease=lease)
        actions = [SetSiteFactor(key(number), number) for number in range(2_000, 0, -1)]
        ids = journal.intend(cycle, [Intent(action=action) for action in actions], lease=lease, now=AT)
        by_id = {one.id: one.action for one in journal.open_actions()}
        assert [by_id[id_] for id_ in ids] == actions
        journal.settle(ids, [Outcome(action, Answer.DONE) for action in actions], now=AT)
        assert journal.open_actions() == ()

    def test_each_answer_is_kept_with_slurms_own_words(self, journal: Journal) -> None:
        lease = held(journal)
        cycle = journal.begin_cycle(now=AT, lease=lease)
        actions = [SetSiteFactor(key(number), 1) for number in range(len(Answer))]
        ids = journal.intend(cycle, [Intent(action=action) for action in actions], lease=lease, now=AT)
        outcomes = [
            Outcome(action, answer, f"said {answer}") for action, answer in zip(actions, Answer, strict=True)
        ]
        journal.settle(ids, outcomes, now=later(3))
        seen = journal.actions_of(cycle)
        assert [str(one.state) for one in seen] == [str(answer) for answer in Answer]
        assert [one.message for one in seen] == [f"said {answer}" for answer in Answer]
        assert {one.settled_at for one in seen} == {later(3)}

    def test_what_a_crash_left_open_is_found_and_settled_by_another(
        self, journal: Journal, reopen: Reopen
    ) -> None:
        lease = held(journal)
        cycle = journal.begin_cycle(now=AT, lease=lease)
        ids = journal.intend(cycle, [Intent(action=action) for action in EVERY_ACTION], lease=lease, now=AT)
        journal.settle(ids[:1], [Outcome(EVERY_ACTION[0], Answer.DONE)], now=later(1))
        journal.close()  # and no more
        with reopen() as successor:
            left = successor.open_actions()
            assert tuple(one.id for one in left) == ids[1:]
            # Settling needs no lease: what was done is true whoever did it.
            successor.settle(
                ids[1:], [Outcome(one.action, Answer.UNKNOWN, "no answer") for one in left], now=later(9)
            )
            assert successor.open_actions() == ()
            # The next look tells what became of it.
            successor.settle(ids[1:2], [Outcome(EVERY_ACTION[1], Answer.DONE, "seen")], now=later(30))
            states = [one.state for one in successor.actions_of(cycle)]
        assert states == [ActionState.DONE, ActionState.DONE, ActionState.UNKNOWN]

    def test_a_settled_action_is_not_settled_again_nor_its_neighbours(self, journal: Journal) -> None:
        lease = held(journal)
        cycle = journal.begin_cycle(now=AT, lease=lease)
        actions = EVERY_ACTION[:2]
        ids = journal.intend(cycle, [Intent(action=action) for action in actions], lease=lease, now=AT)
        journal.settle(ids[:1], [Outcome(actions[0], Answer.DONE)], now=AT)
        both = [Outcome(action, Answer.REFUSED) for action in actions]
        with pytest.raises(StoreError, match=rf"no open action with id \[{ids[0]}\]"):
            journal.settle(ids, both, now=AT)
        with pytest.raises(StoreError, match="given twice"):
            journal.settle((ids[1], ids[1]), both, now=AT)
        assert [one.id for one in journal.open_actions()] == [ids[1]]
        assert journal.actions_of(cycle)[0].state is ActionState.DONE

    def test_history_is_newest_first_and_of_one_job_if_asked(self, journal: Journal) -> None:
        lease = held(journal)
        cycle = journal.begin_cycle(now=AT, lease=lease)
        same_id_elsewhere = SetSiteFactor(key(7, "beta"), 1)
        actions = (*EVERY_ACTION, same_id_elsewhere, SetSiteFactor(key(7), 5))
        journal.intend(cycle, [Intent(action=action) for action in actions], lease=lease, now=AT)
        assert [one.action for one in journal.history(limit=2)] == [actions[4], actions[3]]
        assert [one.action for one in journal.history(job=key(7))] == [actions[4], actions[0]]

    def test_an_action_of_no_cycle_is_refused(self, journal: Journal) -> None:
        with pytest.raises(StoreError, match="could not be written"):
            journal.intend(99, [Intent(action=EVERY_ACTION[0])], lease=held(journal), now=AT)
        assert journal.history() == ()

    def test_a_job_is_remembered_whole(self, journal: Journal) -> None:
        whole = memory(
            7,
            site_factor=-1_000_000,
            age_lost_s=1 / 3,
            moved_at=later(-60),
            moves=3,
            wanted=names("beta"),
            widening_since=later(-50),
            stranded_since=later(-40),
            healed_at=later(-30),
            nice_owed=37,
            refusing={ClusterName("gamma"): later(3600)},
        )
        bare = memory(7, key=key(7, "beta"))
        journal.remember([whole, bare])
        assert journal.jobs() == {whole.key: whole, bare.key: bare}

    def test_a_newer_memory_replaces_the_older_and_none_is_not_an_empty_set(self, journal: Journal) -> None:
        journal.remember([memory(7, wanted=names("beta"), stranded_since=AT, site_factor=5), memory(8)])
        empty = memory(7, wanted=frozenset())
        journal.remember([empty])
        assert journal.jobs()[key(7)] == empty
        found = memory(7, wanted=None, stranded_since=None, healed_at=AT)
        journal.remember([found])
        assert journal.jobs() == {key(7): found, key(8): memory(8)}
        journal.remember([])

    def test_only_the_asked_memories_come(self, journal: Journal) -> None:
        many = [memory(number) for number in range(1_200)]
        journal.remember(many)
        wanted = [one.key for one in many[:1_100]]
        assert set(journal.jobs([*wanted, key(7, "beta"), key(99_999)])) == set(wanted)
        assert journal.jobs([]) == {}

    def test_jobs_that_left_the_queues_are_forgotten(self, journal: Journal) -> None:
        journal.remember([memory(7), memory(8, seen_at=later(-1)), memory(9, seen_at=later(-100))])
        assert journal.forget(unseen_since=AT) == 2
        assert set(journal.jobs()) == {key(7)}

    def test_the_latest_refusal_of_a_job_counts(self, journal: Journal) -> None:
        assert journal.refusal(key(7)) is None
        first = journal.begin_cycle(now=AT, lease=None)
        journal.record_refusals(first, {key(7): ["held by its user", "an array"], key(8): ["interactive"]})
        second = journal.begin_cycle(now=later(30), lease=None)
        journal.record_refusals(second, {key(7): ["a reservation"]})
        seen = journal.refusal(key(7))
        assert seen is not None
        assert (seen.job, seen.reasons, seen.cycle) == (key(7), ("a reservation",), second)
        assert journal.refusals(first) == {key(8): ("interactive",)}
        assert journal.refusals(second) == {key(7): ("a reservation",)}

    def test_promotion_and_rollback_are_a_stack(self, journal: Journal) -> None:
        assert journal.active_policy() is None
        with pytest.raises(StoreError, match="no promoted policy to roll back"):
            journal.rollback()
        with pytest.raises(StoreError, match="knows no policy x: add it first"):
            journal.promote("x", now=AT)
        for place, (name, text_) in enumerate({"one": "wait", "two": "wait * weight"}.items()):
            added = journal.add_policy(name, text_, source="a training run", now=later(place))
            assert (added.id, added.text, added.source) == (name, text_, "a training run")
            assert (added.created, added.promoted_at) == (later(place), None)
        assert journal.active_policy() is None, "adding puts nothing in force"
        assert [policy.id for policy in journal.policies()] == ["two", "one"]
        assert journal.promote("one", now=later(10)).promoted_at == later(10)
        journal.promote("two", now=later(20))
        assert journal.promote("two", now=later(30)).promoted_at == later(20), "it is in force already"
        active = journal.active_policy()
        assert active is not None
        assert active.text == "wait * weight"
        back = journal.rollback()
        assert back is not None
        assert (back.id, back.promoted_at) == ("one", later(10))
        assert journal.rollback() is None
        assert journal.active_policy() is None
        assert len(journal.policies()) == 2

    def test_a_policy_id_means_one_text(self, journal: Journal) -> None:
        first = journal.add_policy("one", "wait", source="shipped", now=AT)
        assert journal.add_policy("one", "wait", source="again", now=later(5)) == first
        with pytest.raises(StoreError, match="policy one with another text"):
            journal.add_policy("one", "Wait", source="shipped", now=AT)

    def test_one_holder_at_a_time(self, journal: Journal, reopen: Reopen) -> None:
        assert journal.lease() is None
        first = held(journal, "a")
        with reopen() as other:
            assert other.lease() == first
            assert other.acquire("b", now=later(59), length_s=60) is None
            second = other.acquire("b", now=later(60), length_s=60)
        assert second is not None
        assert second.epoch > first.epoch
        assert second.until == later(120)
        with pytest.raises(LeaseLost, match="a held lease 1, but b took lease 2"):
            journal.renew(first, now=later(61), length_s=60)
        assert journal.lease() == second

    def test_a_restarted_holder_fences_its_former_self_off(self, journal: Journal) -> None:
        former = held(journal)
        successor = held(journal, now=later(1))
        assert successor.epoch == former.epoch + 1
        with pytest.raises(LeaseLost):
            journal.begin_cycle(now=later(2), lease=former)
        journal.begin_cycle(now=later(2), lease=successor)

    def test_renewing_never_shortens(self, journal: Journal) -> None:
        first = held(journal)
        second = journal.renew(first, now=later(30), length_s=100)
        assert second == Lease(holder="a", epoch=first.epoch, until=later(130))
        # From an older copy, and for a shorter time: what the newer copy promises still holds.
        assert journal.renew(first, now=later(31), length_s=1) == second
        assert journal.lease() == second
        assert journal.acquire("b", now=later(129), length_s=60) is None

    def test_a_released_lease_is_free_at_once_and_a_lost_one_is_left_alone(self, journal: Journal) -> None:
        first = held(journal, "a")
        journal.release(first, now=later(1))
        second = held(journal, "b", now=later(1))
        journal.release(first, now=later(2))
        assert journal.lease() == second
        assert journal.acquire("c", now=later(3), length_s=60) is None

    def test_nothing_is_intended_under_a_lost_or_run_out_lease(self, journal: Journal) -> None:
        first = held(journal, "a")
        cycle = journal.begin_cycle(now=AT, lease=first)
        intents = [Intent(action=EVERY_ACTION[0])]
        with pytest.raises(LeaseLost, match="ran out"):
            journal.intend(cycle, intents, lease=first, now=later(60))
        held(journal, "b", now=later(60))
        for nothing_or_something in ([], intents):
            with pytest.raises(LeaseLost, match="b took lease 2: only one daemon may act"):
                journal.intend(cycle, nothing_or_something, lease=first, now=later(1))
        with pytest.raises(LeaseLost):
            journal.begin_cycle(now=later(1), lease=first)
        assert journal.history() == ()
        assert len(journal.cycles()) == 1

    def test_pruning_keeps_the_last_cycle_and_what_is_unsettled(self, journal: Journal) -> None:
        lease = held(journal, length_s=1e6)
        settled, unsettled, recent, last = (
            journal.begin_cycle(now=later(at), lease=lease) for at in (0, 10, 1000, 20)
        )
        for cycle in (settled, unsettled):
            journal.record_plan(cycle, plan(MOVED, STAYS), weights={})
            journal.record_refusals(cycle, {key(cycle, "gamma"): ["held"]})
            ids = journal.intend(cycle, [Intent(action=EVERY_ACTION[0])], lease=lease, now=later(20))
            if cycle == settled:
                journal.settle(ids, [Outcome(EVERY_ACTION[0], Answer.DONE)], now=later(20))
        journal.remember([memory(7, seen_at=later(1)), memory(8, seen_at=later(1000))])
        assert journal.prune(older_than=later(500)) == 1
        assert [cycle.number for cycle in journal.cycles()] == [last, recent, unsettled]
        assert journal.actions_of(settled) == ()
        assert journal.plan(settled) is None
        assert journal.refusal(key(settled, "gamma")) is None
        assert [one.cycle for one in journal.placements(MOVED.job)] == [unsettled]
        assert journal.refusal(key(unsettled, "gamma")) is not None
        assert len(journal.open_actions()) == 1
        assert set(journal.jobs()) == {key(8)}
        assert journal.begin_cycle(now=later(1001), lease=lease) > last

    def test_names_are_compared_exactly(self, journal: Journal) -> None:
        journal.add_policy("Evolved", "wait", source="", now=AT)
        journal.add_policy("evolved", "limit", source="", now=AT)
        assert len(journal.policies()) == 2

    def test_a_naive_time_is_refused_and_nothing_is_kept(self, journal: Journal) -> None:
        with pytest.raises(StoreError, match="has no time zone"):
            journal.remember([memory(7), memory(8, seen_at=AT.replace(tzinfo=None))])
        assert journal.jobs() == {}

    def test_text_that_is_no_unicode_is_a_store_error(self, journal: Journal) -> None:
        cycle = journal.begin_cycle(now=AT, lease=None)
        with pytest.raises(StoreError, match="could not be written"):
            journal.end_cycle(cycle, now=AT, seconds={}, counts={}, sentence="\udcff")
        last = journal.last_cycle()
        assert last is not None
        assert last.ended is None

    def test_the_migrations_make_what_the_tables_say(self, journal: Journal) -> None:
        with journal._engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, Table.metadata) == []

    def test_a_newer_schema_is_refused_with_a_sentence(self, journal: Journal, reopen: Reopen) -> None:
        with journal._engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        with pytest.raises(StoreError, match="has schema 9999, which is newer than this slurm-evo") as refused:
            reopen()
        assert "install the version that wrote it" in str(refused.value)
        with journal._engine.connect() as connection:
            assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"
