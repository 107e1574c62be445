"""Moves between plain clusters lose nothing, whoever dies, meddles or does not answer at whichever call."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import copy
from datetime import timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_evo.model import ClusterError, ClusterName, JobState
from slurm_evo.slurm.simulated import FleetSpec, SimulatedFleet, SimulatedPort, Submission, cluster_spec
from slurm_evo.slurm.simulated.transfers import SimulatedTransfers
from slurm_evo.slurm.transfer import JobImage, Mover, Patience, Phase, Transfer, TransferPort
from slurm_evo_daemon.observe import observe
from slurm_evo_daemon.transfers import _record, _transfer, orphans

HERE, THERE, YONDER = ClusterName("here"), ClusterName("there"), ClusterName("yonder")
FLEET = FleetSpec(
    clusters=tuple(cluster_spec(name, 1, 8, "a100", federated=False) for name in (HERE, THERE, YONDER)),
)
PATIENCE = Patience(confirm_s=12, least_deferred_s=60, give_up_s=300)


class Death(Exception):
    """kill -9 of the daemon."""


class World:
    """One waiting job, its owner, two clusters and a daemon that can die at any call."""

    def __init__(self, events: list[tuple[int, str]]) -> None:
        self.fleet = SimulatedFleet(FLEET)
        blocker = Submission(user="bob", run_s=3000, limit_s=3000, gpus=8)
        self.fleet.submit(HERE, blocker)
        self.fleet.advance_to_s(60)
        self.key = self.fleet.submit(HERE, Submission(user="ada", run_s=100, gpus=8, nice=5))
        self.events = events
        self.calls = 0
        self.held = self.cancelled = False
        self.nice = 5
        self.journal = Transfer(job=self.key, to=THERE, began=self.fleet.now, phase_since=self.fleet.now)
        self.ports: dict[ClusterName, TransferPort] = {
            name: Meddled(SimulatedTransfers(self.fleet, name), self) for name in (HERE, THERE, YONDER)
        }
        self.other: Other | None = None

    def daemon(self) -> Mover:
        def write(move: Transfer) -> None:
            self.tick()
            self.journal = move

        return Mover(
            self.ports,
            write=write,
            translate=lambda image, _: image,
            clock=lambda: self.fleet.now,
            patience=PATIENCE,
            defer_s=900,
        )

    def tick(self) -> None:
        """Something may happen at this call."""
        self.calls += 1
        due = [what for at, what in self.events if at == self.calls]
        for what in due:
            with suppress(ClusterError):
                self.happen(what)

    def happen(self, what: str) -> None:
        original = self.fleet.controllers[HERE].records.get(self.key.id)
        waits = original is not None and original.state is JobState.PENDING
        match what.split():
            case ["die"]:
                raise Death
            case ["hold"] if waits:
                self.fleet.hold(HERE, self.key.id)
                self.held = True
            case ["release"] if waits:
                self.fleet.release(HERE, self.key.id)
                self.held = False
            case ["cancel"] if waits:
                self.fleet.cancel(HERE, self.key.id)
                self.cancelled = True
            case ["edit"] if waits:
                self.fleet.update(HERE, self.key.id, nice=9)
                self.nice = 9
            case ["pass", seconds]:
                self.fleet.advance_to_s(self.fleet.elapsed_s + int(seconds))
            case ["stop", name]:
                self.fleet.stop_controller(name)
            case ["start", name]:
                self.fleet.start_controller(name)
            case ["silent", name]:
                self.fleet.faults.half_answers.add(name)
            case ["other", calls] if self.other is not None:
                self.other.runs(int(calls))

    def daemon_runs(self, cycles: int) -> None:
        for _ in range(cycles):
            with suppress(Death):
                self.daemon().advance(self.journal)
            self.fleet.advance_to_s(self.fleet.elapsed_s + 15)

    def calm(self) -> None:
        """Everything works again, the daemon runs on and nobody meddles."""
        self.events = []
        self.fleet.faults.half_answers.clear()
        for name in (HERE, THERE, YONDER):
            self.fleet.start_controller(name)
        if self.other is None:
            self.daemon_runs(60)
            return
        for cycle in range(80):
            self.daemon_runs(1)
            self.other.runs(1000)
            if cycle % 4 == 0:
                self.tidy()

    def tidy(self) -> None:
        """What the daemon does each cycle with copies that no journal of its own knows."""
        looks = {name: SimulatedPort(self.fleet, name) for name in (HERE, THERE, YONDER)}
        ports = {name: SimulatedTransfers(self.fleet, name) for name in looks}
        view = observe(looks, self.fleet.now)
        mine = [_record(self.journal, 1)] if self.journal.phase.open else []
        for found in orphans(view, mine, ports):
            self.journal = _transfer(found)


class Other:
    """A second daemon with a journal of its own, which wants to move the same job."""

    def __init__(self, world: World, to: ClusterName) -> None:
        self.world = world
        began = world.fleet.now + timedelta(microseconds=1)
        self.journal: Transfer | None = Transfer(job=world.key, to=to, began=began, phase_since=began)
        self.left = 0
        self.ports: dict[ClusterName, TransferPort] = {
            name: Meddled(SimulatedTransfers(world.fleet, name), self) for name in (HERE, THERE, YONDER)
        }

    def tick(self) -> None:
        """It is gone after so many calls; what it knows is in its journal."""
        self.left -= 1
        if self.left < 0:
            raise Death

    def runs(self, calls: int) -> None:
        if self.journal is None:
            return
        self.left = calls

        def write(move: Transfer) -> None:
            self.tick()
            self.journal = move

        mover = Mover(
            self.ports, write=write, translate=lambda image, _: image, clock=lambda: self.world.fleet.now,
            patience=PATIENCE, defer_s=900,
        )  # fmt: skip
        with suppress(Death):
            mover.advance(self.journal)


class Meddled:
    """A port at whose every call, and after it, the world may act."""

    def __init__(self, port: SimulatedTransfers, world: World | Other) -> None:
        self._port = port
        self._world = world

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._world.tick()
            result = method(*args, **kwargs)
            self._world.tick()
            return result

        return call


EVENTS = st.sampled_from(
    (
        "die", "die", "die", "hold", "release", "cancel", "edit", "pass 20", "pass 400", "pass 1000",
        "stop here", "stop there", "start here", "start there", "silent here", "silent there",
    )
)  # fmt: skip


def check(world: World) -> None:
    """Nothing is lost, run twice, left held or changed."""
    fleet, job = world.fleet, world.fleet.jobs[world.key]
    assert not world.journal.phase.open, world.journal
    assert world.journal.image is None
    records = [
        record
        for controller in fleet.controllers.values()
        for record in controller.records.values()
        if record.user_job is job and record.state is not JobState.DONE
    ]
    if world.cancelled:
        assert job.started is None or job.ending == "CANCELLED"
        assert not records
        return
    assert job.started is None or not world.held, "it ran although its owner held it"
    if job.started is None:
        assert len(records) == 1, records
        assert records[0].nice == world.nice
        if world.held:
            assert records[0].hold != "none"
            fleet.advance_to_s(fleet.elapsed_s + 20_000)
            assert job.started is None
            fleet.release(records[0].cluster, records[0].id)
    fleet.advance_to_s(fleet.elapsed_s + 20_000)
    assert job.ending == "COMPLETED", job  # a second start is an error of the simulated fleet's own


def test_an_undisturbed_move_arrives() -> None:
    world = World([])
    world.daemon_runs(4)
    assert world.journal.phase is Phase.DONE
    there = world.fleet.controllers[THERE].records[world.key.id]
    assert (there.nice, there.asked.gpus, there.user_job.key) == (5, 8, world.key)
    check(world)
    assert world.fleet.jobs[world.key].cluster == THERE


def test_a_death_at_each_single_call_is_healed() -> None:
    undisturbed = World([])
    undisturbed.daemon_runs(4)
    for call in range(1, undisturbed.calls + 1):
        world = World([(call, "die")])
        world.daemon_runs(1)
        world.calm()
        assert world.journal.phase is Phase.DONE, call
        check(world)


def test_every_meddling_at_each_single_call_is_honoured() -> None:
    undisturbed = World([])
    undisturbed.daemon_runs(4)
    for what in ("hold", "cancel", "edit", "stop here", "stop there", "silent here", "silent there", "pass 1000"):
        for call in range(1, undisturbed.calls + 1):
            world = World([(call, what)])
            world.daemon_runs(4)
            world.calm()
            check(world)


@settings(max_examples=150, deadline=None)
@example([(1, "die"), (2, "die"), (7, "pass 1000"), (7, "pass 1000"), (28, "pass 1000")], 3)
@given(st.lists(st.tuples(st.integers(1, 90), EVENTS), max_size=8), st.integers(1, 12))
def test_nothing_is_lost_or_run_twice(events: list[tuple[int, str]], cycles: int) -> None:
    world = World(events)
    world.daemon_runs(cycles)
    world.calm()
    check(world)


RIVALRY = st.sampled_from(
    (
        *(f"other {calls}" for calls in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 99, 99, 99)),
        "die", "hold", "release", "cancel", "edit", "pass 20", "pass 400", "pass 1000",
        "stop here", "start here", "silent here", "silent there",
    )
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 90), RIVALRY), max_size=10),
    st.integers(1, 12),
    st.sampled_from((THERE, YONDER)),
    st.booleans(),
)
def test_two_daemons_with_a_journal_each_lose_nothing(
    events: list[tuple[int, str]], cycles: int, to: ClusterName, forgets: bool
) -> None:
    """Nobody wants two; yet whoever starts a second one on another host must not lose a job by it."""
    world = World(events)
    world.other = Other(world, to)
    world.daemon_runs(cycles)
    if forgets:
        world.other.journal = None
    world.calm()
    check(world)


def test_a_destination_that_forgets_the_copy_gets_it_again() -> None:
    world = World([])
    world.daemon_runs(1)
    assert str(world.journal.phase) == "confirm"
    world.fleet.advance_to_s(world.fleet.elapsed_s + 15)
    # Dies just after the original was cancelled, and its destination has lost the copy meanwhile.
    world.events = [(world.calls + 10, "die")]
    world.daemon_runs(1)
    assert str(world.journal.phase) == "cancel"
    controller = world.fleet.controllers[THERE]
    lost = controller.records.pop(world.key.id)
    controller.waiting.pop(lost.id, None)
    lost.user_job.alive -= 1
    world.calm()
    assert world.journal.phase is Phase.DONE
    check(world)


def test_a_cancellation_that_its_controller_forgot_is_asked_again() -> None:
    """Killed within the seconds in which slurmctld had not saved it: the original waits again, put off."""
    world = World([])
    world.daemon_runs(1)
    controller = world.fleet.controllers[HERE]
    before = copy(controller.records[world.key.id])
    world.daemon_runs(1)
    assert str(world.journal.phase) == "release"
    assert world.fleet.controllers[THERE].records[world.key.id].hold != "none"
    controller.records[before.id] = controller.waiting[before.id] = before
    before.user_job.alive += 1
    world.calm()
    assert world.journal.phase is Phase.DONE
    assert before.ending == "CANCELLED"
    check(world)


def test_an_image_is_written_and_read_back() -> None:
    world = World([])
    world.daemon_runs(1)
    kept = world.journal.image
    assert kept is not None
    image = JobImage.from_json(json.loads(json.dumps(kept)))
    assert image.key == world.key
    assert image.as_json() == kept
