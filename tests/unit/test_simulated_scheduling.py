"""How a simulated controller orders, starts and ends jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_evo.model import ClusterRefused, Job, JobKey, JobState, SetSiteFactor
from slurm_evo.slurm.simulated import (
    FleetSpec,
    QosSpec,
    Reservation,
    SimulatedFleet,
    SimulatedPort,
    Submission,
    UserSpec,
    cluster_spec,
)

QOS = (QosSpec(name="normal", max_gpus_per_user=6), QosSpec(name="high", priority=100))
USERS = (UserSpec(name="ada", account="a"), UserSpec(name="bob", account="b", max_jobs=1))


def one_cluster(nodes: int = 1, gpus: int = 4, **options) -> SimulatedFleet:
    spec = cluster_spec("solo", nodes, gpus, "a100", federated=False, users=USERS, qos=QOS, **options)
    return SimulatedFleet(FleetSpec(clusters=(spec,)))


def job(gpus: int = 4, run_s: int = 100, **wishes) -> Submission:
    return Submission(**{"user": "ada", "qos": "high", "gpus": gpus, "run_s": run_s, "limit_s": 1000} | wishes)


def seen(fleet: SimulatedFleet, key: JobKey) -> Job:
    view = SimulatedPort(fleet, key.cluster).look()
    return next(each for each in view.jobs if each.id == key.id)


def starts(fleet: SimulatedFleet, *keys: JobKey) -> list[int | None]:
    return [fleet.jobs[key].started for key in keys]


def test_a_job_runs_for_its_own_time_and_is_killed_at_its_limit() -> None:
    fleet = one_cluster()
    short = fleet.submit("solo", job(gpus=1, run_s=100, limit_s=200))
    long = fleet.submit("solo", job(gpus=1, run_s=300, limit_s=200))
    fleet.advance_to_s(1000)
    assert [(fleet.jobs[key].started, fleet.jobs[key].ended, fleet.jobs[key].ending) for key in (short, long)] == [
        (1, 101, "COMPLETED"),
        (1, 201, "TIMEOUT"),
    ]
    assert not fleet.busy


def test_an_ended_job_is_listed_for_five_minutes() -> None:
    fleet = one_cluster()
    key = fleet.submit("solo", job(run_s=99))
    fleet.advance_to_s(399)
    assert seen(fleet, key).state is JobState.DONE
    fleet.advance_to_s(400)
    assert SimulatedPort(fleet, "solo").look().jobs == ()


def test_the_higher_priority_goes_first_and_equals_go_by_submission() -> None:
    fleet = one_cluster()
    fleet.submit("solo", job())
    fleet.advance_to_s(10)
    low = fleet.submit("solo", job(qos="normal", gpus=3))
    first = fleet.submit("solo", job())
    second = fleet.submit("solo", job())
    pushed = fleet.submit("solo", job())
    SimulatedPort(fleet, "solo").apply(SetSiteFactor(pushed, 50))
    fleet.advance_to_s(2000)
    assert starts(fleet, pushed, first, second, low) == [102, 203, 304, 405]


def test_priority_is_floored_at_one_and_capped() -> None:
    fleet = one_cluster()
    key = fleet.submit("solo", job(begin_s=9999, nice=100_000))
    assert seen(fleet, key).priority == 1
    fleet.update("solo", key.id, site_factor=2**33)
    assert seen(fleet, key).priority == 2**32 - 1


def test_age_counts_up_to_its_maximum() -> None:
    fleet = one_cluster()
    fleet.drain("solo", "solo1")
    key = fleet.submit("solo", job(qos="normal"))
    for days, priority in ((3.5, 500), (7, 1000), (10, 1000)):
        fleet.advance_to_s(int(days * 86_400))
        assert seen(fleet, key).priority == priority


def test_backfill_starts_a_short_job_in_the_gap_but_not_one_that_would_delay_the_first() -> None:
    fleet = one_cluster()
    fleet.submit("solo", job(gpus=2, run_s=1000, limit_s=1000))
    fleet.advance_to_s(5)
    head = fleet.submit("solo", job(gpus=4))
    long = fleet.submit("solo", job(gpus=2, run_s=100, limit_s=5000))
    short = fleet.submit("solo", job(gpus=2, run_s=100, limit_s=500))
    fleet.advance_to_s(3000)
    assert starts(fleet, head, short) == [1002, 30]
    assert starts(fleet, long) == [1103]


def test_backfill_gives_the_room_beside_the_first_job_only_once() -> None:
    fleet = one_cluster(gpus=8)
    fleet.submit("solo", job(gpus=5, run_s=1000, limit_s=1000))
    fleet.advance_to_s(5)
    head = fleet.submit("solo", job(gpus=6, run_s=50))
    beside = [fleet.submit("solo", job(gpus=1, run_s=3000, limit_s=5000)) for _ in range(3)]
    fleet.advance_to_s(3000)
    assert starts(fleet, head) == [1002]
    assert starts(fleet, *beside[:2]) == [30, 30]
    assert starts(fleet, beside[2]) == [1053]


def test_without_backfill_nothing_overtakes_in_a_partition() -> None:
    spec = cluster_spec("solo", 1, 4, "a100", federated=False, users=USERS, qos=QOS)
    fleet = SimulatedFleet(FleetSpec(clusters=(replace(spec, backfill=False),)))
    fleet.submit("solo", job(gpus=2, run_s=1000))
    fleet.advance_to_s(5)
    head = fleet.submit("solo", job(gpus=4))
    short = fleet.submit("solo", job(gpus=2, run_s=10, limit_s=60))
    fleet.advance_to_s(100)
    assert seen(fleet, head).reason == "Resources"
    assert seen(fleet, short).reason == "Priority"
    fleet.advance_to_s(3000)
    assert starts(fleet, head, short) == [1002, 1103]


def test_limits_of_qos_and_user_hold_a_job_back_without_blocking_others() -> None:
    fleet = one_cluster(gpus=16)
    normal = [fleet.submit("solo", job(qos="normal", gpus=4)) for _ in range(2)]
    of_bob = [fleet.submit("solo", job(user="bob", gpus=1)) for _ in range(2)]
    other = fleet.submit("solo", job(gpus=2))
    fleet.advance_to_s(50)
    assert starts(fleet, normal[0], of_bob[0], other) == [1, 1, 1]
    assert seen(fleet, normal[1]).reason == "QOSMaxGRESPerUser"
    assert seen(fleet, of_bob[1]).reason == "AssocMaxJobsLimit"
    fleet.advance_to_s(500)
    assert starts(fleet, normal[1], of_bob[1]) == [102, 102]


def test_a_limit_above_the_partitions_never_starts() -> None:
    fleet = one_cluster(debug=True)
    key = fleet.submit("solo", job(partitions=("debug",), limit_s=3601))
    either = fleet.submit("solo", job(partitions=("debug", "gpu"), limit_s=3601))
    fleet.advance_to_s(500)
    assert seen(fleet, key).reason == "PartitionTimeLimit"
    assert starts(fleet, either) == [1]


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"partitions": ("nope",)}, "partition"),
        ({"user": "nobody"}, "account"),
        ({"account": "b"}, "account"),
        ({"qos": "gold"}, "qos"),
        ({"gpus": 5}, "node configuration"),
        ({"gpu_type": "v100"}, "node configuration"),
        ({"nodes": 2}, "node configuration"),
        ({"reservation": "nope"}, "reservation"),
        ({"dependency": "afterok:99"}, "dependency"),
        ({"clusters": ("solo",)}, "cluster"),
    ],
)
def test_what_slurm_rejects_is_rejected(wishes: dict, words: str) -> None:
    fleet = one_cluster()
    with pytest.raises(ClusterRefused, match=words):
        fleet.submit("solo", job(**wishes))
    assert not fleet.jobs
    assert not fleet.busy


def test_a_job_over_two_nodes_needs_both() -> None:
    fleet = one_cluster(nodes=2)
    small = fleet.submit("solo", job(gpus=1))
    fleet.advance_to_s(5)
    wide = fleet.submit("solo", job(gpus=8, nodes=2))
    fleet.advance_to_s(500)
    assert starts(fleet, small, wide) == [1, 102]


def test_a_drained_node_takes_nothing_until_it_is_resumed() -> None:
    fleet = one_cluster()
    running = fleet.submit("solo", job())
    fleet.advance_to_s(5)
    fleet.drain("solo", "solo1")
    waiting = fleet.submit("solo", job())
    fleet.advance_to_s(500)
    (node,) = SimulatedPort(fleet, "solo").look().nodes
    assert (node.up, node.state) == (False, "IDLE+DRAIN")
    assert fleet.jobs[running].ending == "COMPLETED"
    fleet.resume("solo", "solo1")
    fleet.advance_to_s(600)
    assert starts(fleet, waiting) == [501]


def test_a_dependency_holds_until_it_is_satisfied() -> None:
    fleet = one_cluster()
    fails = fleet.submit("solo", job(run_s=2000))
    good = fleet.submit("solo", job(gpus=1, dependency=f"afterany:{fails.id}"))
    never = fleet.submit("solo", job(gpus=1, dependency=f"afterok:{fails.id}"))
    soon = fleet.submit("solo", job(gpus=1, dependency=f"after:{fails.id}"))
    fleet.advance_to_s(10)
    assert seen(fleet, good).dependency == f"afterany:{fails.id}(unfulfilled)"
    assert seen(fleet, soon).dependency == ""
    fleet.advance_to_s(2000)
    assert starts(fleet, good, soon, never) == [1002, 1002, None]
    assert seen(fleet, never).reason == "Dependency"
    assert fleet.busy


def test_a_begin_time_is_waited_for() -> None:
    fleet = one_cluster()
    key = fleet.submit("solo", job(begin_s=600))
    fleet.advance_to_s(599)
    assert seen(fleet, key).reason == "BeginTime"
    fleet.advance_to_s(700)
    assert starts(fleet, key) == [601]


def test_array_tasks_start_one_by_one_under_ids_of_their_own() -> None:
    fleet = one_cluster()
    array = fleet.submit("solo", job(gpus=2, tasks=3))
    fleet.advance_to_s(50)
    records = SimulatedPort(fleet, "solo").look().jobs
    assert {record.array_id for record in records} == {array.id}
    assert sorted(record.state for record in records) == ["PENDING", "RUNNING", "RUNNING"]
    fleet.advance_to_s(500)
    assert [each.started for each in fleet.jobs.values()] == [102, 1, 1]
    assert not fleet.busy


def test_a_cancelled_array_takes_its_tasks_with_it() -> None:
    fleet = one_cluster()
    array = fleet.submit("solo", job(gpus=2, tasks=5))
    fleet.advance_to_s(50)
    fleet.cancel("solo", array.id)
    assert {each.ending for each in fleet.jobs.values()} == {"CANCELLED"}
    assert not fleet.busy


def test_the_components_of_a_heterogeneous_job_start_together() -> None:
    fleet = one_cluster()
    fleet.submit("solo", job(gpus=2))
    fleet.advance_to_s(5)
    leader = fleet.submit("solo", job(gpus=1, components=(job(gpus=2),)))
    fleet.advance_to_s(50)
    assert seen(fleet, leader).state is JobState.PENDING
    fleet.advance_to_s(500)
    assert [each.started for each in fleet.jobs.values()] == [1, 102, 102]


def test_a_reservation_keeps_its_nodes_for_its_users() -> None:
    fleet = one_cluster()
    fleet.reserve("solo", Reservation(name="talk", nodes=("solo1",), start_s=500, end_s=2000, users=("ada",)))
    inside = fleet.submit("solo", job(gpus=1, reservation="talk", limit_s=300))
    over = fleet.submit("solo", job(gpus=1, limit_s=600))
    before = fleet.submit("solo", job(gpus=1, limit_s=300))
    with pytest.raises(ClusterRefused, match="reservation"):
        fleet.submit("solo", job(user="bob", reservation="talk"))
    fleet.advance_to_s(400)
    assert seen(fleet, inside).reason == "Reservation"
    fleet.advance_to_s(600)
    assert SimulatedPort(fleet, "solo").look().nodes[0].reserved
    fleet.advance_to_s(3000)
    assert starts(fleet, before, inside, over) == [30, 501, 2001]


def test_hold_keeps_a_job_back_and_release_lets_it_go() -> None:
    fleet = one_cluster()
    key = fleet.submit("solo", job(held=True))
    fleet.advance_to_s(100)
    assert (seen(fleet, key).priority, seen(fleet, key).reason) == (0, "JobHeldUser")
    fleet.release("solo", key.id)
    fleet.advance_to_s(200)
    assert starts(fleet, key) == [101]


def test_a_cpu_job_starts_when_all_gpus_are_taken() -> None:
    fleet = one_cluster()
    fleet.submit("solo", job(gpus=4))
    fleet.advance_to_s(5)
    key = fleet.submit("solo", job(gpus=0, cpus=8))
    fleet.advance_to_s(50)
    assert starts(fleet, key) == [6]
