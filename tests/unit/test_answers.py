import copy
import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from recorded import RELEASES, answer

from slurm_evo.model import AnswerUnreadable, ClusterName, Hold, JobState, Partition
from slurm_evo.slurm.answers import UNLIMITED_S, parse_jobs, parse_nodes, parse_partitions

ALPHA = ClusterName("alpha")
SAMPLES = Path(__file__).parents[2] / ".." / "shared" / "samples"


def jobs_by_name(release, cluster="alpha"):
    partitions = (_partition("gpu", 7 * 86_400), _partition("debug", 3_600))
    found = parse_jobs(ClusterName(cluster), answer(release, cluster, "squeue.json"), partitions)
    assert found.unreadable == ()
    return {job.name: job for job in found.jobs}


def _partition(name, limit_s):
    return Partition(name=name, up=True, default=False, limit_s=limit_s, nodes=())


def one_job(**changes):
    """A job as 26.05 lists it, changed."""
    records = answer("26.05", "alpha", "squeue.json")["jobs"]
    record = copy.deepcopy(next(record for record in records if record["name"] == "typed"))
    record.update(changes)
    return record


def read(record, partitions=()):
    found = parse_jobs(ALPHA, {"jobs": [record]}, partitions)
    return found.jobs[0]


@pytest.mark.parametrize("release", RELEASES)
class TestARealQueue:
    def test_the_gpus_of_each_way_to_ask_for_them(self, release):
        jobs = jobs_by_name(release)
        assert (jobs["typed"].gpus, jobs["typed"].gpu_type, jobs["typed"].gpus_per_node) == (16, "a100", None)
        assert (jobs["array"].gpus, jobs["array"].gpu_type, jobs["array"].gpus_per_node) == (32, None, 8)
        assert (jobs["tasks"].gpus, jobs["tasks"].nodes, jobs["tasks"].cpus) == (8, 1, 4)
        assert (jobs["both"].gpus, jobs["both"].nodes) == (8, 2)

    def test_a_running_job_knows_what_it_was_given(self, release):
        part = jobs_by_name(release)["part"]
        assert part.state is JobState.RUNNING
        assert (part.gpus, part.gpu_type) == (3, "a100")
        assert part.nodelist == ("alpha4",)
        assert part.started is not None
        assert part.ended is None

    def test_a_forecast_is_no_start(self, release):
        assert jobs_by_name(release)["typed"].started is None

    def test_a_held_job_and_who_holds_it(self, release):
        jobs = jobs_by_name(release)
        assert jobs["tasks"].hold is Hold.USER
        assert {jobs[name].hold for name in ("typed", "array", "after", "moved")} == {Hold.NONE}

    def test_a_job_without_a_limit_has_its_partitions(self, release):
        assert jobs_by_name(release)["tasks"].limit_s == 7 * 86_400

    def test_what_keeps_a_job_from_being_moved(self, release):
        jobs = jobs_by_name(release)
        assert jobs["array"].array_id == jobs["array"].id
        assert jobs["het"].het_id is not None
        assert jobs["after"].dependency.startswith("afterok:")
        assert jobs["wanted"].required_nodes == ("alpha1",)
        assert jobs["wanted"].partitions == ("gpu", "debug")
        assert jobs["typed"].comment == "slurm-evo:off"
        assert jobs["typed"].nice == 7
        assert all(job.batch and not job.scrontab for job in jobs.values())

    def test_a_moved_job_is_a_tracker_at_home_and_waits_abroad(self, release):
        home, abroad = jobs_by_name(release)["moved"], jobs_by_name(release, "beta")["moved"]
        assert home.key == abroad.key
        assert (home.origin, home.viable) == ("alpha", ("beta",))
        assert home.revoked
        assert not home.waiting_here
        assert abroad.waiting_here

    def test_times_are_aware_and_words_are_slurms(self, release):
        jobs = jobs_by_name(release)
        assert jobs["typed"].submitted.tzinfo is UTC
        assert (jobs["typed"].user, jobs["typed"].account, jobs["wanted"].qos) == ("ada", "lab", "high")
        assert jobs["fill"].reason == ""
        assert jobs["typed"].workdir == "/tmp"

    def test_its_nodes(self, release):
        nodes = {node.name: node for node in parse_nodes(ALPHA, answer(release, "alpha", "nodes.json"))}
        assert sorted(nodes) == ["alpha1", "alpha2", "alpha3", "alpha4"]
        assert {(node.gpu_type, node.gpus) for node in nodes.values()} == {("a100", 8)}
        assert [nodes[name].gpus_used for name in sorted(nodes)] == [8, 8, 8, 3]
        assert [nodes[name].up for name in sorted(nodes)] == [True, True, False, True]
        assert "DRAIN" in nodes["alpha3"].state
        assert nodes["alpha1"].partitions == ("gpu", "debug")
        assert (nodes["alpha1"].cpus, nodes["alpha1"].memory_mb) == (64, 512_000)

    def test_its_partitions(self, release):
        found = parse_partitions(ALPHA, answer(release, "alpha", "rest_partitions.json"))
        gpu, debug = found
        assert (gpu.name, gpu.limit_s, gpu.up, gpu.allow_accounts) == ("gpu", 604_800, True, None)
        assert gpu.nodes == ("alpha1", "alpha2", "alpha3", "alpha4")
        assert (debug.name, debug.limit_s) == ("debug", 3_600)


def test_the_default_partition_is_told_by_the_newer_versions_only():
    by_release = {
        release: [p.default for p in parse_partitions(ALPHA, answer(release, "alpha", "rest_partitions.json"))]
        for release in RELEASES
    }
    assert by_release == {"24.11": [False, False], "26.05": [True, False]}


@pytest.mark.parametrize(
    ("state", "expected", "flags"),
    [
        (["RUNNING"], JobState.RUNNING, set()),
        ("RUNNING", JobState.RUNNING, set()),
        (["PENDING", "REVOKED"], JobState.PENDING, {"REVOKED"}),
        ("REVOKED", JobState.PENDING, {"REVOKED"}),
        (["COMPLETED", "COMPLETING"], JobState.DONE, {"COMPLETING"}),
        ("COMPLETING", JobState.DONE, {"COMPLETING"}),
        (["RUNNING", "CONFIGURING"], JobState.RUNNING, {"CONFIGURING"}),
        ("CONFIGURING", JobState.RUNNING, {"CONFIGURING"}),
        (["SUSPENDED"], JobState.SUSPENDED, set()),
        (["PENDING", "REQUEUED", "SPECIAL_EXIT"], JobState.PENDING, {"REQUEUED", "SPECIAL_EXIT"}),
        ("OUT_OF_MEMORY", JobState.DONE, set()),
    ],
)
def test_states_as_words_and_as_lists(state, expected, flags):
    job = read(one_job(job_state=state))
    assert job.state is expected
    assert job.flags == flags


@pytest.mark.parametrize("state", [[], None, "", ["ASLEEP"], ["PENDING", "RUNNING"], 3, [3]])
def test_a_state_that_is_none_is_unreadable(state):
    with pytest.raises(AnswerUnreadable, match=r"alpha: .*job_state"):
        read(one_job(job_state=state))


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ({"set": True, "infinite": False, "number": 30}, 1_800),
        (30, 1_800),
        ({"set": False, "infinite": True, "number": 0}, 604_800),
        ({"set": True, "infinite": True, "number": 0}, 604_800),
        ({"set": False, "infinite": False, "number": 0}, 604_800),
        (4_294_967_295, 604_800),
        (None, 604_800),
    ],
)
def test_limits_of_all_versions(limit, seconds):
    assert read(one_job(time_limit=limit), (_partition("gpu", 604_800),)).limit_s == seconds


def test_without_any_limit_a_job_counts_as_slurms_backfill_counts_it():
    unlimited = {"set": False, "infinite": True, "number": 0}
    assert read(one_job(time_limit=unlimited), (_partition("gpu", None),)).limit_s == UNLIMITED_S


def test_an_unlimited_partition_outweighs_a_limited_one():
    record = one_job(time_limit=None, partition="gpu,debug")
    assert read(record, (_partition("gpu", None), _partition("debug", 60))).limit_s == UNLIMITED_S


@pytest.mark.parametrize(
    ("nice", "expected"), [(-2, -2), (-1, -1), (0, 0), (2_147_483_645, 2_147_483_645), (None, 0)]
)
def test_nice_has_a_sign(nice, expected):
    assert read(one_job(nice=nice)).nice == expected


def test_gpus_that_are_not_tracked_are_taken_from_the_request():
    record = one_job(
        tres_req_str="cpu=8,mem=1G,node=2,billing=8", tres_per_job="", tres_per_node="gres/gpu:a100:4"
    )
    job = read(record)
    assert (job.gpus, job.gpu_type, job.gpus_per_node) == (8, "a100", 4)


def test_an_exclusive_running_job_holds_what_it_was_given_not_what_it_asked():
    record = one_job(
        job_state=["RUNNING"],
        tres_per_job="gres/gpu:1",
        tres_req_str="cpu=1,node=1,gres/gpu=1",
        tres_alloc_str="cpu=64,node=1,gres/gpu=8,gres/gpu:a100=8",
        gres_detail=["gpu:a100:8(IDX:0-7)"],
    )
    assert (read(record).gpus, read(record).gpu_type) == (8, "a100")


def test_a_held_job_with_another_reason_is_an_administrators():
    record = one_job(priority={"set": True, "infinite": False, "number": 0}, state_reason="JobHoldMaxRequeue")
    assert read(record).hold is Hold.ADMIN


def test_a_priority_that_is_not_told_is_no_hold():
    assert read(one_job(priority=None)).hold is Hold.NONE


@pytest.mark.parametrize(
    ("shared", "exclusive"),
    [
        (["none"], True),
        ("none", True),
        (["user"], True),
        ([], False),
        (None, False),
        (["oversubscribe"], False),
    ],
)
def test_nodes_for_itself(shared, exclusive):
    assert read(one_job(shared=shared)).exclusive is exclusive


def test_a_scrontab_job_and_an_interactive_one():
    assert read(one_job(cron="0 * * * *")).scrontab
    assert read(one_job(flags=["CRON_JOB"])).scrontab
    assert not read(one_job(batch_flag=False)).batch
    assert not read(one_job(batch_flag=0)).batch


def test_what_is_left_of_a_sibling_that_was_taken_back_is_no_second_copy():
    stale = one_job(job_id=7, federation_origin="beta", job_state=["PENDING", "REVOKED"])
    living = one_job(job_id=7, federation_origin="beta", job_state=["PENDING"])
    assert [job.revoked for job in parse_jobs(ALPHA, {"jobs": [stale, living]}).jobs] == [False]


def test_a_sibling_that_slurmctld_has_unlinked_is_no_job():
    unlinked = one_job(job_id=4_294_967_294, federation_origin="beta", job_state=["PENDING", "REVOKED"])
    found = parse_jobs(ALPHA, {"jobs": [unlinked]})
    assert (found.jobs, found.unreadable) == ((), ())


def test_a_tracker_at_its_origin_is_kept():
    tracker = one_job(job_id=7, federation_origin="alpha", job_state=["PENDING", "REVOKED"])
    assert [job.revoked for job in parse_jobs(ALPHA, {"jobs": [tracker]}).jobs] == [True]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job_id", None),
        ("job_id", 0),
        ("job_id", "67"),
        ("submit_time", {"set": True, "infinite": False, "number": 10**30}),
        ("submit_time", 0),
        ("cpus", {"set": True, "infinite": False, "number": "four"}),
        ("cpus", -3),
        ("time_limit", {"set": True, "infinite": False, "number": float("nan")}),
        ("tres_req_str", "gres/gpu=eight"),
        ("tres_per_node", ["gpu"]),
        ("required_nodes", "n[1-"),
        ("required_nodes", "n[1-99999999999]"),
        ("federation_siblings_viable", 3),
        ("name", 5),
    ],
)
def test_damage_names_its_field_and_its_job(field, value):
    with pytest.raises(AnswerUnreadable, match=f"field {field} is") as caught:
        read(one_job(**{field: value}))
    assert caught.value.cluster == "alpha"
    if field != "job_id":
        assert f"job {one_job()['job_id']}: " in str(caught.value)


def test_one_odd_job_is_left_out_and_named():
    found = parse_jobs(ALPHA, {"jobs": [one_job(job_id=1), one_job(job_id=2, job_state=["ASLEEP"])]})
    assert [job.id for job in found.jobs] == [1]
    assert len(found.unreadable) == 1
    assert found.unreadable[0].startswith("job 2: field job_state is ['ASLEEP']")


def test_if_no_job_can_be_read_the_answer_is_unreadable():
    with pytest.raises(AnswerUnreadable, match="none of 2 jobs could be read"):
        parse_jobs(ALPHA, {"jobs": [one_job(job_state=["ASLEEP"])] * 2})


@pytest.mark.parametrize("damaged", [None, [], {}, {"jobs": None}, {"jobs": {}}, "jobs"])
def test_an_answer_without_jobs_is_unreadable(damaged):
    with pytest.raises(AnswerUnreadable, match="has no list «jobs»"):
        parse_jobs(ALPHA, damaged)


def test_an_empty_queue_is_a_queue():
    assert parse_jobs(ALPHA, {"jobs": []}).jobs == ()


@pytest.mark.parametrize(
    ("state", "up"),
    [
        (["IDLE"], True),
        ("idle", True),
        ("mixed+planned", True),
        (["ALLOCATED", "COMPLETING"], True),
        (["IDLE", "POWERED_DOWN"], True),
        ("IDLE+DRAIN", False),
        ("down*", False),
        (["DOWN", "NOT_RESPONDING"], False),
        (["IDLE", "DRAIN"], False),
        (["MIXED", "MAINTENANCE"], False),
    ],
)
def test_which_nodes_may_take_jobs(state, up):
    record = {"name": "n1", "state": state, "cpus": 4, "real_memory": 100, "gres": "gpu:2"}
    assert parse_nodes(ALPHA, {"nodes": [record]})[0].up is up


def test_a_node_flag_may_stand_apart_as_in_the_oldest_version():
    record = {"name": "n1", "state": "idle", "state_flags": ["DRAIN"]}
    assert not parse_nodes(ALPHA, {"nodes": [record]})[0].up


def test_a_node_without_gres_words_is_read_from_its_tres():
    record = {"name": "n1", "state": ["MIXED"], "tres": "cpu=4,gres/gpu=4", "tres_used": "cpu=1,gres/gpu=1"}
    node = parse_nodes(ALPHA, {"nodes": [record]})[0]
    assert (node.gpus, node.gpus_used) == (4, 1)


@pytest.mark.parametrize("record", [None, {}, {"name": "n1"}, {"name": "n1", "state": ["IDLE"], "cpus": "x"}])
def test_an_odd_node_makes_the_answer_unreadable(record):
    with pytest.raises(AnswerUnreadable, match="node"):
        parse_nodes(ALPHA, {"nodes": [record]})


SAMPLE_READERS = {
    "restd_24.05_v0.0.41_slurm-job-gpus-pending.json": ("jobs", parse_jobs, 1),
    "restd_24.05_v0.0.41_slurm-jobs.json.gz": ("jobs", parse_jobs, 14),
    "restd_25.05_v0.0.43_slurm-job-gpus-pending.json": ("jobs", parse_jobs, 1),
    "rivos_squeue_out.json": ("jobs", parse_jobs, 2),
    "restd_24.05_v0.0.41_slurm-nodes.json": ("nodes", parse_nodes, 100),
    "restd_25.05_v0.0.43_slurm-nodes.json": ("nodes", parse_nodes, 6),
    "rivos_sinfo_out.json": ("nodes", parse_nodes, 4),
    "restd_24.05_v0.0.41_slurm-partitions.json": ("partitions", parse_partitions, 4),
}


@pytest.mark.parametrize("name", SAMPLE_READERS)
def test_samples_of_other_sites(name):
    path = SAMPLES / name
    if not path.exists():
        pytest.skip(f"the samples of other sites are not beside this checkout ({path.parent.resolve()})")
    data = path.read_bytes()
    sample = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    _, reader, expected = SAMPLE_READERS[name]
    found = reader(ClusterName("hpc"), sample)
    if reader is parse_jobs:
        assert found.unreadable == ()
        assert len(found.jobs) == expected
    else:
        assert len(found) == expected


def test_a_sample_of_21_08_with_bare_numbers():
    path = SAMPLES / "rivos_squeue_out.json"
    if not path.exists():
        pytest.skip(f"the samples of other sites are not beside this checkout ({path.parent.resolve()})")
    running, pending = parse_jobs(ClusterName("rivos"), json.loads(path.read_text(encoding="utf-8"))).jobs
    assert (running.state, running.nodelist, running.memory_mb) == (JobState.RUNNING, ("cs75",), 64_000)
    assert running.submitted == datetime(2023, 5, 15, 1, 41, 40, tzinfo=UTC)
    assert (pending.state, pending.array_id) == (JobState.PENDING, 58_948_420)
    assert pending.dependency == "afterok:58948419(unfulfilled)"
