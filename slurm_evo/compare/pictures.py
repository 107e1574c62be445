"""What people would rather look at: average against maximum, and a replay over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slurm_evo.compare.table import Row
from slurm_evo.model import ConfigError
from slurm_evo.sim.replay import Replayed
from slurm_evo.sim.workload import Ints, Workload
from slurm_evo.trace.capacity import Capacity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which people with colour blindness can tell apart."""
HOUR = 3600.0
POINTS = 2000


def _figure(rows: int, height: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, height), layout="constrained")
    return figure, figure.subplots(rows, 1, sharex=rows > 1)


def _save(figure: Figure, file: Path) -> None:
    """The suffix chooses the format.

    Raises:
        ConfigError: matplotlib knows no such format, or the file cannot be written.
    """
    try:
        figure.savefig(file, dpi=130)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: the picture cannot be written: {error}") from error


def average_against_maximum(rows: Sequence[Row], title: str, file: Path) -> None:
    """One point a row, colour by allocation; a line joins those that nothing beats in both.

    Raises:
        ConfigError: the file cannot be written.
    """
    figure, axes = _figure(1, 6.5)
    allocations = list(dict.fromkeys(row.allocation for row in rows))
    for place, allocation in enumerate(allocations):
        mine = [row for row in rows if row.allocation == allocation]
        axes.scatter(
            [row.mean["average_wait_s"] / HOUR for row in mine],
            [row.mean["maximum_wait_s"] / HOUR for row in mine],
            color=COLORS[place % len(COLORS)],
            label=allocation,
            zorder=3,
        )
    named: dict[tuple[float, float], list[str]] = {}
    for row in rows:
        at = (row.mean["average_wait_s"] / HOUR, row.mean["maximum_wait_s"] / HOUR)
        named.setdefault(at, []).append(row.policy if len(row.policy) <= 24 else row.policy[:21] + "...")
    for at, names in named.items():
        axes.annotate(", ".join(names), at, xytext=(4, 4), textcoords="offset points", fontsize=8)
    front = sorted(
        (row.mean["average_wait_s"] / HOUR, row.mean["maximum_wait_s"] / HOUR) for row in rows if row.on_front
    )
    axes.plot(*zip(*front, strict=True), color="#999999", linewidth=1, zorder=1, label="not beaten in both")
    _logarithmic(axes, [at for at, _ in named], [at for _, at in named])
    axes.set(xlabel="average weighted wait, hours", ylabel="maximum weighted wait, hours", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, file)


def _logarithmic(axes: Any, across: Sequence[float], up: Sequence[float]) -> None:
    """Logarithmic scales with readable ticks; linear where somebody did not wait at all."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    for axis, values in ((axes.xaxis, across), (axes.yaxis, up)):
        if min(values) > 0:
            axis.axes.set(**{f"{axis.axis_name}scale": "log"})
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_locator(LogLocator(subs="all"))
            axis.set_major_formatter(ScalarFormatter())
            axis.set_minor_formatter(NullFormatter())


def _over_time(begin: Ints, end: Ints, size: Ints, grid: Ints) -> Ints:
    """Σ size of the intervals [begin, end) that cover each instant of the grid."""
    order, back = np.argsort(begin), np.argsort(end)
    up, down = np.cumsum(size[order]), np.cumsum(size[back])
    begun = np.concatenate([[0], up])[np.searchsorted(begin[order], grid, side="right")]
    ended = np.concatenate([[0], down])[np.searchsorted(end[back], grid, side="right")]
    return np.asarray(begun - ended, dtype=np.int64)


def load_and_queue(jobs: Workload, done: Replayed, fleet: Capacity, title: str, file: Path) -> None:
    """Devices in use by cluster, devices asked for by waiting jobs, and how many jobs wait, over time.

    Raises:
        ConfigError: the file cannot be written.
    """
    figure, (load, asked, waiting) = _figure(3, 9)
    ran = done.start >= 0
    last = max(int(done.end.max(initial=1)), 1)
    grid = np.linspace(0, last, POINTS).astype(np.int64)
    days = grid / 86_400
    clusters = [
        _over_time(done.start[on], done.end[on], jobs.gpus[on], grid)
        for on in (ran & (done.cluster == place) for place in range(len(fleet.names)))
    ]
    colors = [f"C{place % 10}" for place in range(len(fleet.names))]
    load.stackplot(days, clusters, labels=fleet.names, colors=colors, step="post")
    load.axhline(int(fleet.shape.gpus.sum()), color="black", linewidth=1, linestyle="--", label="all there are")
    left = np.where(ran, done.start, last)
    stays = left > jobs.submit
    begin, end, size = jobs.submit[stays], left[stays], jobs.gpus[stays]
    asked.fill_between(days, _over_time(begin, end, size, grid), color=COLORS[1], step="post")
    waiting.fill_between(days, _over_time(begin, end, np.ones_like(size), grid), color=COLORS[0], step="post")
    for axes in (load, asked, waiting):
        axes.axvline(int(jobs.submit[-1]) / 86_400, color="#999999", linewidth=1)
        axes.grid(alpha=0.3)
    load.set(ylabel="devices in use", title=title)
    asked.set(ylabel="devices waited for")
    waiting.set(ylabel="jobs waiting", xlabel="days (the line: last submission)")
    if len(fleet.names) <= 12:
        load.legend(loc="upper right", fontsize=8, ncols=3)
    _save(figure, file)


__all__ = ["average_against_maximum", "load_and_queue"]
