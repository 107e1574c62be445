"""The standing problem as arrays: which jobs wait, where each may run, what the clusters have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache

import numpy as np
from numpy.typing import NDArray

from slurm_evo.model import ClusterName, FleetJob, FleetView, Hold, Job, JobKey, JobState
from slurm_evo.optimize.limits import Limits, Words
from slurm_evo.sim.forecast import MAX_CLUSTERS, Caps, Devices, FloatArray, IntArray, MaskArray, Releases, Waiting

MOST_JOBS = 2000
"""Only the jobs that run first are weighed; those further back hardly compete with them within a horizon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """a jobs like those submitted of late, at instants like theirs."""

    waiting: Waiting
    weight: FloatArray
    allowed: MaskArray
    at_s: FloatArray
    """Seconds from now."""
    before: IntArray
    """(a,) non-decreasing; each ranks before the pending job of this row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """n pending jobs on c clusters, the job that runs first leading."""

    clusters: tuple[ClusterName, ...]
    keys: tuple[JobKey, ...]
    devices: Devices
    releases: Releases
    waiting: Waiting
    weight: FloatArray
    waited_s: FloatArray
    """So far."""
    viable: MaskArray
    """(n,) uint64: where Slurm lets each run now; bit c is ``clusters[c]``."""
    allowed: MaskArray
    """(n,) uint64: where the rules would let it run; equal to ``viable`` for a job that stays."""
    movable: NDArray[np.bool_]
    single: NDArray[np.bool_]
    """May wait on one cluster only, for want of a federation: a change moves it, which costs ``move_s``."""
    user: IntArray
    """(n,) a number for each user."""
    account: IntArray
    move_s: float = 30.0
    """Seconds in which a moved job cannot start."""
    soon_s: float = 600.0
    """A job is moved only if it is expected to start within this time: it may move again only then."""
    coming: Coming | None = None
    """Jobs expected to be submitted; None: nothing is known of them."""
    again: Coming | None = None
    """Another draw of them, to judge what was chosen in futures that did not choose it."""
    opened: MaskArray | None = None
    """(n,) uint64: ``viable`` with what layer 1 itself took away given back; None: it took nothing."""
    caps: Caps | None = None
    """Limits of associations, QOS and the like; None: nobody meets any."""
    closed: MaskArray | None = None
    """(n,) uint64: clusters that never start the job, though it may wait there; None: there are none."""
    limited: Mapping[JobKey, Mapping[ClusterName, str]] = field(default_factory=dict)
    """Jobs that a limit holds back now where they wait, each with the limits, in words."""

    def names(self, mask: int) -> frozenset[ClusterName]:
        """The clusters of a mask."""
        return frozenset(name for bit, name in enumerate(self.clusters) if mask >> bit & 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One job that is expected to be submitted."""

    job: Job
    clusters: frozenset[ClusterName]
    at_s: float
    """Seconds from now."""
    score: float
    runtime_s: float
    weight: float


def queue_from(
    view: FleetView,
    *,
    scores: Mapping[JobKey, float],
    runtimes: Mapping[JobKey, float],
    weights: Mapping[JobKey, float],
    movable: Mapping[JobKey, frozenset[ClusterName]],
    asked: Mapping[JobKey, frozenset[ClusterName]] | None = None,
    assumed: Mapping[JobKey, frozenset[ClusterName]] | None = None,
    expected: Sequence[Sequence[Expected]] = (),
    speeds: Mapping[str, float] | None = None,
    words: Words = lambda job, _: job,
    now: datetime,
) -> Queue:
    """Build the problem from what was seen.

    Args:
        view: the fleet; clusters that were not seen take no part.
        scores: of the pending jobs by the policy; larger runs first.
        runtimes: expected running times, seconds, the limit where missing: of running jobs on their nodes, of
            pending ones on GPUs of speed 1.
        weights: of the pending jobs.
        movable: where the rules allow each movable job; a job that is missing stays as it is.
        asked: where movable jobs were allowed before layer 1 changed them; what they have if left out.
        assumed: where jobs on their way will wait, which their clusters do not show yet.
        expected: up to two draws of the jobs expected to come.
        speeds: by GPU type, what running times are divided by; 1 where missing.
        words: a job with its account, QOS and partitions as another cluster calls them, for its limits there.
        now: the view's instant.

    Raises:
        ValueError: more than 64 clusters.
    """
    clusters = tuple(sorted(seen.cluster for seen in view.seen))
    if len(clusters) > MAX_CLUSTERS:
        raise ValueError(f"at most {MAX_CLUSTERS} clusters, not {len(clusters)}")
    bits = {name: 1 << bit for bit, name in enumerate(clusters)}
    kinds = _kinds(view)
    devices, place = _devices(view, clusters, kinds, speeds or {})
    limits = Limits(view, clusters, words)
    speaking = [(job, job.job) for job in view.jobs.values()]
    found = [(job, record) for job, record in speaking if _competes(job, record, now)]
    found.sort(key=lambda pair: (-scores.get(pair[0].key, 0.0), pair[1].submitted, pair[0].key))
    competing, records = [job for job, _ in found[:MOST_JOBS]], [record for _, record in found[:MOST_JOBS]]

    @cache
    def mask_of(names: frozenset[ClusterName]) -> int:
        return sum(bits.get(name, 0) for name in names)

    viable = [
        mask_of((assumed or {}).get(job.key, frozenset())) or mask_of(job.viable) | mask_of(job.waiting_on)
        for job in competing
    ]
    allowed = [
        mask_of(movable.get(job.key, frozenset())) | mask for job, mask in zip(competing, viable, strict=True)
    ]
    before = asked or {}
    opened = [
        mask | (mask_of(before.get(job.key, frozenset())) & may)
        for job, mask, may in zip(competing, viable, allowed, strict=True)
    ]
    falling = _floats(scores.get(job.key, 0.0) for job in competing)
    runtime = _floats(
        runtimes.get(job.key, record.limit_s) for job, record in zip(competing, records, strict=True)
    )
    holders = [limits.pending(record, job) for job, record in zip(competing, records, strict=True)]
    closed = [limits.closed(record, job) for job, record in zip(competing, records, strict=True)]
    limited = {
        job.key: told
        for job, holder, never in zip(competing, holders, closed, strict=True)
        if (told := {**limits.full(job, holder), **{name: never[name] for name in job.waiting_on & never.keys()}})
    }
    releases = _releases(speaking, place, devices, runtimes, limits, now)
    coming = [_coming(draw, falling, mask_of, kinds, limits) for draw in expected]
    return Queue(
        clusters=clusters,
        keys=tuple(job.key for job in competing),
        devices=devices,
        releases=releases,
        waiting=_waiting(records, kinds, runtime, holders),
        weight=_floats(weights.get(job.key, 1.0) for job in competing),
        waited_s=_floats((now - record.submitted).total_seconds() for record in records),
        viable=np.array(viable, np.uint64),
        allowed=np.array(allowed, np.uint64),
        movable=np.array([job.key in movable for job in competing], np.bool_),
        single=np.array([not record.federated for record in records], np.bool_),
        user=_codes(record.user for record in records),
        account=_codes(record.account for record in records),
        opened=np.where([record.federated for record in records], np.array(opened, np.uint64), viable)
        .astype(np.uint64)
        .reshape(-1),
        coming=coming[0] if coming else None,
        again=coming[1] if len(coming) > 1 else None,
        caps=limits.caps,
        closed=np.array([mask_of(frozenset(each)) for each in closed], np.uint64) if any(closed) else None,
        limited=limited,
    )


def _waiting(
    records: Sequence[Job], kinds: Mapping[str, int], runtime: FloatArray, holders: Sequence[int]
) -> Waiting:
    limit = _floats(record.limit_s for record in records)
    return Waiting(
        gpus=_ints(record.gpus for record in records),
        kind=_ints(
            -1 if record.gpu_type is None else kinds.get(record.gpu_type, len(kinds)) for record in records
        ),
        nodes=_ints(_nodes(record) for record in records),
        cpus=_ints(record.cpus for record in records),
        runtime_s=np.minimum(runtime, limit),
        limit_s=limit,
        holder=_ints(holders),
    )


def _coming(
    expected: Sequence[Expected],
    falling: FloatArray,
    mask_of: Callable[[frozenset[ClusterName]], int],
    kinds: Mapping[str, int],
    limits: Limits,
) -> Coming | None:
    """Those that may run on a cluster that was seen, by their place among the scores of the pending jobs."""
    may = ((one, mask_of(one.clusters.difference(limits.closed(one.job)))) for one in expected)
    known = [(one, mask) for one, mask in may if mask]
    if not known:
        return None
    before = np.searchsorted(-falling, [-one.score for one, _ in known], side="right")
    order = np.argsort(before, kind="stable")
    jobs = [known[place][0] for place in order]
    return Coming(
        waiting=_waiting(
            [one.job for one in jobs],
            kinds,
            _floats(one.runtime_s for one in jobs),
            [limits.pending(one.job) for one in jobs],
        ),
        weight=_floats(one.weight for one in jobs),
        allowed=np.array([known[place][1] for place in order], np.uint64),
        at_s=_floats(one.at_s for one in jobs),
        before=before[order].astype(np.int64),
    )


def _competes(job: FleetJob, record: Job, now: datetime) -> bool:
    """It may start as soon as there is room."""
    return (
        record.state is JobState.PENDING
        and bool(job.waiting_on)
        and record.hold is Hold.NONE
        and not record.dependency
        and not record.reservation
        and not record.begins_later(now)
    )


def _nodes(record: Job) -> int:
    if record.gpus_per_node:
        return max(record.nodes, -(-record.gpus // record.gpus_per_node))
    return max(record.nodes, 1)


def _kinds(view: FleetView) -> dict[str, int]:
    types = sorted({node.gpu_type for seen in view.seen for node in seen.nodes if node.gpu_type})
    return {name: place for place, name in enumerate(types)}


def _devices(
    view: FleetView, clusters: tuple[ClusterName, ...], kinds: Mapping[str, int], speeds: Mapping[str, float]
) -> tuple[Devices, dict[tuple[ClusterName, str], int]]:
    """Nodes that may take a job, by cluster; and where each stands."""
    rows: list[tuple[int, ...]] = []
    speed: list[float] = []
    place: dict[tuple[ClusterName, str], int] = {}
    for number, name in enumerate(clusters):
        seen = view.cluster(name)
        assert seen is not None  # noqa: S101 - clusters are those that were seen
        for node in sorted(seen.nodes, key=lambda node: node.name):
            if not node.up or node.reserved:
                continue
            place[name, node.name] = len(rows)
            kind = kinds[node.gpu_type] if node.gpu_type else -1
            free_gpus, free_cpus = max(node.gpus - node.gpus_used, 0), max(node.cpus - node.cpus_used, 0)
            rows.append((number, kind, node.gpus, free_gpus, free_cpus))
            speed.append(speeds.get(node.gpu_type or "", 1.0))
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    devices = Devices(
        cluster=_ints(columns[0]),
        kind=_ints(columns[1]),
        gpus=_ints(columns[2]),
        free_gpus=_ints(columns[3]),
        free_cpus=_ints(columns[4]),
        clusters=len(clusters),
        speed=np.array(speed, np.float64) if speeds else None,
    )
    return devices, place


def _releases(
    speaking: Iterable[tuple[FleetJob, Job]],
    place: Mapping[tuple[ClusterName, str], int],
    devices: Devices,
    runtimes: Mapping[JobKey, float],
    limits: Limits,
    now: datetime,
) -> Releases:
    """One row for each job and node that takes part; its first one gives back to limits as well.

    Where no node of a job takes part, any other of its cluster stands for it, with nothing but that.
    """
    rows: list[tuple[float, ...]] = []
    number = {cluster: int(devices.cluster[at]) for (cluster, _), at in place.items()}
    first = np.searchsorted(devices.cluster, np.arange(devices.clusters))
    for job, record in speaking:
        if record.state not in (JobState.RUNNING, JobState.SUSPENDED) or not record.nodelist:
            continue
        ran = max((now - (record.started or now)).total_seconds(), 0.0)
        left = max(record.limit_s - ran, 1.0)
        expected = runtimes.get(job.key, record.limit_s) - ran
        # One that outlives its prediction is given half of what its limit leaves.
        end = min(expected, left) if expected > 0 else left / 2
        parts = len(record.nodelist)
        holder = limits.running(record)
        nodes = [place[record.cluster, node] for node in record.nodelist if (record.cluster, node) in place]
        for at in nodes:
            rows.append((at, record.gpus // parts, record.cpus // parts, end, left, holder, record.gpus))
            holder = -1
        if holder >= 0 and record.cluster in number:
            rows.append((int(first[number[record.cluster]]), 0, 0, end, left, holder, record.gpus))
    columns = list(zip(*rows, strict=True)) if rows else [()] * 7
    return Releases(
        node=_ints(columns[0]),
        gpus=_ints(columns[1]),
        cpus=_ints(columns[2]),
        end_s=_floats(columns[3]),
        limit_s=_floats(columns[4]),
        holder=_ints(columns[5]),
        size=_ints(columns[6]),
    )


def _codes(names: Iterable[str]) -> IntArray:
    known: dict[str, int] = {}
    return _ints(known.setdefault(name, len(known)) for name in names)


def _ints(values: object) -> IntArray:
    return np.fromiter(values, np.int64)  # type: ignore[call-overload, no-any-return]


def _floats(values: object) -> FloatArray:
    return np.fromiter(values, np.float64)  # type: ignore[call-overload, no-any-return]
