"""Small workloads that real Slurm ran start in the simulator in the same order, and at nearly the same time.

Recorded by benchmarks/agreement.py; docs/explanation/agreement-with-slurm.md explains what is left.
"""

import numpy as np
import pytest
from agreement_record import GOLDEN, TICKS, Recorded, compare, order_agreement

INTERVAL_S = 3
"""The shortest of the recorded fleet's scheduling intervals: bf_interval."""
LESS = {"killed": 0.97, "killed_again": 0.97, "race": 0.94, "user_limits": 0.93}
"""Where the order agrees less, and why: the document's last section."""
NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_jobs_start_in_the_order_in_which_real_slurm_started_them(name):
    recorded = Recorded.read(GOLDEN / f"{name}.json")
    found = compare(recorded, recorded.simulate())
    assert found.tau >= LESS.get(name, 0.98)
    assert found.median_s < INTERVAL_S


def test_there_are_enough_workloads_of_enough_jobs():
    assert len(NAMES) >= 10
    assert all(30 <= len(Recorded.read(GOLDEN / f"{name}.json").ran_on) <= 200 for name in NAMES)


def test_rules_that_slurm_does_not_have_agree_less():
    recorded = Recorded.read(GOLDEN / "whole_nodes.json")
    at_once = compare(recorded, recorded.simulate(batch_sched_delay=0, bf_interval=1))
    assert at_once.median_s > 2 * compare(recorded, recorded.simulate()).median_s + 1


def test_order_counts_what_reality_decided_and_nothing_else():
    real = np.array([0, 0, 5, 10]) * TICKS
    assert order_agreement(real, real) == 1.0
    assert order_agreement(real, np.array([1, 0, 5, 10]) * TICKS) == 1.0  # the first two started together
    assert order_agreement(real, -real) == -1.0
    assert order_agreement(real, np.zeros(4, dtype=np.int64)) == 0.0
    assert order_agreement(real, np.array([0, 0, 10, 5]) * TICKS) == pytest.approx(3 / 5)
