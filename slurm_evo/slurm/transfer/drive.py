"""Carries a move on: look at both ends, journal the next step, ask for it, look again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from slurm_evo.model import Answer, ClusterError, ClusterName, JobKey
from slurm_evo.slurm.transfer.image import JobImage, NotMovable, unmarked
from slurm_evo.slurm.transfer.machine import (
    AT_ORIGIN,
    Ask,
    Patience,
    Phase,
    Seen,
    Step,
    Transfer,
    after,
    next_step,
)
from slurm_evo.slurm.transfer.port import Replied, TransferPort

Translate = Callable[[JobImage, ClusterName], JobImage]
"""Put an image into a destination's words; raises NotMovable."""
Write = Callable[[Transfer], None]
MOST_STEPS = 20


class Mover:
    """Moves pending jobs between clusters that share no federation.

    Args:
        ports: by cluster.
        write: puts a move's new state on disk; nothing is asked before it returned.
        translate: puts a job into the words of a destination.
        clock: aware.
        patience: how long a move waits for what.
        defer_s: how long an original is put off.
        may_act: asked before each change: do we still hold the lease?
    """

    def __init__(
        self,
        ports: Mapping[ClusterName, TransferPort],
        *,
        write: Write,
        translate: Translate,
        clock: Callable[[], datetime],
        patience: Patience,
        defer_s: float,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._ports = ports
        self._write = write
        self._translate = translate
        self._clock = clock
        self._patience = patience
        self._defer_s = defer_s
        self._may_act = may_act

    def advance(self, move: Transfer) -> Step:
        """Bring a move as far as it goes without waiting.

        Returns:
            Its new state, already written, and what it waits for.
        """
        step = Step(move)
        for _ in range(MOST_STEPS):
            step = next_step(move, self._look(move), self._patience)
            if step.ask is Ask.SUBMIT:
                step = self._with_image(step)
            if step.transfer != move:
                self._write(step.transfer)
            move = step.transfer
            if not move.phase.open or (step.ask is None and not _goes_on(step)):
                return step
            if step.ask is None:
                continue
            if not self._may_act():
                return Step(move, note="not sent: the lease ran out")
            replied = self._carry_out(move, step.ask)
            changed = after(move, step.ask, replied.answer, replied.message, self._clock())
            if changed != move:
                self._write(changed)
                move = changed
            if replied.answer is Answer.UNKNOWN:
                return Step(move, note=replied.message)
        return Step(move, note=step.note or "goes on in the next cycle")

    def _look(self, move: Transfer) -> Seen:
        original = copies = None
        image = None if move.image is None else JobImage.from_json(move.image)
        try:
            original = self._ports[move.job.cluster].original(move.job.id, move.name)
            copies = self._ports[move.to].copies(move.job, image, move.copy, move.name)
        except (ClusterError, KeyError):
            pass
        return Seen(original=original, copies=copies, now=self._clock())

    def _with_image(self, step: Step) -> Step:
        """What is submitted is journaled with the move, so that it can be submitted again."""
        move = step.transfer
        if move.image is not None:
            return step
        try:
            image = self._image(move)
        except NotMovable as refusal:
            return Step(move.to_phase(Phase.WITHDRAW, self._clock(), why=str(refusal)), note=str(refusal))
        except ClusterError as failure:
            return Step(move, note=failure.message)
        return replace(step, transfer=replace(move, image=image.as_json()))

    def _image(self, move: Transfer) -> JobImage:
        image = self._ports[move.job.cluster].image(move.job.id)
        image = replace(image, admin_comment=unmarked(image.admin_comment))
        return self._translate(image, move.to)

    def _carry_out(self, move: Transfer, ask: Ask) -> Replied:
        port = self._ports[move.job.cluster if ask in AT_ORIGIN else move.to]
        match ask:
            case Ask.TEST:
                try:
                    return port.test(self._image(move))
                except NotMovable as refusal:
                    return Replied(Answer.REFUSED, str(refusal))
                except ClusterError as failure:
                    return Replied(Answer.UNKNOWN, failure.message)
            case Ask.DEFER:
                return port.defer(move.job.id, move.to, self._defer_s, move.name)
            case Ask.RESTORE:
                return port.restore(move.job.id, move.name)
            case Ask.CANCEL_ORIGINAL:
                return port.cancel(move.job.id, JobKey(move.to, move.copy or move.job.id), move.name)
            case Ask.CANCEL_COPY:
                return port.cancel(move.copy or move.job.id, None, move.name)
        if ask is Ask.SUBMIT:
            return port.submit(JobImage.from_json(move.image or {}), move.name)
        held = ask is Ask.HAND_OVER_HELD
        return port.release(
            move.copy or move.job.id, move.job, move=move.name, site_factor=move.site_factor, held=held
        )


def _goes_on(step: Step) -> bool:
    """A step without a question that only changed the phase: the next one can follow at once."""
    return step.transfer.phase in (Phase.WITHDRAW, Phase.RESTORE) and not step.note.startswith("waiting")
