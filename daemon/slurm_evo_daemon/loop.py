"""The dull part: run a cycle when it is due, keep the lease, reload when told, stop when told."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from slurm_evo.config import Settings
from slurm_evo.model import Changes, ConfigError, LeaseLost, PolicyError, StoreError
from slurm_evo.policy import Policy
from slurm_evo.store import Lease
from slurm_evo_daemon.cycle import Surroundings, cycle
from slurm_evo_daemon.notify import notify
from slurm_evo_daemon.report import CycleReport

TIDY_S = 3600.0
"""How often the journal is tidied."""
FORGET_AFTER = timedelta(days=7)
"""A job that no cluster listed for this long is gone: memories of waiting jobs are refreshed every hour."""


class Log(Protocol):
    """The part of a structlog logger that the loop uses."""

    def info(self, event: str, **fields: Any) -> Any:
        """A line of ordinary work."""

    def warning(self, event: str, **fields: Any) -> Any:
        """A line somebody should read."""


@dataclass(slots=True)
class Signals:
    """SIGTERM and SIGINT ask to stop, SIGHUP asks to read the configuration again; both only set an event."""

    stop: threading.Event = field(default_factory=threading.Event)
    reload: threading.Event = field(default_factory=threading.Event)
    wake: threading.Event = field(default_factory=threading.Event)

    def install(self) -> None:
        """Take the process's signals."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._reload)

    def _stop(self, *_: object) -> None:
        self.stop.set()
        self.wake.set()

    def _reload(self, *_: object) -> None:
        self.reload.set()
        self.wake.set()


@dataclass(frozen=True, slots=True)
class InForce:
    """The settings and the policy of the next cycle."""

    settings: Settings
    policy: Policy


def run(
    around: Surroundings,
    force: InForce,
    *,
    holder: str,
    read_again: Callable[[], InForce],
    policy_now: Callable[[Settings], Policy],
    log: Log,
    signals: Signals,
    on_report: Callable[[CycleReport], None] = lambda _: None,
) -> None:
    """Cycle until told to stop. A late cycle is followed at once by the next; missed ones are dropped.

    Args:
        around: ports, journal, clocks.
        force: what is in force at the start.
        holder: this daemon's name for the lease.
        read_again: reads the configuration; its errors keep the last good one in force.
        policy_now: the policy to use under some settings (a promotion takes effect at the next cycle).
        log: one line a cycle.
        signals: what was asked of us.
        on_report: told of every cycle, for a screen.
    """
    lease: Lease | None = None
    last: tuple[Changes, ...] = ()
    due, tidied = around.stopwatch(), -TIDY_S
    notify("READY=1")
    while not signals.stop.is_set():
        if signals.reload.is_set():
            signals.reload.clear()
            force = _reload(force, read_again, log)
        force = InForce(force.settings, _policy(force, policy_now, log))
        settings = force.settings
        try:
            lease = None if settings.cycle.dry_run else hold(around, lease, holder, settings.cycle.lease_s)
            if lease is None and not settings.cycle.dry_run:
                other = around.journal.lease()
                log.info("lease.waiting", why=f"{other.holder if other else 'another daemon'} acts on this fleet")
            else:
                report, decision = cycle(around, settings, force.policy, lease, last)
                last = decision.plan.found if decision.plan is not None else ()
                log.info("cycle.done", **report.as_fields())
                notify(f"STATUS={report.sentence}\nWATCHDOG=1")
                on_report(report)
        except LeaseLost as lost:
            lease = None
            log.warning("lease.lost", why=str(lost))
        except StoreError as failure:
            log.warning("cycle.held", why=f"nothing is done without the journal: {failure}")
        if around.stopwatch() - tidied >= TIDY_S:
            tidied = around.stopwatch()
            _tidy(around, settings, log)
            _keep_times(around, settings, log)
        due = max(due + settings.cycle.period_s, around.stopwatch())
        signals.wake.wait(due - around.stopwatch())
        signals.wake.clear()
    notify("STOPPING=1")
    _keep_times(around, force.settings, log)
    if lease is not None:
        try:
            around.journal.release(lease, now=around.clock())
        except StoreError as failure:
            log.warning("lease.kept", why=f"it runs out by itself: {failure}")


def _tidy(around: Surroundings, settings: Settings, log: Log) -> None:
    """Drop what is older than ``store.keep_days``, and jobs that left the queues long ago."""
    try:
        oldest = around.clock() - timedelta(days=settings.store.keep_days)
        dropped = around.journal.prune(older_than=oldest)
        forgotten = around.journal.forget(unseen_since=around.clock() - FORGET_AFTER)
    except StoreError as failure:
        log.warning("journal.untidied", why=str(failure))
        return
    if dropped or forgotten:
        log.info("journal.tidied", cycles=dropped, jobs=forgotten)


def _keep_times(around: Surroundings, settings: Settings, log: Log) -> None:
    try:
        around.times.save(settings.state_dir)
    except ConfigError as failure:
        log.warning("times.unsaved", why=str(failure))


def hold(around: Surroundings, lease: Lease | None, holder: str, length_s: float) -> Lease | None:
    """The lease, renewed or newly taken; None while another daemon has it.

    Raises:
        LeaseLost: it was ours and is another's now.
        StoreError: the journal failed.
    """
    if lease is not None:
        return around.journal.renew(lease, now=around.clock(), length_s=length_s)
    return around.journal.acquire(holder, now=around.clock(), length_s=length_s)


def _reload(force: InForce, read_again: Callable[[], InForce], log: Log) -> InForce:
    try:
        fresh = read_again()
    except (ConfigError, PolicyError) as failure:
        log.warning("config.refused", why=f"the last good configuration stays in force: {failure}")
        return force
    log.info("config.loaded")
    return fresh


def _policy(force: InForce, policy_now: Callable[[Settings], Policy], log: Log) -> Policy:
    try:
        policy = policy_now(force.settings)
    except (PolicyError, ConfigError, StoreError) as failure:
        log.warning("policy.refused", why=f"the last good policy stays in force: {failure}")
        return force.policy
    if policy.text != force.policy.text:
        log.info("policy.changed", policy=policy.text)
    return policy


def utc_now() -> datetime:
    """The wall clock, aware."""
    return datetime.now(UTC)
