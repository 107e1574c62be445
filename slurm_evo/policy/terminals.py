"""What an expression may speak of: one fixed list, the same for training and for the daemon."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Terminal:
    """One feature of a pending job."""

    name: str
    unit: str
    """``s``, ``GPU``, ``GPU·s`` or ``1`` for a ratio or a plain count."""
    symbol: str
    """For formulas (LaTeX)."""
    low: float
    high: float
    """The range over which expressions are checked."""
    moves: bool
    """Changes while the job waits."""
    text: str


TERMINALS = (
    Terminal("wait", "s", "w", 0, 5e6, True, "seconds since it could have started"),
    Terminal("limit", "s", "l", 60, 5e6, False, "its time limit"),
    Terminal("runtime", "s", "r", 1, 5e6, False, "predicted running time; the limit where nothing is known"),
    Terminal("gpus", "GPU", "g", 0, 1024, False, "whole devices it asks for, all nodes together"),
    Terminal("nodes", "1", "n", 1, 256, False, "nodes it asks for"),
    Terminal("cpus", "1", "c", 1, 16384, False, "CPUs it asks for, all nodes together"),
    Terminal("weight", "1", "v", 0.01, 100, False, "its weight in the objectives"),
    Terminal("user_usage", "GPU·s", "u", 0, 1e9, True, "GPU-seconds its user used, half-life 7 days"),
    Terminal("user_pending", "GPU", "p", 0, 1e5, True, "GPUs that its user's pending jobs ask for"),
    Terminal("load", "1", "b", 0, 1, True, "share of the fleet's GPUs that are busy"),
    Terminal("pressure", "1", "q", 0, 1e3, True, "GPUs that all pending jobs ask for, by GPUs of the fleet"),
)
"""In the order of the rows of a feature table."""

ROW = {terminal.name: row for row, terminal in enumerate(TERMINALS)}
HALF_LIFE_S = 7 * 86_400.0
"""Of ``user_usage``."""
