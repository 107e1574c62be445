"""Many replays under identical conditions: run side by side, measured, tabulated and drawn.

Needs the extra ``trace``. The daemon never imports it.
"""

from slurm_evo.compare.contest import ALLOCATIONS, SCHEDULERS, Contest, Figures, Run, contest, rules_of, runs_of
from slurm_evo.compare.table import Row, summarise

__all__ = [
    "ALLOCATIONS",
    "SCHEDULERS",
    "Contest",
    "Figures",
    "Row",
    "Run",
    "contest",
    "rules_of",
    "runs_of",
    "summarise",
]
