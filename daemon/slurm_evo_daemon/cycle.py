"""One pass of the loop: observe, decide, act, report. If this needs more than a screen, the design is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from slurm_evo.config import Settings
from slurm_evo.model import Changes, ClusterName, ClusterPort, Outcome
from slurm_evo.policy import Policy
from slurm_evo.slurm.transfer import TransferPort
from slurm_evo.store import Journal, Lease
from slurm_evo_daemon import plugin_files, report
from slurm_evo_daemon.act import act, recover
from slurm_evo_daemon.decide import Decision, decide
from slurm_evo_daemon.learning import RunningTimes
from slurm_evo_daemon.observe import observe
from slurm_evo_daemon.report import CycleReport
from slurm_evo_daemon.transfers import CarriedOn, carry_on, under_way

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All that a cycle reads or writes outside itself."""

    ports: Mapping[ClusterName, ClusterPort]
    journal: Journal
    clock: Callable[[], datetime]
    """Aware, UTC."""
    stopwatch: Callable[[], float]
    """Seconds, monotonic."""
    rng: np.random.Generator
    times: RunningTimes = field(default_factory=RunningTimes)
    """What is known of running times; learns while the daemon runs."""
    transfers: Mapping[ClusterName, TransferPort] = field(default_factory=dict)
    """The ways of moving plain jobs, by cluster; empty where none may be moved."""


def cycle(
    around: Surroundings, settings: Settings, policy: Policy, lease: Lease | None, last: Sequence[Changes] = ()
) -> tuple[CycleReport, Decision]:
    """Look at the fleet once and bring it one safe step closer to what is best; without a lease, only say how.

    ``last`` is what the plan before this one found: the search begins with it.

    Raises:
        LeaseLost: another daemon may act; nothing (more) was sent.
        StoreError: the journal failed; nothing that could not be written down was sent.
    """
    journal, clock, marks = around.journal, around.clock, [around.stopwatch()]
    number = journal.begin_cycle(now=clock(), lease=lease)

    # 1. Observe. Clusters that fail are named in the view and left alone for this cycle.
    view = observe(around.ports, clock())
    around.times.watch(view, settings.gpu_speed)
    marks.append(around.stopwatch())

    # 2. Decide. Pure: the same view, memory, settings and policy give the same decision.
    known = journal.jobs()
    if lease is not None:
        known = recover(journal, known, clock)
    decision = decide(
        view, known, settings, policy, around.times,
        rng=around.rng, stopwatch=around.stopwatch, inside=plugin_files.ranked_inside(settings, clock()),
        moving=under_way(journal.open_transfers()), last=last,
    )  # fmt: skip
    if decision.plan is not None:
        journal.record_plan(number, decision.plan, weights=settings.objectives.as_mapping())
    journal.record_refusals(
        number, {key: verdict.reasons for key, verdict in decision.verdicts.items() if verdict.reasons}
    )
    marks.append(around.stopwatch())

    # 3. Act. Everything is journaled before it is sent; a dry cycle sends nothing.
    outcomes, carried = tuple[Outcome, ...](), CarriedOn()
    if lease is not None:
        outcomes = act(
            number, decision.intents, decision.memories, known,
            ports=around.ports, journal=journal, lease=lease, clock=clock, refusal_s=settings.moves.refusal_s,
        )  # fmt: skip
        carried = carry_on(
            decision.transfers, view, settings, ports=around.transfers, journal=journal, lease=lease, clock=clock
        )
    unwritten = plugin_files.write(view, decision, settings, policy) if lease is not None else ()
    marks.append(around.stopwatch())

    # 4. Report. One line that says why, for the log and the journal.
    seconds = dict(
        zip(("observe", "decide", "act"), (after - before for before, after in pairwise(marks)), strict=True)
    )
    counts = report.count(view, decision, outcomes) | carried.counts
    why = report.sentence(view, decision, counts, live=lease is not None)
    why = "; ".join(filter(None, (why, carried.sentence, *unwritten)))
    journal.end_cycle(number, now=clock(), seconds=seconds, counts=counts, sentence=why)
    return CycleReport(number, lease is not None, seconds, counts, why), decision
