"""The simulated port passes the same stories as the real ones."""

from __future__ import annotations

import pytest
from simulated_world import SimulatedWorld
from stories import ActingStories, FederationStories, LookingStories


@pytest.fixture(scope="class")
def world() -> SimulatedWorld:
    return SimulatedWorld()


class TestLooking(LookingStories):
    pass


class TestActing(ActingStories):
    pass


class TestActingOutsideTheFederation(ActingStories):
    home = "delta"
    full = ("delta",)


class TestFederation(FederationStories):
    pass
