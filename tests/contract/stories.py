"""What every way into a cluster does, told as stories on a World: real ports and the simulated one alike.

A test module gives a class-scoped fixture ``world`` and derives its classes from these::

    class TestLooking(LookingStories): ...
    class TestActing(ActingStories): ...
    class TestFederation(FederationStories): ...

What a port cannot do is declared, and the story then asks that it says so:

* ``sees_priorities = False``: SiteFactor and direct-priority mode cannot be read back (no sprio).
* ``home``: the cluster whose jobs ActingStories change. A port that cannot change federated jobs
  (slurmrestd) sets ``home = "delta"`` and derives from FederationRefusedStories, not FederationStories.

Each story cancels what it submitted; the clusters stay full, so that its jobs wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from world import World

from slurm_evo.model import (
    Action,
    Answer,
    ClusterName,
    ClusterView,
    FleetJob,
    FleetView,
    Hold,
    Job,
    JobKey,
    JobState,
    Outcome,
    SetClusters,
    SetSiteFactor,
    Unpin,
)

MEMBERS = ("alpha", "beta", "gamma")
NODES = {"alpha": (4, 8, "a100"), "beta": (2, 8, "a100"), "gamma": (4, 4, "v100"), "delta": (2, 8, "a100")}
PATIENCE_S = 60
"""How long a real controller may take to show an effect; most need a second or two."""


class Teller:
    """A world with a memory of what was submitted, so that it can be cleaned up."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.submitted: list[JobKey] = []

    def submit(self, cluster: str, **wishes) -> JobKey:
        key = JobKey(ClusterName(cluster), self.world.submit(cluster, **wishes))
        self.submitted.append(key)
        return key

    def look(self, cluster: str) -> ClusterView:
        return self.world.port(cluster).look()

    def record(self, cluster: str, key: JobKey) -> Job | None:
        return next((job for job in self.look(cluster).jobs if job.id == key.id and job.key == key), None)

    def listed(self, cluster: str, key: JobKey) -> Job:
        """The record, once the cluster lists it."""
        self.eventually(lambda: self.record(cluster, key) is not None, f"{cluster} lists {key}")
        found = self.record(cluster, key)
        assert found is not None
        return found

    def fleet_job(self, key: JobKey) -> FleetJob:
        views = tuple(self.look(name) for name in MEMBERS)
        return FleetView(views[0].seen_at, views).jobs[key]

    def waits_on(self, key: JobKey, *clusters: str) -> None:
        self.eventually(
            lambda: self.fleet_job(key).waiting_on == frozenset(clusters),
            f"{key} waits on {', '.join(clusters) or 'no cluster'}",
        )

    def apply(self, action: Action) -> Outcome:
        return self.world.port(action.job.cluster).apply(action)

    def done(self, action: Action) -> None:
        outcome = self.apply(action)
        assert outcome.answer is Answer.DONE, outcome
        assert outcome.action == action

    def viable(self, key: JobKey, *clusters: str) -> None:
        self.done(SetClusters(key, tuple(sorted(map(ClusterName, clusters)))))

    def eventually(self, true: Callable[[], bool], what: str) -> None:
        """Wait until it is true: PATIENCE_S of the world's time."""
        started = time.monotonic()
        for _ in range(PATIENCE_S):
            if true():
                return
            if time.monotonic() - started > PATIENCE_S:
                break
            self.world.settle(1)
        pytest.fail(f"not within {PATIENCE_S} s: {what}")

    def clean(self) -> None:
        for key in self.submitted:
            self.world.cancel(key.cluster, key.id)


class Stories:
    """Every class of stories: a full cluster, and what this port declares."""

    sees_priorities = True
    home = "alpha"
    full = MEMBERS
    """Clusters whose GPUs are all taken while the stories run."""

    @pytest.fixture(scope="class")
    @classmethod
    def fillers(cls, world: World) -> Iterator[dict[str, list[int]]]:
        jobs = {name: world.fill(name) for name in cls.full}
        yield jobs
        for name, ids in jobs.items():
            for job in ids:
                world.cancel(name, job)

    @pytest.fixture
    def tell(self, world: World, fillers: dict[str, list[int]]) -> Iterator[Teller]:
        assert all(fillers.values())
        teller = Teller(world)
        yield teller
        teller.clean()


class LookingStories(Stories):
    """What a look tells."""

    @pytest.mark.parametrize("cluster", NODES)
    def test_a_look_tells_the_nodes_and_their_gpus(self, tell: Teller, cluster: str) -> None:
        number, gpus, gpu_type = NODES[cluster]
        view = tell.look(cluster)
        assert view.cluster == cluster == tell.world.port(cluster).name
        assert [(node.gpus, node.gpu_type, node.up) for node in view.nodes] == [(gpus, gpu_type, True)] * number
        assert view.gpus == number * gpus
        assert all(node.cpus >= gpus and node.memory_mb > 0 for node in view.nodes)

    def test_a_look_tells_the_partitions(self, tell: Teller) -> None:
        names = {cluster: {p.name for p in tell.look(cluster).partitions} for cluster in NODES}
        assert names == {
            "alpha": {"gpu", "debug"},
            "beta": {"gpu"},
            "gamma": {"gpu", "debug"},
            "delta": {"gpu"},
        }
        view = tell.look("beta")
        (partition,) = view.partitions
        assert partition.default
        assert partition.up
        assert sorted(partition.nodes) == sorted(node.name for node in view.nodes)

    def test_a_look_tells_the_federation_and_how_priorities_are_made(self, tell: Teller) -> None:
        facts = tell.look("alpha").facts
        assert facts.version
        assert facts.multifactor
        assert set(facts.federation_clusters) == set(MEMBERS)
        assert facts.federation
        assert facts.federation_state == "ACTIVE"
        assert facts.priority_weights["age"] > 0

    def test_a_cluster_outside_the_federation_says_so(self, tell: Teller) -> None:
        facts = tell.look("delta").facts
        assert facts.federation is None
        assert facts.federation_clusters == ()

    def test_a_look_tells_the_limits_of_users_and_qos(self, tell: Teller) -> None:
        limits = tell.look("alpha").limits
        assert limits is not None
        assert {"ada", "bob", "cyd"} <= {limit.user for limit in limits if limit.scope == "association"}
        assert {"normal", "high"} <= {limit.qos for limit in limits if limit.scope == "qos"}

    def test_a_waiting_job_is_seen_as_it_was_submitted(self, tell: Teller) -> None:
        key = tell.submit(
            "alpha",
            user="bob",
            gpus=4,
            gpu_type="a100",
            nodes=2,
            limit_min=90,
            qos="high",
            nice=7,
            name="seen",
        )
        job = tell.listed("alpha", key)
        assert (job.user, job.name, job.qos, job.partitions) == ("bob", "seen", "high", ("gpu",))
        assert (job.gpus, job.gpu_type, job.nodes, job.limit_s) == (4, "a100", 2, 5400)
        assert (job.state, job.hold, job.nice, job.batch) == (JobState.PENDING, Hold.NONE, 7, True)
        assert job.account
        assert job.waiting_here
        assert (job.started, job.ended, job.nodelist) == (None, None, ())
        assert abs(tell.look("alpha").seen_at - job.submitted) < timedelta(minutes=2)

    def test_running_jobs_occupy_the_gpus_of_their_nodes(
        self, tell: Teller, fillers: dict[str, list[int]]
    ) -> None:
        view = tell.look("beta")
        running = [job for job in view.jobs if job.state is JobState.RUNNING]
        assert set(fillers["beta"]) <= {job.id for job in running}
        assert sum(job.gpus for job in running) == sum(node.gpus_used for node in view.nodes) == 16
        names = {node.name for node in view.nodes}
        for job in running:
            assert job.nodelist
            assert set(job.nodelist) <= names
            assert job.started is not None

    def test_what_must_not_be_moved_is_seen_as_such(self, tell: Teller, fillers: dict[str, list[int]]) -> None:
        array = tell.listed("alpha", tell.submit("alpha", array="0-3"))
        assert array.array_id == array.id
        het = tell.submit("alpha", het=True)
        tell.listed("alpha", het)
        assert [job.het_id for job in tell.look("alpha").jobs if job.het_id == het.id] == [het.id] * 2
        before = fillers["alpha"][0]
        dependent = tell.listed("alpha", tell.submit("alpha", dependency=f"afterany:{before}"))
        assert "afterany" in dependent.dependency
        reserved = tell.listed("alpha", tell.submit("alpha", reservation="stories"))
        assert reserved.reservation == "stories"
        held = tell.listed("alpha", tell.submit("alpha", hold=True))
        assert held.hold is Hold.USER
        opted_out = tell.listed("alpha", tell.submit("alpha", comment="slurm-evo:off"))
        assert opted_out.comment == "slurm-evo:off"

    def test_a_job_of_the_federation_is_one_job_of_the_fleet(self, tell: Teller) -> None:
        key = tell.submit("alpha")
        tell.waits_on(key, *MEMBERS)
        job = tell.fleet_job(key)
        assert job.viable == set(MEMBERS)
        assert sorted(record.cluster for record in job.records) == sorted(MEMBERS)
        assert {record.origin for record in job.records} == {"alpha"}
        for name in NODES:
            ids = [record.id for record in tell.look(name).jobs]
            assert len(ids) == len(set(ids))


class ActingStories(Stories):
    """What becomes of an action on a job of ``home``."""

    @property
    def pinned(self) -> dict[str, list[str]]:
        """The user's own ``-M`` that keeps a job at home."""
        return {"clusters": [self.home]} if self.home in MEMBERS else {}

    def test_a_site_factor_is_read_back_and_raises_the_priority(self, tell: Teller) -> None:
        key = tell.submit(self.home, **self.pinned)
        assert tell.listed(self.home, key).priority < 100_000
        tell.done(SetSiteFactor(key, 104_321))
        tell.eventually(lambda: tell.listed(self.home, key).priority >= 104_321, "the priority rises")
        assert tell.listed(self.home, key).site_factor == (104_321 if self.sees_priorities else None)

    def test_a_site_factor_set_twice_changes_nothing_more(self, tell: Teller) -> None:
        key = tell.submit(self.home, **self.pinned)
        tell.done(SetSiteFactor(key, 100_000))
        tell.done(SetSiteFactor(key, 100_000))
        tell.eventually(lambda: tell.listed(self.home, key).priority >= 100_000, "the priority rises")
        assert tell.listed(self.home, key).priority < 200_000

    def test_a_site_factor_can_be_taken_back_to_zero(self, tell: Teller) -> None:
        key = tell.submit(self.home, **self.pinned)
        tell.done(SetSiteFactor(key, 100_000))
        tell.eventually(lambda: tell.listed(self.home, key).priority >= 100_000, "the priority rises")
        tell.done(SetSiteFactor(key, 0))
        tell.eventually(lambda: tell.listed(self.home, key).priority < 100_000, "the priority falls")

    def test_an_unpinned_job_has_the_nice_and_site_factor_given(self, tell: Teller) -> None:
        key = tell.submit(self.home, nice=50, **self.pinned)
        tell.done(Unpin(key, nice=50, site_factor=100_000))
        tell.eventually(lambda: tell.listed(self.home, key).priority >= 99_000, "the priority rises")
        job = tell.listed(self.home, key)
        assert job.nice == 50
        assert not job.direct_priority
        assert job.waiting_here

    def test_a_held_job_stays_held(self, tell: Teller) -> None:
        key = tell.submit(self.home, hold=True, **self.pinned)
        tell.listed(self.home, key)
        tell.done(SetSiteFactor(key, 500))
        outcome = tell.apply(Unpin(key, nice=0, site_factor=500))
        assert outcome.answer is Answer.REFUSED
        assert outcome.message
        tell.world.settle(2)
        assert tell.listed(self.home, key).hold is Hold.USER

    def test_a_job_held_meanwhile_is_not_released_by_unpin(self, tell: Teller) -> None:
        key = tell.submit(self.home, **self.pinned)
        tell.listed(self.home, key)
        tell.world.hold(self.home, key.id)
        assert tell.apply(Unpin(key, nice=0, site_factor=500)).answer is Answer.REFUSED
        assert tell.listed(self.home, key).hold is Hold.USER
        tell.world.release(self.home, key.id)
        tell.eventually(lambda: tell.listed(self.home, key).hold is Hold.NONE, "its owner can release it")

    def test_a_job_that_has_started_is_gone_and_runs_on(self, tell: Teller, fillers: dict[str, list[int]]) -> None:
        key = JobKey(ClusterName(self.home), fillers[self.home][0])
        before = tell.listed(self.home, key)
        assert tell.apply(Unpin(key, nice=3, site_factor=500)).answer is Answer.GONE
        # slurmctld takes a SiteFactor for a started job, too, and nothing comes of it
        assert tell.apply(SetSiteFactor(key, 500)).answer in (Answer.GONE, Answer.DONE)
        after = tell.listed(self.home, key)
        assert after.state is JobState.RUNNING
        assert (after.nice, after.nodelist, after.viable) == (before.nice, before.nodelist, before.viable)

    def test_a_cancelled_job_is_gone(self, tell: Teller) -> None:
        key = tell.submit(self.home, **self.pinned)
        tell.listed(self.home, key)
        tell.world.cancel(self.home, key.id)
        tell.world.settle(1)
        assert tell.apply(SetSiteFactor(key, 500)).answer is Answer.GONE

    def test_a_job_that_never_was_is_not_changed(self, tell: Teller) -> None:
        outcome = tell.apply(SetSiteFactor(JobKey(ClusterName(self.home), 60_000_000), 500))
        assert outcome.answer in (Answer.GONE, Answer.REFUSED)
        assert outcome.message

    def test_a_cluster_outside_the_federation_refuses_to_share_a_job(self, tell: Teller) -> None:
        key = tell.submit("delta", begin="now+1hour")
        tell.listed("delta", key)
        outcome = tell.apply(SetClusters(key, (ClusterName("alpha"),)))
        assert outcome.answer is Answer.REFUSED
        assert outcome.message
        assert tell.listed("delta", key).waiting_here


class FederationStories(Stories):
    """Viable sets and the edges of moving a job."""

    def test_widening_makes_a_sibling_wait_there_and_narrowing_takes_it_away(self, tell: Teller) -> None:
        key = tell.submit("alpha", clusters=["alpha"])
        tell.waits_on(key, "alpha")
        tell.viable(key, "alpha", "gamma")
        tell.waits_on(key, "alpha", "gamma")
        assert tell.fleet_job(key).viable == {"alpha", "gamma"}
        tell.viable(key, "alpha", "gamma")
        tell.waits_on(key, "alpha", "gamma")
        tell.viable(key, "alpha")
        tell.waits_on(key, "alpha")

    def test_a_moved_job_waits_at_its_destination_alone_and_can_come_back(self, tell: Teller) -> None:
        key = tell.submit("alpha", clusters=["alpha"])
        tell.waits_on(key, "alpha")
        tell.viable(key, "beta")
        tell.waits_on(key, "beta")
        assert tell.listed("alpha", key).revoked
        assert tell.fleet_job(key).pending
        tell.viable(key, "alpha")
        tell.waits_on(key, "alpha")

    def test_a_destination_without_the_partition_never_lists_the_job(self, tell: Teller) -> None:
        key = tell.submit("alpha", clusters=["alpha"], partition="debug", limit_min=30)
        tell.waits_on(key, "alpha")
        tell.viable(key, "alpha", "beta")
        tell.world.settle(3)
        tell.waits_on(key, "alpha")
        tell.viable(key, "alpha")
        tell.waits_on(key, "alpha")

    def test_a_stranded_job_is_brought_back_by_its_origin(self, tell: Teller) -> None:
        key = tell.submit("alpha", clusters=["alpha"], partition="debug", limit_min=30)
        tell.waits_on(key, "alpha")
        tell.viable(key, "beta")
        tell.world.settle(3)
        tell.waits_on(key)
        assert tell.fleet_job(key).pending
        tell.viable(key, "alpha")
        tell.waits_on(key, "alpha")

    def test_a_later_sibling_is_pinned_and_unpin_heals_it(self, tell: Teller) -> None:
        key = tell.submit("alpha", clusters=["alpha"], nice=50)
        tell.waits_on(key, "alpha")
        tell.viable(key, "alpha", "beta")
        tell.waits_on(key, "alpha", "beta")
        if self.sees_priorities:
            tell.eventually(lambda: tell.listed("beta", key).direct_priority, "beta's sibling is pinned")
        tell.done(SetSiteFactor(key, 300_000))
        tell.eventually(lambda: tell.listed("alpha", key).priority >= 299_000, "alpha follows the SiteFactor")
        assert tell.listed("beta", key).priority < 299_000
        tell.done(Unpin(key, nice=50, site_factor=300_000))
        for cluster in ("alpha", "beta"):
            tell.eventually(lambda at=cluster: tell.listed(at, key).priority >= 299_000, f"{cluster} follows")
            job = tell.listed(cluster, key)
            assert job.nice == 50
            assert not job.direct_priority
            assert job.site_factor == (300_000 if self.sees_priorities else None)

    def test_a_held_job_only_changes_its_viable_set(self, tell: Teller) -> None:
        key = tell.submit("alpha", clusters=["alpha"], hold=True)
        tell.listed("alpha", key)
        tell.viable(key, "alpha", "beta")
        tell.world.settle(3)
        assert tell.record("beta", key) is None
        job = tell.listed("alpha", key)
        assert job.hold is Hold.USER
        assert set(job.viable) == {"alpha", "beta"}

    def test_a_started_or_cancelled_job_is_not_moved(self, tell: Teller, fillers: dict[str, list[int]]) -> None:
        running = JobKey(ClusterName("alpha"), fillers["alpha"][0])
        elsewhere = (ClusterName("beta"),)
        assert tell.apply(SetClusters(running, elsewhere)).answer is Answer.GONE
        assert tell.listed("alpha", running).state is JobState.RUNNING
        key = tell.submit("alpha")
        tell.waits_on(key, *MEMBERS)
        tell.world.cancel("alpha", key.id)
        tell.world.settle(2)
        assert tell.apply(SetClusters(key, elsewhere)).answer is Answer.GONE

    def test_a_cluster_nobody_knows_is_refused(self, tell: Teller) -> None:
        key = tell.submit("alpha", clusters=["alpha"])
        tell.waits_on(key, "alpha")
        assert tell.apply(SetClusters(key, (ClusterName("nowhere"),))).answer is Answer.REFUSED
        tell.waits_on(key, "alpha")


class FederationRefusedStories(Stories):
    """For a port that can see federated jobs but not change them."""

    def test_a_federated_job_is_seen_but_not_changed(self, tell: Teller) -> None:
        key = tell.submit("alpha", clusters=["alpha"])
        tell.waits_on(key, "alpha")
        for action in (
            SetClusters(key, (ClusterName("beta"),)),
            SetSiteFactor(key, 500),
            Unpin(key, nice=0, site_factor=500),
        ):
            outcome = tell.apply(action)
            assert outcome.answer is Answer.REFUSED
            assert outcome.message
        tell.waits_on(key, "alpha")
