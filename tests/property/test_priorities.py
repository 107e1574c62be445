"""SiteFactors: in the policy's order, inside the band, and never one update too many."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_evo_daemon.priorities import assign, fewest_updates


@st.composite
def queues(draw: st.DrawFn) -> tuple[list[int | None], int]:
    band = draw(st.integers(1, 40) | st.just(1_000_000))
    value = st.none() | st.integers(-3, band + 3)
    return draw(st.lists(value, max_size=min(band, 9))), band


@given(queues())
def test_values_rise_strictly_inside_the_band(queue: tuple[list[int | None], int]) -> None:
    current, band = queue
    values = assign(current, band)
    assert len(values) == len(current)
    assert all(lower < higher for lower, higher in pairwise(values))
    assert all(1 <= value <= band for value in values)


@given(queues())
def test_no_smaller_set_of_updates_gives_the_order(queue: tuple[list[int | None], int]) -> None:
    current, band = queue
    sent = sum(now != then for now, then in zip(assign(current, band), current, strict=True))
    assert sent == fewest_updates(current, band) == _exhaustive_minimum(current, band)


def _exhaustive_minimum(current: list[int | None], band: int) -> int:
    """Try every set of jobs to keep, largest first: can whole numbers be found for the rest?"""
    count = len(current)
    for kept in range(count, -1, -1):
        for places in combinations(range(count), kept):
            marks = [(-1, 0), *((place, current[place]) for place in places), (count, band + 1)]
            if all(
                low is not None and high is not None and high - low >= there - here
                for (here, low), (there, high) in pairwise(marks)
            ):
                return count - kept
    raise AssertionError("keeping none is always possible")


@given(queues())
def test_a_second_time_nothing_is_sent(queue: tuple[list[int | None], int]) -> None:
    current, band = queue
    once = assign(current, band)
    assert assign(once, band) == once


def test_newcomers_on_top_find_room_for_long() -> None:
    values: tuple[int | None, ...] = assign([None] * 100, 1_000_000)
    renumbered = 0
    for _ in range(200):
        after = assign([*values[1:], None], 1_000_000)
        renumbered += sum(now != then for now, then in zip(after[:-1], values[1:], strict=True))
        values = after
    assert renumbered < 200


def test_more_jobs_than_numbers_is_said() -> None:
    with pytest.raises(ValueError, match=r"3 jobs .* band of 2"):
        assign([None, None, None], 2)
