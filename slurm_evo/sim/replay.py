"""One replay: a workload on a fleet, under a policy and an allocation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from slurm_evo.sim import world as at
from slurm_evo.sim.engine import FULL, OVER, advance
from slurm_evo.sim.fleet import FleetShape
from slurm_evo.sim.priorities import Priority, Scored, bind
from slurm_evo.sim.rules import Allocation, LayerOne, Rules, Waiting
from slurm_evo.sim.tables import build, grown
from slurm_evo.sim.workload import Ints, Workload
from slurm_evo.sim.world import LATER, World

IN_VAIN = 5
"""Cycles layer 1 gets, one after the other, in which nothing starts, once nothing else will happen."""


class End(IntEnum):
    """How a job's replay ended."""

    COMPLETED = 0
    TIMEOUT = 1
    """Killed at its time limit."""
    CANCELLED = 2
    """Its owner gave up before it started."""
    WAITING = 3
    """Never started: held by limits, drains or layer 1 until nothing else happened."""
    REJECTED = 4
    """No allowed cluster could ever run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a replay did."""

    events: int
    """Ends, drains and reservations, submissions, cancellations."""
    passes: int
    """Main passes in which a job was tried."""
    starts: int
    backfilled: int
    """Starts out of order, EASY's and Slurm's backfill."""
    mean_queue: float
    """Waiting jobs, averaged over the time from the first submission to the last event."""
    most_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The schedule; all arrays (n,)."""

    start: Ints
    """Seconds from the origin; -1 where it never started."""
    end: Ints
    """-1 where it never started."""
    cluster: Ints
    """-1 where it never started."""
    state: Ints
    """Values of ``End``."""
    first_place: Ints
    """Where its nodes begin in ``places``."""
    node_count: Ints
    """Nodes it ran on; 0 where it never started."""
    places: npt.NDArray[np.int32]
    """Node indices over the fleet, of all jobs that started."""
    counts: Counts

    def nodes(self, job: int) -> tuple[int, ...]:
        """The nodes one job ran on."""
        first = int(self.first_place[job])
        return tuple(int(v) for v in self.places[first : first + int(self.node_count[job])])


def replay(
    jobs: Workload, fleet: FleetShape, priority: Priority, allocation: Allocation, rules: Rules | None = None
) -> Replayed:
    """Run a workload through a fleet; deterministic.

    Args:
        jobs: n jobs sorted by submit time.
        fleet: clusters, limits, times out of service.
        priority: a policy, or one score a job; larger runs first, scores are rounded to float32,
            equal ones run in order of submission.
        allocation: fixed at arrival, a federation race, or layer 1.
        rules: each cluster's scheduler; Slurm's defaults if left out.

    Raises:
        ConfigError: the workload names a cluster the fleet has not.
    """
    program, score = bind(priority, jobs)
    world = build(jobs, fleet, rules or Rules(), allocation, score=score)
    if isinstance(allocation, LayerOne):
        world = _run_in_cycles(world, program, allocation)
    else:
        world = _run(world, program, int(LATER))[0]
    return _read(world)


def _run(world: World, program: object, until: int) -> tuple[World, bool]:
    """All events up to ``until``; says whether nothing is left."""
    while (state := advance(world, program, until)) == FULL:
        world = grown(world)
    return world, state == OVER


def _run_in_cycles(world: World, program: object, allocation: LayerOne) -> World:
    """Let layer 1 decide at every whole cycle at which a job waits, after that instant's passes."""
    now = int(world.clock[at.ORIGIN])
    in_vain = 0
    arriving: tuple[Ints, Ints] | None = None
    while True:
        starts = int(world.clock[at.STARTS])
        if arriving is not None:
            world, _ = _run(world, program, now - allocation.cycle + allocation.move_s)
            _arrive(world, now - allocation.cycle + allocation.move_s, *arriving)
            arriving = None
        world, over = _run(world, program, now)
        in_vain = in_vain + 1 if over and starts == world.clock[at.STARTS] else 0
        changed = False
        if world.clock[at.WAITING]:
            changed, arriving = _decide(world, allocation, now)
        if over and (not changed or in_vain > IN_VAIN):
            return world
        if changed:
            world.clock[at.WAKE] = now
        now += allocation.cycle


def _arrive(world: World, now: int, jobs: Ints, places: Ints) -> None:
    """Moved jobs that still wait are eligible again, at their new clusters."""
    still = world.life[jobs, at.STATE] == at.PENDING_STATE
    world.where[0, world.life[jobs[still], at.SLOT]] = places[still]
    _touch(world, int(np.bitwise_or.reduce(places[still], initial=0)))
    world.clock[at.WAKE] = now


def _touch(world: World, clusters: int) -> None:
    for c in range(len(world.cluster)):
        if clusters >> c & 1:
            world.cluster[c, at.C_TOUCHED] = 1


def _decide(world: World, allocation: LayerOne, now: int) -> tuple[bool, tuple[Ints, Ints] | None]:
    """Ask layer 1 and apply what it says; whether any job's clusters changed, and jobs on their way."""
    count = int(world.waiting[0])
    slots = np.argsort(world.column[0, at.Q_JOB, :count], kind="stable")
    jobs = world.column[0, at.Q_JOB, slots].astype(np.int64)
    before = world.where[0, slots]
    feasible = world.job[jobs, at.FEASIBLE]
    running = np.sort(world.heap[: int(world.clock[at.RUNNING])] & 0xFFFFFFFF)
    on = world.life[running, at.ON]
    parts = world.kind[world.job[running, at.KIND], on, at.K_NODES].astype(np.int64)
    first = np.repeat(world.life[running, at.PLACES] - np.cumsum(parts) + parts, parts)
    after = np.asarray(
        allocation.decide(
            Waiting(
                now=now,
                jobs=jobs,
                clusters=before.copy(),
                feasible=feasible,
                rank=np.argsort(np.argsort(-world.key[0, slots], kind="stable"), kind="stable"),
                running=running,
                running_on=on,
                running_since=world.life[running, at.START],
                running_parts=parts,
                running_nodes=world.places[first + np.arange(len(first))].astype(np.int64),
                free_gpus=world.node[at.FREE_GPUS].astype(np.int64),
            )
        ),
        dtype=np.int64,
    )
    if after.shape != before.shape:
        raise ValueError(f"layer 1 decided on {after.shape} jobs of {before.shape}")
    after = after & feasible
    touched = int(np.bitwise_or.reduce(before ^ after, initial=0))
    moving = (after & ~before) != 0 if allocation.move_s else np.zeros(after.shape, dtype=np.bool_)
    world.where[0, slots] = np.where(moving, 0, after)
    _touch(world, touched)
    return touched != 0, (jobs[moving], after[moving]) if moving.any() else None


def _read(world: World) -> Replayed:
    """The schedule out of the engine's arrays."""
    job, life, clock = world.job, world.life, world.clock
    started = life[:, at.START] >= 0
    state = np.full(len(job), int(End.WAITING), dtype=np.int64)
    state[started] = np.where(job[started, at.KILLED], End.TIMEOUT, End.COMPLETED)
    state[life[:, at.STATE] == at.CANCELLED_STATE] = End.CANCELLED
    state[life[:, at.STATE] == at.REJECTED_STATE] = End.REJECTED
    on = np.where(started, life[:, at.ON], 0)
    span = max(int(clock[at.NOW] - clock[at.ORIGIN]), 1)
    return Replayed(
        start=life[:, at.START].copy(),
        end=np.where(started, life[:, at.START] + job[:, at.RUNS], -1),
        cluster=life[:, at.ON].copy(),
        state=state,
        first_place=life[:, at.PLACES].copy(),
        node_count=np.where(started, world.kind[job[:, at.KIND], on, at.K_NODES], 0).astype(np.int64),
        places=world.places[: int(clock[at.PLACED])].copy(),
        counts=Counts(
            events=int(clock[at.EVENTS]),
            passes=int(clock[at.PASSES]),
            starts=int(clock[at.STARTS]),
            backfilled=int(clock[at.BACKFILLED]),
            mean_queue=float(clock[at.QUEUE_AREA] / span),
            most_waiting=int(clock[at.MOST_WAITING]),
        ),
    )


__all__ = ["Counts", "End", "Replayed", "Scored", "replay"]
