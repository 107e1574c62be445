"""What a move asks of a cluster, beyond looking at it and steering it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from slurm_evo.model import Answer, ClusterName, JobKey
from slurm_evo.slurm.transfer.image import JobImage
from slurm_evo.slurm.transfer.machine import Copy, Original


@dataclass(frozen=True, slots=True)
class Replied:
    """What a cluster said."""

    answer: Answer
    message: str = ""


class TransferPort(Protocol):
    """One cluster, with the rights of its SlurmUser.

    Questions raise ClusterError where there is no answer; changes put that into `Replied`.
    All changes are idempotent. ``move`` is the `Transfer.name` of the move that asks: what another one has marked
    is never changed.
    """

    @property
    def name(self) -> ClusterName:
        """The cluster's ClusterName."""
        ...

    def image(self, job: int) -> JobImage:
        """Everything the job was submitted with.

        Raises:
            NotMovable: some of it cannot be told, with a reason for each.
            ClusterError: the cluster did not answer.
        """
        ...

    def original(self, job: int, move: str) -> Original:
        """A job of this cluster that is being moved away."""
        ...

    def copies(self, of: JobKey, image: JobImage | None, known: int | None, move: str) -> tuple[Copy, ...]:
        """The jobs here that carry this move's mark of that one, ended ones included.

        Args:
            of: the original.
            image: what was submitted, to compare owners; None before anything was.
            known: the number it was seen under; looked up in accounting if the cluster lists it no more.
            move: whose.
        """
        ...

    def test(self, image: JobImage) -> Replied:
        """Would the job be taken here, asked as its owner? Changes nothing."""
        ...

    def defer(self, job: int, to: ClusterName, seconds: float, move: str) -> Replied:
        """Put the job off and mark it, in one update."""
        ...

    def restore(self, job: int, move: str) -> Replied:
        """Let a job that was put off start again, and take the mark away."""
        ...

    def submit(self, image: JobImage, move: str) -> Replied:
        """Submit a held, marked copy as the owner, under the same number if it is free here."""
        ...

    def cancel(self, job: int, to: JobKey | None, move: str) -> Replied:
        """Cancel the job if it still waits; marked with where it went."""
        ...

    def release(self, copy: int, of: JobKey, *, move: str, site_factor: int, held: bool = False) -> Replied:
        """Release a copy with its final mark, its own Nice (Slurm resets it) and a SiteFactor, in one update.

        Args:
            copy: its number here.
            of: the original.
            move: whose.
            site_factor: what it gets.
            held: all but the release: it stays held by its owner.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
