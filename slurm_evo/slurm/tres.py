"""Counts of GPUs and memory in Slurm's TRES and GRES strings.

Two notations meet here (slurm.conf(5) AccountingStorageTRES and GresTypes, sbatch(1) ``--gpus``):
``cpu=4,mem=6000M,gres/gpu=8,gres/gpu:a100=8`` counts the same eight devices twice, while
``gpu:a100:2(IDX:0-1),gpu:v100:1`` names three different ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MULTIPLIERS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_COUNT = re.compile(r"^(\d{1,15})([KMGTP]?)$", re.IGNORECASE)
_SIZE = re.compile(r"^(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)B?$", re.IGNORECASE)
_NOTHING = frozenset({"", "(null)", "N/A", "none"})


@dataclass(frozen=True, slots=True)
class Gpus:
    """A number of devices, and their type."""

    count: int = 0
    type: str | None = None
    """None where no type is named; types joined by a comma where several are."""

    def times(self, factor: int) -> Gpus:
        """As many for each of ``factor`` nodes or tasks."""
        return Gpus(self.count * factor, self.type)


def _whole(text: str) -> int:
    match = _COUNT.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no count")
    return int(match[1]) * _MULTIPLIERS[match[2].upper()]


def _without_parentheses(text: str) -> str:
    """``gpu:a100:8(IDX:0,2-7)`` without what is in parentheses, whose commas separate nothing."""
    return re.sub(r"\([^()]*\)", "", text)


def gpus_of_gres(text: str) -> Gpus:
    """Devices of a GRES list, such as a node's ``gpu:a100:8(S:0-1)`` or a job's ``gres/gpu:4``.

    Each entry adds to the sum. ``gpu`` alone is one device; other kinds (``shard``, ``mps``, ``cpu``) count
    nothing.

    Raises:
        ValueError: an entry of kind gpu has no readable count.
    """
    if text in _NOTHING:
        return Gpus()
    total = 0
    types: list[str] = []
    for entry in _without_parentheses(text).split(","):
        plain = entry.strip().removeprefix("gres/").removeprefix("gres:")
        kind, *rest = re.split(r"[:=]", plain)
        if kind != "gpu":
            continue
        count = 1
        if rest and _COUNT.match(rest[-1]):
            count = _whole(rest.pop())
        elif rest and ("=" in plain or len(rest) > 1):
            raise ValueError(f"{entry.strip()!r} has no readable count")
        total += count
        if rest and count and rest[0] not in types:
            types.append(rest[0])
    return Gpus(total, ",".join(types) or None)


def _pairs(text: str) -> dict[str, str]:
    if text in _NOTHING:
        return {}
    pairs = {}
    for entry in text.split(","):
        name, equals, value = entry.strip().partition("=")
        if not equals or not name:
            raise ValueError(f"{entry.strip()!r} is no NAME=COUNT")
        pairs[name] = value
    return pairs


def gpus_of_tres(text: str) -> Gpus | None:
    """Devices of a TRES list, such as ``cpu=4,gres/gpu=8,gres/gpu:a100=8``; None where it tracks none.

    ``gres/gpu`` is the total and the typed entries repeat it, so they are never added to it.

    Raises:
        ValueError: an entry is not NAME=COUNT, or the count of GPUs is not a number.
    """
    total: int | None = None
    typed: dict[str, int] = {}
    for name, value in _pairs(text).items():
        if name == "gres/gpu":
            total = _whole(value)
        elif name.startswith("gres/gpu:"):
            typed[name.removeprefix("gres/gpu:")] = _whole(value)
    named = ",".join(name for name, count in typed.items() if count) or None
    if total is None and not typed:
        return None
    return Gpus(max(total or 0, sum(typed.values())), named)


def memory_mb_of_tres(text: str) -> int | None:
    """Mebibytes of the ``mem=`` entry, all nodes together; None where there is none.

    Raises:
        ValueError: the entry is not a size.
    """
    value = _pairs(text).get("mem")
    if value is None:
        return None
    match = _SIZE.match(value)
    if match is None:
        raise ValueError(f"mem={value!r} is no size")
    # a size without a suffix is in mebibytes (sacctmgr(1), TRES)
    return int(float(match[1]) * _MULTIPLIERS[match[2].upper() or "M"]) // _MULTIPLIERS["M"]
