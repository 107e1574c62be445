"""The limits that jobs meet on each cluster, as the forecast counts them.

Two sources: associations and QOS with what runs counted against them, each cluster for itself, as
slurmctld does; and Slurm's pending reasons, for limits that are not told otherwise (licences, parent accounts, a
partition's QOS): as much as runs now may run. A QOS goes before associations (resource_limits.html).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurm_evo.model import ClusterName, FleetJob, FleetView, Job, JobState, LimitIndex
from slurm_evo.sim.forecast import Caps

Words = Callable[[Job, ClusterName], Job]
"""A job with its account, QOS and partitions as another cluster calls them."""
Group = tuple[str, ...]
NEVER = frozenset(
    {
        *("PartitionTimeLimit", "PartitionNodeLimit", "PartitionDown", "PartitionInactive", "BadConstraints"),
        *("InvalidAccount", "InvalidQOS", "QOSNotAllowed", "AccountNotAllowed"),
    }
)
"""Pending reasons of jobs that do not start where they wait, whatever ends."""
_NOTHING_GIVES_IT_BACK = ("PerJob", "PerNode", "Minutes", "QOSMin", "Wall")


@dataclass(frozen=True, slots=True)
class Met:
    """One limit of what runs at one time that a job meets on a cluster."""

    group: Group
    """Jobs with the same words count against the same limit there."""
    most: int | None
    """None: what runs now."""
    by_gpus: bool
    """Counts GPUs; else jobs or licences."""
    says: str
    times: int = 1
    """What a job takes where GPUs are not counted."""

    def takes(self, job: Job) -> int:
        """What a job takes of it."""
        return job.gpus if self.by_gpus else self.times


_QOS = "QOS {qos} allows"
_OWN = "the association of {user} with {account} allows"
_SHARED = (
    ("qos", "max_jobs", ("qos", "user"), _QOS + " a user {most} running jobs"),
    ("qos", "max_gpus", ("qos", "user"), _QOS + " a user {most} GPUs"),
    ("qos", "group_jobs", ("qos",), _QOS + " {most} running jobs in all"),
    ("qos", "group_gpus", ("qos",), _QOS + " {most} GPUs in all"),
    ("own", "max_jobs", ("account", "user"), _OWN + " {most} running jobs"),
    ("own", "group_jobs", ("account", "user"), _OWN + " {most} running jobs in all"),
    ("own", "group_gpus", ("account", "user"), _OWN + " {most} GPUs in all"),
    ("account", "group_jobs", ("account",), "account {account} allows {most} running jobs"),
    ("account", "group_gpus", ("account",), "account {account} allows {most} GPUs"),
)
"""Whose limit, which, what those have in common who share it, and in words."""


def met_by(job: Job, limits: LimitIndex) -> tuple[Met, ...]:
    """The limits on what runs at one time, in the cluster's own words."""
    qos = limits.qos.get(job.qos)
    own = limits.association(job.user, job.account, job.partitions)
    sources = {"qos": qos, "own": own, "account": limits.accounts.get(job.account)}
    found = []
    for source, which, common, says in _SHARED:
        limit = sources[source]
        most = None if limit is None else getattr(limit, which)
        if most is None or (source != "qos" and qos is not None and getattr(qos, which) is not None):
            continue
        partition = own.partition if source == "own" and own is not None else ""
        group = (source, which, partition, *(str(getattr(job, name)) for name in common))
        said = says.format(qos=job.qos, user=job.user, account=job.account, most=most)
        found.append(Met(group, most, which.endswith("gpus"), said))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Bound:
    """What no job may exceed by itself."""

    of: str
    """gpus or limit_s of the job; else the number of jobs."""
    most: int
    says: str

    def broken_by(self, job: Job) -> bool:
        """The job can never start there."""
        return int(getattr(job, self.of, 1)) > self.most


def bounds_of(job: Job, limits: LimitIndex, met: Sequence[Met]) -> tuple[Bound, ...]:
    """What a job of this owner may ask for, in the cluster's own words; ``met`` is what it meets there."""
    qos = limits.qos.get(job.qos)
    own = limits.association(job.user, job.account, job.partitions)
    found = []
    for which, of, unit, says in (
        ("max_gpus_per_job", "gpus", 1, "a job {} GPUs"),
        ("max_wall_s", "limit_s", 60, "a job {} minutes"),
    ):
        for limit, whose in ((qos, _QOS), (own, _OWN)):
            most = None if limit is None else getattr(limit, which)
            if most is not None:
                named = whose.format(qos=job.qos, user=job.user, account=job.account)
                found.append(Bound(of, most, f"{named} {says.format(most // unit)}"))
                break
    found += [Bound("gpus" if one.by_gpus else "jobs", one.most, one.says) for one in met if one.most is not None]
    return tuple(found)


def forbidden(job: Job, limits: LimitIndex) -> str:
    """Why limits never let a job start on a cluster, or an empty text; the job in the cluster's own words."""
    told = () if limits.silent else bounds_of(job, limits, met_by(job, limits))
    return next((bound.says for bound in told if bound.broken_by(job)), "")


def _named_by(job: Job, reason: str) -> tuple[Group, ...]:
    """Who shares the limit that Slurm gives as the reason; empty if it is none that ends of jobs make room in."""
    if any(part in reason for part in _NOTHING_GIVES_IT_BACK):
        return ()
    if reason == "Licenses":
        return tuple(("licence", name) for name in licences(job))
    if reason.startswith("QOS") and reason.endswith("Account"):
        return (("QOS", job.qos, "account", job.account),)
    if reason.startswith("QOSMax"):
        return (("QOS", job.qos, "user", job.user),)
    if reason.startswith("QOSGrp"):
        return (("QOS", job.qos),)
    if reason.startswith("AssocMax"):
        return (("association", job.account, job.user),)
    return (("account", job.account),) if reason.startswith("AssocGrp") else ()


def _groups_of(job: Job) -> dict[Group, int]:
    """Every group that `_named_by` may name for a job, with what it takes."""
    found: dict[Group, int] = {("licence", name): count for name, count in licences(job).items()}
    for reason in ("QOSMaxPerAccount", "QOSMax", "QOSGrp", "AssocMax", "AssocGrp"):
        found |= dict.fromkeys(_named_by(job, reason), 1)
    return found


def licences(job: Job) -> dict[str, int]:
    """``matlab:2,ansys`` read (sbatch(1) --licenses)."""
    found = {}
    for entry in job.licenses.replace("|", ",").split(","):
        name, _, count = entry.strip().partition(":")
        if name:
            found[name] = int(count) if count.isdigit() else 1
    return found


def _stuck(job: Job) -> str:
    """Slurm's reason why it does not start here, whatever ends; or an empty text."""
    limit = job.reason.startswith(("QOS", "Assoc")) and any(p in job.reason for p in _NOTHING_GIVES_IT_BACK)
    return f"Slurm says {job.reason}" if job.reason in NEVER or limit else ""


@dataclass(frozen=True, slots=True)
class _Told:
    """What associations and QOS say of one owner's jobs, by cluster."""

    met: tuple[tuple[Met, ...], ...]
    bounds: tuple[tuple[int, Bound], ...]


class Limits:
    """The limits of the fleet with what runs counted against them; hands out holders for a forecast."""

    def __init__(self, view: FleetView, clusters: Sequence[ClusterName], words: Words) -> None:
        """Count what runs, and hear what Slurm says of what waits."""
        indices = [view.limits_of(name) for name in clusters]
        self._index = [None if index is None or index.silent else index for index in indices]
        self._clusters = clusters
        self._words = words
        self._number = {name: c for c, name in enumerate(clusters)}
        self._told: dict[tuple[object, ...], _Told] = {}
        self._caps: dict[tuple[int, Group], int] = {}
        self._left: list[int] = []
        self._by_gpus: list[bool] = []
        self._rows: dict[tuple[object, ...], int] = {}
        self._of: list[tuple[tuple[Met, ...], ...]] = []
        self._said: list[dict[Group, Met]] = [{} for _ in clusters]
        self._heard: set[tuple[ClusterName, int]] = set()
        for job in view.jobs.values():
            record = job.job
            if record.state in (JobState.RUNNING, JobState.SUSPENDED):
                c = self._number[record.cluster]
                for met in self._of_owner(record).met[c]:
                    self._left[self._cap(c, met)] -= met.takes(record)
        for job in view.jobs.values():
            for record in job.records:
                if record.waiting_here and record.reason.startswith(("QOS", "Assoc", "Licenses")):
                    self._hear(record)

    def _of_owner(self, job: Job) -> _Told:
        key = _owner(job)
        if key not in self._told:
            met: list[tuple[Met, ...]] = []
            bounds: list[tuple[int, Bound]] = []
            for c, (name, index) in enumerate(zip(self._clusters, self._index, strict=True)):
                if index is None:
                    met.append(())
                    continue
                there = self._words(job, name)
                met.append(met_by(there, index))
                bounds += [(c, bound) for bound in bounds_of(there, index, met[-1])]
            self._told[key] = _Told(tuple(met), tuple(bounds))
        return self._told[key]

    def _hear(self, record: Job) -> None:
        """Take Slurm's word for a limit, unless one that is known says it already."""
        c = self._number[record.cluster]
        if any(self._left[self._cap(c, met)] < met.takes(record) for met in self._of_owner(record).met[c]):
            return
        taken = _groups_of(record)
        for group in _named_by(record, record.reason):
            by_gpus = "GRES" in record.reason.upper() and record.gpus > 0
            met = Met(("said", *group), None, by_gpus, f"Slurm says {record.reason}", taken[group])
            self._said[c].setdefault(group, met)
            self._heard.add((record.cluster, record.id))

    def _cap(self, c: int, met: Met) -> int:
        """The number of a limit."""
        if (c, met.group) not in self._caps:
            self._caps[c, met.group] = len(self._left)
            self._left.append(met.most or 0)
            self._by_gpus.append(met.by_gpus)
        return self._caps[c, met.group]

    def _shared(self, job: Job, c: int) -> tuple[Met, ...]:
        """The limits that Slurm spoke of which a job would share, in the cluster's own words."""
        mine = _groups_of(job)
        return tuple(replace(met, times=mine[group]) for group, met in self._said[c].items() if group in mine)

    def pending(self, record: Job, job: FleetJob | None = None) -> int:
        """The holder of a job that waits, or one that is expected to come (no ``job``); -1: it meets no limit.

        Of what Slurm says of others it shares the limit only where it does not wait itself: there Slurm would
        say so.
        """
        spoken: list[tuple[Met, ...]] = []
        for c, name in enumerate(self._clusters if any(self._said) else ()):
            there = None if job is None else job.on(name)
            waits = there is not None and there.waiting_here
            silent = not self._said[c] or (waits and (name, record.id) not in self._heard)
            spoken.append(() if silent else self._shared(there or self._words(record, name), c))
        return self._holder(record, tuple(spoken))

    def running(self, record: Job) -> int:
        """The holder of a job that runs."""
        c = self._number[record.cluster]
        spoken: list[tuple[Met, ...]] = [()] * len(self._clusters) if any(self._said) else []
        if self._said[c]:
            spoken[c] = self._shared(record, c)
        return self._holder(record, tuple(spoken))

    def _holder(self, record: Job, spoken: tuple[tuple[Met, ...], ...]) -> int:
        key = (*_owner(record), spoken)
        if key not in self._rows:
            met = self._of_owner(record).met
            row = tuple(known + more for known, more in zip(met, spoken, strict=True)) if spoken else met
            self._rows[key] = len(self._of) if any(row) else -1
            self._of += [row] if any(row) else []
        return self._rows[key]

    @property
    def caps(self) -> Caps | None:
        """What the holders handed out so far meet; None where they meet nothing."""
        if not self._of:
            return None
        most = max(len(each) for row in self._of for each in row)
        of = np.full((len(self._of), len(self._clusters), most), -1, np.int64)
        times = np.zeros(of.shape, np.int64)
        for h, row in enumerate(self._of):
            for c, each in enumerate(row):
                for place, met in enumerate(each):
                    of[h, c, place], times[h, c, place] = self._cap(c, met), met.times
        return Caps(
            left=np.array(self._left, np.int64), by_gpus=np.array(self._by_gpus, np.bool_), of=of, times=times
        )

    def closed(self, record: Job, job: FleetJob | None = None) -> dict[ClusterName, str]:
        """Clusters that never start a job as it is, each with the reason."""
        told = self._of_owner(record).bounds
        found = {self._clusters[c]: bound.says for c, bound in reversed(told) if bound.broken_by(record)}
        for there in () if job is None else job.records:
            if there.waiting_here and (why := _stuck(there)):
                found[there.cluster] = why
        return found

    def full(self, job: FleetJob, holder: int) -> dict[ClusterName, str]:
        """Clusters where a job waits for a limit now, each with the limit."""
        found: dict[ClusterName, str] = {}
        for there in job.records if holder >= 0 else ():
            c = self._number[there.cluster]
            for met in self._of[holder][c] if there.waiting_here else ():
                if 0 < met.takes(there) > self._left[self._cap(c, met)]:
                    found.setdefault(there.cluster, met.says)
        return found


def _owner(job: Job) -> tuple[object, ...]:
    """Jobs with the same are under the same associations and QOS."""
    named_by = None if job.federated else job.cluster
    return named_by, job.user, job.account, job.qos, job.partitions
