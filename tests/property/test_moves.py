"""A move that its destination would take ends there, whatever happened on the way."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, ClusterView, JobKey
from slurm_evo.policy import Policy
from slurm_evo.slurm.simulated import SimulatedFleet, SimulatedPort, Submission, sample_fleet
from slurm_evo.store import JobMemory
from slurm_evo_daemon import moves
from slurm_evo_daemon.decide import decide
from slurm_evo_daemon.learning import RunningTimes
from slurm_evo_daemon.observe import observe

PERIOD_S = 15
VALUES = Settings.model_validate(
    {
        "moves": {"enabled": False, "respect_user_clusters": False, "confirm_s": 60, "stranded_s": 30},
        "priority": {"recalc_s": 600},
    }
)
FAULTS = ("hold", "release", "origin unseen", "beta unseen", "no answer", "just starting", "beta seen late")
scripts = st.lists(st.one_of(st.sampled_from(FAULTS), st.sampled_from(("calm", "an hour"))), max_size=25)


class Steering:
    """A daemon without its journal: what it remembers, on simulated clusters that are full."""

    def __init__(self) -> None:
        self.fleet = SimulatedFleet(sample_fleet())
        for _ in range(40):
            self.fleet.submit("alpha", Submission(user="ada", run_s=80_000, limit_s=86_000, gpus=8))
        self.fleet.advance_to_s(60)
        self.key = self.fleet.submit(
            "alpha", Submission(user="bob", run_s=60, gpus=8, nice=7, clusters=("alpha",))
        )
        self.ports = {ClusterName(c.name): SimulatedPort(self.fleet, c.name) for c in self.fleet.spec.clusters}
        self.memories: dict[JobKey, JobMemory] = {}
        self.beta: ClusterView | None = None
        self.cycle()
        self.memories[self.key] = self.memories[self.key].but(wanted=frozenset({ClusterName("beta")}))

    def cycle(self, *, late: bool = False) -> None:
        """Look, decide, ask; ``late`` takes what beta said last time."""
        self.fleet.advance_to_s(self.fleet.elapsed_s + PERIOD_S)
        view = observe(self.ports, self.fleet.now)
        fresh = view.cluster(ClusterName("beta"))
        if late and fresh is not None and self.beta is not None:
            seen = tuple(self.beta if one.cluster == "beta" else one for one in view.seen)
            view = type(view)(view.now, seen, view.unseen)
        self.beta = None if late else fresh
        ticks = itertools.count()
        decision = decide(
            view, self.memories, VALUES, Policy.default(), RunningTimes(),
            rng=np.random.default_rng(1), stopwatch=lambda: float(next(ticks)),
        )  # fmt: skip
        self.memories |= decision.memories
        for intent in decision.intents:
            outcome = self.ports[intent.action.job.cluster].apply(intent.action)
            key = intent.action.job
            self.memories[key] = moves.after(outcome, self.memories[key], self.fleet.now, VALUES.moves.refusal_s)

    def play(self, fault: str) -> None:
        """One cycle with a fault."""
        faults = self.fleet.faults
        switches: dict[str, tuple[set[str], str]] = {
            "origin unseen": (faults.unreachable, "alpha"),
            "beta unseen": (faults.unreachable, "beta"),
            "just starting": (faults.starting, "alpha"),
        }
        if fault == "an hour":
            self.fleet.advance_to_s(self.fleet.elapsed_s + 3600)
        elif fault in ("hold", "release"):
            getattr(self.fleet, fault)("alpha", self.key.id)
        elif fault == "no answer":
            faults.before_apply = lambda _: faults.half_answers.add("alpha")
        switched, name = switches.get(fault, (set(), ""))
        switched.add(name)
        self.cycle(late=fault == "beta seen late")
        switched.discard(name)
        faults.half_answers.clear()
        faults.before_apply = None

    def waits_at(self) -> dict[str, int]:
        """Who lists it as waiting there, with its Nice."""
        job = observe(self.ports, self.fleet.now).jobs[self.key]
        return {record.cluster: record.nice for record in job.records if record.waiting_here}


@settings(max_examples=60, deadline=None)
@given(scripts)
@example(["calm", "hold", *["calm"] * 6, "release", "beta seen late"])
@example(["just starting"] * 8)
@example(["calm", *["beta unseen"] * 8, "beta seen late"])
@example(["no answer", *["origin unseen"] * 8])
def test_a_move_that_its_destination_takes_ends_there(script: list[str]) -> None:
    world = Steering()
    for fault in script:
        world.play(fault)
    world.fleet.release("alpha", world.key.id)
    for _ in range(12):
        world.cycle()
    memory = world.memories[world.key]
    assert world.waits_at() == {"beta": 7}
    assert memory.wanted is None
    assert memory.refusing == {}
