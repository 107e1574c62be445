"""One training run, from windows to a front that says of each policy whether it may be put in force."""

from __future__ import annotations

import hashlib
import math
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_evo.model import ConfigError
from slurm_evo.policy import TERMINALS, Policy
from slurm_evo.policy.front import Front, Member
from slurm_evo_training.admission import refusals
from slurm_evo_training.choose import beside, weighted
from slurm_evo_training.evolution import EngineOf, Evolved, Progress, evaluate, evolve, fingerprint
from slurm_evo_training.fitness import REFERENCE, complexity
from slurm_evo_training.island import Recipe
from slurm_evo_training.material import Material, Parts
from slurm_evo_training.seeds import by_hand

MUCH_WORSE = 1.05
"""Times the policy in force, from which a judged wait is spoken of."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """All that a report tells of a run."""

    front: Front
    chosen: Member | None
    """By the weights; None where every policy is refused."""
    shown: Member
    """The best by the weights, refused or not."""
    evolved: Evolved
    choose_values: NDArray[np.float64]
    """(members of the front, scenes, 3) shares on the choose windows."""
    judged: Mapping[str, NDArray[np.float64]]
    """By name of a policy written by hand, `in force` and `chosen`: (scenes, 3) shares on the judge windows."""

    @property
    def doubt(self) -> str:
        """What the judge windows, which nothing was chosen by, say against it; empty if nothing."""
        names = (("average", "average_of_policy_in_force"), ("maximum", "maximum_of_policy_in_force"))
        worse = [
            f"{what} wait is {self.shown.judged[name]:.2f} times that of the policy in force"
            for what, name in names
            if self.shown.judged[name] > MUCH_WORSE
        ]
        found = [f"its {' and its '.join(worse)}"] if worse else []
        if better := self.better_by_hand:
            found.append(f"jobs wait less under {' and '.join(better)}, written by hand, on average and at most")
        return f"On the judge windows {'; '.join(found)}: think twice." if found else ""

    @property
    def better_by_hand(self) -> list[str]:
        """What people wrote that has a smaller average and a smaller maximum on the judge windows; names."""
        means = {name: value.mean(axis=0)[:2] for name, value in self.judged.items()}
        names = [name for name in means if name not in ("chosen", "in force")]
        return [name for name in names if bool((means[name] < means["chosen"]).all())]


def run(
    material: Material,
    parts: Parts,
    recipe: Recipe,
    *,
    incumbent: Policy,
    weights: Mapping[str, float],
    provenance: Mapping[str, Any],
    now: datetime,
    workers: int = 1,
    engine: EngineOf | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
    stage: Callable[[str], None] = lambda _: None,
) -> Trained:
    """Evolve, choose, judge once, and say what may be admitted.

    Args:
        material: the history.
        parts: its windows.
        recipe: how to evolve.
        incumbent: the policy in force, which is to be beaten.
        weights: of the objectives.
        provenance: where the history came from; completed here.
        now: written into the provenance.
        workers: processes.
        engine: another place to work in.
        checkpoint: see `evolution.evolve`.
        resume: see `evolution.evolve`.
        progress: see `evolution.evolve`.
        stage: told what is done after the evolution.

    Raises:
        KeyboardInterrupt: Ctrl-C before the first exchange or after the evolution; the checkpoint is kept.
        ConfigError: the checkpoint cannot be written.
    """
    evolved = evolve(
        parts.train, recipe,
        workers=workers, engine=engine, checkpoint=checkpoint, resume=resume, progress=progress,
    )  # fmt: skip
    if not evolved.front:
        raise KeyboardInterrupt
    candidates = [one.policy for one in evolved.front]
    written = beside(candidates, parts.choose)
    names_of = [""] * len(candidates) + list(written)
    candidates += written.values()
    stage(f"choosing among {len(candidates)} policies, {len(written)} of them written by hand")
    values = evaluate(parts.choose, [*candidates, incumbent], workers=workers)
    scores = weighted(values[:-1], weights)
    members = [
        Member(
            text=policy.text,
            complexity=complexity(policy),
            chosen_on=tuple(value.mean(axis=0).tolist()),
            refused=refusals(policy, value, values[-1], weights),
            by_hand=name,
        )
        for name, policy, value in zip(names_of, candidates, values[:-1], strict=True)
    ]
    best = int(np.argmin(scores))
    allowed = [place for place, member in enumerate(members) if not member.refused]
    taken = min(allowed, key=lambda place: float(scores[place])) if allowed else best
    stage("judging once")
    names = [*by_hand(int(material.fleet.gpus.sum())), ("in force", incumbent), ("chosen", candidates[taken])]
    judged = evaluate(parts.judge, [policy for _, policy in names], workers=workers)
    by_name = {name: value for (name, _), value in zip(names, judged, strict=True)}
    members[taken] = replace(members[taken], judged=_judged(by_name))
    front = Front(
        members=tuple(members),
        provenance={**provenance, **_provenance(material, parts, recipe, evolved, incumbent, now)},
    )
    return Trained(
        front=front,
        chosen=members[taken] if allowed else None,
        shown=members[taken],
        evolved=evolved,
        choose_values=values[:-1],
        judged=by_name,
    )


def _judged(by_name: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """The chosen policy against the one in force and the best ones written by hand."""
    means = {name: value.mean(axis=0) for name, value in by_name.items()}
    hand = [name for name in means if name not in ("chosen", "in force")]
    best_average = min(hand, key=lambda name: float(means[name][0]))
    rivals = {"policy_in_force": means["in force"], "best_average_by_hand": means[best_average]}
    return {
        f"{kind}_of_{name}": float(means["chosen"][place] / rival[place])
        for name, rival in rivals.items()
        for place, kind in enumerate(("average", "maximum"))
    }


def _provenance(
    material: Material, parts: Parts, recipe: Recipe, evolved: Evolved, incumbent: Policy, now: datetime
) -> dict[str, Any]:
    return {
        "trained": now.isoformat(timespec="seconds"),
        "jobs": len(material.jobs),
        "devices": int(material.fleet.gpus.sum()),
        "clusters": len(material.fleet.clusters),
        "origin": material.origin.isoformat(),
        "windows_s": {name: [span.first_s, span.last_s] for name, span in _spans(parts)},
        "problem": {
            name: fingerprint(problem)
            for name, problem in (("train", parts.train), ("choose", parts.choose), ("judge", parts.judge))
        },
        "assumed": list(material.said),
        "predictions": {name: round(value, 4) for name, value in material.facts.items()},
        "recipe": asdict(recipe),
        "reference": REFERENCE,
        "in_force": incumbent.text,
        "simulations": evolved.simulations,
        "seconds": round(evolved.seconds, 1),
        "interrupted": evolved.interrupted,
        "versions": versions(),
    }


def _spans(parts: Parts) -> tuple[tuple[str, Any], ...]:
    return (("train", parts.cut.train), ("choose", parts.cut.choose), ("judge", parts.cut.judge))


def versions() -> dict[str, str]:
    """Of everything that decides the result."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("slurm-evo", "gplearn", "pymoo", "numpy", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def digest(file: Path) -> str:
    """Names a file's content."""
    return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()


def read_recipe(file: Path | None, **given: Any) -> Recipe:
    """A recipe from TOML, with what was given on the command line on top.

    Raises:
        ConfigError: no TOML, an unknown key, or a value that makes no sense; names both.
    """
    found: dict[str, Any] = {}
    if file is not None:
        try:
            found = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as failure:
            raise ConfigError(f"{file}: cannot be read as a recipe: {failure}") from failure
    kinds = {field.name: type(getattr(Recipe(), field.name)) for field in fields(Recipe)}
    for key, value in found.items():
        if key not in kinds:
            near = get_close_matches(key, list(kinds), 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(kinds)}"
            raise ConfigError(f"{file}: unknown key {key}; {hint}")
        if key == "terminals":
            names = [terminal.name for terminal in TERMINALS]
            if not isinstance(value, list) or not value or not set(value) <= set(names):
                raise ConfigError(f"{file}: terminals must be a list out of {', '.join(names)}")
            found[key] = tuple(value)
        elif (
            isinstance(value, bool)
            or not isinstance(value, int if kinds[key] is int else (int, float))
            or not math.isfinite(value)
        ):
            raise ConfigError(f"{file}: {key} must be a number, not {value!r}")
        elif value < (0 if key in ("refined", "seed", "migrants") else 1):
            raise ConfigError(f"{file}: {key} is too small: {value}")
    if (given.get("seed") or 0) < 0:
        raise ConfigError(f"--seed: {given['seed']} is too small; give 0 or more")
    return Recipe(**{**found, **{key: value for key, value in given.items() if value is not None}})
