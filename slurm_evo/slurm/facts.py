"""What ``scontrol`` says in words: configuration, federation, partitions.

These have no JSON on most versions, while their text has kept its form since long before 21.08.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from slurm_evo.model import AnswerUnreadable, ClusterName, ControllerFacts, Partition
from slurm_evo.slurm.fields import hosts_of, names_of

_WEIGHTS = ("age", "assoc", "fairshare", "jobsize", "partition", "qos")
_DURATION = re.compile(r"^(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?$")
_NONE = frozenset({"(null)", "N/A", "NONE", ""})


def seconds_of(text: str) -> int | None:
    """Read ``7-00:00:00``, ``01:00:00`` or ``05:00`` (minutes and seconds); None for UNLIMITED or none.

    Raises:
        ValueError: it is no duration.
    """
    if text in {*_NONE, "UNLIMITED", "INFINITE", "INVALID"}:
        return None
    match = _DURATION.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration")
    days, first, second, third = match.groups()
    if third is None:
        return int(first) * 60 + int(second)
    return int(days or 0) * 86_400 + int(first) * 3_600 + int(second) * 60 + int(third)


def options_of(text: str) -> Mapping[str, str]:
    """Read ``bf_interval=5,defer`` into a mapping; an option without a value maps to an empty text."""
    pairs = (entry.partition("=") for entry in names_of(text))
    return MappingProxyType({name: value for name, _, value in pairs})


@dataclass(frozen=True, slots=True)
class ShownConfig:
    """``scontrol show config`` read: its values by key, and when the controller wrote it."""

    values: Mapping[str, str]
    as_of: datetime | None


def parse_config(cluster: ClusterName, text: str) -> ShownConfig:
    """Read the text of ``scontrol show config`` (with SLURM_TIME_FORMAT=standard and TZ=UTC).

    Raises:
        AnswerUnreadable: it has no SLURM_VERSION, so it is something else.
    """
    values: dict[str, str] = {}
    as_of = None
    for line in text.splitlines():
        if line.startswith("Configuration data as of "):
            as_of = _instant(line.removeprefix("Configuration data as of "))
            continue
        key, equals, value = line.partition("=")
        if equals:
            # the cgroup section at the end repeats some keys: the first is the controller's
            values.setdefault(key.strip(), value.strip())
    if "SLURM_VERSION" not in values:
        raise AnswerUnreadable(
            cluster,
            "the answer to «scontrol show config» has no SLURM_VERSION; Slurm's format may have changed",
        )
    return ShownConfig(MappingProxyType(values), as_of)


def _instant(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip()).replace(tzinfo=UTC)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class ShownFederation:
    """``scontrol show federation`` read."""

    name: str | None = None
    clusters: tuple[ClusterName, ...] = ()
    """All members, sorted."""
    state: str = ""
    """The answering cluster's FedState."""
    alike: bool = True
    """All members have the same features, or none."""


def parse_federation(text: str) -> ShownFederation:
    """Read the text of ``scontrol show federation``; outside a federation there is nothing in it."""
    name = None
    state = ""
    members = []
    features: set[frozenset[str]] = set()
    for line in text.splitlines():
        key, colon, rest = line.partition(":")
        if not colon or not rest.strip():
            continue
        if key == "Federation":
            name = rest.strip()
        elif key in ("Self", "Sibling"):
            members.append(ClusterName(rest.split(":")[0].strip()))
            features.update(frozenset(names_of(given)) for given in re.findall(r" Features:(\S*)", rest))
            found = re.search(r"FedState:(\S+)", rest)
            if key == "Self" and found:
                state = found[1]
    if name is None:
        return ShownFederation()
    return ShownFederation(name, tuple(sorted(members)), state, len(features) < 2)


def facts_of(
    cluster: ClusterName, config: ShownConfig, federation: ShownFederation, *, now: datetime
) -> ControllerFacts:
    """Put together what a controller says of itself.

    Args:
        cluster: whose they are.
        config: its configuration.
        federation: its federation.
        now: our clock when it was asked, to compare with the controller's (whole seconds).

    Raises:
        AnswerUnreadable: a number or a duration is not one.
    """
    values = config.values

    def value(key: str) -> str:
        text = values.get(key, "")
        return "" if text in _NONE else text

    def whole(key: str) -> int:
        text = value(key) or "0"
        try:
            return int(text)
        except ValueError as failure:
            raise AnswerUnreadable(cluster, f"configuration: {key} is {text!r}, expected a number") from failure

    def duration(key: str, default: int) -> int:
        text = value(key)
        try:
            seconds = seconds_of(text)
        except ValueError as failure:
            raise AnswerUnreadable(cluster, f"configuration: {key} is {text!r}, expected a time") from failure
        return default if seconds is None else seconds

    skew = None
    if config.as_of is not None:
        # its whole second began up to 1 s before the answer
        skew = (config.as_of - now).total_seconds() + 0.5
    return ControllerFacts(
        version=values["SLURM_VERSION"],
        priority_type=value("PriorityType") or "unknown",
        priority_flags=frozenset(flag.upper() for flag in names_of(value("PriorityFlags"))),
        priority_weights=MappingProxyType({name: whole(key) for name, key in _weight_keys(values)}),
        priority_max_age_s=duration("PriorityMaxAge", 7 * 86_400),
        priority_calc_period_s=duration("PriorityCalcPeriod", 300),
        site_factor_plugin=value("PrioritySiteFactorPlugin"),
        federation=federation.name,
        federation_clusters=federation.clusters,
        federation_state=federation.state,
        federation_alike=federation.alike,
        scheduler_parameters=options_of(value("SchedulerParameters")),
        slurmctld_parameters=options_of(value("SlurmctldParameters")),
        clock_skew_s=skew,
    )


def _weight_keys(values: Mapping[str, str]) -> list[tuple[str, str]]:
    by_name = {key.lower(): key for key in values}  # REST writes Fairshare, scontrol FairShare
    keys = ((name, by_name.get(f"priorityweight{name}")) for name in _WEIGHTS)
    return [(name, key) for name, key in keys if key is not None]


def parse_shown_partitions(cluster: ClusterName, text: str) -> tuple[Partition, ...]:
    """Read ``scontrol show partitions --oneliner``: unlike the JSON, it names the default on every version.

    Raises:
        AnswerUnreadable: a line is not understood.
    """
    return tuple(_partition(cluster, line) for line in text.splitlines() if line.startswith("PartitionName="))


def _partition(cluster: ClusterName, line: str) -> Partition:
    values: dict[str, str] = {}
    for pair in line.split():
        key, _, value = pair.partition("=")
        values.setdefault(key, value)
    name = values["PartitionName"]

    def some(key: str) -> tuple[str, ...] | None:
        text = values.get(key, "ALL")
        return None if text in {*_NONE, "ALL"} else names_of(text)

    try:
        return Partition(
            name=name,
            up=values["State"].upper() == "UP",
            default=values.get("Default", "NO").upper() == "YES",
            limit_s=seconds_of(values["MaxTime"]),
            nodes=hosts_of(values["Nodes"]),
            allow_accounts=some("AllowAccounts"),
            deny_accounts=some("DenyAccounts") or (),
            allow_qos=some("AllowQos"),
            deny_qos=some("DenyQos") or (),
            priority_tier=int(values.get("PriorityTier", "1")),
        )
    except (KeyError, ValueError) as failure:
        raise AnswerUnreadable(
            cluster, f"partition {name}: {failure} is missing or not understood in «scontrol show partitions»"
        ) from failure
