"""What orders jobs in a replay: a policy, or one score a job known beforehand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slurm_evo.model import PolicyError
from slurm_evo.policy import ROW, Policy
from slurm_evo.sim.ranking import Program
from slurm_evo.sim.tables import static_terminals
from slurm_evo.sim.workload import Workload

Scores = npt.NDArray[np.float32]
NO_PROGRAM = Program(np.zeros((1, 4), np.int64), np.zeros(0), 1, np.zeros(len(ROW), np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One score a job, (n,); larger runs first. For what no expression can say, such as a submit time."""

    score: npt.NDArray[np.float64]


Priority = Policy | Scored


def bind(priority: Priority, jobs: Workload) -> tuple[Program, Scores | None]:
    """The program to run, and (n,) scores if they never change; None if they do.

    Raises:
        PolicyError: not one score for each job.
    """
    if isinstance(priority, Scored):
        if priority.score.shape != (len(jobs),):
            raise PolicyError(f"{priority.score.shape} scores for {len(jobs)} jobs")
        return NO_PROGRAM, priority.score.astype(np.float32)
    if priority.changes_with_time:
        code, constants, registers = priority.program
        uses = np.array([name in priority.terminals for name in ROW])
        return Program(code, constants, registers, uses), None
    table = np.zeros((len(ROW), len(jobs)))
    table[1:7] = static_terminals(jobs).T
    with np.errstate(over="ignore"):
        return NO_PROGRAM, priority.scores(table).astype(np.float32)
