"""Running times from the user's own past: the narrowest group of like jobs that is known well enough.

Users repeat themselves: Tsafrir, Etsion, Feitelson, «Backfilling Using System-Generated Predictions Rather than
User Runtime Estimates», TPDS 2007. Plain data and standard library: the daemon loads it as JSON and teaches it
each job that ends.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_evo.model import ConfigError

FORMAT = 1
REMEMBERED = 16
"""Running times kept of each group, the latest ones."""
MOST_GROUPS = 200_000
"""Groups kept of each level; the one that learned least recently goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is known of a job before it starts."""

    user: str
    name: str
    limit_s: int
    gpus: int = 0
    cpus: int = 0

    @property
    def size(self) -> int:
        """GPUs; of a job without, its CPUs as a negative number."""
        return self.gpus or -self.cpus


def stem(name: str) -> str:
    """A job name without what tells runs of one thing apart: numbers, hexadecimal words, endings."""
    plain = re.sub(r"(?i)\b(?=[0-9a-f]*\d)[0-9a-f]{6,}\b", "", name)
    return re.sub(r"[\W_]*\d+[\W_]*", "#", plain).strip("#").lower()


@dataclass(frozen=True, slots=True)
class Level:
    """One way to group jobs."""

    name: str
    key: Callable[[Asked], str]
    least: int
    """Running times it must know before it is believed."""


def _key(*parts: Any) -> str:
    return "\x1f".join(map(str, parts))


LEVELS = (
    Level("user, name, limit, size", lambda job: _key(job.user, stem(job.name), job.limit_s, job.size), 2),
    Level("user, limit, size", lambda job: _key(job.user, job.limit_s, job.size), 2),
    Level("user, name", lambda job: _key(job.user, stem(job.name)), 3),
    Level("user, limit", lambda job: _key(job.user, job.limit_s), 3),
    Level("user", lambda job: _key(job.user), 3),
    Level("limit, size", lambda job: _key(job.limit_s, job.size), 3),
    Level("limit", lambda job: _key(job.limit_s), 3),
)
"""From the narrowest to the broadest; where none is known well enough, the limit is the prediction."""


class Predictor:
    """Groups of jobs with the running times of their latest; deterministic, never sees the future by itself.

    Args:
        quantile: what `predict` gives: 0.5 is as often too long as too short.
    """

    def __init__(self, *, quantile: float = 0.5) -> None:
        if not 0 < quantile < 1:
            raise ConfigError(f"the quantile of a prediction is between 0 and 1, not {quantile}")
        self.quantile = quantile
        self.learned = 0
        """Jobs."""
        self._groups: tuple[dict[str, deque[float]], ...] = tuple({} for _ in LEVELS)

    def predict(self, job: Asked, quantile: float | None = None) -> float:
        """Seconds, at least 1 and at most the limit."""
        return self.explain(job, quantile)[0]

    def explain(self, job: Asked, quantile: float | None = None) -> tuple[float, str]:
        """The prediction, and which group of jobs it comes from."""
        for level, groups in zip(LEVELS, self._groups, strict=True):
            known = groups.get(level.key(job))
            if known is not None and len(known) >= level.least:
                found = quantile_of(known, self.quantile if quantile is None else quantile)
                return max(1.0, min(found, float(job.limit_s))), f"{len(known)} jobs of the same {level.name}"
        return float(max(job.limit_s, 1)), "its limit: no such job is known"

    def learn(self, job: Asked, ran_s: float) -> None:
        """A job ended. Teach jobs in the order in which they end."""
        if not math.isfinite(ran_s) or ran_s < 0:
            return
        self.learned += 1
        for level, groups in zip(LEVELS, self._groups, strict=True):
            key = level.key(job)
            known = groups.pop(key, None)
            if known is None:
                known = deque(maxlen=REMEMBERED)
                if len(groups) >= MOST_GROUPS:
                    del groups[next(iter(groups))]
            known.append(float(max(ran_s, 1.0)))
            groups[key] = known

    def as_json(self) -> dict[str, Any]:
        """Plain values; `from_json` gives the same predictor."""
        return {
            "format": FORMAT,
            "quantile": self.quantile,
            "learned": self.learned,
            "levels": [
                {"name": level.name, "groups": {key: list(known) for key, known in groups.items()}}
                for level, groups in zip(LEVELS, self._groups, strict=True)
            ],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any], where: str = "the predictor") -> Predictor:
        """The inverse of `as_json`.

        Raises:
            ConfigError: it is not a predictor of this version; names ``where``.
        """
        try:
            if found["format"] != FORMAT:
                raise ConfigError(f"{where}: has format {found['format']}, this version reads {FORMAT}")
            made = cls(quantile=float(found["quantile"]))
            made.learned = int(found["learned"])
            names = [level["name"] for level in found["levels"]]
            if names != [level.name for level in LEVELS]:
                raise ConfigError(f"{where}: groups jobs by {names}; train it anew")
            for groups, level in zip(made._groups, found["levels"], strict=True):
                for key, known in level["groups"].items():
                    values = [float(value) for value in known]
                    if not all(math.isfinite(value) and value >= 0 for value in values):
                        raise ConfigError(f"{where}: running times of {level['name']} are no numbers of seconds")
                    groups[key] = deque(values, maxlen=REMEMBERED)
        except (KeyError, TypeError, ValueError, AttributeError) as failure:
            raise ConfigError(f"{where}: is no predictor written by slurm-evo: {failure}") from failure
        return made

    def save(self, file: Path) -> None:
        """Write it, whole or not at all."""
        beside = file.with_name(file.name + ".new")
        beside.write_text(json.dumps(self.as_json()), encoding="utf-8")
        beside.replace(file)

    @classmethod
    def load(cls, file: Path) -> Predictor:
        """Read it.

        Raises:
            ConfigError: the file cannot be read or is no predictor.
        """
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as failure:
            raise ConfigError(f"{file}: cannot be read as a predictor: {failure}") from failure
        return cls.from_json(found, str(file))


def quantile_of(values: deque[float], quantile: float) -> float:
    """Between the two nearest, on a logarithmic scale: running times span orders of magnitude."""
    ordered = sorted(values)
    at = quantile * (len(ordered) - 1)
    low = int(at)
    share = at - low
    if share == 0:
        return ordered[low]
    return math.exp((1 - share) * math.log(ordered[low]) + share * math.log(ordered[low + 1]))
