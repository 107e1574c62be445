"""Moves between clusters that share no federation: which of layer 1's wishes are worth one, and carrying them on.

Late binding: a job goes when its destination can start it within seconds, or clearly earlier than where it
waits; never because it might be better there some day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, ClusterUnreachable, FleetView, Hold, JobKey, Placement, Plan
from slurm_evo.slurm.transfer import (
    ClusterTables,
    JobImage,
    Known,
    Mover,
    Patience,
    Phase,
    Step,
    Transfer,
    TransferPort,
    translate,
)
from slurm_evo.slurm.transfer.image import COPY, MOVE, MOVING, TO, mark_of
from slurm_evo.slurm.transfer.machine import began_at
from slurm_evo.store import JobMemory, Journal, Lease, TransferRecord

AT_A_TIME = 4
"""Moves that are carried on side by side: each waits for commands most of its time."""
NOTES, NOTE = 3, 200
"""Different notes on moves that a cycle's sentence tells at most, and signs of each."""


@dataclass(frozen=True, slots=True)
class WantedTransfer:
    """A plain job that is to go elsewhere, and why."""

    job: JobKey
    to: ClusterName
    why: str


@dataclass(frozen=True, slots=True)
class CarriedOn:
    """What became of the moves in one cycle."""

    steps: tuple[Step, ...] = ()
    memories: Mapping[JobKey, JobMemory] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """For the report."""
        phases = [step.transfer.phase for step in self.steps]
        return {
            "transfers_under_way": sum(phase.open for phase in phases),
            "transfers_done": phases.count(Phase.DONE),
            "transfers_given_up": phases.count(Phase.ABANDONED),
        }

    @property
    def sentence(self) -> str:
        """For a person; empty if there is nothing to say."""
        counts, parts = self.counts, []
        for name, text in (("done", "moved"), ("under_way", "on their way"), ("given_up", "not moved after all")):
            if number := counts[f"transfers_{name}"]:
                parts.append(f"{number} plain jobs {text}{self._notes(name)}")
        return "; ".join(parts)

    def _notes(self, name: str) -> str:
        """What the unfinished ones wait for: nobody else is told that slurmrestd or accounting does not answer."""
        if name == "done":
            return ""
        of = [step for step in self.steps if step.transfer.phase is not Phase.DONE]
        of = [step for step in of if step.transfer.phase.open == (name == "under_way")]
        notes = dict.fromkeys(step.note[:NOTE] for step in of if step.note)
        return f" ({'; '.join([*notes][:NOTES])})" if notes else ""


def tables_of(settings: Settings) -> dict[ClusterName, ClusterTables]:
    """The clusters between which plain jobs may be moved, each with its tables; empty if moves are off."""
    if not settings.transfers.enabled:
        return {}
    return {
        ClusterName(cluster.name): ClusterTables(
            partitions=given.partitions,
            qos=given.qos,
            accounts=given.accounts,
            gpu_types=given.gpu_types,
            licenses=given.licenses,
            features=given.features,
            paths=given.paths,
        )
        for cluster in settings.clusters
        if (given := cluster.transfers) is not None
    }


def chosen_transfers(
    plan: Plan | None, view: FleetView, settings: Settings
) -> tuple[tuple[WantedTransfer, ...], dict[JobKey, str]]:
    """Those of layer 1's wishes for plain jobs that are worth a move, and a note on the others."""
    wanted: list[WantedTransfer] = []
    notes: dict[JobKey, str] = {}
    for placement in plan.changes if plan is not None else ():
        job, to = view.jobs[placement.job], placement.expected_cluster
        if job.job.federated or to is None or to in job.viable:
            continue
        why_not = _not_worth_it(placement, settings)
        if why_not:
            notes[placement.job] = why_not
        else:
            wanted.append(WantedTransfer(placement.job, to, placement.reason))
    return tuple(wanted), notes


def _not_worth_it(placement: Placement, settings: Settings) -> str:
    there = placement.expected_start_s
    if there is None or there <= settings.transfers.start_within_s:
        return "" if there is not None else "it is not known when it would start elsewhere"
    here = placement.expected_start_before_s
    if here is None or here - there >= settings.transfers.earlier_s:
        return ""
    return f"{placement.expected_cluster} would start it only {here - there:.0f} s earlier, and not yet"


def under_way(records: Sequence[TransferRecord]) -> dict[JobKey, str]:
    """Both names of each job that is being moved, with a word on it."""
    moving = {}
    for record in records:
        said = f"its move from {record.job.cluster} to {record.to} is under way ({record.phase})"
        moving[record.job] = said
        if record.copy is not None:
            moving[JobKey(record.to, record.copy)] = said
    return moving


def carry_on(
    wanted: Sequence[WantedTransfer],
    view: FleetView,
    settings: Settings,
    *,
    ports: Mapping[ClusterName, TransferPort],
    journal: Journal,
    lease: Lease,
    clock: Callable[[], datetime],
) -> CarriedOn:
    """Bring every move one stretch further, and begin new ones while there is room.

    Args:
        wanted: what the decision asks for, most wanted first.
        view: for what the destinations know.
        settings: the configuration in force.
        ports: by cluster; a move whose cluster has none stays as it is.
        journal: where each step is written before it is asked.
        lease: the right to act; checked before each change.
        clock: aware.

    Raises:
        LeaseLost: another daemon may act.
        StoreError: the journal failed.
    """
    open_now = list(journal.open_transfers())
    open_now += orphans(view, open_now, ports)
    room = max(0, settings.transfers.max_at_once - len(open_now))
    # A held copy takes no place yet that layer 1 could see: its destination gets no others meanwhile.
    busy = {record.to for record in open_now}
    begun = [one for one in wanted if one.to not in busy][:room]
    known = journal.jobs([*(record.job for record in open_now), *(one.job for one in begun)])
    records = open_now + [_begin(one, view, known, settings, clock()) for one in begun]
    if not records:
        return CarriedOn()

    def carry(record: TransferRecord) -> Step:
        return _carry(record, view, settings, ports=ports, journal=journal, lease=lease, clock=clock)

    with ThreadPoolExecutor(max_workers=AT_A_TIME, thread_name_prefix="move") as pool:
        steps = tuple(pool.map(carry, records))
    memories: dict[JobKey, JobMemory] = {}
    for step in steps:
        memory = known.get(step.transfer.job)
        if memory is not None and not step.transfer.phase.open:
            changed = _remember(step.transfer, memory, settings, clock())
            memories[changed.key] = changed
    journal.remember(memories.values())
    return CarriedOn(steps, memories)


def orphans(
    view: FleetView, open_now: Sequence[TransferRecord], ports: Mapping[ClusterName, TransferPort]
) -> list[TransferRecord]:
    """Held copies whose move the journal does not know any more: taken up where either end can still be right.

    In CANCEL the copy is released if its move cancelled the original, and else cancelled. While the original is
    put off, another daemon with a journal of its own may be at it: left alone until that has run out.
    """
    known = {record.job for record in open_now}
    found = []
    for seen in view.seen if ports else ():
        for job in seen.jobs:
            told = mark_of(job.admin_comment, COPY) if job.waiting_here and job.hold is not Hold.NONE else None
            if told is None:
                continue
            try:
                original = JobKey.parse(told)
            except ValueError:
                continue
            if original in known or original.cluster not in ports or _put_off(original, view):
                continue
            known.add(original)
            move = Transfer(
                job=original,
                to=seen.cluster,
                phase=Phase.CANCEL,
                began=_began(job.admin_comment) or view.now,
                phase_since=view.now,
                copy=job.id,
                why="a copy was found whose move is not in the journal",
                owner=job.user,
            )
            found.append(_record(move, 0))
    return found


def _put_off(original: JobKey, view: FleetView) -> bool:
    """Whether a move still keeps the original from starting, as far as that is seen."""
    origin = view.cluster(original.cluster)
    if origin is None:
        return True
    record = next((job for job in origin.jobs if job.id == original.id), None)
    if record is None or record.eligible is None:
        return False
    marks = mark_of(record.admin_comment, MOVING) or mark_of(record.admin_comment, TO)
    return marks is not None and record.waiting_here and record.eligible > view.now


def _began(comment: str) -> datetime | None:
    """When the move began whose marks these are; None if they do not tell."""
    try:
        return began_at(mark_of(comment, MOVE) or "")
    except (ValueError, OverflowError):
        return None


def _begin(
    wanted: WantedTransfer, view: FleetView, known: Mapping[JobKey, JobMemory], settings: Settings, now: datetime
) -> TransferRecord:
    memory = known.get(wanted.job)
    site_factor = 0
    if memory is not None:
        site_factor = (
            (memory.site_factor or 0) - memory.age_points + _age_points(wanted, memory, view, settings, now)
        )
    move = Transfer(
        job=wanted.job,
        to=wanted.to,
        began=now,
        phase_since=now,
        site_factor=site_factor,
        why=wanted.why,
        owner=view.jobs[wanted.job].job.user if wanted.job in view.jobs else "",
    )
    return _record(move, 0)


def _age_points(
    wanted: WantedTransfer, memory: JobMemory, view: FleetView, settings: Settings, now: datetime
) -> int:
    """What the age factor of the destination will not know of, in its points (PriorityWeightAge)."""
    there = view.cluster(wanted.to)
    if there is None or not settings.priority.restore_age:
        return 0
    lost = (now - memory.submitted).total_seconds() / max(there.facts.priority_max_age_s, 1)
    return round(there.facts.priority_weights.get("age", 0) * min(max(lost, 0.0), 1.0))


def _carry(
    record: TransferRecord,
    view: FleetView,
    settings: Settings,
    *,
    ports: Mapping[ClusterName, TransferPort],
    journal: Journal,
    lease: Lease,
    clock: Callable[[], datetime],
) -> Step:
    move = _transfer(record)
    if move.job.cluster not in ports or move.to not in ports:
        return Step(move, note="one of its clusters is not configured for moves any more: nothing is changed")
    number = record.id

    def write(changed: Transfer) -> None:
        nonlocal number
        number = journal.write_transfer(_record(changed, number), lease=lease, now=clock()).id

    if not number:
        write(move)
    mover = Mover(
        ports,
        write=write,
        translate=lambda image, to: _translated(image, to, view, settings),
        clock=clock,
        patience=Patience(confirm_s=settings.transfers.confirm_s, give_up_s=settings.transfers.give_up_s),
        defer_s=settings.transfers.defer_s,
        may_act=lambda: lease.valid(clock()),
    )
    return mover.advance(move)


def _translated(image: JobImage, to: ClusterName, view: FleetView, settings: Settings) -> JobImage:
    there = view.cluster(to)
    if there is None:
        raise ClusterUnreachable(to, "it was not seen")
    return translate(image, to, tables_of(settings).get(to, ClusterTables()), Known.of(there))


def _remember(move: Transfer, memory: JobMemory, settings: Settings, now: datetime) -> JobMemory:
    """A moved job keeps its age and its rank under its new name; one that stayed is not tried again soon."""
    if move.phase is Phase.ABANDONED:
        until = now + timedelta(seconds=settings.moves.refusal_s)
        return memory.but(refusing={**memory.refusing, move.to: until})
    lost = max(0.0, (move.began - memory.submitted).total_seconds())
    rank = (memory.site_factor or 0) - memory.age_points
    return memory.but(
        key=JobKey(move.to, move.copy or move.job.id),
        asked=frozenset((move.to,)),
        seen_at=now,
        site_factor=move.site_factor,
        age_lost_s=lost,
        age_points=move.site_factor - rank,
        moved_at=now,
        moves=memory.moves + 1,
        wanted=None,
        widening_since=None,
    )


def _record(move: Transfer, number: int) -> TransferRecord:
    return TransferRecord(
        id=number,
        job=move.job,
        to=move.to,
        copy=move.copy,
        phase=move.phase.value,
        closed=not move.phase.open,
        began=move.began,
        phase_since=move.phase_since,
        fields=move.fields,
        image=move.image,
        site_factor=move.site_factor,
        why=move.why,
        owner=move.owner,
    )


def _transfer(record: TransferRecord) -> Transfer:
    return Transfer(
        job=record.job,
        to=record.to,
        phase=Phase(record.phase),
        began=record.began,
        phase_since=record.phase_since,
        fields=record.fields,
        copy=record.copy,
        image=None if record.image is None else dict(record.image),
        site_factor=record.site_factor,
        why=record.why,
        owner=record.owner,
    )
