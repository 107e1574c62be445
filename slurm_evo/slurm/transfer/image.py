"""Everything a waiting job was submitted with, so that it can be submitted again elsewhere and be the same job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from slurm_evo.model import ClusterName, JobKey


class NotMovable(Exception):
    """The job cannot be moved without losing something.

    Args:
        reasons: a sentence for each thing that stands in the way.
    """

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class JobImage:
    """A pending batch job, complete."""

    key: JobKey
    user: str
    uid: int
    gid: int
    script: str
    """The batch script, exact; bytes that are no UTF-8 are kept as surrogates and refused later."""
    environment: tuple[str, ...]
    """NAME=value in the order in which they were recorded."""
    argv: tuple[str, ...]
    """The script's name as it was submitted, then its arguments; empty for ``--wrap`` and standard input."""
    fields: Mapping[str, Any]
    """By name of Slurm's job description (REST: job_desc_msg); only what was asked for."""
    admin_comment: str = ""
    """Not one of ``fields``: the move writes into it."""

    def as_json(self) -> dict[str, Any]:
        """JSON values that `from_json` reads back."""
        lists = {"environment": list(self.environment), "argv": list(self.argv)}
        return asdict(self) | lists | {"key": str(self.key), "fields": dict(self.fields)}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> JobImage:
        """The image that `as_json` wrote."""
        lists = {name: tuple(given[name]) for name in ("environment", "argv")}
        return cls(**{**given, **lists, "key": JobKey.parse(given["key"])})


def fingerprint(fields: Mapping[str, Any]) -> str:
    """Tells whether somebody changed the job meanwhile: equal for equal fields."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


FROM = "slurm-evo:from="
"""In AdminComment of a job that was moved here: its final mark."""
COPY = "slurm-evo:copy-of="
"""In AdminComment of a held copy whose original still counts."""
MOVING = "slurm-evo:moving-to="
"""In AdminComment of an original that is put off while its copy is made."""
TO = "slurm-evo:to="
"""In AdminComment of an original that was cancelled because its copy counts now."""
MOVE = "slurm-evo:move="
"""Beside each of these marks: which move set it. A daemon with another journal leaves the job alone by it."""
_MARKS = (FROM, COPY, MOVING, TO, MOVE)


def marked(comment: str, mark: str, value: object, move: str) -> str:
    """A comment with this mark of a move, in place of any other of ours."""
    return " ".join(filter(None, (unmarked(comment), f"{mark}{value}", f"{MOVE}{move}")))


def of_another(comment: str, move: str) -> bool:
    """Whether another move set the marks. Those without a name, of an earlier slurm-evo, are taken for our own."""
    return mark_of(comment, MOVE) not in (None, move)


def moved_by_another(comment: str, move: str, left_s: float) -> bool:
    """Whether a waiting original is under way in another move.

    Args:
        comment: its AdminComment.
        move: the `Transfer.name` of ours.
        left_s: how long it is still put off. Nobody cancels an original that is free again, so that a mark without
            it is one that was left behind.
    """
    marks = mark_of(comment, MOVING) or mark_of(comment, TO)
    return marks is not None and left_s > 0 and of_another(comment, move)


def unmarked(comment: str) -> str:
    """What somebody else wrote into the comment."""
    return " ".join(word for word in comment.split(" ") if not word.startswith(_MARKS))


def mark_of(comment: str, mark: str) -> str | None:
    """The value behind a mark; None if the comment does not carry it."""
    found = (word.removeprefix(mark) for word in comment.split(" ") if word.startswith(mark))
    return next(found, None)


def destination_of(comment: str) -> ClusterName | None:
    """Where the original is being moved, by its AdminComment."""
    found = mark_of(comment, MOVING)
    return None if found is None else ClusterName(found)
