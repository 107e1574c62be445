"""Why a job is where it is: what was seen, what the rules say, how it ranks, what was done, what is expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_evo.model import ClusterName, ConfigError, FleetJob, FleetView, JobKey, Placement
from slurm_evo.policy import Policy
from slurm_evo.store import JournaledAction, PlacementRecord
from slurm_evo_daemon.decide import Decision, Rank
from slurm_evo_daemon.rules import Verdict
from slurm_evo_daemon.where import Leg


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything there is to say of one job."""

    job: FleetJob | None
    """None if no cluster knows it any more."""
    key: JobKey
    state: str
    verdict: Verdict | None = None
    rank: Rank | None = None
    terms: tuple[tuple[str, float], ...] = ()
    placement: Placement | None = None
    note: str = ""
    limited: Mapping[ClusterName, str] = field(default_factory=dict)
    """Limits that hold it back now, by the cluster where it waits."""
    actions: tuple[JournaledAction, ...] = ()
    placements: tuple[PlacementRecord, ...] = ()
    unseen: dict[str, str] = field(default_factory=dict)
    moves: tuple[Leg, ...] = ()
    """Between clusters without a federation, oldest first."""

    def sentences(self) -> Iterable[str]:
        """For a person, most important first."""
        yield self.state
        yield from (leg.sentence for leg in self.moves)
        if self.verdict is not None and self.verdict.untouchable:
            yield "slurm-evo does not touch it: " + "; ".join(self.verdict.untouchable) + "."
        elif self.verdict is not None:
            if self.verdict.fixed:
                yield "It is ranked but not moved: " + "; ".join(self.verdict.fixed) + "."
            for name, why in self.verdict.closed:
                yield f"It does not go to {name}: {why}."
        for name, why in sorted(self.limited.items()):
            yield f"At {name} a limit holds it back: {why}."
        if self.rank is not None:
            have = "not set yet" if self.rank.before is None else str(self.rank.before)
            yield (
                f"It ranks {self.rank.place} of {self.rank.of} (score {self.rank.score:.4g}); "
                f"SiteFactor {have}, wanted {self.rank.site_factor}."
            )
        if self.placement is not None and self.placement.reason:
            yield f"Layer 1: {self.placement.reason}."
        if self.note:
            yield f"Now: {self.note}."
        for unseen, why in sorted(self.unseen.items()):
            yield f"{unseen} was not seen: {why}."

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "job": str(self.key),
            "state": self.state,
            "untouchable": list(self.verdict.untouchable) if self.verdict else [],
            "fixed": list(self.verdict.fixed) if self.verdict else [],
            "closed": dict(self.verdict.closed) if self.verdict else {},
            "rank": None if self.rank is None else {"place": self.rank.place, "of": self.rank.of},
            "site_factor": None if self.rank is None else self.rank.site_factor,
            "limits": dict(self.limited),
            "terms": dict(self.terms),
            "placement": self.placement.reason if self.placement else "",
            "note": self.note,
            "why": list(self.sentences()),
            "actions": [action_row(action) for action in self.actions],
            "moves": [leg.as_json() for leg in self.moves],
        }


def find(text: str, view: FleetView, last_name: Callable[[JobKey], JobKey | None] = lambda _: None) -> JobKey:
    """``alpha:1042``, or a plain id if only one job of the fleet has it.

    Args:
        text: what the user gave.
        view: the jobs that clusters list.
        last_name: what a job was called last by the journal, None if that knows nothing of it; asked for an id
            that no cluster lists any more.

    Raises:
        ConfigError: it is no job key, or several jobs have this id.
    """
    if not text.isdecimal():
        try:
            return JobKey.parse(text)
        except ValueError as failure:
            raise ConfigError(str(failure)) from failure
    found = [key for key in view.jobs if key.id == int(text)]
    if not found:
        names = sorted({*(cluster.cluster for cluster in view.seen), *view.unseen})
        found = sorted({last for name in names if (last := last_name(JobKey(name, int(text)))) is not None})
    if len(found) > 1:
        raise ConfigError(f"job {text} is known as {' and '.join(map(str, found))}: say which")
    if not found:
        raise ConfigError(f"no cluster lists job {text}, and the journal tells nothing of it")
    return found[0]


def explain(
    key: JobKey,
    view: FleetView,
    decision: Decision,
    policy: Policy,
    actions: tuple[JournaledAction, ...],
    placements: tuple[PlacementRecord, ...],
) -> Explanation:
    """Gather what is known of one job."""
    job = view.jobs.get(key)
    unseen = {str(name): error.message for name, error in view.unseen.items()}
    if job is None or key not in decision.verdicts:
        return Explanation(job, key, _state(key, job), actions=actions, placements=placements, unseen=unseen)
    terms: tuple[tuple[str, float], ...] = ()
    if decision.standing is not None and key in decision.ranks:
        terms = tuple(policy.terms(decision.standing.terminals(key)))
    placement = None
    if decision.plan is not None:
        placement = next((found for found in decision.plan.placements if found.job == key), None)
    return Explanation(
        job,
        key,
        _state(key, job),
        decision.verdicts[key],
        decision.ranks.get(key),
        terms,
        placement,
        decision.notes.get(key, ""),
        decision.limited.get(key, {}),
        actions,
        placements,
        unseen,
    )


def _state(key: JobKey, job: FleetJob | None) -> str:
    if job is None:
        return f"{key} neither waits nor runs on any cluster that was seen."
    record = job.job
    if job.running:
        nodes = ", ".join(record.nodelist)
        return f"{key} ({record.user}, {record.gpus} GPUs) runs at {record.cluster} on {nodes}."
    where = ", ".join(sorted(job.waiting_on)) or "nowhere"
    may = ", ".join(sorted(job.viable))
    reason = f"; Slurm says {record.reason}" if record.reason and record.reason != "None" else ""
    return f"{key} ({record.user}, {record.gpus} GPUs) waits at {where} (may run at {may}){reason}."


def action_row(action: JournaledAction) -> dict[str, Any]:
    """One journaled action for a table or a script."""
    asked = action.action
    what = {
        "set_clusters": lambda: f"clusters {','.join(asked.clusters)}",  # type: ignore[union-attr]
        "set_site_factor": lambda: f"site factor {asked.value}",  # type: ignore[union-attr]
        "unpin": lambda: f"priority freed, site factor {asked.site_factor}, nice {asked.nice}",  # type: ignore[union-attr]
    }[asked.kind]()
    return {
        "id": action.id,
        "cycle": action.cycle,
        "at": action.intended_at.isoformat(timespec="seconds"),
        "job": str(asked.job),
        "what": what,
        "before": dict(action.before),
        "why": action.reason,
        "answer": str(action.state),
        "message": action.message,
    }
