"""Layer 1 inside a replay: the optimizer that the daemon runs, called every cycle with what the simulator sees."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from slurm_evo.model import Changes, ClusterName, JobKey, Plan
from slurm_evo.optimize.care import Care
from slurm_evo.optimize.propose import propose
from slurm_evo.optimize.queue import Coming, Queue
from slurm_evo.policy import Policy
from slurm_evo.policy.features import JobColumns, feature_table
from slurm_evo.sim.fleet import FleetShape
from slurm_evo.sim.forecast import Caps, Devices, FloatArray, Releases
from slurm_evo.sim.forecast import Waiting as Pending
from slurm_evo.sim.rules import Waiting
from slurm_evo.sim.tables import feasible
from slurm_evo.sim.workload import FOREVER, Ints, Workload

HISTORY_S = 86_400
MOST_COMING = 150
GPUS, JOBS = range(2)
"""What a limit counts."""
OBJECTIVES = {"average_wait": 1.0, "maximum_wait": 1.0, "utilization": 1.0}


@dataclass(slots=True)
class LayerOneInReplay:
    """A decision for every cycle. Deterministic for a seed: the search ends by generations, not by the clock.

    Jobs may run on any feasible cluster, as if every owner allowed it. The order is the clusters' own; what is
    known of running times is the workload's estimate. Give ``federated=False`` together with
    ``LayerOne(move_s=30, entry=1 << jobs.home)``: then a job waits on one cluster, and a change moves it.
    """

    jobs: Workload
    shape: FleetShape
    policy: Policy | None = None
    """The clusters' own; places jobs that are expected to come in the order. None: none are expected."""
    seed: int = 0
    federated: bool = True
    margin: float = 0.02
    max_moves: int = 100
    most_jobs: int = 400
    """Those that run first are weighed; thousands of cycles have to be decided in a replay."""
    generations: int = 4
    cooldown_s: int = 600
    """A job whose clusters changed stays as it is for so long."""
    soon_s: float = 600.0
    """Without federation a job is moved only if it is expected to start within this time."""
    prune_trials: int = 8
    samples: int = 2
    """Futures besides the expected one."""
    foresees_s: float = 1800.0
    """Jobs expected to come within this time are among the futures; 0: none. Without federation there are none: a
    place kept free for them costs more, as measured, than moving on does."""
    remembers: bool = True
    """A search begins with what the one before found."""
    care: Care = field(default_factory=Care)
    changed: int = 0
    """Sets of clusters changed so far."""
    asked: int = 0
    """Cycles in which a plan was made."""
    _moved_at: Ints = field(init=False)
    _rng: np.random.Generator = field(init=False)
    _devices: Devices = field(init=False)
    _holder: Ints = field(init=False)
    _whole: Caps | None = field(init=False)
    """With nothing running."""
    _feasible: Ints = field(init=False)
    _last: tuple[bytes, ...] = ()
    _found: tuple[Changes, ...] = ()

    def __post_init__(self) -> None:
        """Prepare what does not change."""
        self._moved_at = np.full(len(self.jobs), -FOREVER, dtype=np.int64)
        self._rng = np.random.default_rng(self.seed)
        self._feasible = feasible(self.jobs, self.shape)
        self._holder, self._whole = _limits(self.jobs, self.shape)
        nodes = self.shape.nodes
        sizes = [len(each) for each in self.shape.clusters]
        gpus = np.array([node.gpus for node in nodes], dtype=np.int64)
        self._devices = Devices(
            cluster=np.repeat(np.arange(len(sizes)), sizes),
            kind=np.array([node.gpu_type for node in nodes], dtype=np.int64),
            gpus=gpus,
            free_gpus=gpus,
            free_cpus=np.full(len(gpus), FOREVER, dtype=np.int64),
            clusters=len(sizes),
            speed=np.repeat(self.shape.speed, sizes) if self.shape.speed else None,
        )

    def __call__(self, seen: Waiting) -> Ints:
        """The sets of clusters of all waiting jobs, (p,) bits."""
        state = (seen.jobs.tobytes(), seen.running.tobytes(), seen.clusters.tobytes())
        if state == self._last:
            return seen.clusters
        self._last = state
        first = np.argsort(seen.rank, kind="stable")[: self.most_jobs]
        queue = self.queue(seen, first)
        plan = self._propose(queue)
        after = seen.clusters.copy()
        rows = {int(job): int(row) for row, job in zip(first, seen.jobs[first], strict=True)}
        bit = {name: 1 << number for number, name in enumerate(queue.clusters)}
        for placement in plan.changes:
            after[rows[placement.job.id]] = sum(bit[name] for name in placement.clusters)
            self._moved_at[placement.job.id] = seen.now
            self.changed += 1
        return after

    def _propose(self, queue: Queue) -> Plan:
        self.asked += 1
        plan = propose(
            queue,
            objectives=OBJECTIVES,
            margin=self.margin,
            max_moves=self.max_moves,
            rng=self._rng,
            budget_s=float("inf"),
            clock=lambda: 0.0,
            generations=self.generations,
            care=self.care,
            samples=self.samples,
            prune_trials=self.prune_trials,
            last=self._found,
        )
        self._found = plan.found if self.remembers else ()
        return plan

    def queue(self, seen: Waiting, first: Ints) -> Queue:
        """The standing problem; ``first`` are rows of ``seen`` in the order in which they run."""
        jobs, rows = self.jobs, seen.jobs[first]
        clusters = tuple(ClusterName(f"c{number}") for number in range(self._devices.clusters))
        movable = (seen.now - self._moved_at[rows] >= self.cooldown_s) & (seen.feasible[first] != 0)
        viable = seen.clusters[first].astype(np.uint64)
        limit = jobs.limit[rows].astype(np.float64)
        devices = self._devices
        coming, again = self._coming(seen, rows), self._coming(seen, rows)
        return Queue(
            clusters=clusters,
            keys=tuple(JobKey(clusters[0], int(job)) for job in rows),
            devices=Devices(
                cluster=devices.cluster,
                kind=devices.kind,
                gpus=devices.gpus,
                free_gpus=seen.free_gpus.copy(),
                free_cpus=devices.free_cpus,
                clusters=devices.clusters,
                speed=devices.speed,
            ),
            releases=self._releases(seen),
            waiting=Pending(
                gpus=jobs.gpus[rows],
                kind=jobs.gpu_type[rows],
                nodes=np.maximum(jobs.nodes[rows], 1),
                cpus=np.zeros(len(rows), dtype=np.int64),
                runtime_s=np.minimum(jobs.estimate[rows], limit),
                limit_s=limit,
                holder=self._holder[rows],
            ),
            weight=jobs.weight[rows],
            waited_s=(seen.now - jobs.submit[rows]).astype(np.float64),
            viable=viable,
            allowed=np.where(movable, seen.feasible[first].astype(np.uint64), viable),
            movable=movable,
            single=np.full(len(rows), not self.federated),
            user=jobs.user[rows],
            account=jobs.account[rows],
            soon_s=self.soon_s,
            coming=coming,
            again=again,
            caps=self._caps(seen),
            opened=np.where(movable, seen.feasible[first].astype(np.uint64), viable) if self.federated else None,
        )

    def _coming(self, seen: Waiting, rows: Ints) -> Coming | None:
        """Jobs like those submitted of late, drawn with replacement, as many as came in such a time."""
        jobs, rng = self.jobs, self._rng
        first = int(np.searchsorted(jobs.submit, seen.now - HISTORY_S))
        last = int(np.searchsorted(jobs.submit, seen.now, side="right"))
        if self.policy is None or last == first or not self.foresees_s or not self.federated:
            return None
        # A history that has only just begun says little about a rate.
        span = min(HISTORY_S, max(seen.now - int(jobs.submit[0]), HISTORY_S // 8))
        count = min(int(rng.poisson((last - first) * self.foresees_s / span)), MOST_COMING)
        drawn = rng.integers(first, last, count)
        score = self._scores(seen, np.concatenate([rows, drawn]), len(rows))
        # Scores of the pending jobs fall along their rows, but for what changed since they were ranked.
        falling = np.minimum.accumulate(score[: len(rows)]) if len(rows) else score[:0]
        before = np.searchsorted(-falling, -score[len(rows) :], side="right")
        order = np.argsort(before, kind="stable")
        drawn, before = drawn[order], before[order]
        limit = jobs.limit[drawn].astype(np.float64)
        return Coming(
            waiting=Pending(
                gpus=jobs.gpus[drawn],
                kind=jobs.gpu_type[drawn],
                nodes=np.maximum(jobs.nodes[drawn], 1),
                cpus=np.zeros(count, dtype=np.int64),
                runtime_s=np.minimum(jobs.estimate[drawn], limit),
                limit_s=limit,
                holder=self._holder[drawn],
            ),
            weight=jobs.weight[drawn],
            allowed=self._feasible[drawn].astype(np.uint64),
            at_s=rng.uniform(0.0, self.foresees_s, count),
            before=before.astype(np.int64),
        )

    def _caps(self, seen: Waiting) -> Caps | None:
        """What the fleet's limits leave now."""
        whole = self._whole
        if whole is None:
            return None
        left, gpus = whole.left.copy(), self.jobs.gpus
        for job, on in zip(seen.running.tolist(), seen.running_on.tolist(), strict=True):
            met = whole.of[self._holder[job], on]
            met = met[met >= 0]
            left[met] -= np.where(whole.by_gpus[met], gpus[job], 1)
        return replace(whole, left=left)

    def _scores(self, seen: Waiting, rows: Ints, there: int) -> FloatArray:
        """Of jobs; those after the first ``there`` as if they had just come."""
        jobs = self.jobs
        since = np.where(np.arange(len(rows)) < there, jobs.submit[rows], seen.now)
        ran = (seen.now - seen.running_since) * jobs.gpus[seen.running]
        usage = np.bincount(jobs.user[seen.running], weights=ran, minlength=int(jobs.user.max()) + 1)
        columns = JobColumns(
            since_s=since.astype(np.float64),
            limit_s=jobs.limit[rows].astype(np.float64),
            runtime_s=jobs.estimate[rows].astype(np.float64),
            gpus=jobs.gpus[rows].astype(np.float64),
            nodes=np.maximum(jobs.nodes[rows], 1).astype(np.float64),
            cpus=jobs.cpus[rows].astype(np.float64),
            weight=jobs.weight[rows],
            user=jobs.user[rows],
        )
        table = feature_table(
            columns,
            now_s=float(seen.now),
            usage_gpu_s=usage.astype(np.float64),
            busy_gpus=float(jobs.gpus[seen.running].sum()),
            fleet_gpus=float(self.shape.gpus.sum()),
        )
        assert self.policy is not None  # noqa: S101 - asked only then
        found: FloatArray = np.nan_to_num(self.policy.scores(table), nan=-np.inf)
        return found

    def _releases(self, seen: Waiting) -> Releases:
        """As the daemon sees them: one that outlived its estimate is given half of what its limit leaves."""
        jobs, running = self.jobs, seen.running
        ran = (seen.now - seen.running_since).astype(np.float64)
        left = np.maximum(jobs.limit[running] - ran, 1.0)
        expected: FloatArray = jobs.estimate[running].astype(np.float64)
        if self.shape.speed:
            expected = expected / np.array(self.shape.speed)[seen.running_on]
        end = np.where(expected > ran, np.minimum(expected - ran, left), left / 2)
        parts = seen.running_parts
        return Releases(
            node=seen.running_nodes,
            gpus=np.repeat(-(-jobs.gpus[running] // np.maximum(parts, 1)), parts),
            cpus=np.zeros(int(parts.sum()), dtype=np.int64),
            end_s=np.repeat(end, parts),
            limit_s=np.repeat(left, parts),
            holder=_first_of_each(self._holder[running], parts),
            size=np.repeat(jobs.gpus[running], parts),
        )


def _first_of_each(values: Ints, parts: Ints) -> Ints:
    """(sum of parts,) each value where its parts begin, else -1."""
    spread = np.full(int(parts.sum()), -1, np.int64)
    some = parts > 0
    spread[(np.cumsum(parts) - parts)[some]] = values[some]
    return spread


def _limits(jobs: Workload, shape: FleetShape) -> tuple[Ints, Caps | None]:
    """The holder of each job, a user with a QOS, and the fleet's limits, which every cluster keeps for itself."""
    if not shape.limits:
        return np.full(len(jobs), -1, np.int64), None
    pairs, holder = np.unique(np.stack([jobs.user, jobs.qos]), axis=1, return_inverse=True)
    met = [_limits_of(shape, user, qos) for user, qos in pairs.T.tolist()]
    clusters = len(shape.clusters)
    keys = {key: number for number, key in enumerate(dict.fromkeys(key for each in met for key, _ in each))}
    most = {key: limit for each in met for key, limit in each}
    of = np.full((len(met), clusters, max(len(each) for each in met)), -1, np.int64)
    for h, each in enumerate(met):
        for place, (key, _) in enumerate(each):
            of[h, :, place] = keys[key] + len(keys) * np.arange(clusters)
    caps = Caps(
        left=np.tile(np.array([most[key] for key in keys], np.int64), clusters),
        by_gpus=np.tile(np.array([what == GPUS for what, _, _ in keys], np.bool_), clusters),
        of=of,
        times=np.ones(of.shape, np.int64),
    )
    return holder.reshape(-1).astype(np.int64), caps


def _limits_of(shape: FleetShape, user: int, qos: int) -> list[tuple[tuple[int, int, int], int]]:
    """Of one user's jobs of one QOS: what is counted and whose, -1 for everybody's; and how much may run."""
    limits = shape.limits
    found = []
    for whose, limit in (
        ((user, -1), limits.user.get(user)),
        ((-1, qos), limits.qos.get(qos)),
        ((user, qos), limits.qos_user.get(qos)),
    ):
        if limit is not None:
            told = ((GPUS, limit.gpus), (JOBS, limit.jobs))
            found += [((what, *whose), most) for what, most in told if most is not None]
    return found


__all__ = ["OBJECTIVES", "LayerOneInReplay"]
