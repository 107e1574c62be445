"""What is read of a job that is to be moved, and what makes a move refuse it."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any

import pytest

from slurm_evo.model import ClusterName, JobKey
from slurm_evo.slurm.transfer import ClusterTables, JobImage, Known, NotMovable, translate
from slurm_evo.slurm.transfer.fields import description, with_unshown
from slurm_evo.slurm.transfer.image import COPY, FROM, MOVING, mark_of, marked, unmarked
from slurm_evo.slurm.transfer.options import unshown
from slurm_evo.slurm.transfer.shown import image_of
from slurm_evo.slurm.transfer.state_directory import StateUnreadable, main, read

DELTA, GAMMA = ClusterName("delta"), ClusterName("gamma")
SCRIPT = "#!/bin/bash\nsleep 1\n"


def number(value: int, *, known: bool = True) -> dict[str, Any]:
    """A number as scontrol --json writes it."""
    return {"set": known, "infinite": False, "number": value}


def record(**changes: Any) -> dict[str, Any]:
    """A waiting job as scontrol --json shows it."""
    plain = {
        "job_id": 3000002, "job_state": ["PENDING"], "batch_flag": True, "user_name": "ada", "user_id": 1000,
        "group_id": 1000, "account": "physics", "partition": "gpu", "qos": "normal", "name": "job", "nice": 0,
        "flags": ["USING_DEFAULT_ACCOUNT", "USING_DEFAULT_PARTITION", "USING_DEFAULT_QOS", "PARTITION_ASSIGNED"],
        "command": "/home/ada/job.sh", "current_working_directory": "/home/ada", "requeue": True,
        "standard_output": "/home/ada/slurm-%j.out", "standard_input": "/dev/null", "cpus": number(1),
        "tasks": number(1), "time_limit": number(60), "memory_per_cpu": number(2000), "max_nodes": number(1),
        "tasks_per_core": {"set": False, "infinite": True, "number": 0}, "thread_spec": 32766,
        "stdout_expanded": "/home/ada/slurm-3000002.out",
        "array_job_id": number(0), "het_job_id": number(0), "mail_user": "ada", "mail_type": [],
    }  # fmt: skip
    return {**plain, **changes}


def state(environment: list[str], *lists: list[str], script: str = SCRIPT) -> dict[str, Any]:
    """What the state directory tells."""

    def coded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    return {
        "script": coded(script),
        "environment": [coded(one) for one in environment],
        "arguments": [[coded(word) for word in words] for words in lists],
    }


def image(submit_line: str = "sbatch job.sh", *lists: list[str], **changes: Any) -> JobImage:
    """The image of a job with these arguments."""
    told = state(["A=1\n2", "B="], *(lists or (["/home/ada/job.sh"],)))
    return image_of(JobKey(DELTA, 3000002), record(**changes), submit_line, told, "")


def test_only_what_was_asked_for_is_asked_for_again() -> None:
    fields = image().fields
    assert fields == {
        "name": "job",
        "current_working_directory": "/home/ada",
        "standard_output": "/home/ada/slurm-%j.out",
        "standard_input": "/dev/null",
        "time_limit": number(60),
        "nice": 0,
        "requeue": True,
    }


def test_defaults_of_the_cluster_are_left_to_the_next_one_and_wishes_are_not() -> None:
    flags = ["USING_DEFAULT_ACCOUNT", "EXACT_MEMORY_REQUESTED", "EXACT_TASK_COUNT_REQUESTED"]
    fields = description(record(flags=flags))
    assert "account" not in fields
    assert (fields["partition"], fields["qos"], fields["tasks"]) == ("gpu", "normal", 1)
    assert fields["memory_per_cpu"] == number(2000)
    assert fields["flags"] == ["EXACT_MEMORY_REQUESTED", "EXACT_TASK_COUNT_REQUESTED"]


def test_the_environment_and_the_arguments_are_exact() -> None:
    words = ["/home/ada/job.sh", "two words", "", "-O", "--no-kill"]
    found = image("sbatch -N2 job.sh two words  -O --no-kill", words)
    assert found.environment == ("A=1\n2", "B=")
    assert found.argv == tuple(words)
    assert found.fields["maximum_nodes"] == 1


def test_arguments_that_fit_two_ways_are_refused() -> None:
    one, other = ["/home/ada/job.sh", "a b"], ["/home/ada/job.sh", "a", "b"]
    with pytest.raises(NotMovable, match="cannot be told exactly"):
        image("sbatch job.sh a b", one, other)
    assert image("sbatch job.sh a b", one, ["/home/ada/job.sh", "c"]).argv == tuple(one)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dependency": "afterok:1"}, "depends on another"),
        ({"array_job_id": number(7)}, "job array"),
        ({"het_job_id": number(7)}, "heterogeneous"),
        ({"resv_name": "r"}, "reservation"),
        ({"flags": ["SOMETHING_NEW"]}, "SOMETHING_NEW"),
        ({"batch_flag": False}, "interactive"),
        ({"cpu_frequency_maximum": number(100)}, "CPU frequency"),
        ({"required_nodes": "delta1"}, "named the nodes"),
    ],
)
def test_what_cannot_be_carried_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(NotMovable, match=why):
        image(**changes)


@pytest.mark.parametrize(
    ("line", "script", "environment", "why"),
    [
        ("sbatch -m cyclic job.sh", SCRIPT, [], "--distribution"),
        ("sbatch -Hk job.sh", SCRIPT, [], "--no-kill"),
        ("sbatch -M delta job.sh", SCRIPT, [], "chose the cluster"),
        ("sbatch job.sh", SCRIPT, ["SLURM_CLUSTERS=delta"], "chose the cluster"),
        ("sbatch --spank-thing=1 job.sh", SCRIPT, [], "--spank-thing"),
        ("sbatch job.sh", "#!/bin/sh\n#SBATCH --overcommit\n", [], "--overcommit"),
        ("sbatch job.sh", "#!/bin/sh\n\n# text\n#SBATCH -O # why\n", [], "--overcommit"),
        ("sbatch job.sh", "#!/bin/sh\n#PBS -N x\n", [], "another batch system"),
        ("sbatch job.sh", "#!/bin/sh\n#SBATCH --comment='x\n", [], "not understood"),
        ("sbatch job.sh", SCRIPT, ["SBATCH_WAIT=1"], "SBATCH_WAIT"),
        ("sbatch --gres-flags=one-task-per-sharing job.sh", SCRIPT, [], "one-task-per-sharing"),
    ],
)
def test_options_that_no_record_shows_are_refused(
    line: str, script: str, environment: list[str], why: str
) -> None:
    with pytest.raises(NotMovable, match=why):
        unshown(line, script, environment)


def test_options_behind_the_first_command_are_text() -> None:
    assert unshown("sbatch job.sh", "#!/bin/sh\necho\n#SBATCH --overcommit\n", ["SBATCH_GRES=gpu:1"]) == {}


def test_signal_and_open_mode_are_read_where_they_were_written() -> None:
    script = "#!/bin/sh\n#SBATCH --signal=TERM --open-mode=truncate\n"
    found = unshown("sbatch --signal B:USR1@30 x.sh", script, [])
    wished = with_unshown({}, found)
    assert wished["kill_warning_signal"] == "USR1"
    assert wished["kill_warning_delay"] == number(30)
    assert wished["kill_warning_flags"] == ["BATCH_JOB"]
    assert wished["open_mode"] == ["TRUNCATE"]


def test_a_job_whose_tasks_slurm_has_changed_is_left_where_it_is() -> None:
    found = unshown("sbatch --gpus-per-task=1 -n2 --gres=gpu:1 x.sh", SCRIPT, [])
    assert with_unshown({"tasks": 2}, found)["tasks"] == 2
    with pytest.raises(NotMovable, match="asked for 2 tasks, and Slurm shows 1"):
        with_unshown({"tasks": 1}, found)


OLDER: dict[str, Any] = {"standard_output": "/home/ada/slurm-3000002.out", "standard_input": "/dev/null"}
"""As 24.11 shows it."""


@pytest.mark.parametrize(
    ("line", "shown", "written"),
    [
        ("sbatch job.sh", {}, ("slurm-%j.out", None)),
        ("sbatch -o out-%5j-%x-%u job.sh", {"standard_output": "/home/ada/out-3000002-job-ada"},
         ("/home/ada/out-%5j-%x-%u", None)),
        ("sbatch --output=/tmp/a%%b-%N job.sh", {"standard_output": "/tmp/a%b-%N"}, ("/tmp/a%%b-%N", None)),
        ("sbatch --error e.%10j job.sh", {"standard_error": "/home/ada/e.0003000002"},
         ("slurm-%j.out", "/home/ada/e.%10j")),
    ],
)  # fmt: skip
def test_older_slurm_fills_in_the_number_and_the_path_is_taken_from_where_it_was_written(
    line: str, shown: dict[str, Any], written: tuple[str, str | None]
) -> None:
    older = OLDER | shown
    changes = {"standard_error": older["standard_output"], **older}
    fields = _of_older(line, changes).fields
    assert (fields["standard_output"], fields.get("standard_error")) == written
    assert fields["standard_input"] == "/dev/null"


@pytest.mark.parametrize("output", ["/home/ada/a name 3000002", "/home/ada/slurm-3000003.out"])
def test_a_path_that_is_found_nowhere_is_refused(output: str) -> None:
    with pytest.raises(NotMovable, match="--output"):
        _of_older("sbatch -o a job.sh", OLDER | {"standard_output": output})


def _of_older(line: str, changes: dict[str, Any]) -> JobImage:
    shown = record(**changes)
    del shown["stdout_expanded"]
    return image_of(JobKey(DELTA, 3000002), shown, line, state([], ["/home/ada/job.sh"]), "")


@pytest.mark.parametrize("line", ["", "/opt/bin/sbatch.py job.sh", "sbatcher job.sh"])
def test_a_job_not_submitted_with_sbatch_is_refused(line: str) -> None:
    with pytest.raises(NotMovable, match="not submitted with sbatch"):
        image(line)


def test_sbatch_may_be_called_by_its_path() -> None:
    assert image("/opt/slurm-24.11/bin/sbatch job.sh") == image("sbatch job.sh")


def test_accounting_alone_serves_simple_jobs_only() -> None:
    key, line = JobKey(DELTA, 3000002), "sbatch job.sh"
    found = image_of(key, record(), line, None, "A=1\nB=x y\n\0" + SCRIPT)
    assert (found.environment, found.argv, found.script) == (("A=1", "B=x y"), ("/home/ada/job.sh",), SCRIPT)
    for accounted, submitted, why in (
        ("A=1\n two\n\0" + SCRIPT, line, "line break"),
        ("\0" + SCRIPT, line, "no environment"),
        ("A=1\n\0" + SCRIPT, "sbatch job.sh a", "cannot be told exactly"),
    ):
        with pytest.raises(NotMovable, match=why):
            image_of(key, record(), submitted, None, accounted)


def test_the_tables_put_a_job_into_other_words() -> None:
    flags: list[str] = []
    job = image(
        flags=flags, tres_per_node="gres/gpu:a100:2", tres_per_job="gres/gpu:3", features="big", licenses="m:2,n"
    )
    tables = ClusterTables(
        partitions={"gpu": "wrong", "delta:gpu": "main"},
        gpu_types={"a100": "a100-80"},
        licenses={"m": "mm", "n": "n"},
        features={"big": "large"},
        paths={"/home": "/nfs/home"},
    )
    known = Known(qos=frozenset(("normal",)), accounts=frozenset((("ada", "physics"),)))
    found = translate(job, GAMMA, tables, known).fields
    assert (found["partition"], found["qos"], found["account"]) == ("main", "normal", "physics")
    assert (found["tres_per_node"], found["tres_per_job"]) == ("gres/gpu:a100-80:2", "gres/gpu:3")
    assert (found["licenses"], found["constraints"]) == ("mm:2,n", "large")
    assert found["current_working_directory"] == "/nfs/home/ada"
    assert found["standard_output"] == "/nfs/home/ada/slurm-%j.out"


def test_unknown_words_are_refused_each_with_its_reason() -> None:
    job = image(flags=[], tres_per_node="gres/gpu:a100:2", features="big", licenses="m")
    with pytest.raises(NotMovable) as refusal:
        translate(job, GAMMA, ClusterTables(paths={"/homes": "/homes"}), Known(accounts=frozenset()))
    assert refusal.value.reasons == (
        "user ada has no association at gamma",
        "the partition gpu is not known at gamma",
        "the QOS normal is not known at gamma",
        "the account physics is not known at gamma",
        "the licence m is not known at gamma",
        "the feature big is not known at gamma",
        "the GPU type a100 is not known at gamma",
        "gamma is not known to see /home/ada",
        "gamma is not known to see /home/ada/slurm-%j.out",
    )


def test_marks_leave_the_rest_of_a_comment_alone() -> None:
    noted = marked("by admin", MOVING, "gamma", "a1")
    assert noted == "by admin slurm-evo:moving-to=gamma slurm-evo:move=a1"
    assert marked(noted, FROM, "delta:1", "b2") == "by admin slurm-evo:from=delta:1 slurm-evo:move=b2"
    assert unmarked(noted) == "by admin"
    assert (mark_of(noted, MOVING), mark_of(noted, COPY)) == ("gamma", None)


def packed(*words: str) -> bytes:
    """As slurmctld packs an array of texts."""
    raw = struct.pack(">I", len(words))
    for word in words:
        text = word.encode() + b"\0"
        raw += struct.pack(">I", len(text)) + text
    return raw


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A StateSaveLocation with two jobs of one script."""
    place = tmp_path / "hash.2" / "job.3000002"
    place.mkdir(parents=True)
    (place / "script").write_bytes(SCRIPT.encode() + b"\0")
    (place / "environment").write_bytes(struct.pack("=I", 2) + b"A=x\ny=1\0B=\0")
    saved = (
        b"\0\1junk" + packed("/home/ada/job.sh", "a b", "") + b"junk" + packed("/home/ada/job.sh") + b"/home/ada"
    )
    (tmp_path / "job_state").write_bytes(saved)
    return tmp_path


def test_the_state_directory_is_read_exactly(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = read(folder, 3000002, "/home/ada/job.sh")

    def plain(text: str) -> str:
        return base64.b64decode(text).decode()

    assert plain(told["script"]) == SCRIPT
    assert [plain(one) for one in told["environment"]] == ["A=x\ny=1", "B="]
    assert [[plain(word) for word in words] for words in told["arguments"]] == [
        ["/home/ada/job.sh", "a b", ""],
        ["/home/ada/job.sh"],
    ]
    assert main([str(folder), "3000002", "/home/ada/job.sh"]) == 0
    assert '"arguments"' in capsys.readouterr().out
    assert main([str(folder), "7"]) == 1
    assert main(["x"]) == 2


def test_a_state_directory_that_is_not_understood_is_refused(folder: Path) -> None:
    file = folder / "hash.2" / "job.3000002" / "environment"
    for raw in (b"", struct.pack("=I", 3) + b"A=1\0", struct.pack("=I", 1) + b"A=1\0B=2\0"):
        file.write_bytes(raw)
        with pytest.raises(StateUnreadable):
            read(folder, 3000002, "")
