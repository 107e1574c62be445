"""A history cut into windows: to train on, to choose on, to judge on; and shaken, so that no accident is learned.

Shaking moves each submission by a few minutes: Tsafrir, Ouaknine, Feitelson, «Reducing Performance Evaluation
Sensitivity and Variability by Input Shaking», MASCOTS 2007. A schedule's worst wait hangs on such accidents.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from slurm_evo.model import TraceError
from slurm_evo.sim.workload import Workload
from slurm_evo_training.fitness import Scene

DAY_S = 86_400
LEAST_S = 600
SHAKEN_S = 300.0
"""Standard deviation of the moves at most; small against a day, large against the order of arrivals."""
SHAKEN_SHARE = 0.002
"""Of a short history's length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Some time of a history, seconds from its origin."""

    first_s: int
    last_s: int

    @property
    def days(self) -> float:
        """Its length."""
        return (self.last_s - self.first_s) / DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The three parts of a history, in the order of time; nothing of one is seen in another."""

    train: Span
    choose: Span
    judge: Span


def split(jobs: Workload, *, choose: float = 0.25, judge: float = 0.25) -> Split:
    """Cut a history by time.

    Args:
        jobs: the history.
        choose: share of the time for choosing.
        judge: share of the time for judging; the last part.

    Raises:
        TraceError: the history is too short, or shares leave nothing.
    """
    if not 0 < choose < 1 or not 0 < judge < 1 or choose + judge >= 0.9:
        raise TraceError("the choose and judge windows must leave at least a tenth of the history to train on")
    if not len(jobs):
        raise TraceError("the history has no job")
    first, last = int(jobs.submit[0]), int(jobs.submit[-1]) + 1
    if last - first < LEAST_S:
        raise TraceError(f"the history covers {(last - first) / 60:.0f} minutes of submissions; 10 are the least")
    one = first + round((last - first) * (1 - choose - judge))
    two = first + round((last - first) * (1 - judge))
    return Split(
        train=Span(first_s=first, last_s=one),
        choose=Span(first_s=one, last_s=two),
        judge=Span(first_s=two, last_s=last),
    )


def scene(jobs: Workload, span: Span, *, name: str, warm_up: float = 0.1, cool_down: float = 0.1) -> Scene:
    """The jobs submitted in a span, of which those in the middle are judged.

    Args:
        jobs: the history.
        span: what to take.
        name: for messages and reports.
        warm_up: share of the span that fills the fleet first.
        cool_down: share of the span that only keeps up the pressure.

    Raises:
        TraceError: no job is left.
    """
    inside = (jobs.submit >= span.first_s) & (jobs.submit < span.last_s)
    if not inside.any():
        raise TraceError(f"no job is submitted in the {name}; give a longer or busier time")
    picked = only(jobs, inside, origin_s=span.first_s)
    length = span.last_s - span.first_s
    return Scene(name=name, jobs=picked, judged_s=(round(length * warm_up), round(length * (1 - cool_down))))


def only(jobs: Workload, which: NDArray[np.bool_], *, origin_s: int = 0) -> Workload:
    """Some of the jobs; times from another origin."""
    columns = {field.name: getattr(jobs, field.name)[which] for field in fields(jobs)}
    columns["submit"] = columns["submit"] - origin_s
    columns["cancel"] = np.where(columns["cancel"] >= 0, columns["cancel"] - origin_s, -1)
    return Workload(**columns)


def shaken(jobs: Workload, seed: int) -> Workload:
    """The same jobs, each submitted a little earlier or later; seed 0 leaves them as they were."""
    if seed == 0 or not len(jobs):
        return jobs
    random = np.random.default_rng(seed)
    by_s = min(SHAKEN_S, SHAKEN_SHARE * float(jobs.submit[-1] - jobs.submit[0]))
    moved = np.clip(jobs.submit + np.rint(random.normal(0.0, by_s, len(jobs))).astype(np.int64), 0, None)
    order = np.argsort(moved, kind="stable")
    columns = {field.name: getattr(jobs, field.name)[order] for field in fields(jobs)}
    shift = moved[order] - columns["submit"]
    columns["cancel"] = np.where(columns["cancel"] >= 0, np.maximum(columns["cancel"] + shift, moved[order]), -1)
    columns["submit"] = moved[order]
    return Workload(**columns)
