"""Public logs of GPU clusters: Microsoft Philly (2017), Alibaba openb (2023), one week of UB-HPC."""

from __future__ import annotations

import argparse
import csv
import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from slurm_evo.model import TraceError
from slurm_evo.slurm.facts import seconds_of
from slurm_evo.slurm.tres import gpus_of_gres
from slurm_evo.trace import cells
from slurm_evo.trace.reading import Reading, Rows, lines

PHILLY = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
OPENB = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase"),
    *("creation_time", "deletion_time", "scheduled_time"),
)
UBHPC = "-dt "


def _table(rows: Rows, file: Path, header: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV file with exactly these columns."""
    texts = lines(file)
    head = next(texts, (0, ""))[1].lstrip("\ufeff")
    if tuple(head.split(",")) != header:
        raise TraceError(f"its columns are not {','.join(header)}", file=file.name, line=1)
    for line, text in texts:
        if not text:
            continue
        rows.looked_at += 1
        try:
            fields = next(csv.reader([text]))
        except csv.Error as error:
            rows.bad(line, "all", str(error))
            continue
        if len(fields) != len(header):
            rows.bad(line, "all", f"{len(fields)} fields, not {len(header)}")
            continue
        yield line, dict(zip(header, fields, strict=True))


def _number(row: dict[str, str], name: str, most: int) -> int:
    try:
        value = round(float(row[name] or "nan"))
    except (ValueError, OverflowError):
        raise ValueError(f"{name}\0{row[name]!r} is no number") from None
    if not 0 <= value <= most:
        raise ValueError(f"{name}\0{value} is not between 0 and {most}")
    return value


def _each(
    rows: Rows, table: Iterator[tuple[int, dict[str, str]]], add: Callable[[int, dict[str, str]], None]
) -> None:
    for line, row in table:
        try:
            add(line, row)
        except ValueError as error:
            column, _, why = str(error).partition("\0")
            rows.bad(line, column, why)


def read_philly(file: Path, *, strict: bool = False) -> Reading:
    """Philly's jobs: submission, running time, GPUs, virtual cluster. No user, no limit, no wait, no end state.

    Raises:
        TraceError: other columns, or no job.
    """
    rows = Rows(file, strict=strict)

    def add(line: int, row: dict[str, str]) -> None:
        try:
            submit = int(datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp())
        except (ValueError, OverflowError):
            raise ValueError(f"timestamp\0{row['timestamp']!r} is no time") from None
        gpus = _number(row, "num_gpus", cells.MOST)
        if not gpus:
            rows.drop("asks for no GPU", line)
            return
        rows.add(
            job=str(line - 1),
            cluster=row["cluster"],
            submit=submit,
            wait=0,
            runtime=_number(row, "duration", cells.LONGEST),
            limit=None,
            gpus=gpus,
            state="COMPLETED",
        )

    _each(rows, _table(rows, file, PHILLY), add)
    return rows.reading()


def read_openb(file: Path, *, strict: bool = False) -> Reading:
    """Openb's pods. A share of a GPU counts as one GPU; pods without GPUs or never scheduled are left out.

    Raises:
        TraceError: other columns, or no job.
    """
    rows = Rows(file, strict=strict)

    def add(line: int, row: dict[str, str]) -> None:
        gpus = _number(row, "num_gpu", cells.MOST)
        if not gpus:
            rows.drop("asks for no GPU", line)
            return
        if not row["scheduled_time"] or not row["deletion_time"]:
            rows.drop("never scheduled or never ended", line)
            return
        created = _number(row, "creation_time", cells.LONGEST)
        started = _number(row, "scheduled_time", cells.LONGEST)
        ended = _number(row, "deletion_time", cells.LONGEST)
        if not created <= started <= ended:
            raise ValueError("scheduled_time\0times are not in order")
        if 0 < _number(row, "gpu_milli", 1000) < 1000:
            rows.note("a share of a GPU, counted as one", line)
        rows.add(
            job=row["name"],
            qos=row["qos"],
            gpu_type=row["gpu_spec"],
            submit=created,
            wait=started - created,
            runtime=ended - started,
            limit=None,
            gpus=gpus,
            cpus=max(_number(row, "cpu_milli", cells.MOST) // 1000, 1),
            memory=_number(row, "memory_mib", cells.MOST),
            state="COMPLETED",
        )

    _each(rows, _table(rows, file, OPENB), add)
    return rows.reading()


class _Quiet(argparse.ArgumentParser):
    """A parser that raises instead of writing to the terminal and leaving."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _sbatch() -> argparse.ArgumentParser:
    """The options that occur in UB-HPC's events file."""
    parser = _Quiet(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("-dt", type=float, required=True)
    parser.add_argument("-e")
    parser.add_argument("-sim-walltime", dest="runs", type=float, required=True)
    for short, long in (("-u", "--uid"), ("-J", "--job-name"), ("-q", "--qos"), ("-p", "--partition")):
        parser.add_argument(short, long, default="")
    parser.add_argument("-N", "--nodes", type=int, default=0)
    parser.add_argument("-n", "--ntasks", type=int, default=1)
    parser.add_argument("-t", "--time", default="")
    parser.add_argument("-A", "--account", default="")
    parser.add_argument("--mem", default="")
    parser.add_argument("--gres", default="")
    parser.add_argument("-C", "--constraint", default="")
    parser.add_argument("--exclusive", nargs="?", const="")
    return parser


def read_ubhpc(file: Path, *, strict: bool = False) -> Reading:
    """UB-HPC's events: submissions with the user's limit, and how long each really ran. No waits.

    Raises:
        TraceError: no line is a submission.
    """
    rows = Rows(file, strict=strict)
    parser = _sbatch()
    for line, text in lines(file):
        if not text.strip():
            continue
        rows.looked_at += 1
        try:
            options, unknown = parser.parse_known_args([word for word in shlex.split(text) if word != "|"])
            nodes = max(options.nodes, 1)
            limit = seconds_of(options.time)
            memory = cells.memory(options.mem and f"{options.mem}n", nodes, options.ntasks)
            gpus = gpus_of_gres(options.gres).times(nodes)
            in_range = all(
                0 <= value <= cells.LONGEST for value in (options.dt, options.runs, options.ntasks, nodes)
            )
        except (argparse.ArgumentError, ValueError) as error:
            rows.bad(line, "all", str(error) or "is no submission")
            continue
        strange = [word for word in unknown if word.startswith("-")]
        if strange or not in_range:
            rows.bad(line, "all", f"unknown option {strange[0]}" if strange else "a number out of range")
            continue
        if options.exclusive is not None:
            rows.note("asked for whole nodes, counted by what it names", line)
        rows.add(
            job=options.job_name,
            user=options.uid,
            account=options.account,
            partition=options.partition,
            qos=options.qos,
            constraint=options.constraint,
            submit=int(options.dt),
            wait=0,
            runtime=int(options.runs),
            limit=limit,
            gpus=gpus.count,
            nodes=options.nodes,
            cpus=options.ntasks,
            memory=memory,
            state="COMPLETED",
        )
    return rows.reading()


__all__ = ["OPENB", "PHILLY", "UBHPC", "read_openb", "read_philly", "read_ubhpc"]
