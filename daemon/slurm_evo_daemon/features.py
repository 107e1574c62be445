"""The pending jobs as the policy sees them: features, weights, expected running times, scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from slurm_evo.config import Settings
from slurm_evo.model import FleetJob, FleetView, JobKey
from slurm_evo.policy import TERMINALS, Policy
from slurm_evo.policy.features import JobColumns, feature_table
from slurm_evo.store import JobMemory
from slurm_evo_daemon.learning import RunningTimes
from slurm_evo_daemon.speeds import node_speeds, speed_of


@dataclass(frozen=True, slots=True)
class Standing:
    """n pending jobs at one instant; mappings are by job."""

    keys: tuple[JobKey, ...]
    table: NDArray[np.float64]
    """(11, n), rows as in `TERMINALS`."""
    score_of: Mapping[JobKey, float]
    runtime_of: Mapping[JobKey, float]
    """Expected, seconds on GPUs of speed 1; of the running jobs too, on their nodes and from their start."""
    weight_of: Mapping[JobKey, float]

    def terminals(self, key: JobKey) -> dict[str, float]:
        """One job's features by name."""
        column = self.table[:, self.keys.index(key)]
        return {terminal.name: float(value) for terminal, value in zip(TERMINALS, column, strict=True)}


def standing(
    view: FleetView,
    pending: Iterable[FleetJob],
    memories: Mapping[JobKey, JobMemory],
    settings: Settings,
    policy: Policy,
    times: RunningTimes,
) -> Standing:
    """Score the pending jobs.

    The running time of a job is what jobs like it took, and its limit where none was seen. Usage is what the
    running jobs have used since they started.
    """
    jobs = list(pending)
    records = [job.job for job in jobs]
    # Waits are taken on a grid, so that the order changes for a reason and not with every look.
    now_s = aligned(view.now, settings.priority.recalc_s).timestamp()
    since = [
        max(memories[job.key].submitted, record.eligible or memories[job.key].submitted).timestamp()
        for job, record in zip(jobs, records, strict=True)
    ]
    users = sorted({record.user for record in records} | {job.job.user for job in view.jobs.values()})
    number = {user: place for place, user in enumerate(users)}
    weight = [settings.weights.of(record.qos, record.partitions[0], record.account) for record in records]
    runtime = [times.expected_s(record) for record in records]
    columns = JobColumns(
        since_s=np.array(since, np.float64),
        limit_s=np.array([record.limit_s for record in records], np.float64),
        runtime_s=np.array(runtime, np.float64),
        gpus=np.array([record.gpus for record in records], np.float64),
        nodes=np.array([record.nodes for record in records], np.float64),
        cpus=np.array([record.cpus for record in records], np.float64),
        weight=np.array(weight, np.float64),
        user=np.array([number[record.user] for record in records], np.int64),
    )
    table = feature_table(
        columns,
        now_s=now_s,
        usage_gpu_s=usage(view, number),
        busy_gpus=float(sum(node.gpus_used for seen in view.seen for node in seen.nodes if node.up)),
        fleet_gpus=float(sum(seen.gpus for seen in view.seen)),
    )
    keys = tuple(job.key for job in jobs)
    scores = policy.scores(table)
    return Standing(
        keys,
        table,
        dict(zip(keys, scores.tolist(), strict=True)),
        dict(zip(keys, runtime, strict=True)) | _running(view, times, settings.gpu_speed),
        dict(zip(keys, weight, strict=True)),
    )


def _running(view: FleetView, times: RunningTimes, gpu_speed: Mapping[str, float]) -> dict[JobKey, float]:
    """Expectations of running jobs; one that has outlived its own is taken to run to its limit."""
    expected = {}
    speeds = node_speeds(view, gpu_speed)
    for key, job in view.jobs.items():
        record = job.job
        if job.running and record.started is not None:
            told = min(times.expected_s(record) / speed_of(record, speeds), float(record.limit_s))
            ran = (view.now - record.started).total_seconds()
            expected[key] = told if told > ran else float(record.limit_s)
    return expected


def usage(view: FleetView, number: Mapping[str, int]) -> NDArray[np.float64]:
    """GPU-seconds of the running jobs, by user."""
    used = np.zeros(len(number))
    for job in view.jobs.values():
        record = job.job
        if job.running and record.started is not None:
            used[number[record.user]] += record.gpus * max((view.now - record.started).total_seconds(), 0.0)
    return used


def aligned(now: datetime, every_s: float) -> datetime:
    """The latest instant on a grid."""
    seconds = now.timestamp()
    return datetime.fromtimestamp(seconds - seconds % every_s, UTC) if every_s > 0 else now
