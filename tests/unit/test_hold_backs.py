"""Hold-backs: long jobs do not wait at a cluster at first, and are never left with none."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import NOW, fleet, job, key, names, siblings

from slurm_evo.config import ConfigError, Settings, load
from slurm_evo.model import ClusterName, FleetView, Job, JobState, Limit, SetClusters
from slurm_evo.optimize.hold_backs import HoldBack, masks_without
from slurm_evo.policy import Policy, compact
from slurm_evo.store import JobMemory
from slurm_evo_daemon import plugin_files
from slurm_evo_daemon.decide import Decision, decide
from slurm_evo_daemon.hold_backs import places
from slurm_evo_daemon.learning import RunningTimes

ALPHA = ClusterName("alpha")
HOUR = 3600


def configured(*held: dict[str, Any], **more: Any) -> Settings:
    clusters = [
        {"name": name, "way": "command", "slurm_conf": f"/etc/{name}"} for name in ("alpha", "beta", "gamma")
    ]
    return Settings.model_validate({"clusters": clusters, "hold_backs": held, **more})


OFF_BETA = {"cluster": "beta", "over_s": 2 * HOUR}


def decided(records: Iterable[Job], settings: Settings, known: dict[Any, JobMemory] | None = None) -> Decision:
    ticks = itertools.count()
    return decide(
        fleet(records), known or {}, settings, Policy.default(), RunningTimes(),
        rng=np.random.default_rng(1), stopwatch=lambda: next(ticks) / 100,
    )  # fmt: skip


def test_one_after_the_other_and_never_the_last_cluster() -> None:
    may = np.array([0b111, 0b111, 0b001, 0b011, 0b110, 0b000], np.uint64)
    runtime = np.array([100.0, 5000.0, 5000.0, 5000.0, 5000.0, 5000.0])
    held = [HoldBack(0, 3600), HoldBack(1, 3600), HoldBack(2, 3600)]
    assert masks_without(may, runtime, held).tolist() == [0b111, 0b100, 0b001, 0b010, 0b100, 0]
    assert masks_without(may, runtime, held[::-1]).tolist() == [0b111, 0b001, 0b001, 0b001, 0b010, 0]


def test_who_waited_long_enough_is_let_in() -> None:
    may, runtime = np.full(3, 0b11, np.uint64), np.full(3, 3601.0)
    waited = np.array([0.0, 14_399.0, 14_400.0])
    assert masks_without(may, runtime, [HoldBack(1, 3600)], waited).tolist() == [0b01, 0b01, 0b11]


def test_a_long_job_is_not_widened_to_the_cluster_and_is_told_why() -> None:
    records = [*siblings(1, "alpha", limit_s=3 * HOUR), *siblings(2, "alpha", limit_s=HOUR)]
    found = decided(records, configured(OFF_BETA, moves={"respect_user_clusters": False}))
    assert found.verdicts[key(1)].allowed == names("alpha", "gamma")
    assert (
        "not to beta: jobs expected to run over 2 h are kept off it until they have waited 4 h (hold_backs)"
        in found.verdicts[key(1)].reasons
    )
    assert found.verdicts[key(2)].allowed == names("alpha", "beta", "gamma")


def test_a_job_that_waits_there_stays_there() -> None:
    found = decided(siblings(1, "alpha", "beta", limit_s=3 * HOUR), configured(OFF_BETA))
    assert found.verdicts[key(1)].allowed == names("alpha", "beta")


def test_a_job_held_back_at_submission_is_given_the_cluster_when_it_has_waited() -> None:
    for hours, wanted in ((3.9, names("alpha", "gamma")), (4.1, names("alpha", "beta", "gamma"))):
        waiting = siblings(
            1, "alpha", limit_s=3 * HOUR, gpus=8, submitted=NOW - timedelta(hours=hours),
            admin_comment="mine slurm-evo:held-back",
        )  # fmt: skip
        busy = job(7, "alpha", gpus=32, state=JobState.RUNNING, nodelist=("alpha1", "alpha2", "alpha3", "alpha4"),
                   started=NOW, limit_s=9 * HOUR, origin=None)  # fmt: skip
        found = decided([*waiting, busy], configured(OFF_BETA, moves={"respect_user_clusters": True}))
        assert found.memories[key(1)].asked == names("alpha", "beta", "gamma")
        widened = [intent.action for intent in found.intents if isinstance(intent.action, SetClusters)]
        assert [frozenset(action.clusters) for action in widened] == [wanted]


def seen() -> FleetView:
    """Ada may use every cluster, eve not beta; dan's jobs are bounded at gamma."""
    ada, dan, eve = (
        Limit(scope="association", user=user, account="physics", max_wall_s=bound)
        for user, bound in (("ada", None), ("dan", None), ("eve d", None))
    )
    limits = {
        "alpha": (ada, dan, eve),
        "beta": (ada, dan),
        "gamma": (ada, replace(dan, max_wall_s=60), eve),
        "delta": (),
    }
    view = fleet()
    return FleetView(NOW, tuple(replace(each, limits=limits[each.cluster]) for each in view.seen), {})


def test_the_file_tells_where_there_is_room_and_for_whom() -> None:
    text = places(ALPHA, seen(), configured(OFF_BETA, rules={"rank_only": {"user": ["bob d"]}}))
    assert text is not None
    assert compact.unsealed(text) == [
        "slurm-evo-places 1",
        f"time {NOW.timestamp():.0f}",
        "good_s 300",
        "cluster alpha",
        "member alpha",
        "member beta",
        "member gamma",
        "back beta 7200",
        "keep user bob%20d",
        "default alpha gpu",
        "room alpha gpu 604800 4 8 64 512000",
        "room alpha debug 604800 4 8 64 512000",
        "default beta gpu",
        "room beta gpu 604800 2 8 64 512000",
        "default gamma gpu",
        "room gamma gpu 604800 4 4 64 512000",
        "room gamma debug 604800 4 4 64 512000",
        "apart dan physics",
        "apart eve%20d physics",
    ]


def test_the_file_holds_for_three_cycles_at_least() -> None:
    text = places(ALPHA, seen(), configured(OFF_BETA, cycle={"period_s": 600, "lease_s": 1200}))
    assert text is not None
    assert "good_s 1800" in text.splitlines()


def test_no_file_where_a_job_may_ask_for_clusters_by_their_features() -> None:
    view = seen()
    alpha = view.seen[0]
    apart = replace(alpha, facts=replace(alpha.facts, federation_alike=False))
    assert places(ALPHA, replace(view, seen=(apart, *view.seen[1:])), configured(OFF_BETA)) is None


def test_what_is_not_known_to_be_open_is_no_room() -> None:
    def rooms(view: FleetView) -> list[str]:
        text = places(ALPHA, view, configured(OFF_BETA))
        assert text is not None
        return [line for line in compact.unsealed(text) if line.startswith("room beta")]

    def with_beta(**changes: Any) -> FleetView:
        view = seen()
        return replace(
            view, seen=tuple(replace(each, **changes) if each.cluster == "beta" else each for each in view.seen)
        )

    beta = seen().cluster(ClusterName("beta"))
    assert beta is not None
    assert len(rooms(with_beta())) == 1
    assert rooms(with_beta(limits=None)) == []
    assert rooms(with_beta(facts=replace(beta.facts, federation_state="DRAIN"))) == []
    for change in ({"up": False}, {"allow_qos": ("high",)}, {"deny_accounts": ("physics",)}):
        assert rooms(with_beta(partitions=(replace(beta.partitions[0], **change),))) == []
    larger = (replace(beta.nodes[0], gpus=16), beta.nodes[1])
    assert rooms(with_beta(nodes=larger)) == [
        "room beta gpu 604800 2 8 64 512000",
        "room beta gpu 604800 1 16 64 512000",
    ]
    assert rooms(with_beta(nodes=(replace(beta.nodes[0], up=False), beta.nodes[1]))) == [
        "room beta gpu 604800 1 8 64 512000"
    ]


def test_the_file_comes_and_goes_with_the_setting(tmp_path: Path) -> None:
    alpha = {"name": "alpha", "way": "command", "plugin_dir": str(tmp_path)}
    for held, there in (([OFF_BETA], True), ([], False)):
        settings = Settings.model_validate(
            {
                "clusters": [alpha, {"name": "beta", "way": "command", "slurm_conf": "/etc/beta"}],
                "hold_backs": held,
            }
        )
        decision = decided([], settings)
        assert plugin_files.write(seen(), decision, settings, Policy.default()) == ()
        assert (tmp_path / "places").exists() is there
        assert (tmp_path / "context").exists()


@pytest.mark.parametrize(
    "settings", [configured(), configured(OFF_BETA, moves={"enabled": False})], ids=["none", "no moves"]
)
def test_no_file_where_nothing_is_held_back_or_would_be_given_back(settings: Settings) -> None:
    assert places(ALPHA, fleet(), settings) is None


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('cluster = "betta"\nover_s = 60', r"no cluster 'betta'; did you mean beta"),
        ('cluster = "beta"\nover_s = 0', r"hold_backs\.0\.over_s: .*given: 0"),
        ('cluster = "beta"\nover = 60', r"unknown key hold_backs\.0\.over; did you mean over_s"),
        ("over_s = 60", r"hold_backs\.0\.cluster is missing"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, lines: str, told: str) -> None:
    file = tmp_path / "slurm-evo.toml"
    file.write_text(f'[[clusters]]\nname = "beta"\n[[hold_backs]]\n{lines}\n')
    with pytest.raises(ConfigError, match=told):
        load(file, {})
