"""A Trace: finished jobs in the order of their submission, as one table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from slurm_evo.model import TraceError

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "job": pl.String,
    "cluster": pl.String,
    "user": pl.String,
    "account": pl.String,
    "partition": pl.String,
    "qos": pl.String,
    "name": pl.String,
    "gpu_type": pl.String,
    "constraint": pl.String,
    "submit": pl.Int64,
    "wait": pl.Int64,
    "runtime": pl.Int64,
    "limit": pl.Int64,
    "gpus": pl.Int64,
    "nodes": pl.Int64,
    "cpus": pl.Int64,
    "memory": pl.Int64,
    "state": pl.String,
    "array": pl.String,
}
"""Column and type.

``submit`` is in Unix seconds: when the job could first run, so its eligible time where that is later than its
submission. ``wait`` runs from there to the start, or to the end of a job that never started. ``runtime``
(null: never started) and ``limit`` (null: unknown or none) are seconds, ``memory`` MiB of all nodes together,
``gpus`` and ``cpus`` of all nodes together; 0 is unknown or none. ``gpu_type`` and ``constraint`` name what the
job asked for, alternatives joined by ``|``; text columns are empty where the source has nothing. ``array`` is
null for a job that is no array task.
"""

KEPT_STATES = frozenset(
    (
        *("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
        *("DEADLINE", "BOOT_FAIL", "REQUEUED"),
    )
)
"""How a job of a trace may have ended, in Slurm's words (sacct(1), JOB STATE CODES)."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Finished jobs, sorted by ``submit``; columns and units as ``SCHEMA`` says.

    The clock's origin is the first submission.
    """

    jobs: pl.DataFrame
    name: str
    """Where it came from, for titles and reports."""

    def __post_init__(self) -> None:
        """Refuse a table of another shape.

        Raises:
            TraceError: a column is missing or of another type, or rows are not sorted.
        """
        for column, kind in SCHEMA.items():
            if self.jobs.schema.get(column) != kind:
                found = self.jobs.schema.get(column, "none")
                raise TraceError(f"needs a column of {kind}, has {found}", file=self.name, field=column)
        if not self.jobs["submit"].is_sorted():
            raise TraceError("rows must be sorted by submit time", file=self.name, field="submit")

    def __len__(self) -> int:
        """The number of jobs."""
        return len(self.jobs)

    @property
    def origin(self) -> int:
        """Unix seconds of the first submission; 0 for an empty trace."""
        return int(self.jobs["submit"][0]) if len(self) else 0

    @property
    def begins(self) -> datetime:
        """The first submission."""
        return datetime.fromtimestamp(self.origin, UTC)

    @property
    def ends(self) -> datetime:
        """The last submission."""
        return datetime.fromtimestamp(int(self.jobs["submit"][-1]) if len(self) else 0, UTC)

    def between(self, first: datetime | None, last: datetime | None) -> Trace:
        """Jobs submitted in [first, last); None is open."""
        submit = pl.col("submit")
        jobs = self.jobs
        if first is not None:
            jobs = jobs.filter(submit >= int(first.timestamp()))
        if last is not None:
            jobs = jobs.filter(submit < int(last.timestamp()))
        return Trace(jobs, self.name)

    @classmethod
    def of(cls, jobs: pl.DataFrame, name: str) -> Trace:
        """Sort a table by submit time, ties in the order given, and keep the columns of ``SCHEMA``."""
        return cls(jobs.select(list(SCHEMA)).sort("submit", maintain_order=True), name)

    def save(self, file: Path) -> None:
        """Write Parquet, whole or not at all.

        Raises:
            TraceError: the file cannot be written.
        """
        half = file.with_name(f".{file.name}.half")
        try:
            self.jobs.write_parquet(half)
            half.replace(file)
        except OSError as error:
            raise TraceError(f"cannot be written: {error.strerror or error}", file=str(file)) from error

    @classmethod
    def load(cls, file: Path) -> Trace:
        """Read what ``save`` wrote.

        Raises:
            TraceError: it is no Parquet file, or not a trace.
        """
        try:
            jobs = pl.read_parquet(file)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise TraceError(f"is no readable Parquet file: {error}", file=str(file)) from error
        return cls(jobs, file.name)


def empty() -> pl.DataFrame:
    """A table without rows."""
    return pl.DataFrame(schema=SCHEMA)


__all__ = ["KEPT_STATES", "SCHEMA", "Trace", "empty"]
