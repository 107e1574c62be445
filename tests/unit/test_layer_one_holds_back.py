"""Where layer 1 beats the race: it keeps places free for those who have no other."""

from __future__ import annotations

import numpy as np

from slurm_evo.optimize.in_simulation import LayerOneInReplay
from slurm_evo.policy import Policy
from slurm_evo.sim.fleet import FleetShape, NodeShape
from slurm_evo.sim.replay import Replayed, replay
from slurm_evo.sim.rules import LayerOne, Race, Rules
from slurm_evo.sim.workload import Workload


def both(jobs: Workload, fleet: FleetShape, text: str) -> tuple[Replayed, Replayed]:
    """The race, and layer 1 with the same priority."""
    policy = Policy.parse(text)
    raced = replay(jobs, fleet, policy, Race(), Rules.every_event())
    decide = LayerOneInReplay(jobs, fleet, policy, seed=1)
    return raced, replay(jobs, fleet, policy, LayerOne(decide=decide), Rules.every_event())


def test_a_scarce_type_is_kept_for_the_job_that_needs_it() -> None:
    rare, common = 0b01, 0b10
    fleet = FleetShape(clusters=((NodeShape(gpus=8, gpu_type=1),), (NodeShape(gpus=8, gpu_type=0),)))
    hours = 8 * 3600
    jobs = Workload(
        submit=[0, 0, 10, 20],
        runtime=[700, 900, hours, hours],
        limit=[700, 900, hours, hours],
        gpus=[8, 8, 8, 8],
        clusters=[rare, common, rare | common, rare],
    )
    raced, kept = both(jobs, fleet, "wait")
    flexible, tied = 2, 3
    assert raced.cluster[flexible] == 0
    assert raced.start[tied] == 700 + hours
    assert kept.cluster[flexible] == 1
    assert kept.start[flexible] == 900
    assert kept.start[tied] == 700


def test_a_large_job_no_longer_starves_behind_small_ones() -> None:
    """Small jobs come to the second cluster, and may run on the first, whose two nodes the large one needs."""
    fleet = FleetShape(clusters=((NodeShape(gpus=8),) * 2, (NodeShape(gpus=8),) * 4))
    small = 200
    jobs = Workload(
        submit=np.concatenate([[0, 0, 0], 1 + np.arange(small) * 90]),
        runtime=np.concatenate([[300, 500], np.full(small + 1, 600)]),
        limit=np.concatenate([[300, 500], np.full(small + 1, 600)]),
        gpus=np.concatenate([[8, 8, 16], np.full(small, 8)]),
        weight=np.concatenate([[1, 1, 4], np.ones(small)]),
        clusters=np.concatenate([[0b01, 0b01, 0b01], np.full(small, 0b11)]),
        home=np.concatenate([[0, 0, 0], np.ones(small)]),
    )
    policy = Policy.parse("-gpus")
    raced = replay(jobs, fleet, policy, Race(), Rules.every_event())
    decide = LayerOneInReplay(jobs, fleet, policy, seed=1)
    kept = replay(jobs, fleet, policy, LayerOne(decide=decide, entry=1 << jobs.home), Rules.every_event())
    large = 2
    rest = np.arange(len(jobs)) != large
    assert raced.start[large] > 15_000
    assert kept.start[large] < 5_000
    before, after = ((done.start - jobs.submit)[rest].mean() for done in (raced, kept))
    assert after < before + 300, "the others pay little for it"
