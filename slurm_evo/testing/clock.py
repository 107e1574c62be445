"""A clock that stands still until it is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class ManualClock:
    """Called, it tells its instant; only ``advance`` and ``set`` move it.

    Args:
        start: the first instant, aware.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 5, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError("a clock needs an aware instant, such as datetime(2026, 1, 5, tzinfo=UTC)")
        self._now = start

    def __call__(self) -> datetime:
        """The present."""
        return self._now

    def advance(self, seconds: float) -> datetime:
        """Let ``seconds`` pass; the new present.

        Raises:
            ValueError: time would run backwards.
        """
        return self.set(self._now + timedelta(seconds=seconds))

    def set(self, instant: datetime) -> datetime:
        """Jump to a later instant; the new present.

        Raises:
            ValueError: time would run backwards.
        """
        if instant < self._now:
            raise ValueError(f"{instant} is before {self._now}")
        self._now = instant
        return instant
