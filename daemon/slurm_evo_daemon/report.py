"""What a cycle did, as numbers and one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_evo.model import Answer, FleetView, Outcome, SetClusters, SetSiteFactor, Unpin
from slurm_evo_daemon.decide import Decision


@dataclass(frozen=True, slots=True)
class CycleReport:
    """One pass of the loop, for the log and the journal."""

    number: int
    live: bool
    seconds: Mapping[str, float]
    """By phase: observe, decide, act."""
    counts: Mapping[str, int]
    sentence: str
    """What was done, or why nothing was."""

    def as_fields(self) -> dict[str, Any]:
        """For one JSON line."""
        seconds = {phase: round(value, 3) for phase, value in self.seconds.items()}
        mode = "live" if self.live else "dry"
        return {"cycle": self.number, "mode": mode, "why": self.sentence, "seconds": seconds, **self.counts}


def count(view: FleetView, decision: Decision, outcomes: Sequence[Outcome]) -> dict[str, int]:
    """The figures of one cycle."""
    answers = [outcome.answer for outcome in outcomes]
    done = [outcome.action for outcome in outcomes if outcome.answer is Answer.DONE]
    return {
        "clusters_seen": len(view.seen),
        "clusters_unseen": len(view.unseen),
        "running": sum(job.running for job in view.jobs.values()),
        "pending": len(decision.verdicts),
        "rankable": sum(verdict.rankable for verdict in decision.verdicts.values()),
        "movable": sum(verdict.movable for verdict in decision.verdicts.values()),
        "moves_planned": len(decision.plan.changes) if decision.plan else 0,
        "moves_under_way": sum(memory.wanted is not None for memory in decision.memories.values()),
        "sets_changed": sum(isinstance(action, SetClusters) for action in done),
        "site_factors_set": sum(isinstance(action, SetSiteFactor) for action in done),
        "priorities_freed": sum(isinstance(action, Unpin) for action in done),
        "gone": answers.count(Answer.GONE),
        "refused": answers.count(Answer.REFUSED),
        "unknown": answers.count(Answer.UNKNOWN),
    }


def sentence(view: FleetView, decision: Decision, counts: Mapping[str, int], *, live: bool) -> str:
    """Why the cycle did what it did, for a person."""
    parts = []
    if decision.plan is not None:
        parts.append(decision.plan.why)
    elif not decision.verdicts:
        parts.append("no job waits")
    intended = len(decision.intents)
    if not live and intended:
        parts.append(f"dry run: {intended} change{'s' * (intended != 1)} not sent")
    for name, text in (
        ("sets_changed", "viable sets changed"),
        ("site_factors_set", "priorities set"),
        ("priorities_freed", "priorities freed"),
        ("refused", "refused"),
        ("gone", "no longer pending"),
        ("unknown", "without an answer"),
    ):
        if counts[name]:
            parts.append(f"{counts[name]} {text}")
    if live and not intended and decision.verdicts:
        parts.append("every priority is in order" if decision.ranks else "nothing to send")
    parts += [f"{name} left alone: {failure.message}" for name, failure in sorted(view.unseen.items())]
    return "; ".join(part for part in parts if part) or "nothing to do"
