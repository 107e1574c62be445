"""The whole evolution: islands in processes, exchanges, refinement, checkpoints. Deterministic for its seed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from slurm_evo.model import ConfigError, PolicyError, TraceError
from slurm_evo.policy import Policy
from slurm_evo_training.fitness import NAMES, Evaluator, Problem
from slurm_evo_training.island import (
    Candidate,
    Island,
    Recipe,
    advance,
    candidate_json,
    candidate_of,
    ranked,
)
from slurm_evo_training.refine import refine

FORMAT = 1
"""Of a checkpoint."""
WORST = (2.0, 2.0)
"""Average and maximum from which the hypervolume is measured, shares of the reference's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is, after each exchange."""

    done: int
    """Steps, of `total`."""
    total: int
    seconds: float
    """Since the run began, with those of the run it resumes."""
    simulations: int
    front: int
    best_average: float
    best_maximum: float
    hypervolume: float
    """Of average and maximum, from `WORST`."""
    most_seconds: float = math.inf
    """When they are over, no further exchange begins."""

    @property
    def seconds_left(self) -> float:
        """If it goes on at this speed; refining, the last step, may take longer than the time given."""
        step = self.seconds / max(self.done, 1)
        return min(step * (self.total - self.done), max(self.most_seconds - self.seconds, 0.0) + step)


@dataclass(slots=True)
class Evolved:
    """What a run has come to."""

    front: list[Candidate]
    """Non-dominated in the four objectives, best average first."""
    history: list[dict[str, float]] = field(default_factory=list)
    """One row an exchange: what `Progress` says."""
    simulations: int = 0
    tried: int = 0
    given_up: int = 0
    seconds: float = 0.0
    interrupted: bool = False


class Engine(Protocol):
    """Where islands are worked on."""

    def submit(self, work: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """As `concurrent.futures.Executor.submit`."""


EngineOf = Callable[[Problem], contextlib.AbstractContextManager[Engine | None]]
"""Opens a place to work on a problem; None works in this process."""


def evolve(
    problem: Problem,
    recipe: Recipe,
    *,
    workers: int = 1,
    engine: EngineOf | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Evolved:
    """Evolve a front of policies.

    The same problem, recipe and seed give the same front whatever the workers, unless time ran out. On Ctrl-C the
    best so far is returned.

    Args:
        problem: what is to be done well.
        recipe: how.
        workers: processes; 1 works in this one.
        engine: another place to work in; it is given the problem.
        checkpoint: a JSON file, written after each exchange.
        resume: go on from the checkpoint.
        progress: told after each exchange.
        clock: seconds.

    Raises:
        TraceError: the checkpoint cannot be read, or belongs to another problem or recipe.
        ConfigError: the checkpoint cannot be written.
    """
    run = _Run(problem, recipe, checkpoint, progress, clock)
    if resume:
        run.load()
    with (engine or _local(workers))(problem) as place:
        try:
            run.exchange_until_done(place)
            run.refine_best(place)
        except KeyboardInterrupt:
            run.interrupted = True
    return run.evolved()


class _Run:
    """A run under way."""

    def __init__(
        self,
        problem: Problem,
        recipe: Recipe,
        checkpoint: Path | None,
        progress: Callable[[Progress], None],
        clock: Callable[[], float],
    ) -> None:
        self.problem, self.recipe, self.checkpoint = problem, recipe, checkpoint
        self.progress, self.clock = progress, clock
        self.islands = [Island.new(number, recipe.seed) for number in range(recipe.islands)]
        self.history: list[dict[str, float]] = []
        self.refined: list[Candidate] = []
        self.exchanges = 0
        self.simulations = 0
        self.began = clock()
        self.before = 0.0
        self.interrupted = False
        self.own = Evaluator(problem=problem)

    def exchange_until_done(self, place: Engine | None) -> None:
        recipe = self.recipe
        total = -(-recipe.generations // recipe.migrate_every)
        while self.exchanges < total:
            if self.seconds > recipe.minutes * 60 and self.exchanges:
                return
            arrivals = [
                self.islands[number - 1].population[: recipe.migrants] if recipe.islands > 1 else []
                for number in range(recipe.islands)
            ]
            jobs = [
                (
                    island.as_json(),
                    asdict(recipe),
                    recipe.migrate_every,
                    [candidate_json(one) for one in arrived],
                    max(recipe.minutes * 60 - self.seconds, 0.0),
                )
                for island, arrived in zip(self.islands, arrivals, strict=True)
            ]
            found = self._work(place, advance_island, jobs)
            self.islands = [Island.from_json(state) for state, _ in found]
            self.simulations += sum(count for _, count in found)
            self.exchanges += 1
            self._tell(total + 1)

    def refine_best(self, place: Engine | None) -> None:
        recipe = self.recipe
        if not recipe.refined or self.refined or self.interrupted:
            return
        jobs = [
            (candidate_json(one), weight, recipe.refine_evaluations, asdict(recipe))
            for one, weight in _worth_refining(self.front(), recipe.refined)
        ]
        for candidates, count in self._work(place, refine_candidate, jobs):
            self.refined += [candidate_of(one) for one in candidates]
            self.simulations += count
        self._tell(self.exchanges + 1, done=self.exchanges + 1)

    def _work(self, place: Engine | None, work: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        if place is None:
            return [work(*job, evaluator=self.own) for job in jobs]
        return [future.result() for future in [place.submit(work, *job) for job in jobs]]

    def front(self) -> list[Candidate]:
        """Of all islands and what was refined, best average first; each meaning once."""
        everyone: dict[bytes, Candidate] = {}
        for one in [*(one for island in self.islands for one in island.population), *self.refined]:
            everyone.setdefault(self.own.meaning(one.policy), one)
        found = list(everyone.values())
        if not found:
            return []
        _, rank, _ = ranked(found)
        best = [one for one, level in zip(found, rank, strict=True) if level == 0]
        return sorted(best, key=lambda one: one.objectives)

    @property
    def seconds(self) -> float:
        return self.before + self.clock() - self.began

    def _tell(self, total: int, done: int | None = None) -> None:
        front = self.front()
        now = Progress(
            done=self.exchanges if done is None else done,
            total=total,
            seconds=self.seconds,
            simulations=self.simulations,
            front=len(front),
            best_average=min((one.objectives[0] for one in front), default=np.inf),
            best_maximum=min((one.objectives[1] for one in front), default=np.inf),
            hypervolume=hypervolume([one.objectives for one in front]),
            most_seconds=self.recipe.minutes * 60,
        )
        self.history.append(asdict(now))
        self.save()
        self.progress(now)

    def evolved(self) -> Evolved:
        return Evolved(
            self.front(),
            self.history,
            self.simulations,
            sum(island.tried for island in self.islands),
            sum(island.given_up for island in self.islands),
            self.seconds,
            self.interrupted,
        )

    def save(self) -> None:
        """Beside the old one first: a crash leaves one whole file."""
        if self.checkpoint is None:
            return
        state = {
            "format": FORMAT,
            "problem": fingerprint(self.problem),
            "recipe": asdict(self.recipe),
            "objectives": NAMES,
            "exchanges": self.exchanges,
            "simulations": self.simulations,
            "seconds": self.seconds,
            "history": self.history,
            "islands": [island.as_json() for island in self.islands],
            "refined": [candidate_json(one) for one in self.refined],
        }
        beside = self.checkpoint.with_name(self.checkpoint.name + ".new")
        try:
            beside.write_text(json.dumps(state), encoding="utf-8")
            beside.replace(self.checkpoint)
        except OSError as failure:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise ConfigError(f"{self.checkpoint}: cannot be written: {failure.strerror or failure}") from failure

    def load(self) -> None:
        """Take up a saved run."""
        file = self.checkpoint
        if file is None or not file.is_file():
            raise TraceError(f"{file}: no checkpoint to resume from")
        try:
            state = json.loads(file.read_text(encoding="utf-8"))
            if state["format"] != FORMAT:
                raise TraceError(f"{file}: a checkpoint of format {state['format']}; this version reads {FORMAT}")
            same = {**state["recipe"], "minutes": 0, "generations": 0}
            mine = {
                **asdict(self.recipe),
                "minutes": 0,
                "generations": 0,
                "terminals": list(self.recipe.terminals),
            }
            if state["problem"] != fingerprint(self.problem) or same != mine:
                raise TraceError(f"{file}: is of another history, fleet or recipe; start anew without --resume")
            self.exchanges, self.simulations = int(state["exchanges"]), int(state["simulations"])
            self.before = float(state["seconds"])
            self.history = [{str(name): float(value) for name, value in row.items()} for row in state["history"]]
            self.islands = [Island.from_json(one) for one in state["islands"]]
            self.refined = [candidate_of(one) for one in state["refined"]]
        except KeyError as failure:
            raise TraceError(f"{file}: is no checkpoint that can be read: has no {failure}") from failure
        except (OSError, ValueError, TypeError, AttributeError, PolicyError, RecursionError) as failure:
            raise TraceError(f"{file}: is no checkpoint that can be read: {failure}") from failure


def fingerprint(problem: Problem) -> str:
    """Tells problems apart by everything that decides what a policy is worth."""
    digest = hashlib.blake2b(digest_size=16)
    for scene in problem.scenes:
        digest.update(repr((scene.name, scene.judged_s)).encode())
        for name in ("submit", "runtime", "limit", "estimate", "gpus", "weight", "nodes", "clusters", "user"):
            digest.update(np.ascontiguousarray(getattr(scene.jobs, name)).tobytes())
    digest.update(repr((problem.fleet, problem.rules, problem.allocation, problem.tail)).encode())
    return digest.hexdigest()


def hypervolume(objectives: Sequence[Sequence[float]]) -> float:
    """Area of average and maximum that these beat, between 0 and `WORST`; exact."""
    reached, area, lowest = sorted((one[0], one[1]) for one in objectives), 0.0, WORST[1]
    for average, maximum in reached:
        if average < WORST[0] and maximum < lowest:
            area += (WORST[0] - average) * (lowest - maximum)
            lowest = maximum
    return area


def evaluate(problem: Problem, policies: Sequence[Policy], *, workers: int = 1) -> NDArray[np.float64]:
    """Values of policies on all scenes, none given up.

    Returns:
        (policies, scenes, 3): shares of the reference's average, maximum and idle time.
    """
    jobs = [(policy.text, scene) for scene in range(len(problem.scenes)) for policy in policies]
    with _local(workers)(problem) as place:
        if place is None:
            own = Evaluator(problem=problem)
            found = [value_of(*job, evaluator=own) for job in jobs]
        else:
            found = list(place.map(value_of, *zip(*jobs, strict=True), chunksize=4))
    return np.array(found).reshape(len(problem.scenes), len(policies), 3).transpose(1, 0, 2)


def value_of(text: str, scene: int, evaluator: Evaluator | None = None) -> tuple[float, float, float]:
    """One policy's value on one scene."""
    here = evaluator or _HERE
    assert here is not None  # noqa: S101 - every worker is settled first
    return here.value(Policy.parse(text), scene)


def _worth_refining(front: Sequence[Candidate], count: int) -> list[tuple[Candidate, float]]:
    """For evenly spread weights of the average, the best of the front."""
    chosen: list[tuple[Candidate, float]] = []
    for weight in np.linspace(0.9, 0.3, count):
        best = min(
            front,
            key=lambda one: (
                weight * np.log(one.objectives[0])
                + (1 - weight) * np.log(one.objectives[1])
                + 0.001 * one.objectives[3]
            ),
            default=None,
        )
        if best is not None:
            chosen.append((best, float(weight)))
    return chosen


_HERE: Evaluator | None = None
"""A worker process's own evaluator; its cache lives as long as the process."""


def settle(problem: Problem) -> None:
    """Make this process ready to work on a problem."""
    global _HERE  # noqa: PLW0603 - a process pool gives its workers nothing else to keep
    _HERE = Evaluator(problem=problem)
    # Ctrl-C goes to every process, as a signal of Slurm may; the main one ends the others.
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker of a process that was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def advance_island(
    state: dict[str, Any],
    recipe: dict[str, Any],
    generations: int,
    arrived: list[dict[str, Any]],
    seconds: float = math.inf,
    evaluator: Evaluator | None = None,
) -> tuple[dict[str, Any], int]:
    """Work of one island between two exchanges, as plain values; ends early after so many seconds."""
    until = time.monotonic() + seconds
    here = evaluator or _HERE
    assert here is not None  # noqa: S101 - every worker is settled first
    before = here.simulated
    island = advance(
        Island.from_json(state),
        recipe_of(recipe),
        here,
        generations,
        [candidate_of(one) for one in arrived],
        late=lambda: time.monotonic() >= until,
    )
    return island.as_json(), here.simulated - before


def refine_candidate(
    candidate: dict[str, Any],
    weight: float,
    evaluations: int,
    recipe: dict[str, Any],
    evaluator: Evaluator | None = None,
) -> tuple[list[dict[str, Any]], int]:
    """Refine one candidate's constants, as plain values."""
    here = evaluator or _HERE
    assert here is not None  # noqa: S101 - every worker is settled first
    before = here.simulated
    found = refine(candidate_of(candidate), here, weight=weight, evaluations=evaluations, recipe=recipe_of(recipe))
    return [candidate_json(one) for one in found], here.simulated - before


def recipe_of(found: dict[str, Any]) -> Recipe:
    """A recipe out of plain values."""
    return Recipe(**{**found, "terminals": tuple(found["terminals"])})


class _Pool(ProcessPoolExecutor):
    """Ctrl-C waits while a worker starts: half started it would be forgotten and never end."""

    def submit(self, *work: Any, **named: Any) -> Future[Any]:
        """Start a worker if one more is needed, and give it work."""
        with _later():
            return super().submit(*work, **named)


@contextlib.contextmanager
def _later() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back. New processes inherit the mask until `settle` lifts it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    ends = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.signal(end, lambda number, _: came.append(number)) for end in ends]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for end, handler in zip(ends, handlers, strict=True):
            signal.signal(end, handler)
    for number in dict.fromkeys(came):
        signal.raise_signal(number)


def _local(workers: int) -> Callable[[Problem], contextlib.AbstractContextManager[Executor | None]]:
    @contextlib.contextmanager
    def place(problem: Problem) -> Iterator[Executor | None]:
        if workers <= 1:
            yield None
            return
        # Spawned: a forked child of a process with threads may hang.
        context = multiprocessing.get_context("spawn")
        with _Pool(workers, context, initializer=settle, initargs=(problem,)) as pool:
            try:
                yield pool
            except BaseException:
                # Taken first: shutdown forgets them, and leaving would then wait for the work at hand.
                processes = list((pool._processes or {}).values())  # noqa: SLF001 - no public way to stop one
                pool.shutdown(wait=False, cancel_futures=True)
                for process in processes:
                    process.kill()
                raise

    return place


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0))
