"""Priorities a replay can run under: an expression, or one score a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from slurm_evo.sim.rows import Rows, evaluate, postfix
from slurm_evo.sim.tables import static_terminals
from slurm_evo.sim.workload import Workload

Scores = npt.NDArray[np.float32]
NOTHING = Rows(np.zeros((1, 2), np.int64), np.zeros(1), np.zeros(11, np.bool_))


class Priority(Protocol):
    """Something that orders jobs."""

    def bind(self, jobs: Workload) -> tuple[Any, Scores | None]:
        """A program, and (n,) scores where they do not depend on time."""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One score a job, known beforehand; larger runs first."""

    score: npt.NDArray[np.float64]

    def bind(self, jobs: Workload) -> tuple[Any, Scores | None]:
        return NOTHING, np.asarray(self.score, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Expression:
    text: str

    def bind(self, jobs: Workload) -> tuple[Any, Scores | None]:
        rows = postfix(self.text)
        if rows.uses[[0, 7, 8, 9, 10]].any():
            return rows, None
        table = np.zeros((11, len(jobs)))
        table[1:7] = static_terminals(jobs).T
        out = np.zeros(len(jobs))
        evaluate(rows, table, 0, len(jobs), out)
        return rows, out.astype(np.float32)


def evaluate_table(program: Any, table: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scores of (11, n) terminals."""
    out = np.zeros(table.shape[1])
    evaluate(program, table, 0, table.shape[1], out)
    return out
