"""What could be moved between clusters without a federation, and what keeps the rest where it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from slurm_evo.config import Settings
from slurm_evo.model import ClusterError, ClusterName, FleetView, JobKey
from slurm_evo.slurm.transfer import Known, NotMovable, translate
from slurm_evo_daemon.cycle import Surroundings
from slurm_evo_daemon.observe import observe
from slurm_evo_daemon.rules import judge
from slurm_evo_daemon.transfers import tables_of

_OWN = re.compile(r"«[^»]*»|\S*/\S+|\b\d+\b|\((?:[^()]|\([^()]*\))*\)")
"""What is one job's own in a reason: paths, numbers, names in brackets."""


def reasons(
    around: Surroundings, settings: Settings, *, deep: bool, unseen: Callable[[str, str], None]
) -> dict[str, int]:
    """Counts by reason; a job with several reasons counts in each, one that could move under ``could move``.

    Args:
        around: the ways into the clusters.
        settings: moves between plain clusters count as enabled.
        deep: read each job that the rules would let go, as a move would.
        unseen: told of each cluster that was not seen, with the reason: its jobs are not counted.
    """
    on = settings.model_copy(update={"transfers": settings.transfers.model_copy(update={"enabled": True})})
    view = observe(around.ports, around.clock())
    for name, error in sorted(view.unseen.items()):
        unseen(name, error.message)
    plain = tables_of(on)
    counts: Counter[str] = Counter()
    for key, job in view.jobs.items():
        if not job.pending or job.job.federated:
            continue
        verdict = judge(
            job, view, on.rules, asked=job.viable, respect_user_clusters=False, refused={}, plain=plain
        )
        goals = sorted(verdict.allowed - job.viable)
        if not verdict.movable:
            counts.update(dict.fromkeys(map(_general, verdict.reasons or ("there is no other cluster",)), 1))
        elif deep:
            counts.update(dict.fromkeys(map(_general, _deep(key, goals, view, around, on)), 1))
        else:
            counts["could move"] += 1
    return dict(counts)


def _deep(
    key: JobKey, goals: list[ClusterName], view: FleetView, around: Surroundings, settings: Settings
) -> tuple[str, ...]:
    tables, found = tables_of(settings), list[str]()
    try:
        image = around.transfers[key.cluster].image(key.id)
    except NotMovable as refusal:
        return refusal.reasons
    except ClusterError as failure:
        return (failure.message,)
    for goal in goals:
        there = view.cluster(goal)
        try:
            if there is not None:
                translate(image, goal, tables[goal], Known.of(there))
                return ("could move",)
        except NotMovable as refusal:
            found += refusal.reasons
    return tuple(found)


def _general(reason: str) -> str:
    return _OWN.sub("…", reason)
