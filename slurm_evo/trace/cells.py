"""Single values of Slurm's accounting, as sacct writes them.

All raise ValueError with a short reason; None stands for what is unknown or unlimited.
"""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from functools import lru_cache

from slurm_evo.slurm.tres import Gpus, gpus_of_gres, gpus_of_tres, memory_mb_of_tres

NOTHING = frozenset(("", "Unknown", "None", "N/A", "INVALID", "(null)", "NONE"))
LATEST = 2**33
"""Unix seconds beyond which a time is a mistake: the year 2242."""
LONGEST = 2**31 - 3
"""Seconds beyond which a duration is a mistake: 68 years."""
MOST = 2**31 - 3
"""More devices, cores or MiB than any job has: NO_VAL and other overflows."""

_DURATION = re.compile(r"^(?:(\d{1,6})-)?(?:(\d{1,8}):)?(\d{1,10}):(\d{1,2})(?:\.\d+)?$")
_MEMORY = re.compile(r"^(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)([nc]?)$", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_COUNT = re.compile(r"^(\d{1,15}(?:\.\d{1,9})?)([KMGT]?)$")
_JOB = re.compile(r"^(\d{1,18})(?:_(?:(\d{1,18})|\[([\d,\-:%.]*)\])|\+(\d{1,9}))?$")
_ASKED = re.compile(r"--(gpus-per-node|gpus-per-task|gpus|gres)[= ](\S+)|(?<!\S)-G ?(\S+)")


@lru_cache(maxsize=200_000)
def instant(text: str, zone: tzinfo) -> int | None:
    """Unix seconds of ``2019-07-31T22:29:13`` in ``zone``, of the same with an offset, or of whole seconds."""
    if text in NOTHING:
        return None
    if text.isdigit():
        seconds = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is no time") from None
        try:
            seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp())
        except (OverflowError, OSError):
            raise ValueError(f"{text!r} is no time") from None
    if not 0 <= seconds <= LATEST:
        raise ValueError(f"{text!r} is beyond the clock")
    return seconds or None


@lru_cache(maxsize=50_000)
def duration(text: str) -> int | None:
    """Seconds of ``[days-][hours:]minutes:seconds``; None where there is no number."""
    if text in NOTHING or text in ("UNLIMITED", "Partition_Limit"):
        return None
    match = _DURATION.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = days * 86_400 + hours * 3_600 + minutes * 60 + seconds
    if total > LONGEST:
        raise ValueError(f"{text!r} is longer than 68 years")
    return total


@lru_cache(maxsize=10_000)
def minutes(text: str) -> int | None:
    """Seconds of whole minutes, as TimelimitRaw gives them; None where there is no number."""
    if text in NOTHING or text in ("UNLIMITED", "Partition_Limit"):
        return None
    if not text.isdigit() or int(text) * 60 > LONGEST:
        raise ValueError(f"{text!r} is no number of minutes")
    return int(text) * 60


@lru_cache(maxsize=10_000)
def whole(text: str) -> int:
    """A count, which may have a decimal suffix (``2K`` is 2,000); 0 where it is unknown."""
    if text in NOTHING:
        return 0
    match = _COUNT.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no count")
    value = int(float(match[1]) * {"": 1, "K": 1_000, "M": 10**6, "G": 10**9, "T": 10**12}[match[2]])
    return value if value <= MOST else 0


@lru_cache(maxsize=50_000)
def memory(text: str, nodes: int, cpus: int) -> int:
    """MiB of all nodes together of ``4Gn`` (a node), ``3000Mc`` (a core), ``62.50G`` (in all); 0 if unknown."""
    if text in NOTHING:
        return 0
    match = _MEMORY.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no amount of memory")
    each = {"n": max(nodes, 1), "c": max(cpus, 1), "": 1}[match[3].lower()]
    total = float(match[1]) * _MIB[match[2].upper()] * each
    return int(total) if total <= MOST else 0


@lru_cache(maxsize=50_000)
def tres(text: str) -> tuple[Gpus | None, int, int, int]:
    """GPUs (None if not tracked), cores, nodes and MiB of ``cpu=4,gres/gpu=8,mem=62.50G,node=1``."""
    if text in NOTHING:
        return None, 0, 0, 0
    entries = dict(entry.partition("=")[::2] for entry in text.split(","))
    plain = ",".join(f"{key}={value}" for key, value in entries.items() if key.startswith("gres/gpu"))
    try:
        mib = memory_mb_of_tres(f"mem={entries['mem']}") if "mem" in entries else 0
    except ValueError:
        mib = 0
    gpus = gpus_of_tres(plain) if plain else None
    return gpus, whole(entries.get("cpu", "")), whole(entries.get("node", "")), min(mib or 0, MOST)


@lru_cache(maxsize=10_000)
def gres(text: str, nodes: int) -> Gpus:
    """GPUs of ReqGRES, ``gpu:tesla:2`` or ``gres:gpu:2``, which count for each node."""
    return gpus_of_gres("" if text in NOTHING else text).times(max(nodes, 1))


@lru_cache(maxsize=50_000)
def gpus_of_command(text: str, nodes: int) -> Gpus:
    """GPUs of a submit line, for sites that do not track them (AccountingStorageTRES).

    Understands --gpus, -G, --gpus-per-node and --gres; --gpus-per-task as one task a node.
    """
    found = Gpus()
    for option, value, short in _ASKED.findall(text):
        entries = value or short
        if option != "gres":
            entries = ",".join(f"gpu:{entry}" for entry in entries.split(","))
        try:
            gpus = gpus_of_gres(entries)
        except ValueError:
            continue
        if option in ("gres", "gpus-per-node", "gpus-per-task"):
            gpus = gpus.times(max(nodes, 1))
        if gpus.count > found.count:
            found = gpus
    return found


@lru_cache(maxsize=1_000)
def state(text: str) -> str:
    """The state's word: ``CANCELLED by 1300204`` and ``CANCELLED+`` are CANCELLED."""
    word = text.strip().split(" ", 1)[0].rstrip("+").upper()
    if not word.replace("_", "").isalpha():
        raise ValueError(f"{text!r} is no state")
    return word


@lru_cache(maxsize=1_000)
def job_id(text: str) -> tuple[str, str | None, str | None, bool]:
    """Job, array, heterogeneous leader, and whether it stands for several pending array tasks.

    ``100_5`` is a task of array 100, ``100_[1-3]`` a row for three, ``100+1`` a component of 100.
    """
    match = _JOB.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no job id")
    number, task, several, component = match.groups()
    if component is not None:
        return text, None, number, False
    return text, number if task is not None or several is not None else None, None, several is not None


def tasks(text: str) -> int:
    """How many array tasks ``100_[1-3,7%2]`` stands for."""
    inside = text.partition("[")[2].partition("]")[0].partition("%")[0]
    total = 0
    for part in inside.split(","):
        first, dash, rest = part.partition("-")
        last, _, step = rest.partition(":")
        if not dash:
            total += first.isdigit()
        elif first.isdigit() and last.isdigit():
            total += max((int(last) - int(first)) // max(int(step) if step.isdigit() else 1, 1) + 1, 0)
    return max(total, 1)
