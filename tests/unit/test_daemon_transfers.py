"""The daemon moves plain jobs between clusters without a federation: late, rarely, and with their age."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from slurm_evo.config import Settings
from slurm_evo.model import Answer, ClusterName, JobKey, JobState
from slurm_evo.policy import Policy
from slurm_evo.slurm.simulated import FleetSpec, SimulatedFleet, SimulatedPort, Submission, cluster_spec
from slurm_evo.slurm.simulated.transfers import SimulatedTransfers
from slurm_evo.slurm.transfer import Phase, Step, Transfer
from slurm_evo.store import Journal
from slurm_evo_daemon.cycle import Surroundings, cycle
from slurm_evo_daemon.decide import Decision
from slurm_evo_daemon.movable import _general
from slurm_evo_daemon.report import CycleReport
from slurm_evo_daemon.screens import history_rows, status_json, status_table
from slurm_evo_daemon.transfers import CarriedOn

HERE, THERE = ClusterName("here"), ClusterName("there")
SPEC = FleetSpec(clusters=tuple(cluster_spec(name, 1, 8, "a100", federated=False) for name in (HERE, THERE)))


def settings(**transfers: object) -> Settings:
    """Two simulated plain clusters that let jobs go to and fro."""
    return Settings.model_validate(
        {
            "optimizer": {"budget_s": 0.05, "margin": 0.01},
            "moves": {"cooldown_s": 0},
            "transfers": {"enabled": True, **transfers},
            "clusters": [{"name": name, "way": "simulated", "transfers": {}} for name in (HERE, THERE)],
        }
    )


class Site:
    """The fleet, the journal and a daemon that looks when it is told."""

    def __init__(self, journal: Journal) -> None:
        self.fleet = SimulatedFleet(SPEC)
        self.journal = journal

    def run(self, after_s: int = 30, wanted: Settings | None = None) -> tuple[CycleReport, Decision]:
        """One live cycle, a while after the last."""
        self.fleet.advance(self.fleet.now + timedelta(seconds=after_s))
        around = Surroundings(
            {name: SimulatedPort(self.fleet, name) for name in (HERE, THERE)},
            self.journal,
            lambda: self.fleet.now,
            time.monotonic,
            np.random.default_rng(3),
            transfers={name: SimulatedTransfers(self.fleet, name) for name in (HERE, THERE)},
        )
        lease = self.journal.acquire("story", now=self.fleet.now, length_s=300)
        return cycle(around, wanted or settings(), Policy.default(), lease)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """One cluster full for an hour, the other idle."""
    with Journal.open(f"sqlite:///{tmp_path}/journal.sqlite") as journal:
        site = Site(journal)
        site.fleet.submit(HERE, Submission(user="bob", run_s=3600, limit_s=3600, gpus=8))
        site.fleet.advance_to_s(60)
        yield site


def small(user: str = "ada", gpus: int = 4) -> Submission:
    """A job that waits."""
    return Submission(user=user, run_s=600, limit_s=900, gpus=gpus, nice=3)


def test_waiting_jobs_go_to_an_idle_cluster_and_run_once(site: Site) -> None:
    keys = [site.fleet.submit(HERE, small()) for _ in range(2)]
    site.run()
    site.run()
    report, _ = site.run()
    assert report.counts["transfers_done"] == 2
    assert "2 plain jobs moved" in report.sentence
    site.fleet.advance_to_s(site.fleet.elapsed_s + 1200)
    for key in keys:
        job = site.fleet.jobs[key]
        assert (job.cluster, job.ending) == (THERE, "COMPLETED")
    assert site.journal.open_transfers() == ()


def test_moves_are_told_while_they_are_under_way_and_afterwards(site: Site) -> None:
    key = site.fleet.submit(HERE, small())
    site.run()
    found = status_json(site.journal, Policy.default(), site.fleet.now)
    assert [move["job"] for move in found["moves_under_way"]] == [str(key)]
    out = Console(width=120, record=True, file=StringIO())
    out.print(status_table(found))
    assert f"{key} to there" in out.export_text()
    site.run()
    site.run()
    assert status_json(site.journal, Policy.default(), site.fleet.now)["moves_under_way"] == []
    site.fleet.submit(HERE, small())
    site.run()
    rows = history_rows(site.journal, None, 30, moves=True)
    assert [row["phase"] for row in rows][-1] == "done"
    assert rows[-1] | {"at": "", "why": ""} == {
        "at": "", "job": str(key), "to": "there", "copy": key.id, "phase": "done", "why": "", "owner": "ada",
    }  # fmt: skip
    assert len(rows) == 2
    assert history_rows(site.journal, JobKey(THERE, key.id), 30, moves=True) == rows[-1:]


def test_what_waits_while_the_destination_is_full_stays(site: Site) -> None:
    site.fleet.submit(THERE, Submission(user="bob", run_s=3600, limit_s=3600, gpus=8))
    site.fleet.advance_to_s(site.fleet.elapsed_s + 30)
    site.fleet.submit(HERE, small())
    for _ in range(3):
        report, _ = site.run()
        assert report.counts["transfers_under_way"] == 0


def test_a_moved_job_keeps_its_age_and_its_rank(site: Site) -> None:
    # Nothing starts there, so that the moved job stays to be looked at.
    key = site.fleet.submit(HERE, small())
    site.run(after_s=3)
    site.run()
    site.run()
    moved = site.fleet.controllers[THERE].records[key.id]
    memory = site.journal.jobs()[JobKey(THERE, key.id)]
    assert memory.submitted == site.journal.jobs()[key].submitted
    assert 0 < memory.age_lost_s <= 60
    assert moved.site_factor == memory.site_factor
    assert moved.nice == 3
    assert memory.moves == 1


def test_a_job_under_way_is_left_to_its_move(site: Site) -> None:
    key = site.fleet.submit(HERE, small())
    site.run()
    (open_one,) = site.journal.open_transfers()
    assert (open_one.job, open_one.to, open_one.phase) == (key, THERE, "confirm")
    assert open_one.image is not None
    original = site.fleet.controllers[HERE].records[key.id]
    assert original.state is JobState.PENDING
    assert original.eligible > site.fleet.elapsed_s
    _, decision = site.run(after_s=1)
    assert "under way" in decision.notes.get(key, "under way")
    assert len(site.journal.open_transfers()) == 1


def test_moves_are_off_unless_asked_for(site: Site) -> None:
    site.fleet.submit(HERE, small())
    off = settings(enabled=False)
    _, decision = site.run(wanted=off)
    (verdict,) = decision.verdicts.values()
    assert verdict.fixed == ("its cluster is in no federation",)


def test_a_move_that_was_begun_is_finished_though_moves_are_off(site: Site) -> None:
    site.fleet.submit(HERE, small())
    site.run()
    site.run()
    report, _ = site.run(wanted=settings(enabled=False))
    assert report.counts["transfers_done"] == 1


def test_a_job_that_others_depend_on_stays(site: Site) -> None:
    key = site.fleet.submit(HERE, small())
    site.fleet.submit(HERE, Submission(user="ada", run_s=60, dependency=f"afterok:{key.id}"))
    _, decision = site.run()
    assert decision.verdicts[key].fixed == ("another job depends on it",)


def test_a_destination_that_would_not_take_it_is_not_asked_again_soon(site: Site) -> None:
    key = site.fleet.submit(HERE, small())
    controller = site.fleet.controllers[THERE]
    del controller.users["ada"]
    report, _ = site.run()
    assert report.counts["transfers_given_up"] == 1
    assert THERE in site.journal.jobs()[key].refusing
    report, decision = site.run()
    assert report.counts["transfers_given_up"] == 0
    assert dict(decision.verdicts[key].closed)[THERE].startswith("it turned the job away")


def test_no_more_moves_than_allowed_are_under_way_at_once(site: Site) -> None:
    for _ in range(4):
        site.fleet.submit(HERE, small(gpus=1))
    report, _ = site.run(wanted=settings(max_at_once=1))
    assert report.counts["transfers_under_way"] == 1


def test_a_held_copy_that_the_journal_does_not_know_is_taken_away(site: Site) -> None:
    key = site.fleet.submit(HERE, small())
    way = SimulatedTransfers(site.fleet, THERE)
    image = SimulatedTransfers(site.fleet, HERE).image(key.id)
    assert way.submit(image, "a1").answer is Answer.DONE
    site.run(wanted=settings(enabled=False))
    assert site.fleet.controllers[THERE].records[key.id].ending == "CANCELLED"
    assert site.fleet.controllers[HERE].records[key.id].state is JobState.PENDING


def test_a_held_copy_is_left_to_a_daemon_with_another_journal_while_its_original_is_put_off(site: Site) -> None:
    key = site.fleet.submit(HERE, small())
    here, there = (SimulatedTransfers(site.fleet, name) for name in (HERE, THERE))
    here.defer(key.id, THERE, 900, "a1")
    there.submit(here.image(key.id), "a1")
    copy = site.fleet.controllers[THERE].records[key.id]
    report, _ = site.run()
    assert report.counts["transfers_under_way"] == 0
    assert "a1" in site.fleet.controllers[HERE].records[key.id].admin_comment
    assert copy.state is JobState.PENDING
    site.run(after_s=901)  # the other one would not cancel the original any more
    assert copy.ending == "CANCELLED"
    site.fleet.advance_to_s(site.fleet.elapsed_s + 3600)
    assert site.fleet.jobs[key].ending == "COMPLETED"


def test_a_held_copy_whose_original_we_cancelled_is_released_though_the_journal_was_lost(site: Site) -> None:
    key = site.fleet.submit(HERE, small())
    here, there = (SimulatedTransfers(site.fleet, name) for name in (HERE, THERE))
    there.submit(here.image(key.id), "a1")
    here.cancel(key.id, JobKey(THERE, key.id), "a1")
    for _ in range(2):
        site.run(wanted=settings(enabled=False))
    site.fleet.advance_to_s(site.fleet.elapsed_s + 1200)
    assert site.fleet.jobs[key].ending == "COMPLETED"


def test_the_report_says_what_moves_wait_for(site: Site) -> None:
    """A slurmrestd or an accounting that does not answer is told by nobody else."""
    key = site.fleet.submit(HERE, small())
    now = site.fleet.now
    move = Transfer(job=key, to=THERE, began=now, phase_since=now)
    gone = replace(move, phase=Phase.ABANDONED)
    steps = (
        Step(move, note="there did not answer"),
        Step(move, note="there did not answer"),
        Step(gone, note="full"),
    )
    told = CarriedOn(steps).sentence
    assert told == "2 plain jobs on their way (there did not answer); 1 plain jobs not moved after all (full)"


@pytest.mark.parametrize(
    ("reason", "general"),
    [
        ("not to gamma: it has no a100 that is up", "not to gamma: it has no a100 that is up"),
        ("it depends on another job (singleton(unfulfilled))", "it depends on another job …"),
        ("it may not start before 2026-12-03 15:08 UTC", "it may not start before …-…-… …:… UTC"),
    ],
)
def test_reasons_of_many_jobs_are_counted_together_but_keep_their_names(reason: str, general: str) -> None:
    assert _general(reason) == general
