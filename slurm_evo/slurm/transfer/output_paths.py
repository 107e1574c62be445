"""Paths of input and output as they were written, where a job's record shows them with the number filled in.

Slurm before 25.05 shows ``/home/ada/slurm-1042.out`` for ``slurm-%j.out`` (and ``a%b`` for ``a%%b``). Submitted
like that elsewhere it would be another job's file as soon as the number changes. What was written is in the submit
line, the script and SBATCH_ variables; a path is taken from there if it is seen to become what the record shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slurm_evo.slurm.transfer.image import NotMovable

_FIELDS = {"standard_output": "output", "standard_error": "error", "standard_input": "input"}
_DEFAULTS = {"standard_output": ("slurm-%j.out",), "standard_error": (), "standard_input": ("/dev/null",)}
_PATTERN = re.compile(r"%(?:%|(\d*)([Ajaxu]))")
_NO_ARRAY = 0xFFFFFFFE
"""What %a becomes outside an array."""


def shows_patterns(record: Mapping[str, Any]) -> bool:
    """The record has the paths as they were written (25.05 and later, which show the other form beside them)."""
    return "stdout_expanded" in record


def as_written(record: Mapping[str, Any], said: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The three paths as sbatch would send them, by name of the description; only what was asked for.

    Args:
        record: of a Slurm that fills in the number.
        said: every value that was written for ``output``, ``error`` and ``input``.

    Raises:
        NotMovable: one of them is not found.
    """
    found: dict[str, str] = {}
    for name, option in _FIELDS.items():
        shown = str(record.get(name) or "")
        written = _first(record, shown, (*said.get(option, ()), *_DEFAULTS[name]))
        if written is not None:
            found[name] = written
        elif name != "standard_error" or shown != record.get("standard_output"):
            raise NotMovable(f"how its --{option} was written cannot be told from {shown}")
    return found


def _first(record: Mapping[str, Any], shown: str, candidates: Iterable[str]) -> str | None:
    folder = str(record.get("current_working_directory") or "")
    for written in candidates:
        whole = written if written.startswith("/") else f"{folder}/{written}"
        if _filled_in(whole, record) == shown:
            return written if written in _DEFAULTS["standard_output"] else whole
    return None


def _filled_in(path: str, record: Mapping[str, Any]) -> str:
    """As the record shows it (sbatch(1), FILENAME PATTERN): what only the node knows stays."""
    job = str(record["job_id"])
    values = {"A": job, "j": job, "a": str(_NO_ARRAY), "x": record.get("name"), "u": record.get("user_name")}

    def value(match: re.Match[str]) -> str:
        width, letter = match.groups()
        if letter is None:
            return "%"
        text = str(values[letter])
        return text.zfill(int(width or 0)) if text.isdigit() and letter in "Aja" else text

    return path if "\\" in path else _PATTERN.sub(value, path)
