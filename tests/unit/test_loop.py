"""The dull part: when it cycles, when it waits, what stays in force when something is refused."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, ConfigError, PolicyError, StoreError
from slurm_evo.policy import Policy
from slurm_evo.slurm.simulated import SimulatedFleet, SimulatedPort, sample_fleet
from slurm_evo.store import Journal
from slurm_evo_daemon.cycle import Surroundings
from slurm_evo_daemon.loop import InForce, Signals, run, utc_now
from slurm_evo_daemon.notify import notify

QUICK = Settings.model_validate({"cycle": {"period_s": 0.05, "lease_s": 60}, "optimizer": {"budget_s": 0.01}})


class Log:
    """Keeps what was said."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    warning = info

    def why(self, event: str) -> str:
        return next(fields["why"] for said, fields in self.lines if said == event)

    def events(self) -> list[str]:
        return [event for event, _ in self.lines]


@pytest.fixture
def around() -> Iterator[Surroundings]:
    fleet = SimulatedFleet(sample_fleet(), start=utc_now())
    ports = {ClusterName(name): SimulatedPort(fleet, name) for name in fleet.controllers}
    with Journal.open("sqlite://") as journal:
        yield Surroundings(ports, journal, utc_now, time.monotonic, np.random.default_rng(1))


def looped(around: Surroundings, settings: Settings = QUICK, **changes: Any) -> Log:
    """Run until the third line of the log after a cycle or a wait."""
    log, signals = Log(), Signals()
    force = InForce(settings, Policy.default())
    stop_after = changes.pop("cycles", 3)

    def count(_: object) -> None:
        if log.events().count("cycle.done") >= stop_after:
            signals.stop.set()
            signals.wake.set()

    wishes: dict[str, Any] = {
        "holder": "me", "read_again": lambda: force, "policy_now": lambda _: Policy.default(), "on_report": count,
    }  # fmt: skip
    wishes |= changes
    before = wishes.pop("before", lambda _: None)
    before(signals)
    run(around, force, log=log, signals=signals, **wishes)
    return log


def test_it_cycles_until_told_to_stop_and_gives_the_lease_back(around: Surroundings) -> None:
    log = looped(around)
    assert log.events().count("cycle.done") == 3
    lease = around.journal.lease()
    assert lease is not None
    assert not lease.valid(utc_now())


def test_a_configuration_that_cannot_be_read_leaves_the_last_good_one(around: Surroundings) -> None:
    def broken() -> InForce:
        raise ConfigError("slurm-evo.toml: unknown key cycle.periods_s")

    log = looped(around, read_again=broken, before=lambda signals: signals.reload.set())
    assert "last good configuration" in log.why("config.refused")
    assert "cycle.done" in log.events()


def test_a_policy_that_is_refused_leaves_the_last_good_one(around: Surroundings) -> None:
    def broken(_: Settings) -> Policy:
        raise PolicyError("refused: its score falls as a job waits")

    log = looped(around, policy_now=broken)
    assert "last good policy" in log.why("policy.refused")


def test_a_promoted_policy_takes_effect_at_the_next_cycle(around: Surroundings) -> None:
    log = looped(around, policy_now=lambda _: Policy.parse("wait"))
    changed = [fields for event, fields in log.lines if event == "policy.changed"]
    assert changed == [{"policy": "wait"}]


def test_another_daemons_lease_is_waited_for(around: Surroundings) -> None:
    around.journal.acquire("other", now=utc_now(), length_s=1)
    log = looped(around, cycles=1)
    assert log.events()[0] == "lease.waiting"
    assert "other acts on this fleet" in log.why("lease.waiting")
    assert log.events()[-1] == "cycle.done"


def test_a_dry_run_needs_no_lease(around: Surroundings) -> None:
    around.journal.acquire("other", now=utc_now(), length_s=60)
    dry = QUICK.model_copy(update={"cycle": QUICK.cycle.model_copy(update={"dry_run": True})})
    log = looped(around, dry)
    assert {fields["mode"] for event, fields in log.lines if event == "cycle.done"} == {"dry"}


def test_without_a_journal_nothing_is_done_and_the_loop_goes_on(around: Surroundings) -> None:
    class Failing(Journal):
        failures = 2

        def begin_cycle(self, **wishes: Any) -> int:
            if Failing.failures:
                Failing.failures -= 1
                raise StoreError("the disk is full")
            return super().begin_cycle(**wishes)

    failing = Failing(around.journal._engine)
    log = looped(Surroundings(around.ports, failing, utc_now, time.monotonic, around.rng), cycles=1)
    assert log.events().count("cycle.held") == 2
    assert "the disk is full" in log.why("cycle.held")
    assert log.events()[-1] == "cycle.done"


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_on_a_real_socket(tmp_path: Path, abstract: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        path = f"slurm-evo-test-{time.monotonic_ns()}" if abstract else str(tmp_path / "notify")
        listener.bind("\0" + path if abstract else path)
        assert notify("READY=1", {"NOTIFY_SOCKET": ("@" if abstract else "") + path})
        assert listener.recv(100) == b"READY=1"


def test_without_systemd_nobody_is_told() -> None:
    assert not notify("READY=1", {})
    assert not notify("READY=1", {"NOTIFY_SOCKET": "/nonexistent/socket"})
