"""Which reader a file needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, tzinfo
from itertools import islice
from pathlib import Path

from slurm_evo.model import TraceError
from slurm_evo.trace import public, sacct_json, sacct_text, swf
from slurm_evo.trace.reading import UNREADABLE, Reading, lines, open_bytes
from slurm_evo.trace.table import Trace

FORMATS = ("parquet", "sacct", "sacct-json", "swf", "philly", "openb", "ub-hpc")


def detect(file: Path) -> str:
    """The format of a file, by its beginning.

    Raises:
        TraceError: it cannot be read, or is none of ``FORMATS``.
    """
    with open_bytes(file) as raw:
        try:
            start = raw.read(4096)
        except UNREADABLE as error:
            raise TraceError(f"cannot be unpacked: {error}", file=file.name) from error
    if not start.strip():
        raise TraceError("is empty", file=file.name)
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.lstrip().startswith(b"{"):
        return "sacct-json"
    first = next((text for _, text in islice(lines(file), 50) if text.strip() and not text.startswith(";")), "")
    plain = first.lstrip("\ufeff")
    if plain == ",".join(public.PHILLY):
        return "philly"
    if plain == ",".join(public.OPENB):
        return "openb"
    if plain.startswith(public.UBHPC):
        return "ub-hpc"
    if sacct_text.looks_like_it(plain):
        return "sacct"
    if len(plain.split()) == len(swf.FIELDS) and re.fullmatch(r"[-\d.\s]+", plain):
        return "swf"
    raise TraceError(
        f"is none of the formats that are understood ({', '.join(FORMATS)}); Slurm history comes from: "
        f"{sacct_text.ASK}",
        file=file.name,
    )


def read(
    file: Path,
    *,
    form: str | None = None,
    zone: tzinfo = UTC,
    columns: Sequence[str] | None = None,
    strict: bool = False,
) -> Reading:
    """Read a history of jobs.

    Args:
        file: plain or compressed with gzip, bzip2 or xz.
        form: one of ``FORMATS``; found out if None.
        zone: of sacct's times.
        columns: of sacct's text, if it has no header.
        strict: the first bad row raises.

    Raises:
        TraceError: it cannot be understood; names file, line and field.
    """
    form = form or ("sacct" if columns else detect(file))
    if form == "parquet":
        trace = Trace.load(file)
        return Reading(trace, len(trace))
    if form == "sacct":
        return sacct_text.read(file, zone=zone, columns=columns, strict=strict)
    readers = {"sacct-json": sacct_json.read, "swf": swf.read, "philly": public.read_philly}
    readers |= {"openb": public.read_openb, "ub-hpc": public.read_ubhpc}
    if form not in readers:
        raise TraceError(f"no format {form!r}; there are {', '.join(FORMATS)}", file=file.name)
    return readers[form](file, strict=strict)


__all__ = ["FORMATS", "detect", "read"]
