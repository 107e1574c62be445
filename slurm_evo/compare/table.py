"""Replays of the same policy and allocation, put together over seeds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from slurm_evo.compare.contest import Figures
from slurm_evo.sim.metrics import Metrics

NAMES = tuple(field.name for field in fields(Metrics) if field.name != "jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy under one allocation."""

    policy: str
    allocation: str
    seeds: int
    mean: dict[str, float]
    """Of each of ``Metrics``' numbers, over the seeds."""
    spread: dict[str, float]
    """Standard deviation over the seeds; 0 for one."""
    unstarted: int
    on_front: bool
    """No other row has both a lower average and a lower maximum weighted wait."""


def summarise(figures: Iterable[Figures]) -> list[Row]:
    """Rows in the order of their average weighted wait."""
    groups: dict[tuple[str, str], list[Figures]] = {}
    for each in figures:
        groups.setdefault((each.run.title, each.run.allocation), []).append(each)
    values = {
        key: np.array([[getattr(one.metrics, name) for name in NAMES] for one in group])
        for key, group in groups.items()
    }
    points = np.array([each.mean(axis=0)[:2] for each in values.values()])
    rows = [
        Row(
            policy=key[0],
            allocation=key[1],
            seeds=len(group),
            mean=dict(zip(NAMES, values[key].mean(axis=0).tolist(), strict=True)),
            spread=dict(zip(NAMES, values[key].std(axis=0).tolist(), strict=True)),
            unstarted=max(one.unstarted for one in group),
            on_front=not (points < points[place]).all(axis=1).any(),
        )
        for place, (key, group) in enumerate(groups.items())
    ]
    return sorted(rows, key=lambda row: row.mean["average_wait_s"])


__all__ = ["NAMES", "Row", "summarise"]
