"""Limits in the forecast: who is at one does not start there, and layer 1 sends it where it may."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from builders import MEMBERS, NOW, fleet, job, key, names, siblings

from slurm_evo.config import Settings
from slurm_evo.model import FleetView, Job, JobKey, JobState, Limit, Plan
from slurm_evo.optimize import Queue, propose, queue_from
from slurm_evo.optimize.evaluate import Judge
from slurm_evo.policy import Policy
from slurm_evo.store import JobMemory
from slurm_evo_daemon.decide import decide
from slurm_evo_daemon.explain import explain
from slurm_evo_daemon.learning import RunningTimes
from slurm_evo_daemon.rules import judge

HOUR = 3600.0


def running(number: int, node: str, gpus: int, hours: float = 1.0, **changes: Any) -> Job:
    cluster = node.rstrip("0123456789")
    return job(
        number, cluster, state=JobState.RUNNING, gpus=gpus, limit_s=int(hours * HOUR), nodelist=(node,),
        started=NOW, viable=(cluster,), **changes,
    )  # fmt: skip


def limited(records: Iterable[Job], **limits: Iterable[Limit]) -> FleetView:
    """The fleet with limits of some clusters; ada and bob have associations everywhere."""
    view = fleet(records)
    people = [
        Limit(scope="association", user=user, account=account)
        for user in ("ada", "bob")
        for account in ("physics", "arts")
    ]
    seen = tuple(
        replace(each, limits=(*limits[each.cluster], *people)) if each.cluster in limits else each
        for each in view.seen
    )
    return replace(view, seen=seen)


def queue_of(view: FleetView, **more: Any) -> Queue:
    """Those submitted first run first."""
    pending = [found for found in view.jobs.values() if found.pending]
    return queue_from(
        view,
        scores={found.key: -float(found.key.id) for found in pending},
        runtimes={},
        weights={},
        movable={found.key: frozenset(MEMBERS) for found in pending},
        now=NOW,
        **more,
    )


def starts(view: FleetView, **more: Any) -> dict[int, float]:
    """When each job is expected to start if nothing changes, by its number."""
    queue = queue_of(view, **more)
    told = Judge(queue, samples=0).nothing.starts_s[0, 0]
    return {found.id: float(start) for found, start in zip(queue.keys, told, strict=True)}


def plan_of(queue: Queue, **more: Any) -> Plan:
    wishes: dict[str, Any] = {"margin": 0.0, "max_moves": 100, "generations": 10}
    return propose(
        queue, objectives={"average_wait": 1.0}, rng=np.random.default_rng(1), budget_s=float("inf"),
        clock=lambda: 0.0, **{**wishes, **more},
    )  # fmt: skip


NORMAL = {"scope": "qos", "qos": "normal"}
ADA = {"scope": "association", "account": "physics", "user": "ada"}


@pytest.mark.parametrize(
    ("limit", "second"),
    [
        (Limit(**NORMAL, max_gpus=8), HOUR),
        (Limit(**NORMAL, max_jobs=1), HOUR),
        (Limit(**NORMAL, group_gpus=8), HOUR),
        (Limit(**NORMAL, group_jobs=1), HOUR),
        (Limit(**ADA, max_jobs=1), HOUR),
        (Limit(**ADA, group_jobs=1), HOUR),
        (Limit(**ADA, group_gpus=8), HOUR),
        (Limit(scope="association", account="physics", group_gpus=8), HOUR),
        (Limit(scope="association", account="physics", group_jobs=1), HOUR),
        (Limit(**NORMAL, max_gpus=16), 0.0),
        (Limit(scope="qos", qos="high", max_gpus=8), 0.0),
        (Limit(scope="association", account="arts", group_gpus=8), 0.0),
        (Limit(**ADA, group_gpus=8, partition="debug"), 0.0),
    ],
)
def test_a_job_waits_until_what_counts_against_its_limit_ends(limit: Limit, second: float) -> None:
    """Alpha has three free nodes; ada's other job runs on the fourth for an hour."""
    assert starts(limited([running(100, "alpha1", 8), job(1, gpus=8)], alpha=[limit])) == {1: second}


def test_a_limit_of_a_user_holds_up_nobody_else_and_not_on_other_clusters() -> None:
    records = [
        running(100, "alpha1", 8), job(1, gpus=8), job(2, gpus=8, user="bob"),
        *siblings(3, "alpha", "beta", gpus=8),
    ]  # fmt: skip
    assert starts(limited(records, alpha=[Limit(**NORMAL, max_gpus=8)])) == {1: HOUR, 2: 0.0, 3: 0.0}


def test_jobs_that_start_in_the_forecast_count_too() -> None:
    records = [job(number, gpus=2, limit_s=600) for number in range(1, 5)]
    told = starts(limited(records, alpha=[Limit(**ADA, max_jobs=2)]))
    assert told == {1: 0.0, 2: 0.0, 3: 600.0, 4: 600.0}


def test_a_qos_goes_before_an_association() -> None:
    both = [Limit(**NORMAL, max_jobs=5), Limit(**ADA, max_jobs=1)]
    assert starts(limited([running(100, "alpha1", 8), job(1)], alpha=both)) == {1: 0.0}
    assert starts(limited([running(100, "alpha1", 8), job(1)], alpha=both[1:])) == {1: HOUR}


def test_what_runs_on_a_drained_node_still_counts() -> None:
    view = limited([running(100, "alpha1", 8, hours=2.0), job(1, gpus=8)], alpha=[Limit(**NORMAL, max_gpus=8)])
    alpha = view.seen[0]
    drained = replace(alpha, nodes=(replace(alpha.nodes[0], up=False), *alpha.nodes[1:]))
    assert starts(replace(view, seen=(drained, *view.seen[1:]))) == {1: 2 * HOUR}


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (Limit(**NORMAL, max_gpus_per_job=4), "QOS normal allows a job 4 GPUs"),
        (Limit(**NORMAL, max_gpus=4), "QOS normal allows a user 4 GPUs"),
        (Limit(**NORMAL, max_wall_s=1800), "QOS normal allows a job 30 minutes"),
        (Limit(**ADA, max_jobs=0), "the association of ada with physics allows 0 running jobs"),
    ],
)
def test_a_job_beyond_a_limit_never_starts_there_and_is_not_sent_there(limit: Limit, told: str) -> None:
    here = limited([job(1, gpus=8)], alpha=[limit])
    queue = queue_of(here)
    assert Judge(queue, samples=0).nothing.starts_s[0, 0].tolist() == [np.inf]
    assert queue.limited == {key(1): {"alpha": told}}
    there = limited([job(1, gpus=8)], beta=[limit])
    verdict = judge(
        there.jobs[key(1)],
        there,
        Settings().rules,
        asked=frozenset(MEMBERS),
        respect_user_clusters=True,
        refused={},
    )
    assert dict(verdict.closed)["beta"] == told


@pytest.mark.parametrize("reason", ["AssocGrpGRES", "QOSMaxJobsPerUserLimit", "QOSGrpGRES", "AssocMaxJobsLimit"])
def test_where_a_limit_is_not_told_slurms_word_counts(reason: str) -> None:
    other = job(2, user="bob", qos="low", account="arts")
    told = starts(fleet([running(100, "alpha1", 8), job(1, gpus=8, reason=reason), other]))
    assert told == {1: HOUR, 2: 0.0}
    unlike = running(100, "alpha1", 8, user="bob", account="arts", qos="high")
    assert starts(fleet([unlike, job(1, gpus=8, reason=reason)])) == {1: np.inf}, "nobody gives anything back"


def test_licences_are_given_back_by_those_who_have_them() -> None:
    has = running(100, "alpha1", 1, licenses="matlab:2")
    records = [has, job(1, licenses="matlab:2", reason="Licenses", user="bob"), job(2)]
    assert starts(fleet(records)) == {1: HOUR, 2: 0.0}
    more = [has, job(1, licenses="matlab:3", reason="Licenses", user="bob")]
    assert starts(fleet(more)) == {1: np.inf}


def test_a_job_that_slurm_calls_hopeless_is_expected_to_start_elsewhere_only() -> None:
    records = siblings(1, "alpha", "beta", reason="PartitionTimeLimit")
    records[1] = replace(records[1], reason="Priority")
    queue = queue_of(fleet(records))
    judged = Judge(queue, samples=0).nothing
    assert queue.clusters[judged.where[0, 0]] == "beta"
    assert queue.limited == {key(1): {"alpha": "Slurm says PartitionTimeLimit"}}


def test_a_job_held_back_by_another_limit_elsewhere_is_not_sent_there() -> None:
    """Beta is idle, but ada's association there is full, as Slurm says of her other job."""
    blocked = job(2, "beta", origin="beta", viable=("beta",), gpus=4, reason="AssocGrpGRES")
    full = [running(100 + node, f"alpha{node}", 8, 3.0, user="bob") for node in range(1, 5)]
    free = [*full, running(200, "beta1", 4, 9.0), blocked, job(1, gpus=4)]
    wanted = {JobKey(MEMBERS[0], 1): names("alpha", "beta")}
    view = fleet(free)
    queue = queue_from(view, scores={}, runtimes={}, weights={}, movable=wanted, now=NOW)
    assert plan_of(queue).changes == ()
    calm = fleet([replace(record, reason="Priority") if record.id == 2 else record for record in free])
    queue = queue_from(calm, scores={}, runtimes={}, weights={}, movable=wanted, now=NOW)
    assert [placement.job.id for placement in plan_of(queue).changes] == [1]


def test_layer_one_lets_a_job_at_its_limit_into_another_cluster() -> None:
    view = limited([running(100, "alpha1", 8, 5.0), job(1, gpus=8)], alpha=[Limit(**NORMAL, max_gpus=8)])
    changes = plan_of(queue_of(view)).changes
    assert [placement.job for placement in changes] == [key(1)]
    assert changes[0].expected_start_s == 0
    assert changes[0].expected_start_before_s == 5 * HOUR


def test_explain_names_the_limit() -> None:
    view = limited([running(100, "alpha1", 8, 5.0), job(1, gpus=8)], alpha=[Limit(**NORMAL, max_gpus=8)])
    known = {key(1): JobMemory(key=key(1), submitted=NOW, asked=frozenset(MEMBERS), seen_at=NOW)}
    decision = decide(
        view, known, Settings(), Policy.default(), RunningTimes(), rng=np.random.default_rng(1),
        stopwatch=lambda: 0.0,
    )  # fmt: skip
    told = explain(key(1), view, decision, Policy.default(), (), ())
    assert "At alpha a limit holds it back: QOS normal allows a user 8 GPUs." in list(told.sentences())
    assert told.as_json()["limits"] == {"alpha": "QOS normal allows a user 8 GPUs"}


def test_a_job_for_a_reservation_takes_no_part() -> None:
    """It runs on reserved nodes only, which are nobody else's."""
    assert starts(fleet([job(1, gpus=8), job(2, reservation="course")])) == {1: 0.0}


def test_nodes_that_drain_or_are_reserved_give_a_job_no_place() -> None:
    view = fleet([running(100, "alpha1", 8, 1.0), job(1, gpus=8), job(2, gpus=8)])
    alpha = view.seen[0]
    first, second, third, fourth = alpha.nodes
    nodes = (first, replace(second, up=False), replace(third, reserved=True), fourth)
    assert starts(replace(view, seen=(replace(alpha, nodes=nodes), *view.seen[1:]))) == {1: 0.0, 2: HOUR}


def test_speeds_by_gpu_type_shorten_what_is_forecast() -> None:
    """A job blocks the only node of a type; twice as fast, it is gone in half the time."""
    records = [job(number, gpus=8, limit_s=3600, submitted=NOW - timedelta(minutes=9)) for number in range(1, 6)]
    assert starts(fleet(records))[5] == HOUR
    assert starts(fleet(records), speeds={"a100": 2.0})[5] == HOUR / 2
    assert starts(fleet(records), speeds={"v100": 2.0})[5] == HOUR


def test_a_plain_job_meets_the_limits_of_another_cluster_under_its_names_there() -> None:
    """Without federation: alpha's physics is beta's ph, which is full."""
    plain = [job(1, "alpha", origin=None, gpus=8)]
    busy = [
        running(100 + node, f"alpha{node}", 8, 9.0, origin=None, user="bob") for node in range(1, 5)
    ]  # fmt: skip
    theirs = running(200, "beta1", 1, 9.0, origin=None, account="ph", user="bob")
    view = limited([*plain, *busy, theirs], beta=[Limit(scope="association", account="ph", group_jobs=1)])

    def words(record: Job, name: str) -> Job:
        return replace(record, account="ph") if name == "beta" else record

    moved = {key(1): names("alpha", "beta")}
    for known, changes in ((words, 0), (lambda record, _: record, 1)):
        queue = queue_from(view, scores={}, runtimes={}, weights={}, movable=moved, words=known, now=NOW)
        assert len(plan_of(queue).changes) == changes
