"""What the contract tests need of a fleet, real or simulated, to tell their stories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slurm_evo.model import ClusterPort


class World(Protocol):
    """A fleet whose users, administrators and time the tests command.

    The fleet is the testbed's: alpha (4 nodes × 8 a100), beta (2 × 8 a100) and gamma (4 × 4 v100) in
    one federation, delta (2 × 8 a100) plain; users ada, bob and cyd; QOS normal and high; partition
    ``gpu`` everywhere (the default), ``debug`` on alpha and gamma only.
    """

    def port(self, cluster: str) -> ClusterPort:
        """The port under test, acting as the slurm-evo operator."""
        ...

    def submit(
        self,
        cluster: str,
        *,
        user: str = "ada",
        gpus: int = 1,
        gpu_type: str | None = None,
        nodes: int = 1,
        limit_min: int = 60,
        seconds: int = 600,
        clusters: Sequence[str] | None = None,
        partition: str | None = None,
        qos: str | None = None,
        nice: int | None = None,
        hold: bool = False,
        array: str | None = None,
        dependency: str | None = None,
        comment: str | None = None,
        het: bool = False,
        begin: str | None = None,
        name: str = "story",
        reservation: str | None = None,
    ) -> int:
        """Submit a batch job at ``cluster`` that sleeps; ``clusters`` is the user's own ``-M``. Its id."""
        ...

    def fill(self, cluster: str) -> list[int]:
        """Occupy every GPU of a cluster with running jobs pinned there; their ids."""
        ...

    def hold(self, cluster: str, job: int) -> None:
        """The owner holds a pending job (``scontrol uhold``)."""
        ...

    def release(self, cluster: str, job: int) -> None:
        """The owner releases it."""
        ...

    def cancel(self, cluster: str, job: int) -> None:
        """The owner cancels it (``scancel``)."""
        ...

    def settle(self, seconds: float) -> None:
        """Let time pass: the simulated clock jumps, the real one is waited for."""
        ...
