"""Withdrawing: every pending job back to what it was before slurm-evo."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from slurm_evo.config import MoveSettings, Settings
from slurm_evo.model import ClusterName, StoreError
from slurm_evo.policy import Policy
from slurm_evo.slurm.simulated import SimulatedFleet, SimulatedPort, Submission, sample_fleet
from slurm_evo.store import Journal
from slurm_evo_daemon.cycle import Surroundings, cycle
from slurm_evo_daemon.withdraw import withdraw

SETTINGS = Settings.model_validate(
    {"moves": {"respect_user_clusters": False, "cooldown_s": 0}, "optimizer": {"budget_s": 0.2, "margin": 0.01}}
)


def submission(name: str, gpus: int, run_s: int) -> Submission:
    return Submission(
        name=name, user="ada", account="physics", gpus=gpus, run_s=run_s, limit_s=2 * run_s, clusters=("alpha",)
    )


@pytest.fixture
def fleet() -> SimulatedFleet:
    return SimulatedFleet(sample_fleet())


@pytest.fixture
def around(fleet: SimulatedFleet) -> Iterator[Surroundings]:
    """alpha, beta and gamma are full, four jobs wait at alpha, and the daemon has ranked and widened them."""
    for cluster, nodes, gpus in (("alpha", 4, 8), ("beta", 2, 8), ("gamma", 4, 4)):
        for number in range(nodes):
            job = submission(f"busy{number}", gpus, 7200 if cluster == "alpha" else 3600)
            fleet.submit(cluster, Submission(**{**_fields(job), "clusters": (cluster,)}))
    fleet.advance_to_s(60)
    for number in range(4):
        fleet.submit("alpha", submission(f"small{number}", 2, 900))
    ports = {ClusterName(name): SimulatedPort(fleet, name) for name in fleet.controllers}
    with Journal.open("sqlite://") as journal:
        site = Surroundings(ports, journal, lambda: fleet.now, time.monotonic, np.random.default_rng(1))
        for _ in range(3):
            fleet.advance(fleet.now + timedelta(seconds=60))
            lease = journal.acquire("daemon", now=fleet.now, length_s=120)
            cycle(site, SETTINGS, Policy.default(), lease)
        yield site


def _fields(asked: Submission) -> dict[str, object]:
    return {name: getattr(asked, name) for name in asked.__dataclass_fields__}


def pending(around: Surroundings) -> list[tuple[set[str], int | None]]:
    view = around.ports[ClusterName("alpha")].look()
    return [(set(job.viable), job.site_factor) for job in view.jobs if job.waiting_here]


def release(around: Surroundings) -> None:
    lease = around.journal.lease()
    assert lease is not None
    around.journal.release(lease, now=around.clock())


def test_shown_is_not_done(around: Surroundings) -> None:
    before = pending(around)
    rows = withdraw(around, SETTINGS, "admin", really=False)
    assert rows
    assert {row["answer"] for row in rows} == {"not sent"}
    assert pending(around) == before


def test_afterwards_every_job_is_as_its_user_left_it(around: Surroundings) -> None:
    assert any(viable != {"alpha"} for viable, _ in pending(around)), "the story is void: nothing was moved"
    assert any(factor for _, factor in pending(around))
    release(around)
    rows = withdraw(around, SETTINGS, "admin", really=True)
    assert {row["answer"] for row in rows} == {"done"}
    assert all(viable == {"alpha"} for viable, _ in pending(around))
    assert not any(factor for _, factor in pending(around))
    assert withdraw(around, SETTINGS, "admin", really=False) == []


@pytest.mark.parametrize("seen", [True, False], ids=["by a cycle", "by none"])
def test_a_job_that_was_held_back_gets_its_whole_federation_back(
    around: Surroundings, fleet: SimulatedFleet, tmp_path: Path, seen: bool
) -> None:
    key = fleet.submit("alpha", Submission(**{**_fields(submission("long", 8, 9000)), "clusters": ("beta",)}))
    for controller in fleet.controllers.values():
        for record in controller.records.values():
            if record.key == key:
                record.admin_comment = "slurm-evo:held-back"
    if seen:
        lease = around.journal.acquire("daemon", now=fleet.now, length_s=120)
        cycle(around, SETTINGS.model_copy(update={"moves": MoveSettings(enabled=False)}), Policy.default(), lease)
    release(around)
    rows = withdraw(around, with_files(tmp_path), "admin", really=True)
    assert next(row["what"] for row in rows if row["job"] == str(key)) == "clusters alpha,beta,gamma"
    assert {row["answer"] for row in rows} == {"done"}


def with_files(folder: Path) -> Settings:
    return Settings.model_validate(
        {"clusters": [{"name": "alpha", "slurm_conf": "/x", "plugin_dir": str(folder)}]}
    )


def test_nobody_is_held_back_after_it(around: Surroundings, tmp_path: Path) -> None:
    told = tmp_path / "places"
    told.write_text("slurm-evo-places 1")
    withdraw(around, with_files(tmp_path), "admin", really=False)
    with pytest.raises(StoreError, match="a daemon acts"):
        withdraw(around, with_files(tmp_path), "admin", really=True)
    assert told.exists()
    release(around)
    withdraw(around, with_files(tmp_path), "admin", really=True)
    assert not told.exists()
    withdraw(around, with_files(tmp_path), "admin", really=True)


def test_a_file_that_cannot_be_removed_stops_it_and_is_named(around: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "places").mkdir()
    release(around)
    before = pending(around)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"places: .*nothing was withdrawn"):
            withdraw(around, with_files(tmp_path), "admin", really=True)
    assert pending(around) == before


def test_it_does_not_work_against_a_running_daemon(around: Surroundings) -> None:
    with pytest.raises(StoreError, match="a daemon acts on this fleet"):
        withdraw(around, SETTINGS, "admin", really=True)
