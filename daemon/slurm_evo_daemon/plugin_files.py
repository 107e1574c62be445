"""Files for the plugins inside Slurm: the policy, and what it needs to know besides the jobs themselves.

Files in a folder for each cluster whose plugin ranks (``clusters.priority = "plugin"``) or that has a folder named
(``clusters.plugin_dir``): ``policy`` for site_factor/evo, ``policy.lua`` and ``context`` for slurm_evo.lua, and
``places`` (`slurm_evo_daemon.hold_backs`) where jobs are held back. Each is written aside and renamed, so that a
reader finds the old one or the new one, whole. The context is ASCII lines under a checksum, names with spaces and
percent signs written as %20 and %25::

    slurm-evo-context 1
    time 1796126023                  when it was written, Unix seconds
    cluster alpha
    policy p-5c2f9a01b3
    load 0.75                        terminals that are equal for all jobs
    pressure 3.5
    band 1000000                     priority.band
    recalc 60                        priority.recalc_s
    weight 1.0                       weights.default
    weight qos high 2.0              and by partition, account
    stay slurm-evo:stay              rules.opt_out_comments
    never user bob                   rules.never and rules.only, by partition, qos, account, user
    runtime user ada 0.4             expected running time by limit, of the user's waiting jobs
    user ada 86400.0 12.0            usage in GPU-seconds, GPUs asked by pending jobs
    scale 103.5 20000.0              a score and the SiteFactor at its place, rising: for newcomers
    start alpha 8 3600               a job of up to so many GPUs would start there in so many seconds
    job 4711 1796120000 900.0 25     first submitted, expected running time (0: as above), points for lost age

slurm-conf/plugins/site_factor_evo/evo_context.c reads it in C.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from slurm_evo.config import RulesSettings, Settings, WeightSettings
from slurm_evo.model import ClusterName, FleetView
from slurm_evo.policy import ROW, Policy, compact, lua
from slurm_evo.slurm.plugin_status import read_status
from slurm_evo_daemon.features import usage
from slurm_evo_daemon.hold_backs import places
from slurm_evo_daemon.words import encoded

if TYPE_CHECKING:
    from slurm_evo_daemon.decide import Decision

KNOTS = 64
"""Points of the scale."""
SIZES = (0, 1, 2, 4, 8, 16, 32, 64, 1 << 20)
"""GPUs for which starts are told apart."""


def ranked_inside(settings: Settings, now: datetime) -> frozenset[ClusterName]:
    """The clusters that need no SiteFactor from us: configured so, and their plugin has just reported a policy.

    slurmctld does not tell which site_factor plugin it has: no configuration message of Slurm carries it.
    """
    return frozenset(
        cluster
        for cluster, folder in settings.with_plugin.items()
        if (status := read_status(folder)) is not None and status.policy and status.fresh(now)
    )


def write(view: FleetView, decision: Decision, settings: Settings, policy: Policy) -> tuple[str, ...]:
    """Write the files of every seen cluster with a folder for them; files that are as they should be stay.

    Returns:
        One sentence for each cluster whose files could not be written: its plugin goes on with the last ones.
    """
    problems = []
    seen = {cluster.cluster for cluster in view.seen}
    for name, folder in settings.with_files.items():
        if name not in seen:
            continue
        try:
            _replace(folder / "policy", compact.dump(policy))
            _replace(folder / "policy.lua", lua.export(policy))
            _replace(folder / "context", context(name, view, decision, settings, policy))
            held = places(name, view, settings)
            if held is None:
                (folder / "places").unlink(missing_ok=True)
            else:
                _replace(folder / "places", held)
        except OSError as failure:
            where = failure.filename or folder
            problems.append(f"the plugin of {name} gets nothing new: {where}: {failure.strerror or failure}")
    return tuple(problems)


def hold_nobody_back(settings: Settings) -> None:
    """Take the files away that tell the hooks to hold jobs back.

    Raises:
        OSError: one could not be removed.
    """
    for folder in settings.with_files.values():
        (folder / "places").unlink(missing_ok=True)


def context(cluster: ClusterName, view: FleetView, decision: Decision, settings: Settings, policy: Policy) -> str:
    """The text of one cluster's context file."""
    lines = [
        "slurm-evo-context 1",
        f"time {view.now.timestamp():.0f}",
        f"cluster {cluster}",
        f"policy {compact.policy_id(policy)}",
        f"band {settings.priority.band}",
        f"recalc {settings.priority.recalc_s:.0f}",
        *_weights(settings.weights),
        *_rules(settings.rules),
    ]
    if decision.standing is not None and decision.standing.keys:
        lines += _standing(cluster, view, decision, settings)
    return compact.sealed(lines)


def _weights(weights: WeightSettings) -> Iterator[str]:
    yield f"weight {weights.default!r}"
    for topic, table in (("qos", weights.qos), ("partition", weights.partition), ("account", weights.account)):
        yield from (f"weight {topic} {encoded(name)} {value!r}" for name, value in sorted(table.items()))


def _rules(rules: RulesSettings) -> Iterator[str]:
    yield from (f"stay {encoded(word)}" for word in rules.opt_out_comments)
    for key, names in (("only", rules.only), ("never", rules.never)):
        for topic, listed in names:
            yield from (f"{key} {topic} {encoded(name)}" for name in listed)


def _standing(cluster: ClusterName, view: FleetView, decision: Decision, settings: Settings) -> Iterator[str]:
    now = decision.standing
    assert now is not None  # noqa: S101 - asked by the caller
    yield f"load {float(now.table[ROW['load'], 0])!r}"
    yield f"pressure {float(now.table[ROW['pressure'], 0])!r}"
    shares = _shares(view, decision)
    yield from (f"runtime user {encoded(user)} {share!r}" for user, share in sorted(shares.items()))
    yield from _users(view, decision)
    yield from _scale(decision, settings.priority.band)
    yield from _starts(decision)
    yield from _jobs(cluster, view, decision, shares)


def _shares(view: FleetView, decision: Decision) -> dict[str, float]:
    """Expected running time by limit, of each user's pending jobs; users for whom it is the limit are left out."""
    now = decision.standing
    assert now is not None  # noqa: S101
    found: dict[str, list[float]] = {}
    for key in now.keys:
        record = view.jobs[key].job
        found.setdefault(record.user, []).append(min(now.runtime_of[key] / max(record.limit_s, 1), 1.0))
    shares = {user: round(median(values), 4) for user, values in found.items()}
    return {user: share for user, share in shares.items() if 0 < share < 1}


def _users(view: FleetView, decision: Decision) -> Iterator[str]:
    now = decision.standing
    assert now is not None  # noqa: S101
    users = sorted({job.job.user for job in view.jobs.values()})
    number = {user: place for place, user in enumerate(users)}
    used = usage(view, number)
    pending = np.zeros(len(users))
    for key in now.keys:
        record = view.jobs[key].job
        pending[number[record.user]] += record.gpus
    for user in users:
        if used[number[user]] or pending[number[user]]:
            yield f"user {encoded(user)} {float(used[number[user]])!r} {float(pending[number[user]])!r}"


def _scale(decision: Decision, band: int) -> Iterator[str]:
    """Places among the jobs that are ranked, spread over the band as the plugin spreads them."""
    now = decision.standing
    assert now is not None  # noqa: S101
    scores = sorted(now.score_of[key] for key in now.keys if decision.verdicts[key].rankable)
    if not scores:
        return
    last = None
    for place in np.unique(np.linspace(0, len(scores) - 1, min(KNOTS, len(scores))).round().astype(int)):
        if scores[place] != last:
            yield f"scale {scores[place]!r} {1 + (int(place) + 0.5) / len(scores) * band!r}"
        last = scores[place]


def _starts(decision: Decision) -> Iterator[str]:
    """When the last job of each size is expected to start, by cluster: a newcomer's outlook is about that."""
    if decision.plan is None or decision.standing is None:
        return
    now = decision.standing
    gpus = dict(zip(now.keys, now.table[ROW["gpus"]].tolist(), strict=True))
    latest: dict[tuple[ClusterName, int], float] = {}
    for placement in decision.plan.placements:
        if placement.expected_cluster is None or placement.expected_start_s is None or placement.job not in gpus:
            continue
        size = next(size for size in SIZES if gpus[placement.job] <= size)
        place = placement.expected_cluster, size
        latest[place] = max(latest.get(place, 0.0), placement.expected_start_s)
    yield from (f"start {name} {size} {seconds:.0f}" for (name, size), seconds in sorted(latest.items()))


def _jobs(cluster: ClusterName, view: FleetView, decision: Decision, shares: Mapping[str, float]) -> Iterator[str]:
    """The jobs that wait there and of which slurmctld does not know enough by itself."""
    now = decision.standing
    assert now is not None  # noqa: S101
    for key in now.keys:
        job = view.jobs[key]
        here = next((record for record in job.records if record.cluster == cluster and record.waiting_here), None)
        if here is None:
            continue
        submitted = decision.memories[key].submitted
        moved = (here.submitted - submitted).total_seconds() >= 1
        rank = decision.ranks.get(key)
        points = rank.age_points if rank else 0
        expected = now.runtime_of[key]
        guessed = max(here.limit_s * shares.get(here.user, 1.0), 1.0)
        if moved or points or expected != guessed:
            runtime = expected if expected != guessed else 0.0
            yield f"job {key.id} {submitted.timestamp() if moved else 0:.0f} {runtime!r} {points}"


def _replace(path: Path, text: str) -> None:
    """Put a new file in the old one's place, in one step; an equal one stays: nobody need read it again."""
    if path.is_file() and path.read_bytes() == text.encode():
        return
    aside = path.with_name(f".{path.name}.new")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    aside.replace(path)
