"""What doctor finds, and what it says to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import fleet

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, ClusterUnreachable, ClusterView
from slurm_evo.slurm.doctor import Finding, Level, examine

ALL = {
    "clusters": [
        {"name": name, "way": "command", "slurm_conf": f"/etc/slurm/{name}/slurm.conf"}
        for name in ("alpha", "beta", "gamma", "delta")
    ]
}


def alpha(**facts: Any) -> ClusterView:
    view = fleet().seen[0]
    weights = {"priority_weights": {"age": 2_000_000}, "clock_skew_s": 0.2}
    return replace(view, facts=replace(view.facts, **{**weights, **facts}))


def found(
    view: ClusterView, settings: dict[str, Any] | None = None, level: str | None = "Operator"
) -> list[Finding]:
    return list(examine([view], {}, Settings.model_validate(settings or ALL), {view.cluster: level}))


def about(subject: str, findings: list[Finding]) -> Finding:
    return next(finding for finding in findings if finding.subject == subject)


def test_a_healthy_cluster_has_nothing_to_change() -> None:
    assert {finding.level for finding in found(alpha())} <= {Level.OK, Level.NOTE}
    assert not any(finding.change for finding in found(alpha()) if finding.level is Level.OK)


@pytest.mark.parametrize(
    ("facts", "subject", "level", "change"),
    [
        ({"priority_type": "priority/basic"}, "priority", Level.ERROR, "PriorityType=priority/multifactor"),
        ({"priority_flags": frozenset({"INCR_ONLY"})}, "INCR_ONLY", Level.WARNING, "remove INCR_ONLY"),
        ({"site_factor_plugin": "site_factor/x"}, "site_factor plugin", Level.WARNING, "priority.push = false"),
        ({"slurmctld_parameters": {"rl_enable": ""}}, "rl_enable", Level.WARNING, "max_updates_per_cycle"),
        ({"clock_skew_s": -30.0}, "clock", Level.WARNING, "chrony"),
        ({"version": "20.11.9"}, "version", Level.WARNING, "--dry-run"),
        ({"federation_state": "DRAIN"}, "federation", Level.WARNING, ""),
        ({"priority_weights": {"age": 1000}}, "band", Level.NOTE, "PriorityWeightAge=1000000"),
    ],
)
def test_what_defeats_slurm_evo_is_found(facts: dict[str, Any], subject: str, level: Level, change: str) -> None:
    finding = about(subject, found(alpha(**facts)))
    assert finding.level is level
    assert change in finding.change


def test_the_band_is_told_in_days_of_age() -> None:
    assert "3.5 days of age" in about("band", found(alpha())).seen


def test_an_account_that_is_no_operator_is_an_error() -> None:
    finding = about("permission", found(alpha(), level="None"))
    assert finding.level is Level.ERROR
    assert "adminlevel=operator" in finding.change
    assert about("permission", found(alpha(), level=None)).level is Level.NOTE


def test_members_that_are_not_configured_are_named() -> None:
    only = {"clusters": [ALL["clusters"][0]]}
    assert "beta, gamma" in about("federation members", found(alpha(), only)).seen


def test_a_cluster_that_does_not_answer_is_an_error_with_its_reason() -> None:
    name = ClusterName("beta")
    error = ClusterUnreachable(name, "squeue did not end within 20 s")
    [finding] = examine([], {name: error}, Settings.model_validate(ALL), {})
    assert (finding.level, finding.seen) == (Level.ERROR, "squeue did not end within 20 s")


def test_mixed_versions_in_a_federation_are_told() -> None:
    beta = fleet().seen[1]
    older = replace(beta, facts=replace(beta.facts, version="24.11.5"))
    findings = examine([alpha(), older], {}, Settings.model_validate(ALL), {})
    assert "alpha 26.05.5, beta 24.11.5" in about("versions", list(findings)).seen


def delta_found(transfers: dict[str, Any]) -> dict[str, Finding]:
    """What doctor says of a plain cluster that jobs may be moved to."""
    view = alpha(federation=None, federation_clusters=())
    clusters = [{"name": view.cluster, "way": "command", "transfers": transfers}]
    said = found(view, {"transfers": {"enabled": True}, "clusters": clusters})
    return {finding.subject: finding for finding in said if finding.subject.startswith("transfers")}


def test_tables_that_lead_nowhere_are_found() -> None:
    said = delta_found({"partitions": {"short": "nowhere", "long": "gpu"}, "gpu_types": {"big": "h100"}})
    assert said["transfers.partitions"].level is Level.ERROR
    assert "«short» is to become «nowhere»" in said["transfers.partitions"].seen
    assert "h100" in said["transfers.gpu_types"].seen
    assert said["transfers.url"].level is Level.NOTE
    assert "arguments" in said["transfers.state_dir"].seen


def test_complete_tables_are_fine() -> None:
    said = delta_found(
        {"url": "http://delta:6820", "state_dir": "/var/spool/slurmctld", "paths": {"/home": "/home"}}
    )
    assert {subject: finding.level for subject, finding in said.items()} == {"transfers": Level.OK}


def test_tables_that_cannot_be_checked_are_not_called_fine() -> None:
    """Association and QOS names come from slurmdbd."""
    told = {"url": "http://delta:6820", "state_dir": "/var/spool/slurmctld", "paths": {"/home": "/home"}}
    said = delta_found(told | {"qos": {"high": "higher"}, "accounts": {"physics": "phys"}})
    assert {subject: finding.level for subject, finding in said.items()} == {
        "transfers.qos": Level.NOTE,
        "transfers.accounts": Level.NOTE,
    }
    assert "slurmdbd" in said["transfers.qos"].change


def test_a_cluster_that_no_job_can_come_to_is_an_error() -> None:
    assert delta_found({"url": "http://delta:6820"})["transfers.paths"].level is Level.ERROR


def test_a_speed_for_a_gpu_type_nobody_has_is_told() -> None:
    told = found(alpha(), settings={"gpu_speed": {"a10": 2.0, "a100": 1.0}})
    assert about("gpu_speed", told).seen == "no node has GPUs of type a10; there are a100"
    assert not [finding for finding in found(alpha(), settings={"gpu_speed": {"a100": 2.0}}) if
                finding.subject == "gpu_speed"]  # fmt: skip


def test_a_cluster_where_new_jobs_cannot_be_held_back_is_told() -> None:
    held = {"hold_backs": [{"cluster": "beta", "over_s": 3600}]}
    told = about("hold_backs", found(alpha(), settings=ALL | held))
    assert told.level is Level.WARNING
    assert told.change == "clusters.plugin_dir for alpha"
    with_files = {"clusters": [{**each, "plugin_dir": "/var/lib/x"} for each in ALL["clusters"]]}
    assert not [each for each in found(alpha(), settings=with_files | held) if each.subject == "hold_backs"]
    apart = about("hold_backs", found(alpha(federation_alike=False), settings=with_files | held))
    assert apart.level is Level.WARNING
    assert "--cluster-constraint" in apart.seen
