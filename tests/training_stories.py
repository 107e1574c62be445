"""Small histories for the tests of training: a busy fleet of two clusters, short and long jobs, three users."""

from __future__ import annotations

import numpy as np

from slurm_evo.sim.fleet import FleetShape
from slurm_evo.sim.rules import Rules
from slurm_evo.sim.workload import Workload
from slurm_evo_training.fitness import Problem, Scene
from slurm_evo_training.island import Recipe

HOUR = 3600
FLEET = FleetShape.uniform(clusters=2, nodes=1, gpus=4)
SMALL = Recipe(
    islands=2, population=8, children=6, generations=4, migrate_every=2, migrants=1, refined=1,
    refine_evaluations=6, seed=3,
)  # fmt: skip


def busy(jobs: int = 240, seed: int = 1, hours: float = 48.0) -> Workload:
    """Offered load a little above one for most of the time."""
    random = np.random.default_rng(seed)
    runtime = np.clip(np.exp(random.normal(7.3, 1.6, jobs)), 20, 20 * HOUR).astype(np.int64)
    return Workload(
        submit=np.sort(random.integers(0, round(hours * HOUR), jobs)),
        runtime=runtime,
        limit=np.maximum((runtime * np.exp(np.abs(random.normal(0, 1, jobs)))).astype(np.int64), 60),
        estimate=np.maximum((runtime * np.exp(random.normal(0, 0.5, jobs))).astype(np.int64), 1),
        gpus=random.choice([1, 1, 2, 4], jobs),
        user=random.integers(0, 3, jobs),
        weight=random.choice([1.0, 2.0, 4.0], jobs),
    )


def problem(seed: int = 1, scenes: int = 2) -> Problem:
    """A short scene and long ones."""
    short = Scene(name="short", jobs=busy(80, seed, 12.0), judged_s=(HOUR, 12 * HOUR))
    long = [
        Scene(name=f"long {place}", jobs=busy(240, seed + place), judged_s=(4 * HOUR, 46 * HOUR))
        for place in range(1, scenes)
    ]
    return Problem(scenes=(short, *long), fleet=FLEET, rules=Rules.every_event())
