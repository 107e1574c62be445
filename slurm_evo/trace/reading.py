"""What a reader keeps, and what it leaves out and why."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import polars as pl

from slurm_evo.model import TraceError
from slurm_evo.trace.table import SCHEMA, Trace, empty

CHUNK = 100_000
"""Rows held as Python values before they become a table."""
OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
"""By the first two bytes of a file."""
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""What reading a damaged or packed file raises."""


@dataclass(slots=True)
class Left:
    """One reason for which rows were left out or changed."""

    count: int = 0
    example: str = ""
    """Where the first was: file, line, and what was seen."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A trace, and the account of how it was read."""

    trace: Trace
    rows: int
    """Rows, lines or records looked at."""
    dropped: dict[str, Left] = field(default_factory=dict)
    """By reason: rows that are not in the trace."""
    notes: dict[str, Left] = field(default_factory=dict)
    """By kind: rows that are in it, though not as they stand in the file."""


class Rows:
    """Collects rows of a file in chunks, and counts what is left out.

    Args:
        file: named in every message.
        strict: the first bad row raises instead of being dropped.
    """

    def __init__(self, file: Path, *, strict: bool, extra: dict[str, type[pl.DataType]] | None = None) -> None:
        self.file = file.name
        self.strict = strict
        self.looked_at = 0
        self.dropped: dict[str, Left] = {}
        self.notes: dict[str, Left] = {}
        self._schema = {**SCHEMA, **(extra or {})}
        self._defaults = [None if name == "array" else _default(kind) for name, kind in self._schema.items()]
        self._rows: list[tuple[object, ...]] = []
        self._tables: list[pl.DataFrame] = []

    def add(self, **values: object) -> None:
        """Keep one job; text that is not given is empty, everything else null or 0."""
        self._rows.append(tuple(map(values.get, self._schema, self._defaults)))
        if len(self._rows) >= CHUNK:
            self._flush()

    def drop(self, reason: str, line: int, seen: str = "") -> None:
        """Leave a row out."""
        _count(self.dropped, reason, f"{self.file}:{line}{': ' if seen else ''}{_short(seen)}")

    def note(self, kind: str, line: int, seen: str = "") -> None:
        """Keep a row, though not as it stands."""
        _count(self.notes, kind, f"{self.file}:{line}{': ' if seen else ''}{_short(seen)}")

    def bad(self, line: int, column: str, why: str) -> None:
        """Leave out a row that cannot be understood.

        Raises:
            TraceError: in strict reading.
        """
        if self.strict:
            raise TraceError(why, file=self.file, line=line, field=column)
        self.drop(f"bad row: field {column}", line, why)

    def table(self) -> pl.DataFrame:
        """All that was kept."""
        self._flush()
        return pl.concat(self._tables) if self._tables else pl.DataFrame(schema=self._schema)

    def reading(self, jobs: pl.DataFrame | None = None) -> Reading:
        """The result.

        Raises:
            TraceError: nothing is left; the message says what became of the rows.
        """
        trace = Trace.of(self.table() if jobs is None else jobs, self.file)
        if not len(trace):
            reasons = "; ".join(f"{left.count} {reason} ({left.example})" for reason, left in self.dropped.items())
            raise TraceError(
                f"no finished job in {self.looked_at} rows: {reasons or 'it is empty'}", file=self.file
            )
        return Reading(trace, self.looked_at, self.dropped, self.notes)

    def _flush(self) -> None:
        if self._rows:
            self._tables.append(pl.DataFrame(self._rows, schema=self._schema, orient="row"))
            self._rows = []


def _default(kind: object) -> object:
    return "" if kind == pl.String else 0


def _count(tally: dict[str, Left], reason: str, example: str) -> None:
    left = tally.setdefault(reason, Left(example=example))
    left.count += 1


def _short(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return plain if len(plain) <= 120 else plain[:117] + "..."


def open_bytes(file: Path) -> IO[bytes]:
    """A file, unpacked if it is gzip, bzip2 or xz, which its first bytes tell.

    Raises:
        TraceError: it cannot be opened.
    """
    try:
        with file.open("rb") as raw:
            start = raw.read(2)
        unpack = OPENERS.get(start)
        return (unpack or Path.open)(file, "rb")
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror or error}", file=str(file)) from error


def lines(file: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines from 1, without their ends; bytes that are no UTF-8 become the replacement character.

    Raises:
        TraceError: it cannot be read or unpacked.
    """
    with open_bytes(file) as raw, io.TextIOWrapper(raw, "utf-8", "replace", newline="\n") as text:
        number = 0
        try:
            for number, line in enumerate(text, 1):  # the number is told if reading stops
                yield number, line.rstrip("\r\n")
        except UNREADABLE as error:
            raise TraceError(f"ends unreadably: {error}", file=file.name, line=number + 1) from error


def cut_list(text: str, separator: str = "|") -> list[str]:
    """Alternatives, without blanks."""
    return [part.strip() for part in text.split(separator) if part.strip()]


__all__ = ["Left", "Reading", "Rows", "cut_list", "empty", "lines", "open_bytes"]
