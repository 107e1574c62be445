"""Reading one record of Slurm's JSON, whatever the version that wrote it.

Until data_parser v0.0.38 numbers were bare, with null or a huge sentinel for «not set»; since v0.0.39 they
are ``{"set": …, "infinite": …, "number": …}``. Words were strings and are lists since v0.0.40.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from slurm_evo.model import AnswerUnreadable

T = TypeVar("T")

# slurm.h: NO_VAL16/32/64 and INFINITE16/32/64, as the oldest versions print them
_NOT_SET = frozenset({0xFFFE, 0xFFFF_FFFE, 0xFFFF_FFFF_FFFF_FFFE})
_INFINITE = frozenset({0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
_EMPTY = frozenset({"", "(null)", "N/A", "None assigned"})
_MAX_NODES = 1_000_000
"""More names than this, or a range of 10 million, are damage, not a cluster."""
_HUGE_RANGE = re.compile(r"\[[^\]]*-\d{7,}")

INFINITE = "infinite"
"""What :meth:`Record.number_or_infinite` answers for UNLIMITED."""


def names_of(text: str) -> tuple[str, ...]:
    """The names of a comma-separated list; empty for Slurm's ways to say nothing."""
    if text in _EMPTY:
        return ()
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def hosts_of(text: str) -> tuple[str, ...]:
    """Expand a hostlist such as ``n[01-03,7],login1``, in its own order of names.

    Raises:
        ValueError: it is no hostlist.
    """
    if text in _EMPTY:
        return ()
    if _HUGE_RANGE.search(text):
        raise ValueError(f"{text[:80]!r} is no hostlist")
    try:
        nodes = NodeSet(text, resolver=RESOLVER_NOGROUP)
        if len(nodes) > _MAX_NODES:
            raise ValueError(f"{text[:80]!r} names {len(nodes)} nodes")
        return tuple(nodes)
    except NodeSetException as failure:
        raise ValueError(f"{text[:80]!r} is no hostlist") from failure


class Record:
    """One JSON object with the cluster and the name that an error shall carry.

    Fields are named by dotted paths (``"maximums.time"``). All readers raise AnswerUnreadable, which names
    the field.

    Args:
        cluster: whose answer it is.
        data: the decoded object.
        what: names the record in errors, such as ``job 1042``.
    """

    def __init__(self, cluster: str, data: Any, what: str) -> None:
        self.cluster = cluster
        self.what = what[:60]
        if not isinstance(data, Mapping):
            raise self.unreadable("the record", data, "an object")
        self._data = data

    def unreadable(self, field: str, value: Any, wanted: str) -> AnswerUnreadable:
        """The error for one field."""
        shown = repr(value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return AnswerUnreadable(
            self.cluster,
            f"{self.what}: field {field} is {shown}, expected {wanted}; Slurm's format may have changed",
        )

    def raw(self, path: str) -> Any:
        """The value at a path; None where any part of the path is missing."""
        value: Any = self._data
        for part in path.split("."):
            if not isinstance(value, Mapping):
                return None
            value = value.get(part)
        return value

    def parsed(self, path: str, read: Callable[[str], T], wanted: str) -> T:
        """The text at a path, read by a function that raises ValueError."""
        text = self.text(path)
        try:
            return read(text)
        except ValueError as failure:
            raise self.unreadable(path, text, wanted) from failure

    def text(self, path: str, default: str = "") -> str:
        """A text; ``default`` where it is missing or null."""
        value = self.raw(path)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.unreadable(path, value, "a text")
        return "" if value == "(null)" else value

    def truth(self, path: str) -> bool:
        """A truth value; numbers count as in C, missing is False."""
        value = self.raw(path)
        if isinstance(value, bool) or value is None:
            return bool(value)
        return bool(self.number(path))

    def words(self, path: str) -> tuple[str, ...]:
        """Words in upper case, from a list or a text such as ``IDLE+DRAIN``."""
        value = self.raw(path)
        if value is None:
            return ()
        if isinstance(value, str):
            value = re.split(r"[+,|\s]+", value)
        if not isinstance(value, Sequence) or not all(isinstance(word, str) for word in value):
            raise self.unreadable(path, value, "a word or a list of words")
        return tuple(word.strip().rstrip("*").upper() for word in value if word.strip())

    def names(self, path: str) -> tuple[str, ...]:
        """Names as they are, from a list or a comma-separated text."""
        value = self.raw(path)
        if value is None:
            return ()
        if isinstance(value, str):
            return names_of(value)
        if not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
            raise self.unreadable(path, value, "a list of names")
        return tuple(value)

    def hosts(self, path: str) -> tuple[str, ...]:
        """Node names, from a hostlist or a list of hostlists."""
        try:
            return tuple(host for part in self.hostlists(path) for host in hosts_of(part))
        except ValueError as failure:
            raise self.unreadable(path, self.raw(path), "a hostlist") from failure

    def hostlists(self, path: str) -> tuple[str, ...]:
        """The unexpanded hostlists of a field."""
        value = self.raw(path)
        if isinstance(value, str):
            return (value,)
        return self.names(path)

    def number_or_infinite(self, path: str) -> int | str | None:
        """A whole number, INFINITE for UNLIMITED, None where it is not set."""
        value = self.raw(path)
        if isinstance(value, Mapping):
            if value.get("infinite") is True:
                return INFINITE
            if value.get("set") is False:
                return None
            value = value.get("number")
        elif value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.unreadable(path, self.raw(path), "a whole number")
        if value in _INFINITE:
            return INFINITE
        return None if value in _NOT_SET else value

    def number(self, path: str, default: int = 0) -> int:
        """A whole number; ``default`` where it is not set or infinite."""
        value = self.number_or_infinite(path)
        return value if isinstance(value, int) else default

    def count(self, path: str, default: int = 0) -> int:
        """A whole number that is not negative."""
        value = self.number(path, default)
        if value < 0:
            raise self.unreadable(path, self.raw(path), "a number that is not negative")
        return value

    def instant(self, path: str) -> datetime | None:
        """An instant in UTC from seconds since 1970; None for 0 or where it is not set."""
        seconds = self.count(path)
        if not seconds:
            return None
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (OverflowError, ValueError, OSError) as failure:
            raise self.unreadable(path, self.raw(path), "seconds since 1970") from failure


def records(cluster: str, answer: Any, key: str, what: str) -> Sequence[Any]:
    """The list of records at a key of an answer.

    Raises:
        AnswerUnreadable: the answer is no object, or has no such list.
    """
    if not isinstance(answer, Mapping) or not isinstance(answer.get(key), list):
        raise AnswerUnreadable(
            cluster, f"the answer to «{what}» has no list «{key}»; Slurm's format may have changed"
        )
    found: Sequence[Any] = answer[key]
    return found
