"""Slurm's history as JSON: ``sacct --json`` of 21.08 to 26.05, and slurmrestd's ``/slurmdb/.../jobs``.

Numbers changed their form with 23.02: ``1440`` became ``{"set": true, "infinite": false, "number": 1440}``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ijson

from slurm_evo.model import TraceError
from slurm_evo.slurm.tres import Gpus
from slurm_evo.trace import cells
from slurm_evo.trace.accounting import EXTRA, Record, join, keep
from slurm_evo.trace.reading import UNREADABLE, Reading, Rows, open_bytes


def read(file: Path, *, strict: bool = False) -> Reading:
    """Read the jobs of an answer, one after the other, however large it is. Times are Unix seconds.

    Args:
        file: plain or compressed.
        strict: the first bad record raises.

    Raises:
        TraceError: it is no JSON, has no list ``jobs``, or no finished job.
    """
    rows = Rows(file, strict=strict, extra=EXTRA)
    for number, data in enumerate(_records(file), 1):
        rows.looked_at += 1
        if isinstance(data, dict) and "job_state" in data:
            raise TraceError("is the live queue (squeue, slurmrestd's /slurm), not history", file=file.name)
        reader = _Reader(data)
        try:
            record = reader.record(number)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            rows.bad(number, reader.path, str(error) or "is not understood")
            continue
        keep(rows, record)
    if not rows.looked_at:
        raise TraceError("has no list of jobs, or an empty one", file=file.name, field="jobs")
    return join(rows)


def _records(file: Path) -> Iterator[Any]:
    with open_bytes(file) as raw:
        try:
            yield from ijson.items(raw, "jobs.item", use_float=True)
        except (ijson.JSONError, UnicodeDecodeError, *UNREADABLE) as error:
            reason = str(error).splitlines()[0] if str(error) else "ends early"
            raise TraceError(f"is no JSON that can be read to its end: {reason}", file=file.name) from error


class _Reader:
    """One job's record. ``path`` is what is being looked at, for messages."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self.path = "jobs"

    def _at(self, path: str) -> Any:
        self.path = path
        value = self._data
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def _number(self, path: str) -> int | None:
        """A number in either form; None where it is unset or infinite."""
        value = self._at(path)
        if isinstance(value, dict):
            value = None if value.get("infinite") or not value.get("set", True) else value.get("number")
        if value is None or isinstance(value, bool) or value == "":
            return None
        if isinstance(value, float) and not value.is_integer():
            raise ValueError(f"{value} is not whole")
        return int(value)

    def _count(self, path: str) -> int:
        value = self._number(path)
        return value if value is not None and 0 < value <= cells.MOST else 0

    def _instant(self, path: str) -> int | None:
        value = self._number(path)
        if value is not None and not 0 <= value <= cells.LATEST:
            raise ValueError(f"{value} is beyond the clock")
        return value or None

    def _text(self, path: str) -> str:
        value = self._at(path)
        return "" if value is None else str(value)

    def _state(self) -> str:
        """Flags such as REQUEUE may follow the state."""
        value = self._at("state.current")
        if isinstance(value, list):
            value = value[0] if value else ""
        return cells.state(str(value or ""))

    def _limit(self) -> int | None:
        minutes = self._number("time.limit")
        if minutes is None:
            return None
        if not 0 <= minutes * 60 <= cells.LONGEST:
            return None  # NO_VAL of old versions
        return minutes * 60

    def _tres(self, which: str) -> tuple[Gpus, dict[str, int]]:
        total, typed, others = 0, {}, {}
        for entry in self._at(f"tres.{which}") or ():
            kind, name, count = entry.get("type"), entry.get("name") or "", int(entry.get("count") or 0)
            if not 0 <= count <= cells.MOST:
                continue
            if kind == "gres" and name == "gpu":
                total = count
            elif kind == "gres" and name.startswith("gpu:"):
                typed[name.removeprefix("gpu:")] = count
            else:
                others[str(kind)] = count
        names = ",".join(name for name, count in typed.items() if count) or None
        return Gpus(max(total, sum(typed.values())), names), others

    def record(self, number: int) -> Record:
        asked, wanted = self._tres("requested")
        given, had = self._tres("allocated")
        job = self._number("job_id")
        if job is None or job < 0:
            raise ValueError("has no job id")
        array, task = self._count("array.job_id"), self._number("array.task_id")
        several = self._text("array.task") if array and task is None else ""
        leader = self._count("het.job_id")
        offset = self._number("het.job_offset")
        nodes = wanted.get("node") or had.get("node") or self._count("allocation_nodes")
        cpus = wanted.get("cpu") or had.get("cpu") or self._count("required.CPUs")
        gpus = asked if asked.count else Gpus(given.count)
        return Record(
            line=number,
            job=f"{array}_{task}" if array and task is not None else str(job),
            array=str(array) if array else None,
            het=str(leader) if leader and offset is not None else None,
            tasks=cells.tasks(f"_[{several}]") if several else 1,
            cluster=self._text("cluster") or self._text("association.cluster"),
            user=self._text("user") or self._text("association.user"),
            account=self._text("account"),
            partition=self._text("partition"),
            qos=self._text("qos"),
            name=self._text("name"),
            constraint=self._text("constraints"),
            state=self._state(),
            submit=self._instant("time.submission"),
            eligible=self._instant("time.eligible"),
            start=self._instant("time.start"),
            end=self._instant("time.end"),
            elapsed=self._number("time.elapsed"),
            limit=self._limit(),
            gpus=gpus if gpus.count else cells.gpus_of_command(self._text("submit_line"), nodes),
            nodes=nodes,
            cpus=cpus,
            memory=wanted.get("mem") or had.get("mem") or 0,
        )


__all__ = ["read"]
