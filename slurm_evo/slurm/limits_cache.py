"""Limits change rarely and each question loads slurmdbd: ask every few minutes only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from slurm_evo.model import ClusterError, Limit

REFRESH = timedelta(minutes=5)
RETRY = timedelta(minutes=1)
"""After a failure: a slurmdbd that is down is not asked, nor waited for, in every cycle."""


class LimitsCache:
    """Remembers the last limits that could be had.

    Args:
        ask: asks slurmdbd; raises ClusterError.
        clock: aware UTC.
    """

    def __init__(self, ask: Callable[[], tuple[Limit, ...]], clock: Callable[[], datetime]) -> None:
        self._ask = ask
        self._clock = clock
        self._last: tuple[Limit, ...] | None = None
        self._due: datetime | None = None
        self.failure: ClusterError | None = None
        """Why the last question failed; None if it did not."""

    def limits(self) -> tuple[Limit, ...] | None:
        """The limits, at most a few minutes old while slurmdbd answers; None if they never could be had."""
        now = self._clock()
        if self._due is None or now >= self._due:
            try:
                self._last = self._ask()
                self.failure = None
                self._due = now + REFRESH
            except ClusterError as failure:
                # without slurmdbd the last known limits hold: slurmctld goes on enforcing them too
                self.failure = failure
                self._due = now + RETRY
        return self._last
