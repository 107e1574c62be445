"""The move of a pending job between clusters that share no federation, one safe step at a time.

::

    TEST      ask the destination, as the owner, whether it would take the job
    DEFER     put the original off (its begin time), so that it does not start meanwhile
    SUBMIT    submit a held copy at the destination
    CONFIRM   the destination lists the copy for long enough to have saved it
    CANCEL    cancel the original; from here on the copy counts
    RELEASE   release the copy
    DONE

    WITHDRAW  cancel the copy, then RESTORE the original's begin time, then ABANDONED

Why nothing is lost or run twice: until CANCEL the copy is held and the original counts; the copy is released
only when Slurm's accounting says that *we* cancelled the original. The original is not held but put off, so
that a hold by its owner stays visible and is honoured, and so that a job left alone by a daemon that
never comes back frees itself.

Two daemons with a journal each, which nobody wants, do not know of each other. Every mark names its move: a move
never touches what another one has made, and the mark on the cancelled original says whose copy counts.

All functions are pure. A step is decided by the phase that was journaled and by what both clusters say
now, never by what was sent; the phase is journaled before its step is asked. So a daemon that dies anywhere
goes on, or back, from what it sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from slurm_evo.model import Answer, ClusterName, Hold, JobKey

_EPOCH = datetime.fromtimestamp(0, UTC)


class Phase(StrEnum):
    """How far a move has got; see the module."""

    TEST = "test"
    DEFER = "defer"
    SUBMIT = "submit"
    CONFIRM = "confirm"
    CANCEL = "cancel"
    RELEASE = "release"
    DONE = "done"
    WITHDRAW = "withdraw"
    RESTORE = "restore"
    ABANDONED = "abandoned"

    @property
    def open(self) -> bool:
        """Something is left to do."""
        return self not in (Phase.DONE, Phase.ABANDONED)


class Life(StrEnum):
    """Where a job is in its life, as one cluster tells."""

    WAITING = "waiting"
    STARTED = "started"
    ENDED = "ended"
    """Also where the cluster has no such job any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """The job at the cluster it was submitted to, as just seen."""

    life: Life
    hold: Hold = Hold.NONE
    deferred_s: float | None = None
    """Seconds until it may start, if it carries our mark; None if it is not put off by us."""
    ours: bool = True
    """Not marked by another move, of a daemon with a journal of its own."""
    fields: str = ""
    """Fingerprint of what it asks for now."""
    cancelled_by_us: bool | None = None
    """Of one that has ended: by this very move; None while accounting does not tell yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The job at its destination, found by its mark."""

    id: int
    life: Life
    final: bool = False
    """It was released by us: whatever holds it now is its owner's."""
    owner_matches: bool = True
    """It belongs to the same user name and number as the original."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Both ends; None for an end that could not be seen."""

    original: Original | None
    copies: tuple[Copy, ...] | None
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One move; what the journal keeps of it."""

    job: JobKey
    to: ClusterName
    phase: Phase = Phase.TEST
    began: datetime
    phase_since: datetime
    fields: str = ""
    """Fingerprint of what was submitted at the destination."""
    copy: int | None = None
    """The job's number at the destination."""
    image: dict[str, Any] | None = None
    """What is submitted there, kept until the move is over, for a destination that loses it."""
    site_factor: int = 0
    """What the job gets at its destination: its rank and the age that it lost."""
    why: str = ""
    """The reason for the move, later the reason for its end."""
    owner: str = ""
    """Login name."""

    @property
    def name(self) -> str:
        """Its first microsecond: tells it from other moves of the job, also by a daemon with another journal."""
        return f"{(self.began - _EPOCH) // timedelta(microseconds=1):x}"

    def to_phase(self, phase: Phase, now: datetime, **changes: Any) -> Transfer:
        """The same move, in another phase."""
        return replace(self, phase=phase, phase_since=now, **changes)


def began_at(name: str) -> datetime:
    """When a move of this `Transfer.name` began.

    Raises:
        ValueError: it is no such name.
        OverflowError: no year that a calendar knows.
    """
    return _EPOCH + timedelta(microseconds=int(name, 16))


class Ask(StrEnum):
    """What is to be asked of a cluster next."""

    TEST = "test"
    DEFER = "defer"
    SUBMIT = "submit"
    CANCEL_ORIGINAL = "cancel_original"
    RELEASE = "release"
    HAND_OVER_HELD = "hand_over_held"
    """Give the copy its final mark and leave it held: its owner held the original as it was cancelled."""
    CANCEL_COPY = "cancel_copy"
    RESTORE = "restore"


AT_ORIGIN = frozenset((Ask.DEFER, Ask.CANCEL_ORIGINAL, Ask.RESTORE))
"""Asked of the cluster the job comes from; all others of its destination."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to journal, and then what to ask."""

    transfer: Transfer
    ask: Ask | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a move waits for what."""

    confirm_s: float = 12.0
    """A controller that dies forgets what it was told in its last seconds (slurmctld saves every 5 s): a copy is
    believed, and the cancellation of an original, when it has been seen for so long."""
    least_deferred_s: float = 60.0
    """An original nearer to its start than this is not cancelled."""
    give_up_s: float = 300.0
    """A step that does not come through for this long ends the move."""


def next_step(move: Transfer, seen: Seen, patience: Patience) -> Step:
    """The next safe step. Does nothing while an end is not seen."""
    if not move.phase.open:
        return Step(move)
    if seen.original is None:
        return Step(move, note=f"{move.job.cluster} was not seen: nothing is changed")
    if seen.copies is None:
        return Step(move, note=f"{move.to} was not seen: nothing is changed")
    alive = [copy for copy in seen.copies if copy.life is not Life.ENDED]
    started = next((copy for copy in alive if copy.life is Life.STARTED), None)
    if started is not None and move.phase not in (Phase.CANCEL, Phase.RELEASE):
        # Somebody released the copy and it runs: now it counts, and the original must not run as well.
        move = move.to_phase(Phase.CANCEL, seen.now, copy=started.id)
    if move.phase is Phase.RELEASE and seen.original.life is Life.ENDED:
        return _release(move, seen.original, seen.copies, seen.now, patience)
    if move.phase is Phase.RELEASE:
        # Its controller died before it had saved the cancellation, and forgot it.
        move = move.to_phase(Phase.CANCEL, seen.now)
    if move.phase is Phase.CANCEL and seen.original.life is Life.ENDED and seen.original.cancelled_by_us:
        return _release(move.to_phase(Phase.RELEASE, seen.now), seen.original, seen.copies, seen.now, patience)
    if move.phase in (Phase.WITHDRAW, Phase.RESTORE) and seen.original.life is Life.ENDED:
        # A cancellation of ours that seemed to fail can come through late.
        if seen.original.cancelled_by_us is None:
            return Step(move, note="waiting for accounting to tell who cancelled the original")
        if seen.original.cancelled_by_us and move.image is not None:
            return _release(move.to_phase(Phase.RELEASE, seen.now), seen.original, seen.copies, seen.now, patience)
    return _BY_PHASE[move.phase](move, seen.original, alive, seen.now, patience)


def _test(move: Transfer, original: Original, alive: list[Copy], now: datetime, patience: Patience) -> Step:
    if alive:
        return _back(move, now, "there is a copy from an earlier move")
    why = _no_longer(original)
    if why:
        return Step(move.to_phase(Phase.ABANDONED, now, why=why), note=why)
    if _late(move, now, patience):
        return _back(move, now, "the destination did not answer the test")
    return Step(move, Ask.TEST)


def _defer(move: Transfer, original: Original, alive: list[Copy], now: datetime, patience: Patience) -> Step:
    why = _no_longer(original)
    if why or alive:
        return _back(move, now, why or "there is a copy already")
    if original.deferred_s is not None and original.deferred_s > patience.least_deferred_s:
        # What is submitted is what the original asks for now that it is put off.
        return Step(move.to_phase(Phase.SUBMIT, now, fields=original.fields), Ask.SUBMIT)
    if _late(move, now, patience):
        return _back(move, now, "it could not be put off")
    return Step(move, Ask.DEFER)


def _submit(move: Transfer, original: Original, alive: list[Copy], now: datetime, patience: Patience) -> Step:
    why = _changed(move, original, alive, patience)
    if why:
        return _back(move, now, why)
    if alive:
        return Step(move.to_phase(Phase.CONFIRM, now, copy=alive[0].id), note=f"waits at {move.to}, held")
    if _late(move, now, patience):
        return _back(move, now, f"{move.to} did not list it")
    return Step(move, Ask.SUBMIT)


def _confirm(move: Transfer, original: Original, alive: list[Copy], now: datetime, patience: Patience) -> Step:
    why = _changed(move, original, alive, patience)
    if not why and not alive:
        why = f"{move.to} no longer lists the copy"
    if why:
        return _back(move, now, why)
    if now - move.phase_since < timedelta(seconds=patience.confirm_s):
        return Step(move, note=f"waiting for {move.to} to have it saved")
    return Step(move.to_phase(Phase.CANCEL, now), Ask.CANCEL_ORIGINAL)


def _cancel(move: Transfer, original: Original, alive: list[Copy], now: datetime, patience: Patience) -> Step:
    started = any(copy.life is Life.STARTED for copy in alive)
    if original.life is Life.STARTED:
        if started:
            return Step(move, note="both run: somebody freed both; look at them by hand")
        return _back(move, now, "the original has started")
    if original.life is Life.WAITING:
        why = "" if started else _changed(move, original, alive, patience)
        if not why and not alive:
            why = f"{move.to} no longer lists the copy"
        return _back(move, now, why) if why else Step(move, Ask.CANCEL_ORIGINAL)
    if started:
        return Step(move.to_phase(Phase.DONE, now, image=None), note="it runs at its destination")
    if original.cancelled_by_us is None:
        return Step(move, note="waiting for accounting to tell who cancelled the original")
    return _back(move, now, "its owner cancelled it")


def _release(
    move: Transfer, original: Original, copies: tuple[Copy, ...], now: datetime, patience: Patience
) -> Step:
    if now - move.phase_since < timedelta(seconds=patience.confirm_s):
        return Step(move, note=f"waiting for {move.job.cluster} to have the cancellation saved")
    if any(copy.final or copy.life is Life.STARTED for copy in copies):
        return Step(move.to_phase(Phase.DONE, now, image=None), note=f"it waits at {move.to}")
    held = next((copy for copy in copies if copy.life is Life.WAITING), None)
    if held is not None:
        # A hold between our last look and our cancellation shows on the cancelled job.
        ask = Ask.RELEASE if original.hold is Hold.NONE else Ask.HAND_OVER_HELD
        return Step(replace(move, copy=held.id), ask)
    if copies:
        why = f"it has ended at {move.to}"
        return Step(move.to_phase(Phase.DONE, now, image=None, why=why), note=why)
    return Step(move, Ask.SUBMIT, f"{move.to} has lost it: submitted again")


def _withdraw(move: Transfer, original: Original, alive: list[Copy], now: datetime, patience: Patience) -> Step:
    if alive:
        return Step(replace(move, copy=alive[0].id), Ask.CANCEL_COPY)
    return _restore(move.to_phase(Phase.RESTORE, now), original, alive, now, patience)


def _restore(move: Transfer, original: Original, alive: list[Copy], now: datetime, patience: Patience) -> Step:
    if alive:
        return _withdraw(move.to_phase(Phase.WITHDRAW, now), original, alive, now, patience)
    if original.life is Life.WAITING and original.deferred_s is not None:
        return Step(move, Ask.RESTORE)
    return Step(move.to_phase(Phase.ABANDONED, now, image=None), note=move.why)


_BY_PHASE = {
    Phase.TEST: _test,
    Phase.DEFER: _defer,
    Phase.SUBMIT: _submit,
    Phase.CONFIRM: _confirm,
    Phase.CANCEL: _cancel,
    Phase.WITHDRAW: _withdraw,
    Phase.RESTORE: _restore,
}


def after(move: Transfer, ask: Ask, answer: Answer, message: str, now: datetime) -> Transfer:
    """What the answer changes. A missing one changes nothing: the next look tells."""
    if answer is Answer.DONE:
        return move.to_phase(Phase.DEFER, now) if ask is Ask.TEST else move
    if answer is Answer.UNKNOWN:
        return move
    if ask is Ask.TEST:
        return move.to_phase(Phase.ABANDONED, now, why=f"{move.to} would not take it: {message}")
    if ask is Ask.DEFER:
        return move.to_phase(Phase.RESTORE, now, why=f"it could not be put off: {message}")
    if ask is Ask.SUBMIT and move.phase is Phase.SUBMIT:
        return move.to_phase(Phase.WITHDRAW, now, why=f"{move.to} did not take it: {message}")
    return move


def _no_longer(original: Original) -> str:
    """Why the original cannot be moved any more."""
    if original.life is Life.STARTED:
        return "it has started"
    if original.life is Life.ENDED:
        return "it has ended"
    if original.hold is not Hold.NONE:
        return f"held by its {original.hold}"
    return "" if original.ours else "another slurm-evo, with a journal of its own, is moving it"


def _changed(move: Transfer, original: Original, alive: list[Copy], patience: Patience) -> str:
    """Why the copy must not take the original's place."""
    why = _no_longer(original)
    if why:
        return why
    if original.fields != move.fields:
        return "its owner changed it"
    if original.deferred_s is None:
        return "somebody set its begin time"
    if original.deferred_s <= patience.least_deferred_s:
        return "it took too long: the original is about to be free again"
    if any(not copy.owner_matches for copy in alive):
        return f"{move.to} knows its owner under another number"
    if len(alive) > 1:
        return "there is more than one copy"
    return ""


def _late(move: Transfer, now: datetime, patience: Patience) -> bool:
    return now - move.phase_since > timedelta(seconds=patience.give_up_s)


def _back(move: Transfer, now: datetime, why: str) -> Step:
    """Let the original count, and first take away the copy."""
    return Step(move.to_phase(Phase.WITHDRAW, now, why=why), note=why)
