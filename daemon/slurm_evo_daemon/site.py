"""From the configuration to everything a cycle needs: journal, ports, policy."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from slurm_evo.config import Settings, load
from slurm_evo.model import ConfigError, NoJournal, PolicyError, StoreError
from slurm_evo.policy import Policy, admitted
from slurm_evo.slurm.connect import connect, connect_transfers
from slurm_evo.store import Journal
from slurm_evo_daemon.cycle import Surroundings
from slurm_evo_daemon.learning import FILE, RunningTimes
from slurm_evo_daemon.loop import InForce, utc_now


def open_journal(settings: Settings, *, make: bool = False) -> Journal:
    """The journal of the configuration.

    Args:
        settings: the configuration.
        make: whether an SQLite file that is not there is made, with its folder: only by who writes into it first.

    Raises:
        NoJournal: it is not to be made and not there.
        StoreError: it cannot be opened; says what to change.
    """
    if make and not settings.store.url:
        try:
            settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o750)
        except OSError as failure:
            raise StoreError(
                f"{settings.state_dir} cannot be made ({failure.strerror}); "
                "set store.state_dir to a folder that can be written"
            ) from failure
    return Journal.open(settings.store_url, password_file=settings.store.password_file, make=make)


def journal_or_nothing(settings: Settings, tell: Callable[[str], None]) -> Journal:
    """The journal; where none is to be had an empty one in memory, and ``tell`` is told what that means.

    For commands that mostly look at the clusters. Simulated ones begin anew each time: nothing is missed.

    Raises:
        StoreError: it is there and cannot be opened; says what to change.
    """
    try:
        return open_journal(settings)
    except NoJournal as absent:
        if not settings.simulated:
            tell(f"Without what slurm-evo has done so far: {absent}.")
        return Journal.open("sqlite://")


def policy_of(settings: Settings, journal: Journal | None = None) -> Policy:
    """The policy to rank by: one that was promoted, else the configured one, else the shipped one.

    Raises:
        PolicyError: it is refused, with the reason and where it was read.
        ConfigError: its file cannot be read.
    """
    promoted = journal.active_policy() if journal is not None else None
    if promoted is not None:
        return _admitted(promoted.text, f"policy {promoted.id}")
    if settings.policy.file is not None:
        return _admitted(_text(settings.policy.file), str(settings.policy.file))
    if settings.policy.expression:
        return _admitted(settings.policy.expression, "policy.expression")
    return Policy.default()


def last_good(settings: Settings, journal: Journal) -> Policy:
    """`policy_of`; where that was promoted and is refused, what was promoted before, else what is configured.

    A daemon that starts so goes on with a policy it can use, and says at each cycle what is wrong with the other.

    Raises:
        PolicyError: the configured one is refused too.
        ConfigError: its file cannot be read.
    """
    try:
        return policy_of(settings, journal)
    except PolicyError:
        promoted = [(one.promoted_at, one.text) for one in journal.policies() if one.promoted_at is not None]
        if not promoted:
            raise
    for _, text in sorted(promoted, reverse=True):
        with suppress(PolicyError):
            return admitted(text)
    return policy_of(settings)


def _admitted(text: str, where: str) -> Policy:
    try:
        return admitted(text)
    except PolicyError as failure:
        raise PolicyError(f"{where}: {failure}") from failure


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise ConfigError(f"policy.file: {file} cannot be read: {failure}") from failure


def _times(settings: Settings) -> RunningTimes:
    """What is known of running times; a damaged file of the daemon's own is put aside: it learns again.

    Raises:
        ConfigError: ``policy.predictor`` cannot be read; names the file.
    """
    trained = settings.policy.predictor
    try:
        return RunningTimes.load(settings.state_dir, trained)
    except ConfigError:
        file = settings.state_dir / FILE
        if not file.exists():
            raise
        file.replace(file.with_suffix(".damaged"))
        return RunningTimes.load(settings.state_dir, trained)


@contextmanager
def at_site(
    config: Path | None, open_: Callable[[Settings], Journal] = open_journal
) -> Iterator[tuple[Surroundings, InForce]]:
    """Ports, journal (by ``open_``) and clocks of the configuration, closed at the end."""
    settings = load(config)
    with open_(settings) as journal:
        force = InForce(settings, last_good(settings, journal))
        ports = connect(settings, utc_now)
        transfers = connect_transfers(settings)
        rng = np.random.default_rng(settings.optimizer.seed)
        try:
            yield Surroundings(ports, journal, utc_now, time.monotonic, rng, _times(settings), transfers), force
        finally:
            for port in ports.values():
                port.close()
            for way in transfers.values():
                way.close()


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Hold ``daemon.lock`` in the state folder: a second daemon with the same name would share our lease.

    Raises:
        StoreError: a daemon runs with this state folder, or the lock cannot be made.
    """
    path = settings.state_dir / "daemon.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        lock = path.open("a")
    except OSError as failure:
        raise StoreError(f"{path} cannot be opened: {failure.strerror or failure}") from failure
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            raise StoreError(f"{path} is held: a daemon with this state folder runs already") from failure
        yield


def holder(settings: Settings) -> str:
    """This daemon's name for the lease: a restart on the same host takes its own former lease over."""
    return f"{socket.gethostname()}:{settings.state_dir}:{os.geteuid()}"
