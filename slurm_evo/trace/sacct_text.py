"""Slurm's history as ``sacct -P`` prints it, with any columns (sacct(1), --parsable2, --format)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, tzinfo
from pathlib import Path

from slurm_evo.model import TraceError
from slurm_evo.slurm.tres import Gpus
from slurm_evo.trace import cells
from slurm_evo.trace.accounting import EXTRA, Record, join, keep
from slurm_evo.trace.reading import Reading, Rows, lines

FREE_TEXT = (
    "jobname",
    "comment",
    "admincomment",
    "systemcomment",
    "workdir",
    "submitline",
    "wckey",
    "reservation",
)
"""Columns in which users may write the separator, which sacct does not escape."""
XDMOD = (
    *("jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user", "uid"),
    *("submit", "eligible", "start", "end", "elapsed", "exitcode", "state", "nnodes", "ncpus", "reqcpus"),
    *("reqmem", "reqtres", "alloctres", "timelimit", "nodelist", "jobname"),
)
"""The columns of Open XDMoD's export, which has no header (its slurm helper's --format)."""
ASK = "sacct -a -X -P -o JobID,Cluster,User,Account,Partition,QOS,JobName,State,Submit,Eligible,Start,End,Elapsed,\
Timelimit,NNodes,NCPUS,ReqTRES,AllocTRES,SubmitLine"
"""What to ask sacct for."""


def looks_like_it(first_line: str) -> bool:
    """Whether a first line is sacct's: a header that names JobID, or Open XDMoD's 26 columns."""
    names = {name.strip().lower() for name in re.split(r"[|\x1f,;\t]", first_line)}
    if {"jobid", "jobidraw"} & names:
        return True
    return first_line.count("|") == len(XDMOD) - 1 and first_line[:1].isdigit()


def read(file: Path, *, zone: tzinfo = UTC, columns: Sequence[str] | None = None, strict: bool = False) -> Reading:
    """Read the text of sacct. Steps are left out, rows that are one job are joined; all is accounted for.

    Args:
        file: plain or compressed; read as a stream.
        zone: of its times, unless they are Unix seconds or carry an offset.
        columns: names of the columns if the file has no header.
        strict: the first bad row raises.

    Raises:
        TraceError: no header, a column missing without which nothing can be said, or no finished job.
    """
    rows = Rows(file, strict=strict, extra=EXTRA)
    source = lines(file)
    try:
        number, head = next(source)
    except StopIteration:
        raise TraceError("is empty", file=file.name) from None
    separator, names = _header(file, head, columns)
    row = _RowReader(rows, names, zone)
    if columns is not None or names is XDMOD:
        row.read(number, head.split(separator), separator)
    for number, line in source:
        if line:
            row.read(number, line.split(separator), separator)
    return join(rows)


def _header(file: Path, head: str, columns: Sequence[str] | None) -> tuple[str, Sequence[str]]:
    if columns is not None:
        names: Sequence[str] = [name.strip().lower() for name in columns]
        separator = max("|\x1f,;\t", key=head.count)
    elif head.count("|") == len(XDMOD) - 1 and head[:1].isdigit():
        names, separator = XDMOD, "|"
    else:
        separator = max("|\x1f,;\t", key=head.count)
        # sacct -p ends each line with the separator, and --format takes widths such as JobName%40.
        names = [name.strip().lower().partition("%")[0] for name in head.split(separator)]
    if not {"jobid", "jobidraw"} & set(names):
        raise TraceError(
            f"has no header that names JobID; give its columns, or export with: {ASK}", file=file.name
        )
    for needed in ("submit", "state", "start"):
        if needed not in names:
            raise TraceError(
                f"has no such column, and nothing can be learned without it; export with: {ASK}",
                file=file.name,
                field=needed.capitalize(),
            )
    if "end" not in names and not {"elapsed", "elapsedraw"} & set(names):
        raise TraceError(f"has neither End nor Elapsed; export with: {ASK}", file=file.name, field="End")
    return separator, names


class _RowReader:
    """Turns the fields of a line into a record. Remembers where each column is, and which it looks at."""

    def __init__(self, rows: Rows, names: Sequence[str], zone: tzinfo) -> None:
        self._rows = rows
        self._zone = zone
        self._width = len(names)
        self._at = {name: place for place, name in reversed(list(enumerate(names))) if name}
        free = [place for place, name in enumerate(names) if name in FREE_TEXT]
        self._free = free[0] if len(free) == 1 else None
        self._id = self._at.get("jobid", self._at.get("jobidraw", 0))
        self._places: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        self._fields: list[str] = []
        self._column = ""

    def read(self, line: int, fields: list[str], separator: str) -> None:
        rows = self._rows
        rows.looked_at += 1
        surplus = len(fields) - self._width
        if surplus > 0 and self._free is not None:
            stop = self._free + surplus + 1
            fields = [*fields[: self._free], separator.join(fields[self._free : stop]), *fields[stop:]]
        elif surplus:
            rows.bad(line, "all", f"{len(fields)} fields where the header has {self._width}")
            return
        if "." in fields[self._id]:
            rows.drop("step of a job", line)
            return
        self._fields = fields
        try:
            record = self._record(line)
        except ValueError as error:
            rows.bad(line, self._column, str(error))
            return
        keep(rows, record)

    def _text(self, *names: str) -> str:
        """The first of these columns that is there and says something."""
        places = self._places.get(names)
        if places is None:
            places = self._places[names] = [(self._at[name], name) for name in names if name in self._at]
        found = ""
        for place, name in places:
            self._column = name
            found = self._fields[place].strip()
            if found not in cells.NOTHING:
                break
        return found

    def _record(self, line: int) -> Record:
        job, array, het, several = cells.job_id(self._text("jobid", "jobidraw"))
        asked, asked_cpus, asked_nodes, asked_memory = cells.tres(self._text("reqtres"))
        given, given_cpus, given_nodes, given_memory = cells.tres(self._text("alloctres"))
        nodes = asked_nodes or given_nodes or cells.whole(self._text("reqnodes", "nnodes", "allocnodes"))
        cpus = asked_cpus or given_cpus or cells.whole(self._text("reqcpus", "ncpus", "alloccpus"))
        elapsed = self._text("elapsedraw")
        limit = self._text("timelimitraw")
        return Record(
            line=line,
            job=job,
            array=array,
            het=het,
            tasks=cells.tasks(job) if several else 1,
            cluster=self._text("cluster"),
            user=self._text("user"),
            account=self._text("account"),
            partition=self._text("partition"),
            qos=self._text("qos", "qosreq"),
            name=self._text("jobname"),
            constraint=self._text("constraints"),
            state=cells.state(self._text("state")),
            submit=cells.instant(self._text("submit"), self._zone),
            eligible=cells.instant(self._text("eligible"), self._zone),
            start=cells.instant(self._text("start"), self._zone),
            end=cells.instant(self._text("end"), self._zone),
            elapsed=int(elapsed) if elapsed.isdigit() else cells.duration(self._text("elapsed")),
            limit=cells.minutes(limit) if limit else cells.duration(self._text("timelimit")),
            gpus=self._gpus(asked, given, nodes),
            nodes=nodes,
            cpus=cpus,
            memory=asked_memory or given_memory or cells.memory(self._text("reqmem"), nodes, cpus),
        )

    def _gpus(self, asked: Gpus | None, given: Gpus | None, nodes: int) -> Gpus:
        """What was asked for, else what was given, else what the command line says."""
        for tracked in (asked, given):
            if tracked is not None and tracked.count:
                # Only a type that was asked for binds the job; one that was given is where it happened to run.
                return tracked if tracked is asked else Gpus(tracked.count)
        by_node = cells.gres(self._text("reqgres", "reqtresgres"), nodes)
        return by_node if by_node.count else cells.gpus_of_command(self._text("submitline"), nodes)


__all__ = ["ASK", "looks_like_it", "read"]
