"""Tests that run inside a fleet of the testbed, as root; elsewhere they are skipped and say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_world import CLUSTERS, clear, slurm_conf

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here, and skip it where there is no fleet."""
    missing = [slurm_conf(cluster) for cluster in CLUSTERS if not Path(slurm_conf(cluster)).exists()]
    for item in items:
        if not item.path.is_relative_to(FOLDER):
            continue
        item.add_marker(pytest.mark.slurm)
        if missing:
            item.add_marker(
                pytest.mark.skip(
                    reason=f"no fleet here ({missing[0]} is missing); run it inside one: python3"
                    " tests/testbed exec NAME -- /opt/slurm-evo/venv/bin/python -m pytest tests/fleet"
                )
            )


@pytest.fixture(scope="module", autouse=True)
def _an_empty_fleet_for_the_next() -> Iterator[None]:
    """No file leaves a job behind that takes the room of another's stories."""
    yield
    clear()
