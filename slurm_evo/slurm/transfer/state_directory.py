"""What only slurmctld's own files tell of a waiting job: its exact environment and its arguments.

Slurm has no call that returns either. Accounting keeps the environment as one text (a value with a line
break cannot be told from two variables) and the arguments joined by spaces. ``StateSaveLocation`` has both
exactly: ``hash.N/job.ID/environment`` and ``script``, and ``job_state`` with the arguments.

Standard library only, so that it can run alone on the controller, as SlurmUser::

    python3 state_directory.py /var/spool/slurmctld 1042 /home/ada/train.sh
"""

from __future__ import annotations

import base64
import json
import struct
import sys
from pathlib import Path
from typing import Any

MOST_ARGUMENTS = 10_000


class StateUnreadable(Exception):
    """The state directory does not tell the job, or in a form that was not understood."""


def read(folder: Path, job: int, command: str) -> dict[str, Any]:
    """Read one waiting job.

    Args:
        folder: StateSaveLocation of slurm.conf(5).
        job: its number.
        command: the path of its script as the job list has it; empty for ``--wrap`` and standard input.

    Returns:
        ``script`` and ``environment`` (a list), base64; ``arguments``: the argument lists of all jobs with
        this command, each with the command first, base64.

    Raises:
        StateUnreadable: says what is wrong.
    """
    place = folder / f"hash.{job % 10}" / f"job.{job}"
    try:
        script = (place / "script").read_bytes().rstrip(b"\0")
        environment = _variables((place / "environment").read_bytes())
        found = [] if not command else _argument_lists((folder / "job_state").read_bytes(), command.encode())
    except OSError as failure:
        raise StateUnreadable(f"{failure.filename}: {failure.strerror}") from failure
    return {
        "script": _text(script),
        "environment": [_text(one) for one in environment],
        "arguments": [[_text(word) for word in words] for words in found],
    }


def _variables(raw: bytes) -> list[bytes]:
    """A count, 32 bits in the controller's byte order, then that many texts, each ended by NUL."""
    if len(raw) < 4:
        raise StateUnreadable("the environment's file is too short")
    (number,) = struct.unpack("=I", raw[:4])
    parts = raw[4:].split(b"\0")
    if len(parts) < number or any(parts[number:]):
        raise StateUnreadable(f"the environment's file says {number} variables and has {len(parts)}")
    return parts[:number]


def _argument_lists(raw: bytes, command: bytes) -> list[list[bytes]]:
    """Every argument list in job_state that begins with the command (pack.c, packstr_array).

    A list is a count and then that many texts; a text is its length with its NUL, then itself. Numbers are 32
    bits, high byte first. The rest of the file, which differs from version to version, is not read.
    """
    first = struct.pack(">I", len(command) + 1) + command + b"\0"
    found: list[list[bytes]] = []
    at = raw.find(first)
    while at >= 4:
        (number,) = struct.unpack(">I", raw[at - 4 : at])
        words = _texts(raw, at, number) if 1 <= number <= MOST_ARGUMENTS else None
        if words is not None and words not in found:
            found.append(words)
        at = raw.find(first, at + 1)
    return found


def _texts(raw: bytes, at: int, number: int) -> list[bytes] | None:
    words = []
    for _ in range(number):
        if at + 4 > len(raw):
            return None
        (length,) = struct.unpack(">I", raw[at : at + 4])
        text = raw[at + 4 : at + 4 + length]
        at += 4 + length
        if len(text) != length or (length and text[-1:] != b"\0") or b"\0" in text[:-1]:
            return None
        words.append(text[:-1])
    return words


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def main(words: list[str]) -> int:
    """The command line: FOLDER JOB [COMMAND]; prints JSON."""
    if len(words) not in (2, 3) or not words[1].isdigit():
        sys.stderr.write("usage: state_directory.py STATE_SAVE_LOCATION JOB_ID [COMMAND]\n")
        return 2
    try:
        told = read(Path(words[0]), int(words[1]), words[2] if len(words) > 2 else "")
    except StateUnreadable as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
