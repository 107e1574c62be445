"""[[hold_backs]] in a cycle, and the file that tells slurm_evo.lua of them at submission.

The hook takes clusters from a new job before its copies are sent out, and marks it in AdminComment. From then on
the daemon leaves such a cluster closed to the job until it has waited long enough, and then gives it back as
anything that layer 1 took away. A job that already waits at the cluster stays there.

The file `places` stands beside `context`, sealed and encoded like it::

    slurm-evo-places 1
    time 1796126023                  when it was written, Unix seconds
    good_s 300                       for how long it holds: what nobody would give back is not taken away
    cluster alpha                    whose file it is
    member beta                      each cluster of the federation
    back gamma 3600                  a hold-back: expected running times over so many seconds
    default beta gpu                 the partition of jobs that name none
    room beta gpu 604800 4 8 64 512000
                                     up to this time limit (-1: any) 4 nodes of beta's partition gpu have 8 GPUs,
                                     64 CPUs and 512000 MB each, or more
    keep user bob                    rules.rank_only, by partition, qos, account, user
    apart eve physics                may not use every member with this account, or only for jobs of some size

What is not known to be open to everybody is no room: a partition with lists of accounts or QOS, a cluster that was
not seen or whose associations are not known. There is no file where the members have federation features of their
own: a job may ask for some (--cluster-constraint), which Slurm does not tell the hook.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from slurm_evo.config import RulesSettings, Settings
from slurm_evo.model import ClusterName, ClusterView, FleetView, JobKey, LimitIndex, Node
from slurm_evo.optimize.hold_backs import HoldBack, masks_without
from slurm_evo.policy import compact
from slurm_evo.store import JobMemory
from slurm_evo_daemon.features import Standing
from slurm_evo_daemon.rules import Verdict
from slurm_evo_daemon.words import encoded

GOOD_S = 300
"""Seconds for which a file holds, or three cycles if they are longer."""


def kept_off(
    verdicts: Mapping[JobKey, Verdict],
    memories: Mapping[JobKey, JobMemory],
    view: FleetView,
    now: Standing,
    settings: Settings,
) -> dict[JobKey, Verdict]:
    """Verdicts with the clusters closed that hold-backs keep jobs off."""
    found = dict(verdicts)
    keys = [key for key in now.keys if found[key].movable] if settings.hold_backs else []
    if not keys:
        return found
    names = {name for key in keys for name in found[key].allowed}
    bits = {name: bit for bit, name in enumerate(sorted(names))}
    may = np.array([sum(1 << bits[name] for name in found[key].allowed) for key in keys], np.uint64)
    left = masks_without(
        may,
        np.array([now.runtime_of[key] for key in keys]),
        [
            HoldBack(bits[ClusterName(one.cluster)], one.over_s, one.until_s)
            for one in settings.hold_backs
            if one.cluster in names
        ],
        np.array([(view.now - memories[key].submitted).total_seconds() for key in keys]),
    )
    for row in np.flatnonzero(left != may):
        verdict, viable = found[keys[row]], view.jobs[keys[row]].viable
        shut = {name for name in verdict.allowed - viable if not int(left[row]) >> bits[name] & 1}
        why = tuple((name, _why(name, settings)) for name in sorted(shut))
        closed = tuple(sorted((*verdict.closed, *why)))
        found[keys[row]] = replace(verdict, allowed=verdict.allowed - shut, closed=closed)
    return found


def _why(name: ClusterName, settings: Settings) -> str:
    one = min((one for one in settings.hold_backs if one.cluster == name), key=lambda one: one.over_s)
    over, until = _long(one.over_s), _long(one.until_s)
    return f"jobs expected to run over {over} are kept off it until they have waited {until} (hold_backs)"


def _long(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"


def places(cluster: ClusterName, view: FleetView, settings: Settings) -> str | None:
    """The text of one cluster's file; None where nothing is to be held back."""
    here = view.cluster(cluster)
    if here is None or here.facts.federation is None or not here.facts.federation_alike:
        return None
    if not (settings.hold_backs and settings.moves.enabled):
        return None
    lines = [
        "slurm-evo-places 1",
        f"time {view.now.timestamp():.0f}",
        f"good_s {max(GOOD_S, 3 * settings.cycle.period_s):.0f}",
        f"cluster {cluster}",
        *(f"member {name}" for name in sorted(here.facts.federation_clusters)),
        *(f"back {one.cluster} {one.over_s:.0f}" for one in settings.hold_backs),
        *_keep(settings.rules),
    ]
    known = {}
    for name in sorted(here.facts.federation_clusters):
        there, limits = view.cluster(name), view.limits_of(name)
        if there is not None and limits is not None and there.facts.federation_state.upper() == "ACTIVE":
            known[name] = frozenset(pair for pair in limits.users if not _bounded(pair, limits))
            lines += _rooms(there)
    everybody = {pair for seen in view.seen for pair in _pairs(view.limits_of(seen.cluster))}
    apart = {pair for pair in everybody if not all(pair in users for users in known.values())}
    lines += [f"apart {encoded(user)} {encoded(account)}" for user, account in sorted(apart)]
    return compact.sealed(lines)


def _pairs(limits: LimitIndex | None) -> Collection[tuple[str, str]]:
    return limits.users if limits is not None else ()


def _bounded(pair: tuple[str, str], limits: LimitIndex) -> bool:
    """Some size or length of job would wait there for ever."""
    found = [*limits.users[pair], *([account] if (account := limits.accounts.get(pair[1])) else [])]
    return any(one.max_gpus_per_job is not None or one.max_wall_s is not None for one in found)


def _keep(rules: RulesSettings) -> Iterator[str]:
    for topic, listed in rules.rank_only:
        yield from (f"keep {topic} {encoded(name)}" for name in listed)


def _rooms(there: ClusterView) -> Iterator[str]:
    yield from (f"default {there.cluster} {encoded(one.name)}" for one in there.partitions if one.default)
    for partition in there.partitions:
        listed = partition.allow_accounts, partition.allow_qos
        if not partition.up or listed != (None, None) or partition.deny_accounts or partition.deny_qos:
            continue
        nodes = [
            node for node in there.nodes if node.up and not node.reserved and partition.name in node.partitions
        ]
        shapes = sorted({(node.gpus, node.cpus, node.memory_mb) for node in nodes})
        limit = -1 if partition.limit_s is None else partition.limit_s
        for shape in shapes:
            count = sum(_as_large(node, shape) for node in nodes)
            gpus, cpus, memory = shape
            yield f"room {there.cluster} {encoded(partition.name)} {limit} {count} {gpus} {cpus} {memory}"


def _as_large(node: Node, shape: tuple[int, int, int]) -> bool:
    return node.gpus >= shape[0] and node.cpus >= shape[1] and node.memory_mb >= shape[2]
