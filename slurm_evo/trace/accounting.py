"""From Slurm's accounting records to jobs: what counts as finished, and rows that belong together."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from slurm_evo.slurm.tres import Gpus
from slurm_evo.trace.reading import Reading, Rows
from slurm_evo.trace.table import KEPT_STATES, SCHEMA

NOT_OVER = frozenset(("PENDING", "RUNNING", "SUSPENDED", "RESIZING", "COMPLETING", "CONFIGURING", "SIGNALING"))
REVOKED = "REVOKED"
MOST_TASKS = 100_000
"""Array tasks in one row; a damaged row must not fill the memory. Slurm's MaxArraySize is 1,001 by default."""
EXTRA: dict[str, type[pl.DataType]] = {"het": pl.String, "row": pl.Int64}
"""Columns needed only while rows are joined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One accounting record, read but not judged. Times are Unix seconds, durations seconds."""

    line: int
    """Line of the file, or number of the record."""
    job: str
    array: str | None
    het: str | None
    """The leader of a heterogeneous job."""
    tasks: int
    """Array tasks this record stands for."""
    cluster: str
    user: str
    account: str
    partition: str
    qos: str
    name: str
    constraint: str
    state: str
    submit: int | None
    eligible: int | None
    start: int | None
    end: int | None
    elapsed: int | None
    limit: int | None
    gpus: Gpus
    nodes: int
    cpus: int
    memory: int


def keep(rows: Rows, record: Record) -> None:
    """Judge one record; it becomes a row, or is counted with its reason.

    Raises:
        TraceError: in strict reading, where its times contradict each other.
    """
    line = record.line
    if record.state in NOT_OVER:
        rows.drop("not over yet", line, record.state)
        return
    if record.state != REVOKED and record.state not in KEPT_STATES:
        rows.bad(line, "State", f"{record.state!r} is none of Slurm's states")
        return
    if record.submit is None:
        rows.bad(line, "Submit", "has no time")
        return
    submit = record.submit
    if record.eligible is not None and record.eligible > submit:
        rows.note("counts from its eligible time, later than its submission", line)
        submit = record.eligible
    times = _times(rows, record, submit)
    if times is None:
        return
    wait, runtime = times
    if record.tasks > MOST_TASKS:
        rows.bad(line, "JobID", f"stands for {record.tasks} array tasks, more than {MOST_TASKS}")
        return
    if record.tasks > 1:
        rows.note("stands for several array tasks", line, record.job)
    for task in range(record.tasks):
        rows.add(
            job=record.job if record.tasks == 1 else f"{record.job}#{task}",
            cluster=record.cluster,
            user=record.user,
            account=record.account,
            partition=record.partition,
            qos=record.qos,
            name=record.name,
            gpu_type=(record.gpus.type or "").replace(",", "|"),
            constraint=record.constraint,
            submit=submit,
            wait=wait,
            runtime=runtime,
            limit=record.limit,
            gpus=record.gpus.count,
            nodes=record.nodes,
            cpus=record.cpus,
            memory=record.memory,
            state=record.state,
            array=record.array,
            het=record.het,
            row=line,
        )


def _times(rows: Rows, record: Record, submit: int) -> tuple[int, int | None] | None:
    """Wait and running time; None if the record was dropped."""
    start, end = record.start, record.end
    if record.state == REVOKED:
        return max((end or submit) - submit, 0), None
    if start is None or (record.state == "CANCELLED" and record.elapsed == 0 and start == end):
        # Cancelled while it waited: Slurm writes Start as None, or as the end.
        if end is None:
            rows.drop("neither started nor ended", record.line, record.state)
            return None
        start, runtime = end, None
    elif end is None:
        if record.elapsed is None:
            rows.drop("has no end", record.line, record.state)
            return None
        runtime = record.elapsed
    else:
        if end < start:
            rows.bad(record.line, "End", f"is {start - end} s before the start")
            return None
        runtime = end - start if record.elapsed is None else min(record.elapsed, end - start)
    if start < submit:
        # Eligible may be rewritten by a hold in the middle; the submission is what cannot be later.
        if record.submit is not None and start >= record.submit:
            return 0, runtime
        rows.bad(record.line, "Start", f"is {submit - start} s before the submission")
        return None
    return start - submit, runtime


def join(rows: Rows) -> Reading:
    """Put together what is one job: rows twice, siblings of a federation, parts of a heterogeneous job.

    Raises:
        TraceError: no job is left.
    """
    table = rows.table()
    # sacct -M of clusters that share a database, or overlapping exports, give rows twice.
    unique = table.unique(["cluster", "job", "submit", "state"], keep="last", maintain_order=True)
    _count(rows, table.join(unique, on="row", how="anti"), "same row twice", dropped=True)
    ran = unique.filter(pl.col("state") != REVOKED)
    revoked = unique.filter(pl.col("state") == REVOKED)
    siblings = revoked.join(ran, on="job", how="semi")
    _count(rows, siblings, "sibling of a federated job that ran elsewhere", dropped=True)
    _count(
        rows, revoked.join(ran, on="job", how="anti"), "ran on a cluster that is not in this history", dropped=True
    )
    return rows.reading(_whole_jobs(rows, ran).select(list(SCHEMA)))


def _whole_jobs(rows: Rows, table: pl.DataFrame) -> pl.DataFrame:
    """Components of a heterogeneous job as one job that asks for all they ask."""
    parts = table.filter(pl.col("het").is_not_null())
    if not len(parts):
        return table
    _count(rows, parts, "component of a heterogeneous job, joined with the others", dropped=False)
    sums = {name: pl.col(name).sum() for name in ("gpus", "nodes", "cpus", "memory")}
    longest = {name: pl.col(name).max() for name in ("runtime", "limit", "wait")}
    others = {name: pl.col(name).first() for name in table.columns if name not in (*sums, *longest)}
    keys = ["cluster", "het", "submit"]
    whole = parts.group_by(keys, maintain_order=True).agg(
        **sums, **longest, **{name: expression for name, expression in others.items() if name not in keys}
    )
    return pl.concat([table.filter(pl.col("het").is_null()), whole.select(table.columns)]).sort("row")


def _count(rows: Rows, table: pl.DataFrame, reason: str, *, dropped: bool) -> None:
    for line, job in table.select("row", "job").iter_rows():
        (rows.drop if dropped else rows.note)(reason, line, job)


__all__ = ["EXTRA", "Record", "join", "keep"]
