"""What may keep slurm-evo from working well on a site, and what to change. Pure over what was seen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from slurm_evo.config import Settings
from slurm_evo.model import ClusterError, ClusterName, ClusterView, ControllerFacts
from slurm_evo.slurm.plugin_status import PLUGIN, verdict
from slurm_evo.slurm.transfer.findings import findings

OLDEST, NEWEST = (22, 5), (26, 5)
"""Slurm releases that slurm-evo was written for."""
MOST_SKEW_S = 5.0
REFILL_PER_S = 2.0
"""rl_refill_rate's default (slurm.conf(5)): updates a second that a rate-limited operator may send."""


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    cluster: str
    subject: str
    level: Level
    seen: str
    change: str = ""
    """An exact line or command; empty if nothing is to be done."""


def examine(
    seen: Iterable[ClusterView],
    unseen: Mapping[ClusterName, ClusterError],
    settings: Settings,
    operators: Mapping[ClusterName, str | None],
) -> tuple[Finding, ...]:
    """Look at every configured cluster.

    Args:
        seen: the clusters that answered.
        unseen: those that did not, with the error.
        settings: the configuration.
        operators: the AdminLevel of the account slurm-evo runs as, by cluster; None if it could not be asked.
    """
    views = list(seen)
    found: list[Finding] = []
    for name, error in sorted(unseen.items()):
        found.append(
            Finding(name, "answers", Level.ERROR, error.message, "see the message; then run doctor again")
        )
    for view in views:
        facts = view.facts
        found += _version(view.cluster, facts)
        found += _priority(view.cluster, facts, settings)
        found += _federation(view.cluster, facts, settings)
        found += _transfers(view, settings)
        found += _permission(view.cluster, operators.get(view.cluster), view)
        found += _limits(view.cluster, facts)
        found += _clock(view.cluster, facts)
        found += _plugin(view, settings)
    found += _together(views)
    found += _speeds(views, settings)
    found += _hold_backs(views, settings)
    return tuple(found)


def _transfers(view: ClusterView, settings: Settings) -> Iterable[Finding]:
    """Only where plain jobs are to be moved."""
    given = next((one.transfers for one in settings.clusters if one.name == view.cluster), None)
    if not settings.transfers.enabled or given is None:
        return
    if view.facts.federation is not None:
        seen = f"it is in the federation {view.facts.federation}: its jobs move as siblings"
        yield Finding(view.cluster, "transfers", Level.NOTE, seen)
        return
    for subject, must, seen, change in findings(view, given):
        level = Level.ERROR if must else Level.NOTE if change or subject.endswith("url") else Level.OK
        yield Finding(view.cluster, subject, level, seen, change)


def release(version: str) -> tuple[int, int] | None:
    """(26, 5) for 26.05.5."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def _version(name: str, facts: ControllerFacts) -> Iterable[Finding]:
    number = release(facts.version)
    if number is None:
        yield Finding(name, "version", Level.WARNING, f"Slurm {facts.version or 'unknown'}", "")
    elif not OLDEST <= number <= NEWEST:
        yield Finding(
            name, "version", Level.WARNING,
            f"Slurm {facts.version} was not tried; {OLDEST[0]}.{OLDEST[1]:02} to {NEWEST[0]}.{NEWEST[1]:02} were",
            "try with: slurm-evo daemon --dry-run --once",
        )  # fmt: skip
    else:
        yield Finding(name, "version", Level.OK, f"Slurm {facts.version}")
    if number is not None and facts.federation and number < (25, 11):
        yield Finding(
            name, "federation bugs", Level.NOTE,
            f"Slurm before 25.11 has known faults in sibling submissions; this is {facts.version}",
            "plan an update",
        )  # fmt: skip


def _priority(name: str, facts: ControllerFacts, settings: Settings) -> Iterable[Finding]:
    if facts.priority_type == "unknown":
        yield Finding(
            name, "priority", Level.NOTE, "this way in does not tell PriorityType",
            "make sure it is priority/multifactor: any other ignores SiteFactor",
        )  # fmt: skip
        return
    if not facts.multifactor:
        yield Finding(
            name, "priority", Level.ERROR if settings.priority.push else Level.NOTE,
            f"{facts.priority_type} ignores SiteFactor", "PriorityType=priority/multifactor",
        )  # fmt: skip
        return
    yield Finding(name, "priority", Level.OK, facts.priority_type)
    if "INCR_ONLY" in facts.priority_flags:
        yield Finding(
            name, "INCR_ONLY", Level.WARNING, "priorities never fall, so a lower SiteFactor has no effect",
            "remove INCR_ONLY from PriorityFlags",
        )  # fmt: skip
    if facts.site_factor_plugin and facts.site_factor_plugin != PLUGIN:
        yield Finding(
            name, "site_factor plugin", Level.WARNING,
            f"{facts.site_factor_plugin} may overwrite what slurm-evo sets",
            "remove PrioritySiteFactorPlugin, or set priority.push = false",
        )  # fmt: skip
    yield _band(name, facts, settings)


def _band(name: str, facts: ControllerFacts, settings: Settings) -> Finding:
    """Jobs that are not touched keep SiteFactor 0: how long must one wait to pass the top of the band?"""
    age, band = facts.priority_weights.get("age", 0), settings.priority.band
    others = sum(facts.priority_weights.values()) - age
    if age + others <= 0:
        seen = "no PriorityWeight is set: jobs that slurm-evo does not touch run behind all others"
    elif age + others < band:
        seen = (
            f"a band of {band:,} outweighs all PriorityWeights together ({age + others:,}): jobs that slurm-evo "
            "does not touch (arrays, interactive, opted-out …) run behind ranked ones"
        )
    else:
        days = band / age * facts.priority_max_age_s / 86_400 if age else float("inf")
        return Finding(
            name,
            "band",
            Level.OK,
            f"an untouched job makes up for the whole band of {band:,} in {days:.1f} days of age",
        )
    return Finding(name, "band", Level.NOTE, seen, f"PriorityWeightAge={band} or more, or a smaller priority.band")


def _federation(name: str, facts: ControllerFacts, settings: Settings) -> Iterable[Finding]:
    if not facts.federation:
        yield Finding(name, "federation", Level.NOTE, "in none: its jobs are ranked, not moved")
        return
    state = facts.federation_state.upper() or "unknown"
    level = Level.OK if state == "ACTIVE" else Level.WARNING
    members = ", ".join(facts.federation_clusters)
    yield Finding(name, "federation", level, f"{facts.federation} ({members}), here {state}")
    missing = sorted(set(facts.federation_clusters) - set(settings.names)) if settings.clusters else []
    if missing:
        yield Finding(
            name, "federation members", Level.WARNING, f"not configured here: {', '.join(missing)}",
            "add them as [[clusters]]: moves must be confirmed by the destination itself",
        )  # fmt: skip


def _permission(name: str, level: str | None, view: ClusterView) -> Iterable[Finding]:
    if level is None:
        yield Finding(name, "permission", Level.NOTE, "slurmdbd was not asked for our AdminLevel")
    elif level.lower() in ("operator", "administrator", "slurmuser"):
        yield Finding(name, "permission", Level.OK, f"AdminLevel {level}")
    else:
        yield Finding(
            name, "permission", Level.ERROR, f"AdminLevel {level or 'None'} may not change the jobs of others",
            "sacctmgr modify user slurm-evo set adminlevel=operator",
        )  # fmt: skip
    if view.limits is None:
        yield Finding(name, "limits", Level.NOTE, "association and QOS limits could not be had")
    if view.unreadable:
        yield Finding(
            name, "answers", Level.WARNING, f"{len(view.unreadable)} jobs unreadable: {view.unreadable[0]}"
        )


def _limits(name: str, facts: ControllerFacts) -> Iterable[Finding]:
    if facts.rate_limited:
        yield Finding(
            name, "rl_enable", Level.WARNING,
            f"an operator account may send about {REFILL_PER_S:g} updates a second after a burst of 30",
            "set priority.max_updates_per_cycle, or raise rl_refill_rate",
        )  # fmt: skip


def _plugin(view: ClusterView, settings: Settings) -> Iterable[Finding]:
    for level, seen, change in verdict(view.cluster, settings, view.seen_at):
        yield Finding(view.cluster, "plugin", Level(level), seen, change)


def _clock(name: str, facts: ControllerFacts) -> Iterable[Finding]:
    if facts.clock_skew_s is None:
        return
    skew = abs(facts.clock_skew_s)
    level = Level.OK if skew <= MOST_SKEW_S else Level.WARNING
    yield Finding(
        name,
        "clock",
        level,
        f"{facts.clock_skew_s:+.1f} s from ours",
        "" if level is Level.OK else "run chrony on both",
    )


def _speeds(views: list[ClusterView], settings: Settings) -> Iterable[Finding]:
    """A type that no node has is most likely misspelt."""
    types = {node.gpu_type for view in views for node in view.nodes if node.gpu_type}
    for name in sorted(settings.gpu_speed.keys() - types):
        known = ", ".join(sorted(types)) or "none"
        yield Finding("fleet", "gpu_speed", Level.WARNING, f"no node has GPUs of type {name}; there are {known}")


def _hold_backs(views: list[ClusterView], settings: Settings) -> Iterable[Finding]:
    """Where the hook is not told, new jobs are not held back."""
    for view in views if settings.hold_backs else ():
        if view.facts.federation and view.cluster not in settings.with_files:
            told = "new jobs are not held back here: the daemon writes no files for slurm_evo.lua"
            yield Finding(
                view.cluster, "hold_backs", Level.WARNING, told, f"clusters.plugin_dir for {view.cluster}"
            )
        if not view.facts.federation_alike:
            told = "new jobs are not held back: its clusters differ in features that --cluster-constraint asks for"
            yield Finding(
                view.cluster, "hold_backs", Level.WARNING, told, "give all members the same features, or none"
            )


def _together(views: list[ClusterView]) -> Iterable[Finding]:
    """What must be equal everywhere."""
    for federation in sorted({view.facts.federation for view in views if view.facts.federation}):
        members = [view for view in views if view.facts.federation == federation]
        releases = {release(view.facts.version) for view in members}
        if len(releases) > 1:
            told = ", ".join(f"{view.cluster} {view.facts.version}" for view in members)
            yield Finding(str(federation), "versions", Level.NOTE, f"mixed: {told}", "keep the mix short")
