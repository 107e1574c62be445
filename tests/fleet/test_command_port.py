"""The command-line port on real daemons: the common stories, and what is its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from real_world import CLUSTERS, OPERATOR, RealWorld, as_operator, command, slurm_conf
from stories import ActingStories, FederationStories, LookingStories, Stories, Teller

from slurm_evo.model import Answer, ClusterName, ClusterUnreachable, JobKey, JobState, SetSiteFactor, Unpin
from slurm_evo.slurm.command import CommandPort


def command_port(cluster: str) -> CommandPort:
    return CommandPort(ClusterName(cluster), slurm_conf=slurm_conf(cluster), run=as_operator)


@pytest.fixture(scope="class")
def world() -> Iterator[RealWorld]:
    real = RealWorld(command_port)
    yield real
    real.close()


class StartedJobs:
    """What Slurm's own commands do with a job that has started."""

    def test_a_job_that_has_started_is_gone_and_runs_on(self, tell: Teller, fillers: dict[str, list[int]]) -> None:
        key = JobKey(ClusterName(self.home), fillers[self.home][0])  # type: ignore[attr-defined]
        before = tell.listed(key.cluster, key)
        assert tell.apply(Unpin(key, nice=3, site_factor=500)).answer is Answer.GONE
        # slurmctld takes a SiteFactor for a running job too; asking it first would double the cost
        assert tell.apply(SetSiteFactor(key, 500)).answer is Answer.DONE
        after = tell.listed(key.cluster, key)
        assert after.state is JobState.RUNNING
        assert (after.nice, after.nodelist, after.viable) == (before.nice, before.nodelist, before.viable)


class TestLooking(LookingStories):
    pass


class TestActing(StartedJobs, ActingStories):
    pass


class TestActingOutsideTheFederation(StartedJobs, ActingStories):
    home = "delta"
    full = ("delta",)


class TestFederation(FederationStories):
    pass


class TestWhatSlurmDoes(Stories):
    """Facts the port is built on; a Slurm that changes them shall be noticed here."""

    def test_trackers_are_listed_on_demand_only(self, tell: Teller) -> None:
        key = tell.submit("alpha", clusters=["alpha"])
        tell.waits_on(key, "alpha")
        tell.viable(key, "beta")
        tell.waits_on(key, "beta")
        assert tell.listed("alpha", key).revoked
        assert str(key.id) not in command("alpha", "squeue", "--local", "--json", user=OPERATOR)

    def test_nodes_wanted_for_itself_are_told(self, tell: Teller) -> None:
        job = command(
            *("alpha", "sbatch", "--parsable", "--clusters=alpha", "--exclusive", "--gpus=1", "--hold"),
            *("--chdir=/tmp", "--output=/dev/null", "--wrap=true"),
            user="ada",
        )
        key = JobKey(ClusterName("alpha"), int(job.partition(";")[0]))
        plain = tell.submit("alpha", clusters=["alpha"])
        try:
            assert tell.listed("alpha", key).exclusive
            assert not tell.listed("alpha", plain).exclusive
        finally:
            command("alpha", "scancel", str(key.id), user="ada")

    def test_scontrol_cannot_send_the_priority_that_unpins(self, tell: Teller) -> None:
        key = tell.submit("alpha", clusters=["alpha"])
        ran = as_operator(
            ["scontrol", "update", f"JobId={key.id}", "Priority=4294967295"],
            env={"SLURM_CONF": slurm_conf("alpha"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            timeout_s=30,
        )
        assert "Invalid Priority value" in ran.stderr + ran.stdout

    def test_a_pinned_plain_job_is_seen_and_healed(self, tell: Teller) -> None:
        tell.world.fill("delta")
        key = tell.submit("delta", nice=4)
        tell.listed("delta", key)
        command("delta", "scontrol", "update", f"JobId={key.id}", "Priority=777", user=OPERATOR)
        tell.eventually(lambda: tell.listed("delta", key).direct_priority, "the pinned number is seen")
        assert tell.listed("delta", key).site_factor is None
        tell.done(Unpin(key, nice=4, site_factor=900))
        job = tell.listed("delta", key)
        assert (job.direct_priority, job.site_factor, job.nice) == (False, 900, 4)

    def test_an_owners_hold_and_release_leave_one_record_for_each_cluster(self, tell: Teller) -> None:
        key = tell.submit("alpha", clusters=["alpha"], nice=5)
        tell.waits_on(key, "alpha")
        tell.viable(key, "beta")
        tell.waits_on(key, "beta")
        tell.world.hold("alpha", key.id)
        tell.world.settle(2)
        tell.world.release("alpha", key.id)
        tell.waits_on(key, "beta")
        tell.world.settle(2)
        assert len([job for job in tell.look("beta").jobs if job.id == key.id]) == 1
        # the sibling that was sent anew has lost Nice and SiteFactor; unpinning restores both
        tell.done(Unpin(key, nice=5, site_factor=6_000))
        tell.eventually(lambda: tell.listed("beta", key).site_factor == 6_000, "beta follows")
        assert tell.listed("beta", key).nice == 5

    def test_a_job_that_runs_elsewhere_is_not_hurt_by_unpinning(self, tell: Teller) -> None:
        free = tell.submit("alpha", clusters=["alpha"])
        tell.waits_on(free, "alpha")
        running = next(job for job in tell.look("gamma").jobs if job.state is JobState.RUNNING)
        tell.viable(free, "alpha", "gamma")
        tell.waits_on(free, "alpha", "gamma")
        tell.world.cancel("gamma", running.id)
        tell.eventually(lambda: tell.fleet_job(free).running, "it starts on gamma")
        for action in (Unpin(free, nice=0, site_factor=500), SetSiteFactor(free, 600)):
            assert tell.apply(action).answer in (Answer.DONE, Answer.GONE)
        tell.world.settle(3)
        assert tell.fleet_job(free).running
        assert tell.fleet_job(free).waiting_on == frozenset()

    def test_every_job_of_a_real_fleet_can_be_read(self, tell: Teller) -> None:
        assert [tell.look(cluster).unreadable for cluster in CLUSTERS] == [()] * 4

    def test_a_clock_close_to_ours(self, tell: Teller) -> None:
        skew = tell.look("alpha").facts.clock_skew_s
        assert skew is not None
        assert abs(skew) < 2


def test_a_slurm_conf_that_is_not_there_is_waited_for_only_so_long() -> None:
    port = CommandPort(ClusterName("alpha"), slurm_conf="/nowhere/slurm.conf", run=as_operator, timeout_s=2)
    with pytest.raises(ClusterUnreachable, match=r"did not end within 2 s; .*nowhere/slurm.conf there"):
        port.look()
