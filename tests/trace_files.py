"""Histories written for stories, and where the recorded ones are."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"
COLUMNS = (
    *("JobID", "Cluster", "User", "Account", "Partition", "QOS", "JobName", "State", "Submit", "Eligible"),
    *("Start", "End", "Elapsed", "Timelimit", "NNodes", "NCPUS", "ReqTRES", "AllocTRES", "SubmitLine"),
)
ROW = {
    "JobID": "100",
    "Cluster": "alpha",
    "User": "ada",
    "Account": "physics",
    "Partition": "gpu",
    "QOS": "normal",
    "JobName": "train",
    "State": "COMPLETED",
    "Submit": "2026-03-01T10:00:00",
    "Eligible": "2026-03-01T10:00:00",
    "Start": "2026-03-01T10:05:00",
    "End": "2026-03-01T11:05:00",
    "Elapsed": "01:00:00",
    "Timelimit": "02:00:00",
    "NNodes": "1",
    "NCPUS": "8",
    "ReqTRES": "billing=8,cpu=8,gres/gpu=4,mem=64G,node=1",
    "AllocTRES": "billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1",
    "SubmitLine": "sbatch job.sh",
}
"""A finished job: waited 5 minutes, ran an hour on 4 GPUs."""


def row(**changes: str) -> dict[str, str]:
    """``ROW`` with other values."""
    return {**ROW, **changes}


def sacct_text(file: Path, rows: Iterable[dict[str, str]], columns: Iterable[str] = COLUMNS) -> Path:
    """Write what ``sacct -P`` would print."""
    names = list(columns)
    lines = ["|".join(names), *("|".join(each[name] for name in names) for each in rows)]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def number(value: int | None) -> dict[str, Any]:
    """A number as data parsers write it since 23.02."""
    return {"set": value is not None, "infinite": False, "number": value or 0}


def record(**changes: Any) -> dict[str, Any]:
    """A finished job as ``sacct --json`` of 24.05 gives it."""
    tres = [{"type": "cpu", "name": "", "count": 8}, {"type": "gres", "name": "gpu", "count": 4}]
    tres += [{"type": "gres", "name": "gpu:a100", "count": 4}, {"type": "node", "name": "", "count": 1}]
    start = 1_772_359_500
    return {
        "job_id": 100,
        "cluster": "alpha",
        "user": "ada",
        "account": "physics",
        "partition": "gpu",
        "qos": "normal",
        "name": "train",
        "constraints": "",
        "array": {"job_id": 0, "task_id": number(None), "task": ""},
        "het": {"job_id": 0, "job_offset": number(None)},
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "time": {
            "submission": start - 300,
            "eligible": start - 300,
            "start": start,
            "end": start + 3600,
            "elapsed": 3600,
            "limit": number(120),
        },
        "tres": {"requested": tres, "allocated": tres},
        "submit_line": "sbatch job.sh",
        **changes,
    }


def sacct_json(file: Path, *records: Any) -> Path:
    """Write what ``sacct --json`` would print."""
    file.write_text(json.dumps({"meta": {}, "jobs": list(records), "errors": []}), "utf-8")
    return file


def shared(*parts: str) -> Path:
    """A recorded file; the test is skipped, and says so, where recordings are not at hand."""
    file = SHARED.joinpath(*parts)
    if not file.exists():
        pytest.skip(f"needs ../shared/{'/'.join(parts)}, which is not here")
    return file
