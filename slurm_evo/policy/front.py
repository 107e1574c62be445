"""A trained front as a file: policies with what each reached, and the choice among them by weights."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slurm_evo.model import PolicyError
from slurm_evo.policy.policy import Policy

FORMAT = 1
OBJECTIVES = ("average_wait", "maximum_wait", "utilization")
"""The configuration's [objectives], in the order of `Member.chosen_on`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One policy of a front."""

    text: str
    complexity: int
    chosen_on: tuple[float, float, float]
    """Average wait, maximum wait and idle GPU time on the choose windows, each as a share of the reference's."""
    refused: tuple[str, ...] = ()
    """Why it may not be put in force; empty: it may."""
    judged: Mapping[str, float] = field(default_factory=dict)
    """On the judge windows, for people; never used to choose."""
    by_hand: str = ""
    """Its name, where it was not evolved but is one that people wrote."""

    def score(self, weights: Mapping[str, float]) -> float:
        """Weighted mean of the logarithms of the shares; the smallest is best."""
        total = sum(weights[name] for name in OBJECTIVES)
        pairs = zip(OBJECTIVES, self.chosen_on, strict=True)
        return sum(weights[name] * math.log(max(share, 1e-9)) for name, share in pairs) / total


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """What a training run leaves behind."""

    members: tuple[Member, ...]
    provenance: Mapping[str, Any]
    """Data, windows, seeds, versions: JSON values."""

    def choose(self, weights: Mapping[str, float]) -> Member:
        """The best by these weights among those that are not refused.

        Raises:
            PolicyError: all are refused; says why.
        """
        allowed = [member for member in self.members if not member.refused]
        if not allowed:
            reasons = sorted({reason for member in self.members for reason in member.refused})
            raise PolicyError(f"no policy of the front may be put in force: {'; '.join(reasons) or 'it is empty'}")
        return min(allowed, key=lambda member: (member.score(weights), member.complexity, member.text))

    def save(self, file: Path) -> None:
        """Write it, whole or not at all."""
        beside = file.with_name(file.name + ".new")
        members = [asdict(one) for one in self.members]
        content: dict[str, Any] = {"format": FORMAT, "provenance": dict(self.provenance), "members": members}
        content["digest"] = _digest(json.loads(json.dumps(content)))
        beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
        beside.replace(file)

    @classmethod
    def load(cls, file: Path) -> Front:
        """Read it, and every expression in it.

        Raises:
            PolicyError: it is no front written by this version; names the file.
        """
        try:
            found = json.loads(file.read_text(encoding="utf-8-sig"))
            if found["format"] != FORMAT:
                raise PolicyError(f"{file}: has format {found['format']}, this version reads {FORMAT}")
            if found["digest"] != _digest(found):
                raise PolicyError(
                    f"{file}: was changed after it was written, so that what it tells of its policies is not "
                    "known; train again, or add an expression by itself"
                )
            members = tuple(
                Member(
                    text=Policy.parse(one["text"]).text,
                    complexity=int(one["complexity"]),
                    chosen_on=tuple(float(share) for share in one["chosen_on"]),  # type: ignore[arg-type]  # checked below
                    refused=tuple(one["refused"]),
                    judged=dict(one["judged"]),
                    by_hand=str(one.get("by_hand", "")),
                )
                for one in found["members"]
            )
            if any(len(one.chosen_on) != len(OBJECTIVES) or not _are_shares(one.chosen_on) for one in members):
                raise PolicyError(f"{file}: a policy needs {len(OBJECTIVES)} shares in chosen_on")
            return cls(members=members, provenance=dict(found["provenance"]))
        except KeyError as failure:
            raise PolicyError(f"{file}: is no front written by slurm-evo train: has no {failure}") from failure
        except (OSError, ValueError, TypeError, ArithmeticError, RecursionError) as failure:
            raise PolicyError(f"{file}: is no front written by slurm-evo train: {failure}") from failure


def _are_shares(numbers: tuple[float, ...]) -> bool:
    return all(math.isfinite(number) and number >= 0 for number in numbers)


def _digest(content: Mapping[str, Any]) -> str:
    """Of all that was written but itself. No lock against forgery, yet edited fronts do not pass as trained."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.blake2b(json.dumps(rest, sort_keys=True).encode(), digest_size=16).hexdigest()
