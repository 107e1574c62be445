"""Hold-backs on arrays are what one says of each job in turn."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurm_evo.optimize.hold_backs import HoldBack, masks_without

SECONDS = st.floats(1, 1e6)
HELD = st.builds(HoldBack, st.integers(0, 63), SECONDS, SECONDS)
JOB = st.tuples(st.sets(st.integers(0, 63)), SECONDS, SECONDS)


def plainly(may: set[int], runtime_s: float, waited_s: float, held: list[HoldBack]) -> set[int]:
    """One job's clusters."""
    left = set(may)
    for one in held:
        if runtime_s > one.over_s and waited_s < one.until_s and left - {one.cluster}:
            left.discard(one.cluster)
    return left


@given(st.lists(JOB, max_size=8), st.lists(HELD, max_size=6))
def test_the_array_form_agrees_with_the_plain_one(
    jobs: list[tuple[set[int], float, float]], held: list[HoldBack]
) -> None:
    may = np.array([sum(1 << bit for bit in clusters) for clusters, _, _ in jobs], np.uint64)
    runtime, waited = (np.array([job[place] for job in jobs], np.float64) for place in (1, 2))
    found = masks_without(may, runtime, held, waited)
    assert [{bit for bit in range(64) if mask >> bit & 1} for mask in found.tolist()] == [
        plainly(*job, held) for job in jobs
    ]
    assert not np.any((found == 0) & (may != 0)), "nobody is left with nowhere to go"
