"""Mails to owners of jobs that were moved between clusters without a federation. Off until a site sends them."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from email.headerregistry import Address
from email.message import EmailMessage
from pathlib import Path

from slurm_evo.model import ConfigError, StoreError
from slurm_evo.store import TransferRecord

FILE = "digest.json"
"""In the state directory: until when each owner was told."""
LOCK = "digest.lock"
PATIENCE_S = 60
SETTLED_S = 60
"""A move that ended this moment may not be in the journal yet: it is told by the next digest."""


def message(owner: str, moves: Sequence[TransferRecord], domain: str = "") -> EmailMessage:
    """What an owner is told of completed moves, which are given oldest first."""
    mail = EmailMessage()
    name, at, own = owner.partition("@")
    mail["To"] = Address(username=name, domain=own if at else domain)
    mail["Subject"] = f"slurm-evo moved {len(moves)} of your waiting jobs"
    lines = [
        f"{move.phase_since:%Y-%m-%d %H:%M} UTC  {move.job} -> {move.to}:{move.copy or move.job.id}  ({move.why})"
        for move in moves
    ]
    first = moves[0]
    mail.set_content(
        "These jobs waited and can start earlier elsewhere. Script, environment and options are the same.\n\n"
        + "\n".join(lines)
        + f"\n\nWhere a job is now: slurm-evo where {first.job}\n"
        "To keep a job where you submit it: --comment=slurm-evo:stay\n"
    )
    return mail


def shown(mail: EmailMessage) -> str:
    """A mail as its reader sees it; on its way, long lines are folded and signs quoted."""
    return f"To: {mail['To']}\nSubject: {mail['Subject']}\n\n{mail.get_content()}"


def by_owner(moves: Iterable[TransferRecord]) -> dict[str, list[TransferRecord]]:
    """Moves of each owner, owners by name; moves whose owner was not kept are left out."""
    found: dict[str, list[TransferRecord]] = defaultdict(list)
    for move in moves:
        if move.owner:
            found[move.owner].append(move)
    return dict(sorted(found.items()))


def told_until(state_dir: Path) -> dict[str, datetime]:
    """Until when each owner was told.

    Raises:
        ConfigError: the file is damaged: nobody is told twice because of that.
    """
    file = state_dir / FILE
    if not file.exists():
        return {}
    try:
        found = {owner: datetime.fromisoformat(at) for owner, at in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError) as failure:
        raise ConfigError(f"{file} cannot be read ({failure}); remove it to begin anew") from failure
    if any(at.tzinfo is None for at in found.values()):
        raise ConfigError(f"{file} has a time without a zone; remove it to begin anew")
    return found


def keep(state_dir: Path, told: Mapping[str, datetime]) -> None:
    """Write down until when each owner was told, all or nothing.

    Raises:
        StoreError: it could not be written.
    """
    new = state_dir / f"{FILE}.new"
    try:
        new.write_text(json.dumps({owner: at.isoformat() for owner, at in sorted(told.items())}))
        new.replace(state_dir / FILE)
    except OSError as failure:
        raise StoreError(
            f"{new} cannot be written ({failure.strerror or failure}): nobody else is told"
        ) from failure


@contextmanager
def _alone(state_dir: Path) -> Iterator[None]:
    """Wait for another digest to end: both would tell the same moves."""
    path = state_dir / LOCK
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o750)
        lock = path.open("a")
    except OSError as failure:
        raise StoreError(f"{path} cannot be opened ({failure.strerror or failure}): nobody is told") from failure
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def send(
    moves: Callable[[datetime, datetime], Sequence[TransferRecord]],
    state_dir: Path,
    command: Sequence[str],
    *,
    now: datetime,
    hours: float,
    domain: str = "",
) -> tuple[dict[str, int], dict[str, str]]:
    """Tell each owner of the moves since they were last told, an owner at a time.

    A mail that cannot be sent is tried again by the next call; whoever was told is not told again.

    Args:
        moves: completed ones between two instants.
        state_dir: keeps until when each owner was told.
        command: takes a mail on its standard input; its exit code 0 means sent.
        now: aware.
        hours: how far back an owner is told of who never was.
        domain: behind login names.

    Returns:
        Moves told by owner, and what went wrong by owner.

    Raises:
        ConfigError: the state directory's file is damaged.
        StoreError: it cannot be written; tried before the first mail, or every call would tell the same.
    """
    with _alone(state_dir):
        return _send(moves, state_dir, command, now=now, hours=hours, domain=domain)


def _send(
    moves: Callable[[datetime, datetime], Sequence[TransferRecord]],
    state_dir: Path,
    command: Sequence[str],
    *,
    now: datetime,
    hours: float,
    domain: str,
) -> tuple[dict[str, int], dict[str, str]]:
    told = told_until(state_dir)
    keep(state_dir, told)
    earliest, until = now - timedelta(hours=hours), now - timedelta(seconds=SETTLED_S)
    sent: dict[str, int] = {}
    failed: dict[str, str] = {}
    for owner, all_of in by_owner(moves(min([earliest, *told.values()]), until)).items():
        since = told.get(owner, earliest)
        new = [move for move in all_of if move.phase_since > since]
        if not new:
            continue
        try:
            complaint = _hand_over(command, message(owner, new, domain))
        except ValueError as failure:
            complaint = f"no mail can be addressed to {owner!r}: {failure}"
        if complaint:
            failed[owner] = complaint
            continue
        told[owner] = until
        keep(state_dir, told)
        sent[owner] = len(new)
    # Whoever had nothing to hear is up to date as well: the next look back need not be as long.
    keep(state_dir, {owner: at if owner in failed else until for owner, at in told.items()})
    return sent, failed


def _hand_over(command: Sequence[str], mail: EmailMessage) -> str:
    """Empty if it was taken."""
    try:
        done = subprocess.run(
            list(command), input=mail.as_bytes(), capture_output=True, check=False, timeout=PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return str(failure)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        return f"{command[0]} ended with {done.returncode}: {said}"
    return ""
