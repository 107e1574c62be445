"""A small workload as real Slurm ran it, and the same through the simulator: how far they agree.

Recorded by benchmarks/agreement.py inside a fleet of the testbed; kept in tests/golden/agreement.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import kendalltau

from slurm_evo.sim.fleet import FleetShape, Limits, NodeShape, OutOfService, RunningLimit, Why
from slurm_evo.sim.replay import Replayed, Scored, replay
from slurm_evo.sim.rules import Fixed, Race, Rules
from slurm_evo.sim.workload import FOREVER, Workload

GOLDEN = Path(__file__).parent / "golden" / "agreement"
TICKS = 1000
"""The simulator counts in whole units; here one is a millisecond."""
RESOLUTION_S = 1
"""slurmctld looks for work once a second: which of two starts within one comes first says nothing."""
REACTION = 5
"""Ticks between an event and the first pass that may know of it: an epilog and its message."""
IN_SECONDS = {
    "sched_interval": 60, "bf_interval": 30, "bf_window": 86_400, "bf_resolution": 60, "batch_sched_delay": 3,
    "time_limit_check": 30, "priority_calc_period": 300, "will_run_window": 30,
    "sched_tick": 1,
}  # fmt: skip
"""Rules that are durations, and what they are if slurm.conf does not say."""


def ticks(seconds: float) -> int:
    """To the nearest one."""
    return round(seconds * TICKS)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What was asked of real Slurm and what became of it; ticks from the last full minute before it began."""

    name: str
    kind: str
    """What is special about it, in words."""
    slurm: str
    """Version."""
    rules: dict[str, int]
    """Fields of Rules, as ``scontrol show config`` had them, in seconds."""
    first: dict[str, int]
    """When the controller's periods fell first, in ticks after the first submission, and bf_interval as it was
    (a pass begins bf_interval after the end of the last one)."""
    nodes: list[list[dict[str, Any]]]
    """By cluster: name, gpus, cpus, memory [MiB] of each node."""
    qos: list[dict[str, int | None]]
    """By QOS: what one user may run at a time, ``gpus`` and ``jobs``; None: no limit."""
    drains: list[dict[str, Any]] = field(default_factory=list)
    """``node``, ``start``, ``end``."""
    jobs: dict[str, list[int]]
    """Columns, in the order of submission: submit, start, end, limit [s], gpus, nodes, cpus, memory [MiB], user,
    qos, score, clusters (bits), on (index of the cluster it ran on)."""
    ran_on: list[list[str]]
    """Names of the nodes of each job."""

    def write(self, folder: Path) -> Path:
        """One line for each column, so that a change can be read."""
        path = folder / f"{self.name}.json"
        whole = asdict(self)
        rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in whole.pop("jobs").items())
        text = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in whole.items())
        path.write_text(f'{{\n{text},\n "jobs": {{\n{rows}\n }}\n}}\n', encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> Recorded:
        """What ``write`` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def fleet(self) -> FleetShape:
        """The nodes, limits and drains, as the simulator takes them."""
        names = [node["name"] for cluster in self.nodes for node in cluster]
        return FleetShape(
            clusters=tuple(
                tuple(NodeShape(gpus=n["gpus"], cpus=n["cpus"], memory=n["memory"]) for n in cluster)
                for cluster in self.nodes
            ),
            out_of_service=tuple(
                OutOfService(
                    node=names.index(each["node"]),
                    start=max(each["start"], 0),
                    end=min(each["end"], FOREVER),
                    why=Why.DRAIN,
                )
                for each in self.drains
            ),
            limits=Limits(qos_user={index: RunningLimit(**limit) for index, limit in enumerate(self.qos)}),
        )

    def workload(self) -> Workload:
        """The jobs with recorded submit and running times."""
        asked = ("submit", "limit", "gpus", "nodes", "cpus", "memory", "user", "qos", "clusters")
        columns = {name: np.array(self.jobs[name], dtype=np.int64) for name in asked}
        columns["limit"] = columns["limit"] * TICKS
        took = np.array(self.jobs["end"]) - np.array(self.jobs["start"])
        return Workload(runtime=took, **columns)

    def scaled_rules(self) -> dict[str, int]:
        """Fields of Rules in ticks."""
        scaled = {name: self.rules.get(name, default) * TICKS for name, default in IN_SECONDS.items()}
        # slurmctld's background loop counts whole seconds, whatever a pass was late within its second.
        gap = round((self.first["sched_first"] + self.first["sched_last"]) / TICKS) * TICKS
        last = {"sched_last": max(gap - self.first["sched_first"], 0)}
        return self.rules | scaled | self.first | last | {"reaction": REACTION}

    def simulate(self, **changes: int) -> Replayed:
        """The same workload through the simulator; ``changes`` replace rules."""
        return replay(
            self.workload(),
            self.fleet(),
            Scored(np.array(self.jobs["score"], dtype=np.float64)),
            Race() if len(self.nodes) > 1 else Fixed.HOME,
            Rules(**(self.scaled_rules() | changes)),
        )


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Real and simulated starts, compared."""

    jobs: int
    tau: float
    """See ``order_agreement``."""
    tau_b: float
    """Kendall's tau-b of the raw seconds (scipy): ties that one of the two lacks count against it."""
    median_s: float
    """Median of absolute differences of start times."""
    worst_s: float
    mean_wait_s: float
    """As recorded."""
    simulated_wait_s: float
    elsewhere: float
    """Fraction of the jobs that ran on another cluster than simulated."""


def order_agreement(real: npt.NDArray[np.int64], simulated: npt.NDArray[np.int64]) -> float:
    """Kendall's tau over the pairs of jobs whose order real Slurm decides.

    Pairs that really started within RESOLUTION_S of each other have no order to agree on and are left out;
    a pair that is in order but tied in the simulation counts as half wrong (Somers' D of the simulation given
    reality). 1: the same order; 0: no relation. Without any such pair: 1.
    """
    first, second = np.triu_indices(len(real), 1)
    really = real[first] - real[second]
    decided = np.abs(really) > RESOLUTION_S * TICKS
    if not decided.any():
        return 1.0
    agrees = np.sign(really[decided]) * np.sign(simulated[first] - simulated[second])[decided]
    return float(agrees.mean())


def compare(recorded: Recorded, simulated: Replayed) -> Agreement:
    """How far the two agree; every job must have started in both."""
    real = np.array(recorded.jobs["start"], dtype=np.int64)
    if (simulated.start < 0).any():
        raise AssertionError(
            f"{recorded.name}: {int((simulated.start < 0).sum())} jobs never start in the simulation"
        )
    away = np.abs(simulated.start - real) / TICKS
    submit = np.array(recorded.jobs["submit"])
    return Agreement(
        jobs=len(real),
        tau=order_agreement(real, simulated.start),
        tau_b=float(kendalltau(real, simulated.start).statistic),
        median_s=float(np.median(away)),
        worst_s=float(away.max()),
        mean_wait_s=float((real - submit).mean()) / TICKS,
        simulated_wait_s=float((simulated.start - submit).mean()) / TICKS,
        elsewhere=float((simulated.cluster != np.array(recorded.jobs["on"])).mean()),
    )


def table(rows: dict[str, Agreement]) -> str:
    """For people."""
    head = (
        f"{'workload':<20}{'jobs':>5}{'tau':>8}{'tau-b':>8}{'median':>8}{'worst':>7}{'wait':>8}{'simulated':>11}"
    )
    lines = [
        f"{name:<20}{a.jobs:>5}{a.tau:>8.4f}{a.tau_b:>8.4f}{a.median_s:>6.1f} s{a.worst_s:>5.1f} s"
        f"{a.mean_wait_s:>6.1f} s{a.simulated_wait_s:>9.1f} s"
        for name, a in rows.items()
    ]
    return "\n".join([head, *lines])
