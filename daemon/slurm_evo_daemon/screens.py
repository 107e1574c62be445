"""What people and scripts are shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.panel import Panel
from rich.table import Table

from slurm_evo.model import FleetView, JobKey
from slurm_evo.policy import Policy
from slurm_evo.store import Journal, TransferRecord
from slurm_evo_daemon.decide import Decision
from slurm_evo_daemon.explain import Explanation, action_row
from slurm_evo_daemon.report import count, sentence
from slurm_evo_daemon.where import moves_of

if TYPE_CHECKING:
    from slurm_evo_daemon.demo import Contestant


def contest_table(found: Sequence[Contestant], *, jobs: int, days: float, load: float, seed: int) -> Table:
    """Waits and utilization of each way to run the same workload."""
    title = f"{jobs} jobs in {days:g} days on 4 simulated clusters, load {load:g}, seed {seed}"
    table = Table(title=title, title_justify="left")
    table.add_column("waits in hours", no_wrap=True)
    for column in ("average, weighted", "maximum, weighted", "mean", "p95", "GPU use"):
        table.add_column(column, justify="right")
    for contestant in found:
        metrics = contestant.metrics
        table.add_row(
            contestant.name,
            f"{metrics.average_wait_s / 3600:.1f}",
            f"{metrics.maximum_wait_s / 3600:.1f}",
            f"{metrics.mean_wait_s / 3600:.1f}",
            f"{metrics.p95_wait_s / 3600:.1f}",
            f"{metrics.utilization:.1%}",
            style="bold" if contestant is found[-1] else "",
        )
    last = found[-1]
    table.caption_justify = "left"
    table.caption = f"slurm-evo changed {last.moves} viable sets and set {last.updates} priorities"
    return table


def plan_json(view: FleetView, decision: Decision) -> dict[str, Any]:
    """What a cycle would do, for scripts."""
    counts = count(view, decision, ())
    plan = decision.plan
    return {
        "why": sentence(view, decision, counts, live=False),
        "counts": counts,
        "nothing": asdict(plan.nothing) if plan else None,
        "chosen": asdict(plan.chosen) if plan else None,
        "front": [asdict(scores) for scores in plan.front] if plan else [],
        "changes": [
            {
                "job": str(placement.job),
                "before": sorted(placement.before),
                "clusters": sorted(placement.clusters),
                "why": placement.reason,
            }
            for placement in (plan.changes if plan else ())
        ],
        "actions": [
            {"job": str(intent.action.job), "kind": intent.action.kind, "why": intent.reason}
            for intent in decision.intents
        ],
        "left_alone": {
            str(key): list(verdict.reasons) for key, verdict in decision.verdicts.items() if verdict.untouchable
        },
        "unseen": {str(name): error.message for name, error in view.unseen.items()},
    }


def plan_table(view: FleetView, decision: Decision) -> Iterator[Any]:
    """The same for people: the sentence, the moves, the head of the ranking, what is left alone and why."""
    counts = count(view, decision, ())
    yield Panel(sentence(view, decision, counts, live=False), title="What a cycle would do", title_align="left")
    if decision.plan is not None and decision.plan.changes:
        moves = Table(title="Moves", title_justify="left")
        for column in ("job", "may run at now", "would be", "why"):
            moves.add_column(column, overflow="fold")
        for placement in decision.plan.changes:
            before, after = ", ".join(sorted(placement.before)), ", ".join(sorted(placement.clusters))
            moves.add_row(str(placement.job), before, after, placement.reason)
        yield moves
    if decision.ranks:
        ranks = Table(title="First in the ranking", title_justify="left")
        for column in ("place", "job", "user", "GPUs", "score", "SiteFactor", "now"):
            ranks.add_column(column, justify="right", overflow="fold")
        for key, rank in sorted(decision.ranks.items(), key=lambda item: (item[1].place, item[0]))[:15]:
            job = view.jobs[key].job
            ranks.add_row(
                f"{rank.place} of {rank.of}", str(key), job.user, str(job.gpus), f"{rank.score:.4g}",
                str(rank.site_factor), "-" if rank.before is None else str(rank.before),
            )  # fmt: skip
        yield ranks
    reasons: dict[str, int] = {}
    for verdict in decision.verdicts.values():
        for reason in verdict.untouchable:
            reasons[reason] = reasons.get(reason, 0) + 1
    if reasons:
        alone = Table(title="Not touched", title_justify="left")
        alone.add_column("jobs", justify="right")
        alone.add_column("because")
        for reason, jobs in sorted(reasons.items(), key=lambda item: -item[1]):
            alone.add_row(str(jobs), reason)
        yield alone


MOST_MOVES = 5
"""Shown by name."""


def status_json(journal: Journal, policy: Policy, now: datetime) -> dict[str, Any]:
    """Lease, last cycle, policy, open actions."""
    lease, last = journal.lease(), journal.last_cycle()
    return {
        "acting": None
        if lease is None or not lease.valid(now)
        else {"holder": lease.holder, "epoch": lease.epoch, "until": lease.until.isoformat(timespec="seconds")},
        "last_cycle": None
        if last is None
        else {
            "number": last.number,
            "mode": str(last.mode),
            "started": last.started.isoformat(timespec="seconds"),
            "finished": last.ended is not None,
            "why": last.sentence,
            "seconds": dict(last.seconds),
            "counts": dict(last.counts),
        },
        "open_actions": len(journal.open_actions()),
        "moves_under_way": [move_row(move) for move in journal.open_transfers()],
        "policy": policy.text,
        "journal": journal.url,
    }


def status_table(found: dict[str, Any]) -> Table:
    """The same for people."""
    table = Table(show_header=False, title="slurm-evo", title_justify="left")
    table.add_column("topic")
    table.add_column("value", overflow="fold")
    acting = found["acting"]
    table.add_row(
        "acting", f"{acting['holder']} until {acting['until']}" if acting else "no daemon holds the lease"
    )
    last = found["last_cycle"]
    if last is None:
        table.add_row("last cycle", "none yet; start with: slurm-evo daemon --dry-run --once")
    else:
        table.add_row("last cycle", f"{last['number']} ({last['mode']}) at {last['started']}")
        table.add_row("why", last["why"] or "it did not finish")
        table.add_row("counts", ", ".join(f"{name} {value}" for name, value in last["counts"].items() if value))
    table.add_row("unanswered actions", str(found["open_actions"]))
    moves = found["moves_under_way"]
    shown = [f"{move['job']} to {move['to']}, {move['phase']} since {move['at']}" for move in moves[:MOST_MOVES]]
    more = [f"and {len(moves) - MOST_MOVES} more"] if len(moves) > MOST_MOVES else []
    table.add_row("moves under way", "\n".join([*shown, *more]) or "none")
    table.add_row("policy", found["policy"])
    table.add_row("journal", found["journal"])
    return table


def explanation_parts(found: Explanation) -> Iterator[Any]:
    """A job's story: the sentences, the terms of its score, what was done."""
    yield Panel("\n".join(found.sentences()), title=f"Job {found.key}", title_align="left")
    if found.terms:
        terms = Table(title="Its score is made of", title_justify="left")
        terms.add_column("term")
        terms.add_column("value", justify="right")
        for text, value in found.terms:
            terms.add_row(text, f"{value:.6g}")
        yield terms
    if found.actions:
        yield history_table([action_row(action) for action in found.actions])


def move_row(move: TransferRecord) -> dict[str, Any]:
    """One move between clusters without a federation, for a table or a script."""
    return {
        "at": move.phase_since.isoformat(timespec="seconds"),
        "job": str(move.job),
        "to": str(move.to),
        "copy": move.copy,
        "phase": move.phase,
        "why": move.why,
        "owner": move.owner,
    }


def history_rows(
    journal: Journal, key: JobKey | None, limit: int, *, cycles: bool = False, moves: bool = False
) -> list[dict[str, Any]]:
    """Actions, cycles or moves, newest first."""
    if moves:
        found = journal.latest_transfers(limit) if key is None else moves_of(journal, key)[::-1][:limit]
        return [move_row(move) for move in found]
    if cycles:
        return [
            {
                "cycle": record.number,
                "mode": str(record.mode),
                "at": record.started.isoformat(timespec="seconds"),
                "why": record.sentence,
            }
            for record in journal.cycles(limit=limit)
        ]
    return [action_row(action) for action in journal.history(limit=limit, job=key)]


def history_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Rows of equal keys as a table."""
    table = Table(title="History, newest first" if rows else "Nothing yet", title_justify="left")
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    return table
