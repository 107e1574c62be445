"""What may be touched, moved, and where to: each refusal with its reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from builders import NOW, fleet, job, key, names

from slurm_evo.config import RulesSettings
from slurm_evo.model import ClusterView, FleetView, Hold, Limit
from slurm_evo_daemon.rules import Verdict, judge

EVERYWHERE = names("alpha", "beta", "gamma")


def verdict(
    *,
    rules: dict[str, Any] | None = None,
    view: FleetView | None = None,
    asked: frozenset[Any] = EVERYWHERE,
    respect: bool = True,
    refused: dict[Any, str] | None = None,
    **wishes: Any,
) -> Verdict:
    seen = view or fleet([job(1, **wishes)])
    return judge(
        seen.jobs[key(1)],
        seen,
        RulesSettings.model_validate(rules or {}),
        asked=asked,
        respect_user_clusters=respect,
        refused=refused or {},
    )


def changed(cluster: str, **changes: Any) -> FleetView:
    """A fleet with an ordinary job, one cluster of it otherwise than usual."""
    seen = fleet([job(1)])
    views = tuple(replace(view, **changes) if view.cluster == cluster else view for view in seen.seen)
    return FleetView(seen.now, views, seen.unseen)


def test_an_ordinary_federated_job_may_go_anywhere_it_fits() -> None:
    found = verdict()
    assert found.rankable
    assert found.movable
    assert found.allowed == EVERYWHERE
    assert found.reasons == ()


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        ({"array_id": 1}, "job array"),
        ({"het_id": 1}, "heterogeneous"),
        ({"batch": False}, "interactive"),
        ({"scrontab": True}, "scrontab"),
        ({"hold": Hold.USER}, "held by its user"),
        ({"hold": Hold.ADMIN}, "held by its admin"),
        ({"dependency": "afterok:7(unfulfilled)"}, "afterok:7"),
        ({"reservation": "maintenance"}, "reservation maintenance"),
        ({"eligible": NOW + timedelta(hours=1)}, "may not start before 2026-03-02 13:00"),
        ({"comment": "please slurm-evo:stay here"}, "opted out"),
        ({"comment": "project=x,slurm-evo:stay;later"}, "opted out"),
        ({"extra": "slurm-evo:stay"}, "opted out"),
        ({"admin_comment": "slurm-evo:stay"}, "opted out"),
    ],
)
def test_what_is_never_touched(wishes: dict[str, Any], reason: str) -> None:
    found = verdict(**wishes)
    assert not found.rankable
    assert not found.movable
    assert any(reason in told for told in found.untouchable)


def test_a_job_that_became_eligible_while_it_was_looked_at_may_start() -> None:
    """Seen on 26.05: the look began at 34.9 s, the job just released says it is eligible since 35 s."""
    assert verdict(eligible=NOW + timedelta(seconds=1)).movable


def test_a_word_that_only_resembles_the_opt_out_is_none() -> None:
    assert verdict(comment="slurm-evo:stayed").rankable


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"never": {"partition": ["gpu"]}}, "excludes the partition gpu"),
        ({"never": {"qos": ["normal"]}}, "excludes the qos normal"),
        ({"never": {"account": ["physics"]}}, "excludes the account physics"),
        ({"never": {"user": ["ada"]}}, "excludes the user ada"),
        ({"only": {"account": ["biology"]}}, "excludes the account physics"),
    ],
)
def test_lists_of_the_configuration_exclude(rules: dict[str, Any], reason: str) -> None:
    assert any(reason in told for told in verdict(rules=rules).untouchable)


def test_a_job_may_be_ranked_but_not_moved() -> None:
    found = verdict(rules={"rank_only": {"user": ["ada"]}})
    assert found.rankable
    assert not found.movable


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        ({"origin": None}, "no federation"),
        ({"cluster_features": "fast"}, "chose clusters by feature"),
        ({"required_nodes": ("alpha1",)}, "named the nodes"),
        ({"burst_buffer": "bb"}, "burst buffer"),
        ({"licenses": "matlab:1"}, "licences"),
        ({"features": "nvlink"}, "node constraint"),
    ],
)
def test_what_is_ranked_but_stays(wishes: dict[str, Any], reason: str) -> None:
    found = verdict(**wishes)
    assert found.rankable
    assert not found.movable
    assert any(reason in told for told in found.fixed)


def why_not(cluster: str, found: Verdict) -> str:
    assert cluster not in found.allowed
    return dict(found.closed)[cluster]  # type: ignore[index]


def test_a_destination_without_the_partition_is_closed() -> None:
    assert "no partition debug" in why_not("beta", verdict(partitions=("debug",)))


def test_a_destination_without_the_gpu_type_is_closed() -> None:
    assert "no a100 that is up" in why_not("gamma", verdict(gpu_type="a100"))


def test_a_job_larger_than_a_destination_does_not_go_there() -> None:
    assert "larger than what is up" in why_not("beta", verdict(gpus=32))
    assert "gamma" not in verdict(gpus=8, nodes=1, gpus_per_node=8).allowed


def test_the_users_own_clusters_are_respected_unless_the_site_says_otherwise() -> None:
    assert "the user asked for alpha" in why_not("beta", verdict(asked=names("alpha")))
    assert "beta" in verdict(asked=names("alpha"), respect=False).allowed


def test_a_cluster_that_turned_the_job_away_is_not_asked_again() -> None:
    assert "turned the job away" in why_not("beta", verdict(refused={"beta": "asked again later"}))


def test_an_unseen_destination_is_closed_and_an_unseen_origin_fixes_the_job() -> None:
    assert "not seen" in why_not("beta", verdict(view=fleet([job(1)], unseen=["beta"])))
    away = fleet([job(1, "beta", viable=("alpha", "beta"))], unseen=["alpha"])
    assert any("origin alpha was not seen" in told for told in verdict(view=away).fixed)


def _facts(view: FleetView, cluster: str) -> Any:
    return next(seen for seen in view.seen if seen.cluster == cluster).facts


def test_a_draining_cluster_takes_nobody_in() -> None:
    view = fleet([job(1)])
    facts = replace(_facts(view, "beta"), federation_state="DRAIN+REMOVE")
    assert "DRAIN" in why_not("beta", verdict(view=changed("beta", facts=facts)))


def _beta() -> ClusterView:
    return next(seen for seen in fleet().seen if seen.cluster == "beta")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"up": False}, "not up"),
        ({"limit_s": 60}, "allows 1 minutes"),
        ({"allow_accounts": ("biology",)}, "does not take the account physics"),
        ({"deny_accounts": ("physics",)}, "does not take the account physics"),
        ({"allow_qos": ("high",)}, "does not take the QOS normal"),
        ({"deny_qos": ("normal",)}, "does not take the QOS normal"),
    ],
)
def test_a_destinations_partition_has_a_say(change: dict[str, Any], reason: str) -> None:
    partitions = tuple(replace(partition, **change) for partition in _beta().partitions)
    assert reason in why_not("beta", verdict(view=changed("beta", partitions=partitions)))


def test_a_user_without_an_association_does_not_go_there() -> None:
    others = (Limit(scope="association", account="biology", user="ada"),)
    assert "no association" in why_not("beta", verdict(view=changed("beta", limits=others)))
    known = (Limit(scope="association", account="physics", user="ada"),)
    assert "beta" in verdict(view=changed("beta", limits=known)).allowed


def test_nodes_that_are_down_do_not_count() -> None:
    nodes = tuple(replace(node, up=False) for node in _beta().nodes)
    assert "larger than what is up" in why_not("beta", verdict(view=changed("beta", nodes=nodes)))
