"""Slurm's history, as text and as JSON: what is kept, what is joined, what is left out and why."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from trace_files import COLUMNS, number, record, row, sacct_json, sacct_text

from slurm_evo.model import TraceError
from slurm_evo.trace import read

SUBMITTED = int(datetime.fromisoformat("2026-03-01T10:00:00+00:00").timestamp())


def test_a_finished_job_is_read_whole(tmp_path: Path) -> None:
    reading = read(sacct_text(tmp_path / "h.txt", [row()]))
    assert reading.trace.jobs.to_dicts() == [
        {
            "job": "100",
            "cluster": "alpha",
            "user": "ada",
            "account": "physics",
            "partition": "gpu",
            "qos": "normal",
            "name": "train",
            "gpu_type": "",
            "constraint": "",
            "submit": SUBMITTED,
            "wait": 300,
            "runtime": 3600,
            "limit": 7200,
            "gpus": 4,
            "nodes": 1,
            "cpus": 8,
            "memory": 65_536,
            "state": "COMPLETED",
            "array": None,
        }
    ]
    assert reading.dropped == {}


def test_text_and_json_agree(tmp_path: Path) -> None:
    text = read(sacct_text(tmp_path / "h.txt", [row(ReqTRES="cpu=8,gres/gpu:a100=4,node=1", AllocTRES="")]))
    other = read(sacct_json(tmp_path / "h.json", record()))
    assert text.trace.jobs.drop("memory").to_dicts() == other.trace.jobs.drop("memory").to_dicts()


def test_only_a_type_that_was_asked_for_binds_a_job(tmp_path: Path) -> None:
    asked = row(JobID="1", ReqTRES="cpu=8,gres/gpu:h100=2,gres/gpu=2")
    given = row(JobID="2", ReqTRES="cpu=8,gres/gpu=2", AllocTRES="gres/gpu:h100=2")
    jobs = read(sacct_text(tmp_path / "h.txt", [asked, given])).trace.jobs
    assert jobs["gpu_type"].to_list() == ["h100", ""]
    assert jobs["gpus"].to_list() == [2, 2]


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("sbatch --gpus=4 x.sh", 4),
        ("sbatch -G 2 x.sh", 2),
        ("sbatch --gpus-per-node h100:4 x.sh", 8),
        ("sbatch --gres=gpu:a100:2,lustre x.sh", 4),
        ("sbatch --gres=gpu:h100 x.sh", 2),
        ("sbatch --gpus=some x.sh", 1),
        ("sbatch --gpus=a100:many:x x.sh", 0),
        ("sbatch x.sh", 0),
    ],
)
def test_where_gpus_are_not_tracked_the_command_tells(tmp_path: Path, line: str, gpus: int) -> None:
    plain = row(ReqTRES="cpu=8,node=2", AllocTRES="cpu=8,node=2", SubmitLine=line)
    assert read(sacct_text(tmp_path / "h.txt", [plain])).trace.jobs["gpus"].item() == gpus


def test_steps_and_jobs_that_are_not_over_are_counted_out(tmp_path: Path) -> None:
    rows = [
        row(),
        row(JobID="100.batch", User=""),
        row(JobID="100.0"),
        row(JobID="101", State="RUNNING", End="Unknown"),
    ]
    rows += [row(JobID="102", State="PENDING", Start="Unknown", End="Unknown")]
    reading = read(sacct_text(tmp_path / "h.txt", rows))
    assert reading.rows == 5
    assert {reason: left.count for reason, left in reading.dropped.items()} == {
        "step of a job": 2,
        "not over yet": 2,
    }
    assert reading.dropped["step of a job"].example == "h.txt:3"
    assert len(reading.trace) == 1


def test_a_requeued_job_counts_once_for_each_time_it_waited(tmp_path: Path) -> None:
    first = row(State="NODE_FAIL")
    again = row(Submit="2026-03-01T11:05:00", Eligible="2026-03-01T11:05:00", Start="2026-03-01T12:00:00")
    again |= {"End": "2026-03-01T13:00:00"}
    jobs = read(sacct_text(tmp_path / "h.txt", [first, again])).trace.jobs
    assert jobs["wait"].to_list() == [300, 3300]


def test_the_same_row_twice_is_one_job(tmp_path: Path) -> None:
    reading = read(sacct_text(tmp_path / "h.txt", [row(), row()]))
    assert len(reading.trace) == 1
    assert reading.dropped["same row twice"].count == 1


def test_siblings_of_a_federated_job_are_one_job(tmp_path: Path) -> None:
    ran = row(JobID="67108939", Cluster="beta")
    sibling = row(JobID="67108939", State="REVOKED", Start="None", Elapsed="00:00:00")
    elsewhere = row(JobID="67108940", State="REVOKED", Start="None", Elapsed="00:00:00")
    reading = read(sacct_text(tmp_path / "h.txt", [sibling, ran, elsewhere]))
    assert reading.trace.jobs["cluster"].to_list() == ["beta"]
    assert reading.dropped["sibling of a federated job that ran elsewhere"].count == 1
    assert reading.dropped["ran on a cluster that is not in this history"].count == 1


def test_a_heterogeneous_job_asks_for_what_its_components_ask(tmp_path: Path) -> None:
    rows = [row(JobID="100+0"), row(JobID="100+1", ReqTRES="cpu=2,gres/gpu=1,node=1")]
    reading = read(sacct_text(tmp_path / "h.txt", rows))
    assert reading.trace.jobs["gpus"].to_list() == [5]
    assert reading.notes["component of a heterogeneous job, joined with the others"].count == 2


def test_array_tasks_are_jobs_and_a_row_of_many_counts_for_many(tmp_path: Path) -> None:
    cancelled = row(JobID="100_[2-5,9%2]", State="CANCELLED by 1000", Start="None", Elapsed="00:00:00")
    jobs = read(sacct_text(tmp_path / "h.txt", [row(JobID="100_1"), cancelled])).trace.jobs
    assert jobs["array"].to_list() == ["100"] * 6
    assert jobs["runtime"].null_count() == 5


@pytest.mark.parametrize("text", ["UNLIMITED", "Partition_Limit", ""])
def test_no_limit_is_an_unknown_limit(tmp_path: Path, text: str) -> None:
    assert read(sacct_text(tmp_path / "h.txt", [row(Timelimit=text)])).trace.jobs["limit"].to_list() == [None]


def test_waiting_counts_from_the_moment_a_job_could_run(tmp_path: Path) -> None:
    reading = read(sacct_text(tmp_path / "h.txt", [row(Eligible="2026-03-01T10:04:00")]))
    assert reading.trace.jobs["wait"].to_list() == [60]
    assert "counts from its eligible time, later than its submission" in reading.notes


def test_a_job_cancelled_while_it_waited_has_no_running_time(tmp_path: Path) -> None:
    gone = row(State="CANCELLED by 0", Start="None", End="2026-03-01T10:30:00", Elapsed="00:00:00")
    job = read(sacct_text(tmp_path / "h.txt", [gone])).trace.jobs.to_dicts()[0]
    assert (job["wait"], job["runtime"], job["state"]) == (1800, None, "CANCELLED")


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"Submit": "yesterday"}, "submit"),
        ({"Start": "2026-03-01T09:00:00"}, "Start"),
        ({"End": "2026-03-01T10:04:00"}, "End"),
        ({"Timelimit": "two hours"}, "timelimit"),
        ({"State": "?"}, "state"),
        ({"State": "DREAMING"}, "State"),
        ({"JobID": "one"}, "jobid"),
        ({"JobID": "7_[1-999999999]"}, "JobID"),
        ({"ReqTRES": "gres/gpu=many"}, "reqtres"),
        ({"Submit": "Unknown", "Eligible": "Unknown"}, "Submit"),
    ],
)
def test_a_bad_row_is_named_and_the_rest_is_read(tmp_path: Path, change: dict[str, str], column: str) -> None:
    file = sacct_text(tmp_path / "h.txt", [row(JobID="99"), row(**change)])
    reading = read(file)
    assert len(reading.trace) == 1
    ((reason, left),) = reading.dropped.items()
    assert reason == f"bad row: field {column}"
    assert left.example.startswith("h.txt:3: ")
    with pytest.raises(TraceError, match=rf"^h\.txt:3: field {column}: ") as stopped:
        read(file, strict=True)
    assert stopped.value.line == 3


def test_a_separator_in_a_name_does_not_shift_the_columns(tmp_path: Path) -> None:
    columns = [name for name in COLUMNS if name != "SubmitLine"]
    file = sacct_text(tmp_path / "h.txt", [row(JobName="a|b|c")], columns)
    job = read(file).trace.jobs.to_dicts()[0]
    assert (job["name"], job["wait"]) == ("a|b|c", 300)


def test_a_row_that_cannot_be_told_apart_is_left_out(tmp_path: Path) -> None:
    reading = read(sacct_text(tmp_path / "h.txt", [row(), row(JobID="2", JobName="a|b")]))
    assert reading.dropped["bad row: field all"].example == "h.txt:3: 20 fields where the header has 19"


def test_names_in_any_encoding_are_read(tmp_path: Path) -> None:
    file = sacct_text(tmp_path / "h.txt", [row(JobName="entraîner-模型")])
    assert read(file).trace.jobs["name"].item() == "entraîner-模型"
    file.write_bytes(file.read_bytes().replace("î".encode(), b"\xee"))
    assert read(file).trace.jobs["name"].item() == "entra\ufffdner-模型"


def test_local_times_are_read_in_their_zone(tmp_path: Path) -> None:
    file = sacct_text(tmp_path / "h.txt", [row()])
    jobs = read(file, zone=ZoneInfo("Europe/Berlin")).trace.jobs
    assert jobs["submit"].item() == SUBMITTED - 3600
    assert jobs["wait"].item() == 300


def test_seconds_and_offsets_need_no_zone(tmp_path: Path) -> None:
    both = row(
        Submit=str(SUBMITTED), Eligible="", Start="2026-03-01T11:05:00+01:00", End="2026-03-01T12:05:00+01:00"
    )
    job = read(sacct_text(tmp_path / "h.txt", [both]), zone=ZoneInfo("Asia/Tokyo")).trace.jobs.to_dicts()[0]
    assert (job["submit"], job["wait"]) == (SUBMITTED, 300)


def test_compressed_files_and_other_separators_are_read(tmp_path: Path) -> None:
    text = (
        sacct_text(tmp_path / "h.txt", [row()]).read_text().replace(",", ";").replace("|", ",").replace(";", " ")
    )
    (tmp_path / "h.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert read(tmp_path / "h.csv.gz").trace.jobs["wait"].item() == 300


def test_columns_can_be_named_where_there_is_no_header(tmp_path: Path) -> None:
    file = sacct_text(tmp_path / "h.txt", [row(), row(JobID="2")])
    file.write_text(file.read_text().split("\n", 1)[1])
    assert len(read(file, columns=COLUMNS).trace) == 2
    with pytest.raises(TraceError, match="none of the formats that are understood"):
        read(file)


@pytest.mark.parametrize("column", ["Submit", "State", "Start"])
def test_a_column_that_nothing_can_be_said_without_is_asked_for(tmp_path: Path, column: str) -> None:
    columns = [name for name in COLUMNS if name != column]
    with pytest.raises(TraceError, match=rf"field {column}: has no such column.*sacct -a -X -P -o"):
        read(sacct_text(tmp_path / "h.txt", [row()], columns))


def test_a_history_without_a_finished_job_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no finished job in 1 rows: 1 not over yet \(h\.txt:2: RUNNING\)"):
        read(sacct_text(tmp_path / "h.txt", [row(State="RUNNING")]))


def test_numbers_of_old_json_are_read(tmp_path: Path) -> None:
    """21.08: bare minutes, a state that is no list, nulls for names."""
    old = record(state={"current": "CANCELLED"}, user=None, constraints=None, array={"job_id": 0, "task_id": None})
    old["time"]["limit"] = 1440
    job = read(sacct_json(tmp_path / "h.json", old)).trace.jobs.to_dicts()[0]
    assert (job["limit"], job["state"], job["user"]) == (86_400, "CANCELLED", "")


def test_an_infinite_limit_is_unknown(tmp_path: Path) -> None:
    free = record()
    free["time"]["limit"] = {"set": True, "infinite": True, "number": 0}
    assert read(sacct_json(tmp_path / "h.json", free)).trace.jobs["limit"].to_list() == [None]


def test_array_tasks_and_components_of_json(tmp_path: Path) -> None:
    task = record(job_id=105, array={"job_id": 100, "task_id": number(5), "task": ""})
    parts = [record(job_id=200 + offset, het={"job_id": 200, "job_offset": number(offset)}) for offset in (0, 1)]
    jobs = read(sacct_json(tmp_path / "h.json", task, *parts)).trace.jobs
    assert jobs["job"].to_list() == ["100_5", "200"]
    assert jobs["gpus"].to_list() == [4, 8]


@pytest.mark.parametrize(
    "broken",
    [{"job_id": None}, {"time": None}, {"tres": {"requested": 3}}, {"state": {}}, {"tres": {"requested": ["x"]}}],
)
def test_a_bad_record_is_counted_and_the_rest_is_read(tmp_path: Path, broken: dict[str, object]) -> None:
    reading = read(sacct_json(tmp_path / "h.json", record(), {**record(job_id=101), **broken}, "no job"))
    assert len(reading.trace) == 1
    assert sum(left.count for left in reading.dropped.values()) == 2


def test_a_live_queue_is_not_taken_for_history(tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text(json.dumps({"jobs": [{"job_id": 1, "job_state": ["PENDING"]}]}))
    with pytest.raises(TraceError, match="the live queue"):
        read(tmp_path / "q.json")


def test_json_that_ends_early_is_named(tmp_path: Path) -> None:
    file = sacct_json(tmp_path / "h.json", record(), record(job_id=2))
    file.write_text(file.read_text()[:-60])
    with pytest.raises(TraceError, match=r"h\.json: is no JSON that can be read to its end"):
        read(file)
