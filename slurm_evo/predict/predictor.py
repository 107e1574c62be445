"""Quantiles of running times by group: the narrowest group that has seen enough says.

Each group remembers its last running times, so it follows users who change their habits; its quantiles are those
of what it remembers. Nothing is fitted, so learning one more job is the whole update.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_evo.model import ConfigError
from slurm_evo.predict.groups import Asked, groups_of

KEEP = 24
"""Running times a group remembers."""
ENOUGH = 2
"""A group with fewer leaves the word to the next broader one."""
MOST_GROUPS = 200_000
"""The groups longest not used are forgotten first; about 100 MB of memory."""
VERSION = 1


@dataclass(frozen=True, slots=True)
class Predicted:
    """A running time as a distribution, seconds; never above the job's limit."""

    low_s: float
    """One in five ends before."""
    median_s: float
    high_s: float
    """One in five runs longer."""
    group: str
    """Which jobs this was learned from; ``limit`` where there were none."""
    seen: int
    """How many of them."""


class Predictor:
    """Running times learned so far. Not thread-safe: one writer."""

    def __init__(self) -> None:
        self._times: dict[str, deque[int]] = {}

    def __len__(self) -> int:
        """The number of groups."""
        return len(self._times)

    def learn(self, job: Asked, runtime_s: int) -> None:
        """A job has ended after so many seconds. O(groups of a job)."""
        for group in groups_of(job):
            times = self._times.pop(group, None)
            if times is None:
                times = deque(maxlen=KEEP)
            times.append(max(int(runtime_s), 0))
            self._times[group] = times  # put last: the dictionary is in order of use
        while len(self._times) > MOST_GROUPS:
            del self._times[next(iter(self._times))]

    def predict(self, job: Asked) -> Predicted:
        """What its narrowest group with enough jobs says; the limit where nobody has been seen."""
        limit = float("inf") if job.limit_s is None else float(job.limit_s)
        for group in groups_of(job):
            times = self._times.get(group)
            if times is not None and len(times) >= ENOUGH:
                ordered = sorted(times)
                low, middle, high = (min(_quantile(ordered, share), limit) for share in (0.2, 0.5, 0.8))
                return Predicted(max(low, 1.0), max(middle, 1.0), max(high, 1.0), group, len(times))
        known = limit if job.limit_s is not None else 3600.0
        return Predicted(known, known, known, "limit", 0)

    def save(self, file: Path) -> None:
        """Write JSON, whole or not at all.

        Raises:
            ConfigError: the file cannot be written.
        """
        half = file.with_name(f".{file.name}.half")
        data = {"version": VERSION, "groups": {group: list(times) for group, times in self._times.items()}}
        try:
            half.write_text(json.dumps(data), "utf-8")
            half.replace(file)
        except OSError as error:
            raise ConfigError(f"{file}: running times cannot be written: {error.strerror}") from error

    @classmethod
    def load(cls, file: Path) -> Predictor:
        """Read what ``save`` wrote.

        Raises:
            ConfigError: it is something else; nothing of it is used.
        """
        try:
            data: Any = json.loads(file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ConfigError(f"{file}: no readable running times: {error}") from error
        if (
            not isinstance(data, dict)
            or data.get("version") != VERSION
            or not isinstance(data.get("groups"), dict)
        ):
            raise ConfigError(f"{file}: no running times of version {VERSION}")
        made = cls()
        for group, times in data["groups"].items():
            made._times[group] = deque(_checked(file, group, times), maxlen=KEEP)
        return made

    @classmethod
    def learned(cls, ended: Iterable[tuple[Asked, int]]) -> Predictor:
        """From jobs in the order in which they ended."""
        made = cls()
        for job, runtime_s in ended:
            made.learn(job, runtime_s)
        return made

    def groups(self) -> Mapping[str, tuple[int, ...]]:
        """What each group remembers, seconds, oldest first."""
        return {group: tuple(times) for group, times in self._times.items()}


def _checked(file: Path, group: str, times: Any) -> list[int]:
    if not isinstance(times, list) or not all(isinstance(each, int) and each >= 0 for each in times):
        raise ConfigError(f"{file}: group {group!r}: running times must be whole seconds")
    return times


def _quantile(ordered: list[int], share: float) -> float:
    """Linear between neighbours."""
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


__all__ = ["ENOUGH", "KEEP", "MOST_GROUPS", "Predicted", "Predictor"]
