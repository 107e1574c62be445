"""What a policy is worth: simulated queuing times over scenes, and how simple and sound it reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slurm_evo.model import TraceError
from slurm_evo.policy import ROW, Policy
from slurm_evo.sim.fleet import FleetShape
from slurm_evo.sim.metrics import Metrics, measure
from slurm_evo.sim.priorities import Priority
from slurm_evo.sim.replay import End, replay
from slurm_evo.sim.rules import Allocation, Race, Rules
from slurm_evo.sim.workload import Workload
from slurm_evo_training.soundness import sound, unit_faults

Floats = NDArray[np.float64]

REFERENCE = "weight * (wait + 60) / (runtime * gpus)"
"""Values are given as shares of this policy's: a good one written by hand."""
TAIL = 0.01
"""To train and to choose on. One job decides a maximum, so that it says little of the weeks to come; the tail's
mean (the conditional value at risk of Rockafellar and Uryasev, 2000) foretells later maxima better than an earlier
maximum does. What is judged is the maximum itself."""
UNIT_FAULT_COST = 3
"""Nodes that one sum of seconds and GPUs counts as."""
NAMES = ("average", "maximum", "idle", "complexity")
"""Objectives, all to be made small: shares of the reference's average and maximum weighted wait and of its idle
GPU time; nodes of the tree plus a cost for each breach of units."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """Some time of a history, replayed whole, of which a part is judged."""

    name: str
    jobs: Workload
    judged_s: tuple[int, int]
    """Jobs submitted in [first, last) count: what comes before fills the fleet, what comes after keeps up the
    pressure on those still waiting."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Scenes in the order in which a candidate runs through them: a cheap one first."""

    scenes: tuple[Scene, ...]
    fleet: FleetShape
    rules: Rules
    allocation: Allocation = field(default_factory=Race)
    tail: float = 0.0
    """If not 0, the mean of this share of the largest weighted waits stands for the maximum: see `TAIL`."""

    def __post_init__(self) -> None:
        """Refuse what cannot be learned from.

        Raises:
            TraceError: no scene, or one in which no job is judged.
        """
        if not self.scenes:
            raise TraceError("no window to learn from")
        for scene in self.scenes:
            if not _judged(scene).any():
                raise TraceError(
                    f"no job is submitted in the judged part of the {scene.name}; give a longer or busier time"
                )


def metrics(problem: Problem, scene: Scene, priority: Priority) -> tuple[Metrics, Floats, NDArray[np.bool_]]:
    """Replay one scene.

    Returns:
        The numbers of the judged jobs; waits of all jobs, (n,) seconds; which of them were judged, (n,).
        A job that never started counts as having waited until the last event; one that no cluster can run
        does not count.
    """
    jobs = scene.jobs
    done = replay(jobs, problem.fleet, priority, problem.allocation, problem.rules)
    last = int(done.end.max(initial=scene.judged_s[1]))
    start = np.where(done.start >= 0, done.start, np.maximum(last, jobs.submit))
    end = np.where(done.start >= 0, done.end, start)
    counted = _judged(scene) & (done.state != End.REJECTED)
    first_s, last_s = scene.judged_s
    available = max(problem.fleet.available_gpu_seconds(first_s, last_s), 1)
    found = measure(
        submit_s=jobs.submit[counted],
        start_s=start[counted],
        end_s=end[counted],
        gpus=jobs.gpus[counted],
        weight=jobs.weight[counted],
        window_s=(first_s, last_s),
        available_gpu_s=available,
    )
    return found, (start - jobs.submit).astype(np.float64), counted


def _judged(scene: Scene) -> NDArray[np.bool_]:
    first, last = scene.judged_s
    inside: NDArray[np.bool_] = (scene.jobs.submit >= first) & (scene.jobs.submit < last)
    return inside


def outcome(problem: Problem, scene: Scene, priority: Priority) -> tuple[float, float, float]:
    """Average and maximum weighted wait in seconds (or the mean of the tail), and the idle share of GPU time."""
    found, waits, counted = metrics(problem, scene, priority)
    longest = found.maximum_wait_s
    if problem.tail:
        weight = scene.jobs.weight[counted]
        weighted = np.sort(waits[counted] * weight)
        longest = float(weighted[-max(round(problem.tail * len(weighted)), 1) :].mean() / weight.mean())
    return found.average_wait_s, longest, 1.0 - found.utilization


@dataclass(slots=True, kw_only=True, eq=False)
class Evaluator:
    """Values of policies on a problem's scenes, each worked out once: policies that rank alike are one."""

    problem: Problem
    simulated: int = 0
    """Replays run."""
    found_again: int = 0
    """Values taken from the cache."""
    _known: dict[tuple[bytes, int], tuple[float, float, float]] = field(default_factory=dict)
    _probe: Floats = field(init=False)
    _reference: list[tuple[float, float, float] | None] = field(init=False)

    def __post_init__(self) -> None:
        """Draw the probe rows out of the problem's own jobs."""
        self._probe = probe_rows(self.problem.scenes[0].jobs)
        self._reference = [None] * len(self.problem.scenes)

    def meaning(self, policy: Policy) -> bytes:
        """The same for policies that put the probe rows in the same order."""
        scores = policy.scores(self._probe).astype(np.float32)
        # Equal scores are told apart by age alone, so ties are part of the order.
        _, place = np.unique(scores, return_inverse=True)
        return hashlib.blake2b(place.astype(np.int16).tobytes(), digest_size=16).digest()

    def tells_jobs_apart(self, policy: Policy) -> bool:
        """It is no constant."""
        scores = policy.scores(self._probe)
        return bool(np.ptp(scores.astype(np.float32)) > 0)

    def value(self, policy: Policy, scene: int) -> tuple[float, float, float]:
        """Shares of the reference's average, maximum and idle time on one scene."""
        key = (self.meaning(policy), scene)
        known = self._known.get(key)
        if known is None:
            self.simulated += 1
            at = self.problem.scenes[scene]
            known = _shares(outcome(self.problem, at, policy), self.reference(scene))
            self._known[key] = known
        else:
            self.found_again += 1
        return known

    def reference(self, scene: int) -> tuple[float, float, float]:
        """What the reference policy reaches on a scene: seconds, seconds, a share."""
        known = self._reference[scene]
        if known is None:
            known = outcome(self.problem, self.problem.scenes[scene], Policy.parse(REFERENCE))
            self._reference[scene] = known
        return known

    def objectives(self, policy: Policy, values: Sequence[tuple[float, float, float]]) -> tuple[float, ...]:
        """The four of `NAMES`, from the values on all scenes."""
        average, maximum, idle = np.mean(np.array(values), axis=0)
        return float(average), float(maximum), float(idle), float(complexity(policy))


def _shares(of: tuple[float, float, float], reference: tuple[float, float, float]) -> tuple[float, float, float]:
    least = (1.0, 1.0, 0.001)
    average, maximum, idle = (
        max(one, floor) / max(other, floor) for one, other, floor in zip(of, reference, least, strict=True)
    )
    return average, maximum, idle


def complexity(policy: Policy) -> int:
    """Nodes, plus a cost for each sum or comparison of unlike units."""
    return policy.size + UNIT_FAULT_COST * unit_faults(policy)


def admissible(policy: Policy, *, most_nodes: int, most_levels: int = 12) -> bool:
    """It is short enough to be read and `soundness.sound`."""
    return policy.size <= most_nodes and policy.depth <= most_levels and sound(policy)


def probe_rows(jobs: Workload, count: int = 512, seed: int = 7) -> Floats:
    """Jobs of a workload as a policy may meet them, at drawn waits, loads and pressures.

    Returns:
        (11, count) float64, rows in the order of the terminals.
    """
    random = np.random.default_rng(seed)
    pick = random.integers(0, len(jobs), count)
    table = np.empty((len(ROW), count))
    # Half the rows in groups of the same instant: what a queue is like.
    table[ROW["wait"]] = np.where(random.random(count) < 0.1, 0.0, np.exp(random.uniform(0.0, np.log(1e6), count)))
    columns: Mapping[str, NDArray[np.int64] | Floats] = {
        "limit": jobs.limit, "runtime": jobs.estimate, "gpus": jobs.gpus, "nodes": jobs.nodes,
        "cpus": jobs.cpus, "weight": jobs.weight,
    }  # fmt: skip
    for name, column in columns.items():
        table[ROW[name]] = column[pick]
    table[ROW["user_usage"]] = np.exp(random.uniform(0.0, np.log(1e9), count))
    table[ROW["user_pending"]] = np.exp(random.uniform(0.0, np.log(1e3), count))
    table[ROW["load"]] = random.uniform(0.5, 1.0, count)
    table[ROW["pressure"]] = np.exp(random.uniform(np.log(0.01), np.log(10.0), count))
    return table
