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
    assert done.memory.refusing["beta"] == NOW + timedelta(seconds=3600)
    assert next_step(siblings(1, "alpha"), done.memory).memory.wanted is None


def test_a_set_that_slurm_did_not_narrow_is_narrowed_at_the_next_look() -> None:
    """While a cluster tries to start a job, Slurm calls it «no longer pending» (fed_mgr_update_job_clusters)."""
    memory = remembered(wanted=names("beta"), widening_since=NOW - timedelta(seconds=61), moves=1)
    wide = siblings(1, "alpha", viable=("alpha", "beta"))
    turned_away = next_step(wide, memory)
    assert turned_away.action is not None
    kept = after(Outcome(turned_away.action, Answer.GONE), turned_away.memory, NOW, 60.0)
    assert next_step(wide, kept).action == SetClusters(key(1), ("alpha",))


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


@pytest.mark.parametrize("hidden", ["the origin", "the destination", "both by a hold"])
def test_patience_begins_anew_when_nothing_could_be_seen_of_who_takes_it(hidden: str) -> None:
    """A job that is held waits at its origin alone, and Slurm sends it to the others again once it is released."""
    memory = remembered(wanted=names("beta"), widening_since=NOW - timedelta(hours=1), stranded_since=NOW, moves=1)
    both = ("alpha", "beta")
    blind = {
        "the origin": lambda: next_step(siblings(1, "beta", viable=both), memory, unseen=("alpha",)),
        "the destination": lambda: next_step(siblings(1, "alpha", viable=both), memory, unseen=("beta",)),
        "both by a hold": lambda: next_step([job(1, hold=Hold.USER, viable=both)], memory),
    }[hidden]()
    assert (blind.action, blind.memory.widening_since, blind.memory.stranded_since) == (None, NOW, None)
    released = next_step(siblings(1, "alpha", viable=both), blind.memory)
    assert (released.action, released.memory.wanted) == (None, names("beta"))


def test_who_was_away_for_long_asks_again_before_it_calls_a_cluster_unwilling() -> None:
    """The widening was written down and the daemon died: `recover` takes its answer as unknown."""
    memory = remembered(wanted=names("beta"), widening_since=NOW - timedelta(hours=1), moves=1)
    unknown = Outcome(SetClusters(key(1), ("alpha", "beta")), Answer.UNKNOWN)
    done = next_step(siblings(1, "alpha"), after(unknown, memory, NOW, 60.0))
    assert done.action == SetClusters(key(1), ("alpha", "beta"))
    assert done.memory.refusing == {}


@pytest.mark.parametrize("answer", [Answer.DONE, Answer.UNKNOWN, Answer.GONE])
def test_only_a_refusal_ends_a_move_by_its_answer(answer: Answer) -> None:
    memory = remembered(wanted=names("beta"), widening_since=NOW)
    changed = after(Outcome(SetClusters(key(1), ("alpha", "beta")), answer), memory, NOW, 60.0)
    assert (changed.wanted, changed.refusing) == (names("beta"), {})
    assert changed.widening_since == (NOW if answer is Answer.DONE else None), "an asked cluster has its time"


def test_a_refused_cluster_is_not_asked_again_for_a_while() -> None:
    memory = remembered(wanted=names("beta"), widening_since=NOW)
    changed = after(Outcome(SetClusters(key(1), ("alpha", "beta")), Answer.REFUSED), memory, NOW, 60.0)
    assert changed.wanted is None
    assert changed.refusing == {"beta": NOW + timedelta(seconds=60)}


@pytest.mark.parametrize("answer", [Answer.UNKNOWN, Answer.GONE])
def test_an_unpin_that_may_not_have_happened_is_tried_again(answer: Answer) -> None:
    memory = remembered(healed_at=NOW)
    assert after(Outcome(Unpin(key(1), 0, 5), answer), memory, NOW, 60.0).healed_at is None


def test_the_nice_that_half_an_unpin_took_is_given_back() -> None:
    """`scontrol release` came through, the update after it did not: Nice is 0 everywhere, nothing is pinned."""
    half = Outcome(Unpin(key(1), 30, 5), Answer.UNKNOWN)
    memory = after(half, remembered(moves=2, healed_at=NOW), NOW, 60.0)
    done = next_step(siblings(1, "beta"), memory, site_factor=777)
    assert done.action == Unpin(key(1), 30, 777)
    given = after(Outcome(done.action, Answer.DONE), done.memory, NOW, 60.0)
    assert next_step(siblings(1, "beta", nice=30), given).action is None


def test_a_refused_unpinning_is_not_asked_for_in_every_cycle() -> None:
    owing = next_step(siblings(1, "beta"), remembered(moves=2, nice_owed=30))
    assert isinstance(owing.action, Unpin)
    refused = after(Outcome(owing.action, Answer.REFUSED), owing.memory, NOW, 60.0)
    assert next_step(siblings(1, "beta"), refused).action is None


def test_a_nice_that_is_there_is_not_owed() -> None:
    memory = remembered(moves=2, nice_owed=30)
    done = next_step(siblings(1, "beta", nice=12), memory)
    assert (done.action, done.memory.nice_owed) == (None, None)


def test_an_accepted_site_factor_is_remembered() -> None:
    assert after(Outcome(SetSiteFactor(key(1), 5), Answer.DONE), remembered(), NOW, 60.0).site_factor == 5
