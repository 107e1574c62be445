"""Layer 1 inside a replay: the optimizer that the daemon runs, called every cycle with what the simulator sees."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from slurm_evo.model import ClusterName, JobKey
from slurm_evo.optimize import Queue, propose
from slurm_evo.policy import Policy
from slurm_evo.policy.features import JobColumns, feature_table
from slurm_evo.sim.forecast import Devices, Releases
from slurm_evo.sim.forecast import Waiting as Pending
from slurm_evo.sim.rules import Waiting
from slurm_evo.sim.workload import FOREVER, Ints, Workload
from slurm_evo.trace.capacity import Capacity

MOST_JOBS = 400
"""Those that run first are weighed; thousands of cycles have to be decided in a replay."""
GENERATIONS = 4
OBJECTIVES = {"average_wait": 1.0, "maximum_wait": 1.0, "utilization": 1.0}


@dataclass(slots=True)
class LayerOneInReplay:
    """A decision for every cycle. Deterministic for a seed: the search ends by generations, not by the clock.

    Jobs may run on any feasible cluster, as if every owner allowed it. Layer 1 ranks by the same policy as the
    clusters; what it knows of running times is the workload's estimate.
    """

    jobs: Workload
    fleet: Capacity
    policy: Policy
    seed: int = 0
    margin: float = 0.02
    max_moves: int = 100
    cooldown_s: int = 300
    """A job whose clusters changed stays as it is for so long."""
    changed: int = 0
    """Sets of clusters changed so far."""
    _moved_at: Ints = field(init=False)
    _rng: np.random.Generator = field(init=False)
    _nodes: tuple[Ints, Ints, Ints] = field(init=False)
    """Cluster, GPU type, GPUs of every node."""

    def __post_init__(self) -> None:
        """Prepare what does not change."""
        self._moved_at = np.full(len(self.jobs), -FOREVER, dtype=np.int64)
        self._rng = np.random.default_rng(self.seed)
        nodes = self.fleet.shape.nodes
        sizes = [len(each) for each in self.fleet.shape.clusters]
        self._nodes = (
            np.repeat(np.arange(len(sizes)), sizes),
            np.array([node.gpu_type for node in nodes], dtype=np.int64),
            np.array([node.gpus for node in nodes], dtype=np.int64),
        )

    def __call__(self, seen: Waiting) -> Ints:
        """The sets of clusters of all waiting jobs, (p,) bits."""
        score = self._scores(seen)
        first = np.lexsort((seen.jobs, -score))[:MOST_JOBS]
        queue = self._queue(seen, first)
        plan = propose(
            queue,
            objectives=OBJECTIVES,
            margin=self.margin,
            max_moves=self.max_moves,
            rng=self._rng,
            budget_s=float("inf"),
            clock=lambda: 0.0,
            generations=GENERATIONS,
        )
        after = seen.clusters.copy()
        place = {int(job): int(row) for row, job in zip(first, seen.jobs[first], strict=True)}
        bit = {name: 1 << number for number, name in enumerate(queue.clusters)}
        for placement in plan.changes:
            row = place[placement.job.id]
            after[row] = sum(bit[name] for name in placement.clusters)
            self._moved_at[placement.job.id] = seen.now
            self.changed += 1
        return after

    def _columns(self, seen: Waiting) -> JobColumns:
        jobs, rows = self.jobs, seen.jobs
        return JobColumns(
            since_s=jobs.submit[rows].astype(np.float64),
            limit_s=jobs.limit[rows].astype(np.float64),
            runtime_s=jobs.estimate[rows].astype(np.float64),
            gpus=jobs.gpus[rows].astype(np.float64),
            nodes=np.maximum(jobs.nodes[rows], 1).astype(np.float64),
            cpus=jobs.cpus[rows].astype(np.float64),
            weight=jobs.weight[rows],
            user=jobs.user[rows],
        )

    def _scores(self, seen: Waiting) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Of the waiting jobs; a user's usage is what the running jobs have used, as in the daemon."""
        jobs = self.jobs
        ran = (seen.now - seen.running_since) * jobs.gpus[seen.running]
        usage = np.bincount(jobs.user[seen.running], weights=ran, minlength=int(jobs.user.max()) + 1)
        table = feature_table(
            self._columns(seen),
            now_s=float(seen.now),
            usage_gpu_s=usage.astype(np.float64),
            busy_gpus=float(jobs.gpus[seen.running].sum()),
            fleet_gpus=float(self.fleet.shape.gpus.sum()),
        )
        return self.policy.scores(table)

    def _queue(self, seen: Waiting, first: Ints) -> Queue:
        jobs, rows = self.jobs, seen.jobs[first]
        cluster, kind, gpus = self._nodes
        plenty = np.full(len(gpus), FOREVER, dtype=np.int64)
        clusters = tuple(ClusterName(name) for name in self.fleet.names)
        movable = seen.now - self._moved_at[rows] >= self.cooldown_s
        viable = seen.clusters[first].astype(np.uint64)
        limit = jobs.limit[rows].astype(np.float64)
        return Queue(
            clusters=clusters,
            keys=tuple(JobKey(clusters[0], int(job)) for job in rows),
            devices=Devices(
                cluster=cluster,
                kind=kind,
                gpus=gpus,
                free_gpus=seen.free_gpus.copy(),
                free_cpus=plenty,
                clusters=len(clusters),
            ),
            releases=self._releases(seen),
            waiting=Pending(
                gpus=jobs.gpus[rows],
                kind=jobs.gpu_type[rows],
                nodes=np.maximum(jobs.nodes[rows], 1),
                cpus=np.zeros(len(rows), dtype=np.int64),
                runtime_s=np.minimum(jobs.estimate[rows], limit),
                limit_s=limit,
            ),
            weight=jobs.weight[rows],
            waited_s=(seen.now - jobs.submit[rows]).astype(np.float64),
            viable=viable,
            allowed=np.where(movable, seen.feasible[first].astype(np.uint64), viable),
            movable=movable & (seen.feasible[first] != 0),
        )

    def _releases(self, seen: Waiting) -> Releases:
        """As the daemon sees them: one that outlived its estimate is given half of what its limit leaves."""
        jobs, running = self.jobs, seen.running
        ran = (seen.now - seen.running_since).astype(np.float64)
        left = np.maximum(jobs.limit[running] - ran, 1.0)
        expected = jobs.estimate[running] - ran
        end = np.where(expected > 0, np.minimum(expected, left), left / 2)
        parts = seen.running_parts
        return Releases(
            node=seen.running_nodes,
            gpus=np.repeat(jobs.gpus[running] // np.maximum(parts, 1), parts),
            cpus=np.zeros(int(parts.sum()), dtype=np.int64),
            end_s=np.repeat(end, parts),
            limit_s=np.repeat(left, parts),
        )


__all__ = ["LayerOneInReplay"]
