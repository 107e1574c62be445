"""From a history to what is trained on: jobs with expected running times, the fleet, and windows with a queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from slurm_evo.model import TraceError
from slurm_evo.policy import Policy
from slurm_evo.predict import Asked, Predictor
from slurm_evo.predict.backtest import accuracy, as_it_was
from slurm_evo.sim.fleet import FleetShape
from slurm_evo.sim.replay import End, replay
from slurm_evo.sim.rules import Race, Rules
from slurm_evo.sim.workload import Workload
from slurm_evo.trace import Trace
from slurm_evo.trace.capacity import Capacity
from slurm_evo.trace.prepare import Choices, prepare
from slurm_evo_training.fitness import TAIL, Problem, Scene, metrics
from slurm_evo_training.windows import DAY_S, Span, Split, scene, shaken, split

LEAST_JOBS = 200
WARM_S = 2 * DAY_S
LEAST_WAIT_S = 1.0
"""Mean wait under first come, first served below which there is no queue to learn from."""
WeightOf = Callable[[str, str, str], float]
"""From QOS, partition and account."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Material:
    """A history made ready."""

    jobs: Workload
    fleet: FleetShape
    users: NDArray[np.object_]
    """(n,) names, for the report."""
    accounts: NDArray[np.object_]
    predictor: Predictor | None
    """Has learned the whole history; None where policies know the limit or a drawn estimate."""
    said: tuple[str, ...]
    """What was assumed, left out or drawn."""
    facts: dict[str, float]
    """How good predictions were, as they would have been at the time."""
    origin: datetime
    """Of the jobs' times: the first submission."""


def gather(
    trace: Trace,
    capacity: Capacity,
    *,
    choices: Choices | None = None,
    seed: int = 1,
    predicts: bool = True,
    cores: bool = False,
    weight_of: WeightOf | None = None,
) -> Material:
    """Make a history ready.

    Args:
        trace: finished jobs.
        capacity: the fleet.
        choices: how fields are filled in.
        seed: of what is drawn.
        predicts: policies know what a predictor would have told at submission.
        cores: devices are cores; else GPUs, and jobs without any are left out.
        weight_of: a job's weight; without it as `choices` say.

    Raises:
        TraceError: too few jobs, no GPU asked for, a job that fits nowhere; says which and what to do.
    """
    if not cores and not int((trace.jobs["gpus"] > 0).sum()):
        raise TraceError("no job asks for a GPU; give --cores to train on cores instead", file=trace.name)
    choices = replace(choices or Choices(), cores=cores)
    prepared = prepare(trace, capacity, seed=seed, choices=choices)
    jobs, said = prepared.jobs, list(prepared.said)
    if len(jobs) < LEAST_JOBS:
        without = "" if cores or len(jobs) == len(trace) else " (those without a GPU count with --cores)"
        raise TraceError(
            f"{len(jobs)} jobs that ran are too few to learn from{without}; at least {LEAST_JOBS} are needed",
            file=trace.name,
        )
    rows = trace.jobs[prepared.rows.tolist()]
    changed: dict[str, NDArray[np.float64] | NDArray[np.int64]] = {}
    if weight_of is not None:
        triples = rows.select("qos", "partition", "account").iter_rows()
        changed["weight"] = np.array([weight_of(*triple) for triple in triples])
    predictor, facts = None, {}
    if predicts:
        predictor = Predictor()
        columns = rows.select("user", "name", "gpus", "cpus").iter_rows()
        asked = [
            Asked(user=user, name=name, limit_s=int(limit), gpus=gpus, cpus=cpus)
            for (user, name, gpus, cpus), limit in zip(columns, jobs.limit, strict=True)
        ]
        ends = jobs.submit + rows["wait"].fill_null(0).to_numpy() + jobs.runtime
        guess = as_it_was(
            asked, jobs.submit.astype(float), ends.astype(float), jobs.runtime.astype(float), predictor
        )
        changed["estimate"] = np.maximum(np.rint(guess), 1).astype(np.int64)
        late = slice(len(jobs) // 4, None)
        ran = np.minimum(jobs.runtime, jobs.limit).astype(float)
        facts = {f"predicted_{name}": value for name, value in accuracy(guess[late], ran[late]).items()}
        limits = accuracy(jobs.limit[late].astype(float), ran[late])
        facts |= {f"limit_{name}": value for name, value in limits.items()}
        said.append(
            f"policies know running times predicted from the history (accuracy {facts['predicted_accuracy']:.2f}; "
            f"the limits' is {facts['limit_accuracy']:.2f}; 1 is perfect)"
        )
    if changed:
        columns_of = {field.name: getattr(jobs, field.name) for field in fields(jobs)}
        jobs = Workload(**{**columns_of, **changed})
    _refuse_what_fits_nowhere(jobs, capacity.shape, trace.name)
    return Material(
        jobs=jobs,
        fleet=capacity.shape,
        users=rows["user"].to_numpy().astype(object),
        accounts=rows["account"].to_numpy().astype(object),
        predictor=predictor,
        said=tuple(said),
        facts=facts,
        origin=datetime.fromtimestamp(int(rows["submit"][0]), UTC),
    )


def _refuse_what_fits_nowhere(jobs: Workload, fleet: FleetShape, name: str) -> None:
    done = replay(jobs, fleet, Policy.parse("-runtime"), Race(), Rules.every_event())
    lost = np.flatnonzero(done.state == int(End.REJECTED))
    if len(lost):
        first = int(lost[0])
        raise TraceError(
            f"{len(lost)} jobs fit on no cluster (the first asks for {int(jobs.gpus[first])} devices, the largest "
            f"cluster has {int(fleet.gpus.max())}); correct the fleet, or leave them out with --max-devices",
            file=name,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The three problems of a training run; nothing of one is seen in another."""

    train: Problem
    choose: Problem
    judge: Problem
    cut: Split


def parts(material: Material, rules: Rules, *, choose: float = 0.25, judge: float = 0.25, draws: int = 4) -> Parts:
    """Cut a history into windows: a short busy one and two long ones to train on, the rest to choose and judge on.

    Args:
        material: the history.
        rules: of each cluster's scheduler.
        choose: share of the time.
        judge: share of the time.
        draws: how often the windows to choose and to judge on are shaken.

    Raises:
        TraceError: a window has no queue, so that there is nothing to learn.
    """
    jobs, cut = material.jobs, split(material.jobs, choose=choose, judge=judge)
    waits = replay(jobs, material.fleet, Policy.parse("-runtime"), Race(), rules).start - jobs.submit
    short = busiest(jobs, cut.train, np.maximum(waits, 0), share=0.3)
    long = round((cut.train.last_s - cut.train.first_s) * 0.8)
    halves = (
        Span(first_s=cut.train.first_s, last_s=cut.train.first_s + long),
        Span(first_s=cut.train.last_s - long, last_s=cut.train.last_s),
    )
    training = [
        scene(jobs, short, name="short training window"),
        *(
            scene(shaken(jobs, 1 + place), half, name=f"training window {place + 1}")
            for place, half in enumerate(halves)
        ),
    ]
    made = [
        Problem(scenes=tuple(scenes), fleet=material.fleet, rules=rules, tail=tail)
        for tail, scenes in (
            (TAIL, training),
            (TAIL, [_late(jobs, cut.choose, seed, f"choose window, draw {seed + 1}") for seed in range(draws)]),
            (0.0, [_late(jobs, cut.judge, seed, f"judge window, draw {seed + 1}") for seed in range(draws)]),
        )
    ]
    for problem in made:
        _refuse_without_queue(problem)
    return Parts(train=made[0], choose=made[1], judge=made[2], cut=cut)


def warmed(span: Span) -> Span:
    """A span with what comes before it and fills the fleet: two days, or a tenth of its length if that is more."""
    before = max(WARM_S, round((span.last_s - span.first_s) * 0.1))
    return Span(first_s=max(span.first_s - before, 0), last_s=span.last_s)


def _late(jobs: Workload, span: Span, seed: int, name: str) -> Scene:
    """A window of which only what lies in the span is judged, but for its last twentieth."""
    whole = warmed(span)
    drawn = shaken(jobs, 1000 + seed if seed else 0)
    before, length = span.first_s - whole.first_s, span.last_s - span.first_s
    found = scene(drawn, whole, name=name)
    return replace(found, judged_s=(before, before + round(0.95 * length)))


def busiest(jobs: Workload, span: Span, waits_s: NDArray[np.int64], *, share: float) -> Span:
    """The part of a span, so long a share of it, whose jobs wait most, all together."""
    length = round((span.last_s - span.first_s) * share)
    starts = np.linspace(span.first_s, span.last_s - length, 20).astype(np.int64)
    total = np.concatenate([[0.0], np.cumsum(waits_s.astype(float))])
    waited = [
        total[np.searchsorted(jobs.submit, start + length)] - total[np.searchsorted(jobs.submit, start)]
        for start in starts
    ]
    first = int(starts[int(np.argmax(waited))])
    return Span(first_s=first, last_s=first + length)


def _refuse_without_queue(problem: Problem) -> None:
    for one in problem.scenes:
        found, _, _ = metrics(problem, one, Policy.parse("wait"))
        if found.mean_wait_s < LEAST_WAIT_S:
            raise TraceError(
                f"the {one.name} has no queue: first come, first served waits {found.mean_wait_s:.1f} s on "
                "average, so there is nothing to learn; give the fleet its true size (--fleet), a smaller one "
                "(--divide-nodes), or a busier time (--from, --to)"
            )
