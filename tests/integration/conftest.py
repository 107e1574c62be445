"""The real fleet that the integration tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from testbed.fleet import Fleet


@pytest.fixture(scope="session")
def start_fleet() -> Callable[[str], Fleet]:
    """Start a fleet by name. Where none can run, the test is skipped; or fails, if real Slurm is required."""
    required = os.environ.get("CI") == "true" or os.environ.get("SLURM_EVO_REQUIRE_SLURM") == "1"

    def start(name: str) -> Fleet:
        try:
            return Fleet.up(name, os.environ.get("SLURM_EVO_RELEASE", "forky"))
        except (SystemExit, OSError) as failure:
            give_up = pytest.fail if required else pytest.skip
            give_up(f"no real Slurm here: {failure}")

    return start


@pytest.fixture(scope="session")
def fleet(start_fleet: Callable[[str], Fleet]) -> Iterator[Fleet]:
    """One fleet for the whole session, on the Debian of SLURM_EVO_RELEASE (forky)."""
    running = start_fleet(f"pytest-{os.getpid()}")
    try:
        yield running
    finally:
        running.down()
