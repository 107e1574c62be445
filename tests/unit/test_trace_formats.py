"""Logs of other machines, Parquet, and recorded samples: read, or refused with a reason."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from trace_files import SHARED, row, sacct_text, shared

from slurm_evo.model import TraceError
from slurm_evo.trace import FORMATS, SCHEMA, Trace, read

SWF = """; Version: 2.2
; UnixStartTime: 1000000
; MaxProcs: 64
    1   10    5  100  4 50.5 -1  8  3600 1024 1  3 2 7 1 2 -1 -1
    2   20   -1   -1 -1   -1 -1  4   600   -1 5  3 2 7 1 2 -1 -1
    3   30    0   50  2   -1 -1 -1    -1   -1 0 -1 2 7 1 2 -1 -1
    4   40    0   50  2   -1 -1 -1    -1   -1 3 -1 2 7 1 2 -1 -1
"""
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-02 10:00:00,60.4,2,120.8,abc\n"
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,12000,16384,1,460,V100M16|V100M32,LS,Running,10,500,20\n"
    "p1,12000,16384,0,0,,LS,Running,10,500,20\n"
    "p2,12000,16384,1,1000,,LS,Pending,10,,\n"
)
UBHPC = (
    "-dt 10.5 -e submit_batch_job | -sim-walltime 100.0 --uid=user001 -J jobid_1 -N 2 -n 18 -t 3-00:00:00"
    " -q normal -p general --mem=250G --gres=gpu:2 --constraint=CPU-Gold-6130 --exclusive=user pseudo.job\n"
)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "log"
    file.write_text(text)
    return file


def test_a_workload_archive_log_is_read(tmp_path: Path) -> None:
    reading = read(written(tmp_path, SWF))
    first, second, third = reading.trace.jobs.to_dicts()
    assert (first["submit"], first["wait"], first["runtime"], first["limit"]) == (1_000_010, 5, 100, 3600)
    assert (first["cpus"], first["memory"], first["user"], first["state"]) == (8, 8, "user3", "COMPLETED")
    assert (second["runtime"], second["state"]) == (None, "CANCELLED")
    assert (third["cpus"], third["limit"], third["user"], third["state"]) == (2, None, "", "FAILED")
    assert reading.dropped["part of a job that was checkpointed"].count == 1


def test_philly_is_read(tmp_path: Path) -> None:
    job = read(written(tmp_path, PHILLY)).trace.jobs.to_dicts()[0]
    submitted = int(datetime(2017, 10, 2, 10, tzinfo=UTC).timestamp())
    assert (job["submit"], job["runtime"], job["gpus"], job["cluster"]) == (submitted, 60, 2, "abc")
    assert job["limit"] is None


def test_openb_is_read(tmp_path: Path) -> None:
    reading = read(written(tmp_path, OPENB))
    (job,) = reading.trace.jobs.to_dicts()
    assert (job["wait"], job["runtime"], job["gpus"], job["cpus"], job["memory"]) == (10, 480, 1, 12, 16_384)
    assert job["gpu_type"] == "V100M16|V100M32"
    assert {reason: left.count for reason, left in reading.dropped.items()} == {
        "asks for no GPU": 1,
        "never scheduled or never ended": 1,
    }
    assert reading.notes["a share of a GPU, counted as one"].count == 1


def test_ub_hpc_is_read(tmp_path: Path) -> None:
    (job,) = read(written(tmp_path, UBHPC)).trace.jobs.to_dicts()
    assert (job["submit"], job["runtime"], job["limit"], job["gpus"], job["nodes"]) == (10, 100, 259_200, 4, 2)
    assert (job["cpus"], job["memory"], job["constraint"]) == (18, 512_000, "CPU-Gold-6130")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (SWF + "5 40 0 50\n", "log:8: field all: 4 fields, not 18"),
        (SWF + "5 x 0 50 2 -1 -1 -1 -1 -1 0 -1 2 7 1 2 -1 -1\n", "log:8: field submit: 'x' is no number"),
        (PHILLY + "2017-10-02,-1,2,1,abc\n", "log:3: field duration: -1 is not between 0 and"),
        (PHILLY + "soon,1,2,1,abc\n", "log:3: field timestamp: 'soon' is no time"),
        (PHILLY + "2017-10-02,1,2\n", "log:3: field all: 3 fields, not 5"),
        (OPENB + "p3,1,1,1,0,,LS,R,20,30,10\n", "log:5: field scheduled_time: times are not in order"),
        (UBHPC + "-dt x -sim-walltime 1\n", "log:2: field all: .*-dt"),
        (UBHPC + "-dt 1 -sim-walltime 1 --array=1-5 x.job\n", "log:2: field all: unknown option --array=1-5"),
    ],
)
def test_a_bad_row_of_any_log_is_named(tmp_path: Path, text: str, where: str) -> None:
    file = written(tmp_path, text)
    read(file)
    with pytest.raises(TraceError, match=f"^{where}"):
        read(file, strict=True)


def test_parquet_gives_the_same_trace_back(tmp_path: Path) -> None:
    trace = read(sacct_text(tmp_path / "h.txt", [row(JobID=str(number)) for number in range(5)])).trace
    trace.save(tmp_path / "h.parquet")
    assert read(tmp_path / "h.parquet").trace.jobs.equals(trace.jobs)
    assert [file.name for file in tmp_path.iterdir() if "half" in file.name] == []


def test_parquet_of_something_else_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(TraceError, match="field job: needs a column of String"):
        read(tmp_path / "x.parquet")


def test_a_trace_must_be_in_order(tmp_path: Path) -> None:
    trace = read(
        sacct_text(tmp_path / "h.txt", [row(), row(JobID="2", Submit="2026-03-01T09:00:00", Eligible="")])
    ).trace
    assert trace.jobs["job"].to_list() == ["2", "100"]
    with pytest.raises(TraceError, match="sorted by submit"):
        Trace(trace.jobs.reverse(), "x")


def test_part_of_a_trace(tmp_path: Path) -> None:
    days = [row(JobID=str(day), Submit=f"2026-02-{day:02}T10:00:00", Eligible="") for day in range(1, 6)]
    trace = read(sacct_text(tmp_path / "h.txt", days)).trace
    part = trace.between(datetime(2026, 2, 2, tzinfo=UTC), datetime(2026, 2, 4, tzinfo=UTC))
    assert part.jobs["job"].to_list() == ["2", "3"]
    assert part.begins == datetime(2026, 2, 2, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x01\x02",
        b"hello\n",
        b"\x1f\x8bbroken",
        b"{",
        b"PAR1broken",
        b"BZh9",
        b"\xfd7{}",
        b"\x1f\x8b\x08\x00",
    ],
)
def test_what_is_no_history_is_refused_with_the_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "thing"
    file.write_bytes(content)
    with pytest.raises(TraceError, match="thing"):
        read(file)


def test_a_packed_log_that_ends_early_is_named(tmp_path: Path) -> None:
    whole = gzip.compress((SWF + SWF.splitlines()[3] * 1 + "\n").encode() * 200)
    (tmp_path / "log.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match=r"log\.gz"):
        read(tmp_path / "log.gz")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nowhere: cannot be read: No such file"):
        read(tmp_path / "nowhere")


JOBS = {
    "restd_24.05_v0.0.41_slurmdb-job-timeout.json": 1,
    "restd_25.05_v0.0.43_slurmdb-job-timeout.json": 1,
    "sacct_json_21.08.8.json": 1,
    "sacct_slurm2sql_1.csv": 2,
    "sacct_xdmod_accounting-logs-with-job-arrays.log": 23,
    "sacct_xdmod_phillips.log.gz": 4285,
    "sacct_xdmod_utf8-multibyte-chars.log": 1,
}
"""Jobs in each recorded sample that is history with a finished job; everything else is refused."""


def test_every_recorded_sample_is_read_or_refused_with_a_reason() -> None:
    found, reasons = {}, {}
    for file in sorted(shared("samples").iterdir()):
        try:
            found[file.name] = len(read(file).trace)
        except TraceError as refused:
            reasons[file.name] = str(refused)
    assert found == JOBS
    assert all(reason.startswith(f"{name}: ") and len(reason) > len(name) + 20 for name, reason in reasons.items())


def test_the_phillips_sample_has_its_gpus_and_odd_memory() -> None:
    jobs = read(shared("samples", "sacct_xdmod_phillips.log.gz")).trace.jobs
    first = jobs.filter(pl.col("job") == "163485").to_dicts()[0]
    assert (first["gpus"], first["limit"], first["runtime"]) == (2, 37 * 86_400 + 50_400, 10 * 86_400 + 48_426)
    overflowed = jobs.filter(pl.col("job") == "167758").to_dicts()[0]
    assert overflowed["memory"] == 24_000


@pytest.mark.parametrize(
    ("parts", "jobs"),
    [
        (("philly", "philly_jobs.csv.gz"), 51_998),
        (("alibaba_openb2023", "openb_pod_list_gpuspec33.csv.gz"), 6_203),
        (("ubhpc", "workload_week.events.gz"), 19_579),
        (("swf_hpc", "CTC-SP2-1996-3.1-cln.swf.gz"), 77_222),
    ],
)
def test_public_logs_are_read_whole(parts: tuple[str, ...], jobs: int) -> None:
    reading = read(shared("data", *parts))
    assert len(reading.trace) == jobs
    assert reading.rows == jobs + sum(left.count for left in reading.dropped.values())


def test_the_formats_are_those_the_help_names() -> None:
    assert set(FORMATS) == {"parquet", "sacct", "sacct-json", "swf", "philly", "openb", "ub-hpc"}
    assert set(SCHEMA) >= {"submit", "wait", "runtime", "limit", "gpus"}
    assert SHARED.name == "shared"
