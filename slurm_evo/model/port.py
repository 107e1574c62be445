"""The seam between slurm-evo and a cluster."""

from __future__ import annotations

from typing import Protocol

from slurm_evo.model.action import Action, Outcome
from slurm_evo.model.job import ClusterName
from slurm_evo.model.view import ClusterView


class ClusterPort(Protocol):
    """All that is asked of a cluster. The real ones and the simulated one pass the same contract tests."""

    @property
    def name(self) -> ClusterName:
        """The cluster's ClusterName."""
        ...

    def look(self) -> ClusterView:
        """See the cluster once.

        Raises:
            ClusterUnreachable: it did not answer in time.
            ClusterRefused: it does not let us look.
            AnswerUnreadable: it answered in a form that was not understood.
        """
        ...

    def apply(self, action: Action) -> Outcome:
        """Ask for one change of a job whose origin (or only cluster) is this one.

        A refusal, a job that is gone and a missing answer are Outcomes, not errors.
        """
        ...

    def close(self) -> None:
        """Let go of connections and worker processes."""
        ...
