"""The daemon's files for the plugins: what C and Lua read from them is what the daemon itself ranks by."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import NOW, fleet, job, key, siblings
from evo_library import MODULE, CContext, CJob, Refused, lua_runtime

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, FleetView, Job, SetSiteFactor
from slurm_evo.policy import Policy, compact
from slurm_evo.store import JobMemory
from slurm_evo_daemon import plugin_files
from slurm_evo_daemon.decide import Decision, decide
from slurm_evo_daemon.learning import RunningTimes

ALPHA = ClusterName("alpha")


def configured(folder: Path, **more: Any) -> Settings:
    alpha = {"name": "alpha", "way": "command", "priority": "plugin", "plugin_dir": str(folder)}
    beta = {"name": "beta", "way": "command", "slurm_conf": "/etc/slurm/beta/slurm.conf"}
    return Settings.model_validate({"moves": {"enabled": False}, "clusters": [alpha, beta], **more})


def report(folder: Path, at: float, policy: str = "p-0123456789") -> None:
    """What the plugin writes every ten seconds."""
    status = {
        "plugin": "1.0", "slurm": "24.11.5", "time": at, "policy": policy, "policy_problem": "",
        "context_problem": "", "jobs": 3, "seconds": 0.001,
    }  # fmt: skip
    (folder / "status.json").write_text(json.dumps(status))


def decided(view: FleetView, settings: Settings, known: dict[Any, JobMemory] | None = None) -> Decision:
    ticks = itertools.count()
    return decide(
        view, known or {}, settings, Policy.default(), RunningTimes(),
        rng=np.random.default_rng(1), stopwatch=lambda: next(ticks) / 100,
        inside=plugin_files.ranked_inside(settings, view.now),
    )  # fmt: skip


def as_c(record: Job) -> CJob:
    """What the plugin would find in slurmctld's record."""
    return CJob(
        id=record.id, submitted=record.submitted.timestamp(), eligible=0.0, limit_s=record.limit_s,
        gpus=record.gpus, nodes=record.nodes, cpus=record.cpus, user=record.user.encode(),
        account=record.account.encode(), qos=record.qos.encode(), partitions=",".join(record.partitions).encode(),
        comment=record.comment.encode(), extra=record.extra.encode(), admin_comment=record.admin_comment.encode(),
    )  # fmt: skip


RECORDS = [
    job(1, limit_s=7200, gpus=8, nodes=2, cpus=64),
    job(2, limit_s=600, user="bob dylan", account="bio%logy", qos="high"),
    job(3, limit_s=1200, user="cyd", partitions=("gpu", "debug"), submitted=NOW - timedelta(hours=9)),
    job(4, comment="slurm-evo:stay please"),
    job(5, user="eve"),
]
WEIGHED = {
    "weights": {"default": 2.0, "qos": {"high": 3.5}, "account": {"bio%logy": 0.1}, "partition": {"gpu": 1.5}},
    "rules": {"never": {"user": ["eve"]}},
}


def test_c_sees_every_job_as_the_daemon_does(tmp_path: Path) -> None:
    settings = configured(tmp_path, **WEIGHED)
    decision = decided(fleet(RECORDS), settings)
    read = CContext(plugin_files.context(ALPHA, fleet(RECORDS), decision, settings, Policy.default()).encode())
    standing = decision.standing
    assert standing is not None
    for place, found in enumerate(standing.keys):
        record = next(one for one in RECORDS if one.id == found.id)
        seen = read.features(as_c(record), NOW.timestamp())
        assert seen == pytest.approx(standing.table[:, place], rel=1e-12), record.id
        assert read.excluded(as_c(record)) is not decision.verdicts[found].rankable, record.id


def test_what_a_move_made_slurm_forget_is_told(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    record = job(1, submitted=NOW - timedelta(minutes=1))
    memory = JobMemory(
        key=key(1), submitted=NOW - timedelta(hours=5), asked=frozenset({ALPHA}), seen_at=NOW, age_lost_s=86_400.0
    )
    view = fleet([record])
    ages = tuple(replace(one, facts=replace(one.facts, priority_weights={"age": 700})) for one in view.seen)
    view = replace(view, seen=ages)
    decision = decided(view, settings, {key(1): memory})
    text = plugin_files.context(ALPHA, view, decision, settings, Policy.default())
    first = NOW - timedelta(hours=5)
    assert f"job 1 {first.timestamp():.0f} 0.0 100\n" in text
    waited = CContext(text.encode()).features(as_c(record), NOW.timestamp())[0]
    assert waited == pytest.approx(5 * 3600, abs=60)


def test_no_site_factor_is_sent_where_the_plugin_ranks(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    report(tmp_path, NOW.timestamp() - 11)
    records = [job(1, limit_s=600), job(2, limit_s=900), *siblings(3, "beta", limit_s=60)]
    pushed = {
        intent.action.job.id
        for intent in decided(fleet(records), settings).intents
        if isinstance(intent.action, SetSiteFactor)
    }
    assert pushed == {3}


@pytest.mark.parametrize(("age_s", "policy"), [(3600.0, "p-0123456789"), (1.0, ""), (None, "")])
def test_site_factors_are_sent_as_before_while_the_plugin_does_not_report_a_policy(
    tmp_path: Path, age_s: float | None, policy: str
) -> None:
    if age_s is not None:
        report(tmp_path, NOW.timestamp() - age_s, policy)
    decision = decided(fleet([job(1), job(2)]), configured(tmp_path))
    assert {intent.action.job.id for intent in decision.intents} == {1, 2}


def test_files_are_whole_and_replaced_only_when_they_change(tmp_path: Path) -> None:
    settings, view = configured(tmp_path), fleet(RECORDS)
    assert plugin_files.write(view, decided(view, settings), settings, Policy.default()) == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["context", "policy", "policy.lua"]
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    later = replace(view, now=NOW + timedelta(seconds=30))
    assert plugin_files.write(later, decided(later, settings), settings, Policy.default()) == ()
    after = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    assert after["policy"] == before["policy"]
    assert after["context"] != before["context"]
    assert compact.load((tmp_path / "policy").read_text()) == Policy.default()


def test_a_folder_that_is_missing_is_told_and_stops_nothing(tmp_path: Path) -> None:
    settings, view = configured(tmp_path / "gone"), fleet(RECORDS)
    (problem,) = plugin_files.write(view, decided(view, settings), settings, Policy.default())
    assert "the plugin of alpha gets nothing new" in problem
    assert "gone" in problem


def test_an_empty_queue_has_a_context_too(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    text = plugin_files.context(ALPHA, fleet([]), decided(fleet([]), settings), settings, Policy.default())
    CContext(text.encode())
    with pytest.raises(Refused, match="cut off"):
        CContext(text.encode()[:-5])


@pytest.mark.parametrize("version", ["lua51", "lua54"])
def test_lua_reads_the_same_context(tmp_path: Path, version: str) -> None:
    settings = configured(tmp_path, **WEIGHED)
    view = fleet(RECORDS)
    text = plugin_files.context(ALPHA, view, decided(view, settings), settings, Policy.default())
    read = lua_runtime(version).execute(MODULE.read_text()).read_context(text)
    assert read.load == 0.0
    assert read.pressure > 0
    assert read.named["weight account bio%logy"] == 0.1
    assert list(read.named["user bob dylan"].values()) == [0.0, 1.0]
    scores = list(read.scores.values())
    assert len(scores) == 3
    assert scores == sorted(scores)
