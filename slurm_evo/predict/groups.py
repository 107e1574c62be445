"""Jobs that are likely to run alike, from the narrowest group to all of them.

Users run the same thing again: the mean of a user's last two jobs already beats the time limit (Tsafrir, Etsion
and Feitelson, TPDS 2007); same user and similar name is what QSSF's rolling estimate rests on (Hu et al., SC'21).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of a job before it starts."""

    user: str
    name: str
    limit_s: int | None
    """None: unknown."""
    gpus: int


@lru_cache(maxsize=100_000)
def stem(name: str) -> str:
    """A job's name with its numbers taken out: ``eval-17`` and ``eval-18`` are one kind of job."""
    return NUMBERS.sub("#", name)[:64]


def groups_of(job: Asked) -> tuple[str, ...]:
    """The groups a job belongs to, narrowest first; each a short readable text."""
    user, kind, limit, gpus = f"u={job.user}", f"n={stem(job.name)}", f"l={job.limit_s}", f"g={job.gpus}"
    return (
        f"{user} {kind} {limit} {gpus}",
        f"{user} {kind} {gpus}",
        f"{user} {limit} {gpus}",
        f"{user} {limit}",
        user,
        f"{limit} {gpus}",
        limit,
        "all",
    )


__all__ = ["Asked", "groups_of", "stem"]
