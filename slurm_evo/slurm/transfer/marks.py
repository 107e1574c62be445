"""Where a moved job went, by the marks in accounting: anybody may ask, and they outlive the journal's memory."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

from slurm_evo.model import ClusterName, JobKey
from slurm_evo.slurm.runner import Runner, run_process, slurm_environment
from slurm_evo.slurm.transfer.image import FROM, TO, mark_of

Comments = Callable[[JobKey], str]
"""The AdminComment of a job; empty if it has none or is not known."""
Unanswered = (OSError, subprocess.TimeoutExpired)
"""What asking accounting may raise."""


def moves_by_marks(job: JobKey, comment: Comments) -> tuple[tuple[JobKey, JobKey], ...]:
    """All completed moves of a job, before and after the name it is asked by, as from and to; oldest first."""
    before, after = _one_way(job, comment, FROM), _one_way(job, comment, TO)
    names = [*reversed(before), job, *after]
    return tuple(pairwise(names))


def _one_way(job: JobKey, comment: Comments, mark: str) -> list[JobKey]:
    found: list[JobKey] = []
    while (told := mark_of(comment(found[-1] if found else job), mark)) is not None:
        try:
            key = JobKey.parse(told)
        except ValueError:
            break
        if key == job or key in found:
            break
        found.append(key)
    return found


def comments_in_accounting(
    confs: Mapping[ClusterName, tuple[str, Path | None]], *, timeout_s: float, run: Runner = run_process
) -> Comments:
    """Ask sacct of each cluster.

    Args:
        confs: by cluster its slurm.conf, and the folder of its own commands.
        timeout_s: for one question.
        run: how commands are run.

    Returns:
        A function that raises OSError or subprocess.TimeoutExpired where accounting does not answer.
    """

    def comment(job: JobKey) -> str:
        if job.cluster not in confs:
            return ""
        argv = (
            "sacct", "--allocations", "--parsable2", "--noheader", "--local", "--starttime=1970-01-01",
            f"--jobs={job.id}", "--format=AdminComment%500",
        )  # fmt: skip
        ran = run(argv, env=slurm_environment(*confs[job.cluster]), timeout_s=timeout_s)
        if ran.returncode:
            raise OSError(
                f"sacct of {job.cluster} ended with {ran.returncode}: {' '.join(ran.stderr.split())[:300]}"
            )
        return ran.stdout.strip("\n").splitlines()[-1] if ran.stdout.strip() else ""

    return comment
