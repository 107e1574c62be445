"""A viable set is changed one safe step a cycle, and every edge of Slurm's federation is answered."""

from __future__ import annotations

from datetime import timedelta

import pytest
from builders import NOW, fleet, job, key, names, siblings

from slurm_evo.config import MoveSettings
from slurm_evo.model import Answer, Hold, Outcome, SetClusters, SetSiteFactor, Unpin
from slurm_evo.store import JobMemory
from slurm_evo_daemon.moves import Step, after, step

MOVES = MoveSettings(confirm_s=60, stranded_s=30, refusal_s=3600)


def remembered(**changes: object) -> JobMemory:
    plain = {"key": key(1), "submitted": NOW - timedelta(minutes=10), "asked": names("alpha"), "seen_at": NOW}
    return JobMemory(**{**plain, **changes})


def next_step(records: list, memory: JobMemory, *, unseen: tuple[str, ...] = (), site_factor: int = 500) -> Step:
    view = fleet(records, unseen=unseen)
    return step(view.jobs[key(1)], memory, view, MOVES, site_factor)


def test_a_move_begins_by_widening_and_keeps_the_job_where_it_waits() -> None:
    done = next_step(siblings(1, "alpha"), remembered(wanted=names("beta")))
    assert done.action == SetClusters(key(1), ("alpha", "beta"))
    assert done.memory.widening_since == NOW
    assert done.memory.moves == 1


def test_it_is_narrowed_only_when_the_new_cluster_itself_lists_the_job() -> None:
    memory = remembered(wanted=names("beta"), widening_since=NOW - timedelta(seconds=5), moves=1)
    waiting = next_step(siblings(1, "alpha", viable=("alpha", "beta")), memory)
    assert waiting.action is None
    assert "waiting for beta" in waiting.note
    confirmed = next_step(siblings(1, "alpha", "beta"), memory)
    assert confirmed.action == SetClusters(key(1), ("beta",))


def test_a_job_that_keeps_several_clusters_is_not_narrowed() -> None:
    memory = remembered(wanted=names("alpha", "beta"), widening_since=NOW, moves=1)
    done = next_step(siblings(1, "alpha", "beta"), memory)
    assert done.action is None
    assert done.memory.wanted is None


def test_taking_a_cluster_away_needs_no_widening() -> None:
    done = next_step(siblings(1, "alpha", "beta"), remembered(wanted=names("beta")))
    assert done.action == SetClusters(key(1), ("beta",))


def test_edge_1_a_cluster_that_never_lists_the_job_is_taken_out_again() -> None:
    memory = remembered(wanted=names("beta"), widening_since=NOW - timedelta(seconds=61), moves=1)
    done = next_step(siblings(1, "alpha", viable=("alpha", "beta")), memory)
    assert done.action == SetClusters(key(1), ("alpha",))
    assert done.memory.wanted is None
    assert done.memory.refusing["beta"] == NOW + timedelta(seconds=3600)


def test_a_widening_that_never_reached_slurm_is_sent_again() -> None:
    memory = remembered(wanted=names("beta"), widening_since=NOW - timedelta(seconds=5), moves=1)
    done = next_step(siblings(1, "alpha"), memory)
    assert done.action == SetClusters(key(1), ("alpha", "beta"))


def test_an_unseen_destination_proves_nothing() -> None:
    memory = remembered(wanted=names("beta"), widening_since=NOW - timedelta(hours=1), moves=1)
    done = next_step(siblings(1, "alpha", viable=("alpha", "beta")), memory, unseen=("beta",))
    assert done.action is None
    assert done.memory.wanted == names("beta")


def test_edge_1_a_stranded_job_goes_back_to_its_origin_after_a_while() -> None:
    stranded = siblings(1, viable=("beta",))
    first = next_step(stranded, remembered(moves=2))
    assert first.action is None
    assert first.memory.stranded_since == NOW
    later = next_step(stranded, remembered(moves=2, stranded_since=NOW - timedelta(seconds=31)))
    assert later.action == SetClusters(key(1), ("alpha",))
    assert "beta" in later.memory.refusing


def test_a_job_stranded_by_somebody_else_is_only_reported() -> None:
    done = next_step(siblings(1, viable=("beta",)), remembered(moves=0, stranded_since=NOW - timedelta(hours=1)))
    assert done.action is None
    assert "did not move it" in done.note


def test_a_job_that_was_held_back_and_that_nobody_else_took_goes_to_its_origin_too() -> None:
    held = siblings(1, viable=("beta",), admin_comment="mine slurm-evo:held-back")
    done = next_step(held, remembered(moves=0, stranded_since=NOW - timedelta(seconds=31)))
    assert done.action == SetClusters(key(1), ("alpha",))


def test_nobody_is_called_stranded_while_a_cluster_is_out_of_sight() -> None:
    memory = remembered(moves=1, stranded_since=NOW - timedelta(hours=1))
    done = next_step(siblings(1, viable=("beta",)), memory, unseen=("beta",))
    assert done.action is None


def test_edge_2_a_pinned_sibling_is_freed_with_nice_and_site_factor() -> None:
    records = [
        job(1, flags=frozenset({"REVOKED"}), viable=("beta",), nice=30),
        job(1, "beta", viable=("beta",), direct_priority=True, submitted=NOW - timedelta(seconds=8)),
    ]
    done = next_step(records, remembered(moves=2, moved_at=NOW - timedelta(seconds=9)), site_factor=777)
    assert done.action == Unpin(key(1), 30, 777)
    assert done.memory.healed_at == NOW


def test_a_priority_fixed_by_an_administrator_after_we_freed_it_stays() -> None:
    records = [
        job(1, flags=frozenset({"REVOKED"}), viable=("beta",)),
        job(1, "beta", viable=("beta",), direct_priority=True, submitted=NOW - timedelta(hours=2)),
    ]
    done = next_step(records, remembered(moves=2, healed_at=NOW - timedelta(hours=1)))
    assert done.action is None
    assert "somebody wanted" in done.note


def test_a_sibling_that_slurm_made_anew_is_freed_again() -> None:
    records = [
        job(1, flags=frozenset({"REVOKED"}), viable=("beta",)),
        job(1, "beta", viable=("beta",), direct_priority=True, submitted=NOW - timedelta(minutes=2)),
    ]
    done = next_step(records, remembered(moves=2, healed_at=NOW - timedelta(hours=1)))
    assert isinstance(done.action, Unpin)


def test_a_sibling_made_while_the_others_were_freed_is_freed_too() -> None:
    """Its second is the one of our update, which did not reach it: Slurm was still making it."""
    healed = NOW - timedelta(minutes=5)
    records = [
        job(1, flags=frozenset({"REVOKED"}), viable=("beta",)),
        job(1, "beta", viable=("beta",), direct_priority=True, submitted=healed - timedelta(seconds=1)),
    ]
    done = next_step(records, remembered(moves=2, healed_at=healed))
    assert isinstance(done.action, Unpin)
    again = next_step(records, remembered(moves=2, healed_at=NOW - timedelta(minutes=2)))
    assert again.action is None, "once: whoever fixes it after that wants it so"


def test_a_fixed_priority_of_a_job_we_never_moved_is_left() -> None:
    done = next_step([job(1, direct_priority=True)], remembered())
    assert done.action is None


def test_edge_3_the_lost_age_is_remembered() -> None:
    records = [
        job(1, flags=frozenset({"REVOKED"}), viable=("beta",)),
        job(1, "beta", viable=("beta",), submitted=NOW - timedelta(minutes=1)),
    ]
    assert next_step(records, remembered(moves=2)).memory.age_lost_s == 540


def test_edge_5_nothing_is_sent_while_the_origin_is_out_of_sight() -> None:
    records = siblings(1, "beta", viable=("alpha", "beta"))
    done = next_step(records, remembered(wanted=names("beta")), unseen=("alpha",))
    assert done.action is None
    assert "origin" in done.note


def test_a_held_job_waits_for_its_owner() -> None:
    done = next_step([job(1, hold=Hold.USER)], remembered(wanted=names("beta")))
    assert done.action is None
    assert done.memory.wanted == names("beta")


@pytest.mark.parametrize("answer", [Answer.DONE, Answer.UNKNOWN, Answer.GONE])
def test_only_a_refusal_ends_a_move_by_its_answer(answer: Answer) -> None:
    memory = remembered(wanted=names("beta"), widening_since=NOW)
    action = SetClusters(key(1), ("alpha", "beta"))
    assert after(Outcome(action, answer), memory, NOW, 60.0) == memory


def test_a_refused_cluster_is_not_asked_again_for_a_while() -> None:
    memory = remembered(wanted=names("beta"), widening_since=NOW)
    changed = after(Outcome(SetClusters(key(1), ("alpha", "beta")), Answer.REFUSED), memory, NOW, 60.0)
    assert changed.wanted is None
    assert changed.refusing == {"beta": NOW + timedelta(seconds=60)}


def test_an_unpin_without_an_answer_is_tried_again() -> None:
    memory = remembered(healed_at=NOW)
    assert after(Outcome(Unpin(key(1), 0, 5), Answer.UNKNOWN), memory, NOW, 60.0).healed_at is None


def test_an_accepted_site_factor_is_remembered() -> None:
    assert after(Outcome(SetSiteFactor(key(1), 5), Answer.DONE), remembered(), NOW, 60.0).site_factor == 5
