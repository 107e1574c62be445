"""The Standard Workload Format of the Parallel Workloads Archive (Feitelson; version 2.2, 18 fields a line).

Processors become ``cpus``. A log of a CPU machine is simulated by its processors (see ``workload``).
"""

from __future__ import annotations

import re
from pathlib import Path

from slurm_evo.model import TraceError
from slurm_evo.trace.cells import LONGEST, MOST
from slurm_evo.trace.reading import Reading, Rows, lines

FIELDS = (
    *("job", "submit", "wait", "run", "processors", "cpu time", "memory", "requested processors"),
    *("requested time", "requested memory", "status", "user", "group", "executable", "queue", "partition"),
    *("preceding job", "think time"),
)
STATES = {0: "FAILED", 1: "COMPLETED", 5: "CANCELLED"}
_START = re.compile(r"^;\s*UnixStartTime:\s*(\d+)")


def read(file: Path, *, strict: bool = False) -> Reading:
    """Read a log; plain or compressed.

    Raises:
        TraceError: no line is a job.
    """
    rows = Rows(file, strict=strict)
    origin = 0
    for line, text in lines(file):
        if not text.strip():
            continue
        if text.startswith(";"):
            started = _START.match(text)
            origin = int(started[1]) if started else origin
            continue
        rows.looked_at += 1
        fields = text.split()
        if len(fields) != len(FIELDS):
            rows.bad(line, "all", f"{len(fields)} fields, not {len(FIELDS)}")
            continue
        _read_row(rows, line, fields, origin)
    return rows.reading()


def _read_row(rows: Rows, line: int, fields: list[str], origin: int) -> None:
    values: list[int] = []
    for name, text in zip(FIELDS, fields, strict=True):
        try:
            values.append(int(float(text)))
        except (ValueError, OverflowError):
            rows.bad(line, name, f"{text!r} is no number")
            return
    _, submit, wait, run, processors, _, used, asked, limit, requested, *_ = values
    kib = requested if requested > 0 else used
    state = values[10]
    if state in (2, 3, 4):
        # Partial executions repeat what the summary line of the whole job says.
        rows.drop("part of a job that was checkpointed", line)
        return
    if submit < 0:
        rows.bad(line, "submit", "is negative: clocks went backwards" if submit < -1 else "is unknown")
        return
    size = asked if asked > 0 else processors
    if size <= 0:
        rows.drop("asks for no processor", line)
        return
    if max(submit, run, limit, wait) > LONGEST or size > MOST:
        rows.bad(line, "all", "a number beyond every machine and clock")
        return
    if run < 0 and state != 5:
        rows.drop("running time unknown", line)
        return
    started = run >= 0 and not (state == 5 and run == 0)
    rows.add(
        job=fields[0],
        user=_name("user", values[11]),
        account=_name("group", values[12]),
        name=_name("app", values[13]),
        qos=_name("queue", values[14]),
        partition=_name("partition", values[15]),
        submit=origin + submit,
        wait=max(wait, 0),
        runtime=run if started else None,
        limit=limit if limit > 0 else None,
        cpus=size,
        memory=min(kib // 1024 * size, MOST) if kib > 0 else 0,
        state=STATES.get(state, "COMPLETED"),
    )


def _name(kind: str, number: int) -> str:
    return f"{kind}{number}" if number >= 0 else ""


def processors(file: Path) -> int:
    """MaxProcs of the header, or of MaxNodes.

    Raises:
        TraceError: it says neither.
    """
    said = {}
    for _, text in lines(file):
        if not text.startswith(";"):
            break
        match = re.match(r"^;\s*(MaxProcs|MaxNodes):\s*(\d+)", text)
        if match:
            said[match[1]] = int(match[2])
    for key in ("MaxProcs", "MaxNodes"):
        if said.get(key):
            return said[key]
    raise TraceError("its header does not say how many processors there are; give a fleet", file=file.name)


__all__ = ["processors", "read"]
