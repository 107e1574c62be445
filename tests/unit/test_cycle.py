"""A whole cycle on simulated clusters: journaled before it is sent, and nothing lost whatever fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import pytest

from slurm_evo.config import Settings
from slurm_evo.model import (
    Action,
    ClusterName,
    ClusterPort,
    ClusterView,
    JobKey,
    LeaseLost,
    Outcome,
    SetClusters,
)
from slurm_evo.policy import Policy
from slurm_evo.slurm.simulated import SimulatedFleet, SimulatedPort, Submission, sample_fleet
from slurm_evo.store import Journal
from slurm_evo_daemon.cycle import Surroundings, cycle
from slurm_evo_daemon.report import CycleReport

SETTINGS = Settings.model_validate(
    {
        "moves": {"respect_user_clusters": False, "cooldown_s": 0, "confirm_s": 60, "stranded_s": 60},
        "optimizer": {"budget_s": 0.2, "margin": 0.01},
    }
)


class Death(BaseException):
    """The daemon is killed here."""


@dataclass
class Site:
    """A simulated fleet with a daemon that may die at a chosen call."""

    fleet: SimulatedFleet
    journal: Journal
    dies_at: int | None = None
    calls: int = 0
    sent: list[tuple[Action, bool]] = field(default_factory=list)
    """Each action with whether the journal knew it when it arrived."""

    def step(self) -> None:
        """One call to the outside world."""
        self.calls += 1
        if self.dies_at is not None and self.calls >= self.dies_at:
            raise Death

    def run(self) -> CycleReport:
        """One live cycle, a minute after the last."""
        self.fleet.advance(self.fleet.now + timedelta(seconds=60))
        ports: dict[ClusterName, ClusterPort] = {
            ClusterName(name): Watched(SimulatedPort(self.fleet, name), self) for name in self.fleet.controllers
        }
        rng = np.random.default_rng(3)
        around = Surroundings(ports, self.journal, lambda: self.fleet.now, time.monotonic, rng)
        lease = self.journal.acquire("story", now=self.fleet.now, length_s=300)
        report, _ = cycle(around, SETTINGS, Policy.default(), lease)
        return report


class Watched:
    """A port that looks into the journal whenever it is asked for a change, and may be a place to die."""

    def __init__(self, port: SimulatedPort, site: Site) -> None:
        self._port, self._site = port, site

    @property
    def name(self) -> ClusterName:
        return self._port.name

    def look(self) -> ClusterView:
        self._site.step()
        return self._port.look()

    def apply(self, action: Action) -> Outcome:
        known = any(row.action == action for row in self._site.journal.open_actions())
        self._site.sent.append((action, known))
        self._site.step()
        outcome = self._port.apply(action)
        self._site.step()  # done by Slurm, and the daemon dies before it hears of it
        return outcome

    def close(self) -> None:
        self._port.close()


@pytest.fixture
def site() -> Iterator[Site]:
    """Alpha full for two hours, beta idle, six jobs that were sent to alpha alone."""
    fleet = SimulatedFleet(sample_fleet())
    for number in range(4):
        fleet.submit("alpha", busy(number))
    fleet.advance_to_s(60)
    for number in range(6):
        fleet.submit("alpha", small(number))
    with Journal.open("sqlite://") as journal:
        yield Site(fleet, journal)


def busy(number: int) -> Submission:
    return Submission(
        name=f"busy{number}", user="bob", account="physics", gpus=8, run_s=7200, limit_s=8000, clusters=("alpha",)
    )


def small(number: int) -> Submission:
    user = ("ada", "bob")[number % 2]
    return Submission(
        name=f"small{number}", user=user, account="physics", gpus=2, run_s=900, limit_s=1800, clusters=("alpha",)
    )


def test_a_cycle_moves_jobs_and_says_why(site: Site) -> None:
    report = site.run()
    assert report.counts["sets_changed"] > 0
    assert "moves: average weighted wait" in report.sentence
    last = site.journal.last_cycle()
    assert last is not None
    assert last.sentence == report.sentence
    assert site.journal.open_actions() == ()


def test_everything_is_in_the_journal_before_it_is_sent(site: Site) -> None:
    for _ in range(3):
        site.run()
    assert site.sent
    assert all(known for _, known in site.sent)


def test_a_dry_cycle_sends_nothing(site: Site) -> None:
    ports = {ClusterName(name): Watched(SimulatedPort(site.fleet, name), site) for name in site.fleet.controllers}
    around = Surroundings(ports, site.journal, lambda: site.fleet.now, time.monotonic, np.random.default_rng(1))
    report, decision = cycle(around, SETTINGS, Policy.default(), None)
    assert decision.intents
    assert site.sent == []
    assert "dry run" in report.sentence
    assert site.journal.history() == ()


def test_a_lost_lease_stops_everything(site: Site) -> None:
    lease = site.journal.acquire("first", now=site.fleet.now, length_s=300)
    later = site.fleet.now + timedelta(seconds=301)
    site.fleet.advance(later)
    assert site.journal.acquire("second", now=later, length_s=300) is not None
    ports = {ClusterName(name): Watched(SimulatedPort(site.fleet, name), site) for name in site.fleet.controllers}
    around = Surroundings(ports, site.journal, lambda: site.fleet.now, time.monotonic, np.random.default_rng(1))
    with pytest.raises(LeaseLost):
        cycle(around, SETTINGS, Policy.default(), lease)
    assert site.sent == []


def test_clusters_that_fail_are_named_and_the_rest_goes_on(site: Site) -> None:
    site.fleet.faults.unreachable.add("gamma")
    site.fleet.faults.half_answers.add("delta")
    report = site.run()
    assert report.counts["clusters_seen"] == 2
    assert "gamma left alone" in report.sentence
    assert "delta left alone" in report.sentence
    assert report.counts["sets_changed"] > 0


def test_a_job_that_starts_or_ends_between_look_and_act_is_gone_and_nothing_else(site: Site) -> None:
    cancelled: list[JobKey] = []

    def before(action: Action) -> None:
        if not cancelled and isinstance(action, SetClusters):
            cancelled.append(action.job)
            site.fleet.cancel(action.job.cluster, action.job.id)

    site.fleet.faults.before_apply = before
    report = site.run()
    assert cancelled
    assert report.counts["gone"] >= 1
    assert report.counts["sets_changed"] > 0


def finish(site: Site) -> None:
    """Cycle until every job has run."""
    for _ in range(400):
        if not site.fleet.busy:
            return
        site.run()
    raise AssertionError("some job never ran")


def test_death_at_any_call_loses_no_job_and_leaves_none_pinned() -> None:
    died = 0
    for moment in range(1, 80):
        fleet = SimulatedFleet(sample_fleet())
        for number in range(4):
            fleet.submit("alpha", busy(number))
        fleet.advance_to_s(60)
        for number in range(6):
            fleet.submit("alpha", small(number))
        with Journal.open("sqlite://") as journal:
            site = Site(fleet, journal, dies_at=moment)
            try:
                for _ in range(6):
                    site.run()
            except Death:
                died += 1
            site.dies_at = None
            finish(site)
            assert len(fleet.jobs) == 10
            assert all(job.ended is not None for job in fleet.jobs.values()), f"death {moment}: a job never ran"
            assert journal.open_actions() == ()
    assert died > 20
