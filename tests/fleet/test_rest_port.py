"""The REST port on real daemons: what slurmrestd can do, and that it says what it cannot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from real_world import OPERATOR, RealWorld, as_operator, rest_url, slurm_conf
from stories import MEMBERS, ActingStories, FederationRefusedStories, LookingStories, Stories, Teller

from slurm_evo.model import Answer, ClusterName, ClusterView, JobKey, JobState, SetSiteFactor, Unpin
from slurm_evo.slurm.command import CommandPort
from slurm_evo.slurm.rest import RestPort


def rest_port(cluster: str) -> RestPort:
    return RestPort(
        ClusterName(cluster),
        url=rest_url(cluster),
        token_file=Path("/etc/slurm-evo/jwt") / cluster,
        user=OPERATOR,
    )


@pytest.fixture(scope="class")
def world() -> Iterator[RealWorld]:
    real = RealWorld(rest_port)
    yield real
    real.close()


class TestLooking(LookingStories):
    sees_priorities = False

    def test_a_look_tells_the_federation_and_how_priorities_are_made(self, tell: Teller) -> None:
        facts = tell.look("alpha").facts
        assert facts.version
        # slurmrestd does not tell the federation, and how priorities are made only since 26.05
        assert (facts.federation, facts.federation_state) == (None, "unknown")
        newest = facts.version >= "26.05"
        assert facts.priority_type == ("priority/multifactor" if newest else "unknown")


class TestActing(ActingStories):
    sees_priorities = False
    home = "delta"
    full = ("delta",)

    def test_a_job_that_has_started_is_gone_and_runs_on(self, tell: Teller, fillers: dict[str, list[int]]) -> None:
        key = JobKey(ClusterName("delta"), fillers["delta"][0])
        assert tell.apply(Unpin(key, nice=3, site_factor=500)).answer is Answer.GONE
        assert tell.apply(SetSiteFactor(key, 500)).answer is Answer.DONE
        assert tell.listed("delta", key).state is JobState.RUNNING


class TestFederation(FederationRefusedStories):
    sees_priorities = False


class TestBesideTheCommands(Stories):
    full = ("delta",)

    def _both(self, tell: Teller, cluster: str) -> tuple[ClusterView, ClusterView]:
        """Two looks at one state: between them slurmctld may plan for a node, or find a reason to wait."""
        port = CommandPort(ClusterName(cluster), slurm_conf=slurm_conf(cluster), run=as_operator)
        for _ in range(10):
            other, view = port.look(), tell.look(cluster)
            reasons = [{job.id: job.reason for job in each.jobs} for each in (other, view)]
            if other.nodes == view.nodes and reasons[0] == reasons[1]:
                break
            time.sleep(0.5)
        return other, view

    def test_both_ways_in_see_the_same(self, tell: Teller) -> None:
        tell.submit("delta", nice=3, gpu_type="a100", comment="x")
        tell.submit("delta", hold=True, array="1-3")
        for cluster in (*MEMBERS, "delta"):
            other, view = self._both(tell, cluster)
            assert view.nodes == other.nodes
            assert [p.name for p in view.partitions] == [p.name for p in other.partitions]
            assert view.limits == other.limits
            alive = {job.id: job for job in view.jobs if job.state is not JobState.DONE}
            # sprio is the commands' alone, and a priority grows while we look
            plain = {
                job.id: replace(job, site_factor=None, direct_priority=False, priority=alive[job.id].priority)
                for job in other.jobs
                if job.state is not JobState.DONE
            }
            assert alive == plain
