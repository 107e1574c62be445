"""SiteFactors that put pending jobs into the policy's order with as few updates as that order allows.

Slurm adds a job's SiteFactor raw to its multifactor sum (slurm.conf(5), PriorityType), so larger runs
first. Every update takes slurmctld's job and node write locks, and there is no bulk update: a job that
already stands in the right place is left alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def assign(current: Sequence[int | None], band: int) -> tuple[int, ...]:
    """SiteFactors that rise strictly from the first job (runs last) to the last (runs first).

    The jobs that keep their value are a longest non-decreasing subsequence of ``value - place``: exactly
    the largest set of jobs that can stay while whole numbers remain free for those between them.

    Args:
        current: n values now in force, lowest-ranked job first; None where a job has none or it is not known.
        band: largest value to use; the smallest is 1, since 0 is what a job has that nobody ranked.

    Returns:
        n values in 1..band; equal to ``current`` where a job keeps its own.

    Raises:
        ValueError: there are more jobs than whole numbers in the band.
    O(n log n).
    """
    count = len(current)
    if count > band:
        raise ValueError(f"{count} jobs cannot have different SiteFactors in a band of {band}")
    kept = _longest_kept(current, band)
    values = [0] * count
    spacing = max(1, band // (8 * (count + 1)))
    previous, floor = -1, 0
    for place in (*kept, count):
        ceiling = band + 1 if place == count else _value(current[place])
        _fill(values, previous, place, floor, ceiling, spacing)
        if place < count:
            values[place] = ceiling
        previous, floor = place, ceiling
    return tuple(values)


def fewest_updates(current: Sequence[int | None], band: int) -> int:
    """The least number of updates with which the jobs can be brought into this order. O(n log n)."""
    return len(current) - len(_longest_kept(current, band))


def _value(value: int | None) -> int:
    assert value is not None  # noqa: S101 - only kept places are asked for, and they have values
    return value


def _longest_kept(current: Sequence[int | None], band: int) -> list[int]:
    """Places that keep their value: patience sorting on value - place."""
    count = len(current)
    tails: list[int] = []
    tail_places: list[int] = []
    before: dict[int, int | None] = {}
    for place, value in enumerate(current):
        if value is None or not place + 1 <= value <= band - (count - 1 - place):
            continue
        slack = value - place
        length = bisect_right(tails, slack)
        before[place] = tail_places[length - 1] if length else None
        if length == len(tails):
            tails.append(slack)
            tail_places.append(place)
        else:
            tails[length] = slack
            tail_places[length] = place
    kept: list[int] = []
    place_or_none = tail_places[-1] if tail_places else None
    while place_or_none is not None:
        kept.append(place_or_none)
        place_or_none = before[place_or_none]
    return kept[::-1]


def _fill(values: list[int], after: int, until: int, floor: int, ceiling: int, spacing: int) -> None:
    """Give the places strictly between ``after`` and ``until`` values strictly between the two bounds.

    Evenly between two kept jobs. At an open end they stay near the kept neighbour, and a queue with no
    neighbour at all starts in the middle half of the band: newcomers need room at both ends for long.
    """
    wanted = until - after - 1
    low_end, high_end = after < 0, until == len(values)
    if low_end and high_end and ceiling - floor >= 4 * (wanted + 1):
        quarter = (ceiling - floor) // 4
        floor, ceiling = floor + quarter, ceiling - quarter
    room = ceiling - floor
    even = room / (wanted + 1)
    for step in range(1, wanted + 1):
        if high_end and not low_end and spacing < even:
            value = floor + step * spacing
        elif low_end and not high_end and spacing < even:
            value = ceiling - (wanted + 1 - step) * spacing
        else:
            value = floor + step * room // (wanted + 1)
        values[after + step] = value
