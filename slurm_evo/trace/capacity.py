"""What a fleet has: from a TOML file, from its clusters, from a public node list, or estimated from a trace."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slurm_evo.model import ClusterView, ConfigError, Node, TraceError
from slurm_evo.sim.fleet import FleetShape, NodeShape
from slurm_evo.sim.workload import FOREVER, MAX_CLUSTERS
from slurm_evo.slurm.facts import seconds_of
from slurm_evo.trace.reading import lines
from slurm_evo.trace.swf import processors
from slurm_evo.trace.table import Trace

Count = Annotated[int, Field(ge=0, le=FOREVER)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A fleet with its names. Positions in the tuples are the simulator's indices."""

    shape: FleetShape
    names: tuple[str, ...]
    """Of the clusters."""
    gpu_types: tuple[str, ...] = ("",)
    partitions: tuple[str, ...] = ("",)
    """One nameless partition where partitions do not matter."""
    features: tuple[frozenset[str], ...] = ()
    """By cluster: what a job's constraint may ask for."""
    estimated: bool = False

    def said(self) -> str:
        """One line: what there is."""
        each = [f"{name} {gpus}" for name, gpus in zip(self.names, self.shape.gpus.tolist(), strict=True)]
        shown = ", ".join(each[:8]) + (f", and {len(each) - 8} more" if len(each) > 8 else "")
        return f"{len(self.names)} clusters, {int(self.shape.gpus.sum())} devices ({shown})"

    def divided(self, factor: float, least: int = 2) -> Capacity:
        """Keep one node in ``factor`` of each cluster, rounded down, at least ``least`` or all it has.

        Public logs come from fleets that were never full: without a smaller fleet there is no queue.

        Raises:
            ConfigError: the factor is below 1.
        """
        if not factor >= 1:
            raise ConfigError(f"nodes can be divided by 1 or more, not {factor}")
        kept = []
        for nodes in self.shape.clusters:
            count = min(max(int(len(nodes) / factor), least), len(nodes))
            kept.append(tuple(nodes[place] for place in np.linspace(0, len(nodes) - 1, count).round().astype(int)))
        return replace(self, shape=replace(self.shape, clusters=tuple(kept), out_of_service=()))


class _Nodes(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    count: Annotated[int, Field(ge=1, le=100_000)]
    gpus: Count = 0
    gpu_type: str = ""
    cpus: Count | None = None
    memory_gib: Count | None = None
    partitions: list[str] = []


class _Cluster(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, Field(min_length=1)]
    nodes: Annotated[list[_Nodes], Field(min_length=1)]
    features: list[str] = []


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    clusters: Annotated[list[_Cluster], Field(min_length=1, max_length=MAX_CLUSTERS)]
    partition_limits: dict[str, str] = {}


def load(file: Path) -> Capacity:
    """Read a fleet: TOML of our own, Philly's ``philly_vc.csv``, an openb node list, or an SWF header.

    Raises:
        ConfigError: it is none of these; names the key.
        TraceError: it cannot be read.
    """
    if file.suffix == ".toml":
        return _from_toml(file)
    head = next((text for _, text in lines(file)), "")
    columns = [name.strip() for name in head.lstrip("\ufeff").split(",")]
    if columns == ["vc", "node num"]:
        return _from_philly(file)
    if {"gpu", "model"} <= set(columns):
        return _from_node_list(file, "model", "gpu", "cpu_milli", "memory_mib")
    if {"gpu_model", "gpu_capacity_num"} <= set(columns):
        return _from_node_list(file, "gpu_model", "gpu_capacity_num")
    if head.startswith(";"):
        return pool(processors(file))
    raise ConfigError(
        f"{file.name}: is no fleet; write TOML with [[clusters]] name and nodes = [{{ count = 4, gpus = 8 }}]"
    )


def pool(devices: int) -> Capacity:
    """One cluster whose devices are one pool, as logs of CPU machines are usually simulated."""
    shape = FleetShape.uniform(clusters=1, nodes=1, gpus=devices)
    return Capacity(shape=shape, names=("machine",))


def sample() -> Capacity:
    """The fleet of examples: four unequal clusters of 8-GPU nodes."""
    nodes = {"alpha": 8, "beta": 4, "gamma": 4, "delta": 2}
    shape = FleetShape(clusters=tuple((NodeShape(gpus=8),) * count for count in nodes.values()))
    return Capacity(shape=shape, names=tuple(nodes))


def _from_toml(file: Path) -> Capacity:
    try:
        given = _File.model_validate(tomllib.loads(file.read_text("utf-8")))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file.name}: is no TOML: {error}") from error
    except ValidationError as error:
        problems = [(".".join(map(str, each["loc"])), each["msg"]) for each in error.errors()]
        raise ConfigError(f"{file.name}: " + "; ".join(f"{key}: {why}" for key, why in problems)) from error
    groups = [(cluster, nodes) for cluster in given.clusters for nodes in cluster.nodes]
    types = tuple(dict.fromkeys(nodes.gpu_type for _, nodes in groups)) or ("",)
    named = dict.fromkeys(name for _, nodes in groups for name in nodes.partitions)
    partitions = tuple(named) or ("",)
    if len({cluster.name for cluster in given.clusters}) != len(given.clusters):
        raise ConfigError(f"{file.name}: clusters: two have the same name")
    limits = {}
    for name, text in given.partition_limits.items():
        if name not in partitions:
            raise ConfigError(f"{file.name}: partition_limits.{name}: no nodes are in such a partition")
        try:
            seconds = seconds_of(text)
        except ValueError as error:
            raise ConfigError(f"{file.name}: partition_limits.{name}: {error}") from error
        if seconds is not None:
            limits[partitions.index(name)] = seconds

    def node(nodes: _Nodes) -> NodeShape:
        return NodeShape(
            gpus=nodes.gpus,
            gpu_type=types.index(nodes.gpu_type),
            cpus=FOREVER if nodes.cpus is None else nodes.cpus,
            memory=FOREVER if nodes.memory_gib is None else min(nodes.memory_gib * 1024, FOREVER),
            partitions=frozenset(partitions.index(name) for name in nodes.partitions or partitions),
        )

    return Capacity(
        shape=FleetShape(
            clusters=tuple(
                tuple(node(nodes) for nodes in cluster.nodes for _ in range(nodes.count))
                for cluster in given.clusters
            ),
            partition_limit=limits,
        ),
        names=tuple(cluster.name for cluster in given.clusters),
        gpu_types=types,
        partitions=partitions,
        features=tuple(frozenset(cluster.features) for cluster in given.clusters),
    )


def _rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(text for _, text in lines(file)))


def _whole(file: Path, line: int, name: str, text: str | None) -> int:
    try:
        value = int(text or "")
    except ValueError:
        value = -1
    if not 0 <= value <= FOREVER:
        raise ConfigError(f"{file.name}:{line}: {name} must be a whole number, not {text!r}")
    return value


def _from_philly(file: Path) -> Capacity:
    """Virtual clusters as clusters, with eight GPUs a node."""
    counts = {
        row["vc"]: max(_whole(file, line, "node num", row["node num"]), 1)
        for line, row in enumerate(_rows(file), 2)
    }
    shape = FleetShape(clusters=tuple((NodeShape(gpus=8),) * count for count in counts.values()))
    return Capacity(shape=shape, names=tuple(counts))


def _from_node_list(file: Path, model: str, gpus: str, cpu: str = "", memory: str = "") -> Capacity:
    """Each GPU model as one cluster; nodes without GPUs are left out."""
    by_model: dict[str, list[NodeShape]] = {}
    for line, row in enumerate(_rows(file), 2):
        count = _whole(file, line, gpus, row[gpus])
        if not count:
            continue
        nodes = by_model.setdefault(row[model], [])
        nodes.append(
            NodeShape(
                gpus=count,
                gpu_type=list(by_model).index(row[model]),
                cpus=_whole(file, line, cpu, row[cpu]) // 1000 if cpu else FOREVER,
                memory=_whole(file, line, memory, row[memory]) if memory else FOREVER,
            )
        )
    if not by_model:
        raise ConfigError(f"{file.name}: no node has a GPU")
    # Most GPUs on a node first, so that fewer nodes still hold the largest job.
    clusters = tuple(tuple(sorted(nodes, key=lambda node: -node.gpus)) for nodes in by_model.values())
    return Capacity(shape=FleetShape(clusters=clusters), names=tuple(by_model), gpu_types=tuple(by_model))


def of_views(views: Sequence[ClusterView]) -> Capacity:
    """The fleet as its clusters tell of it now: nodes that are up, their GPU types, partitions and limits.

    Raises:
        ConfigError: no cluster has a node that is up.
    """
    views = [view for view in views if any(node.up for node in view.nodes)]
    if not views:
        raise ConfigError("no cluster has a node that is up; give the fleet as a file with --fleet")
    nodes = [[node for node in view.nodes if node.up] for view in views]
    types = tuple(dict.fromkeys(node.gpu_type or "" for each in nodes for node in each))
    names = tuple(dict.fromkeys(name for each in nodes for node in each for name in node.partitions)) or ("",)
    limits: dict[int, int] = {}
    for view in views:
        for partition in view.partitions:
            if partition.limit_s is not None and partition.name in names:
                place = names.index(partition.name)
                limits[place] = max(limits.get(place, 0), partition.limit_s)

    def node_of(node: Node) -> NodeShape:
        return NodeShape(
            gpus=node.gpus,
            gpu_type=types.index(node.gpu_type or ""),
            cpus=node.cpus,
            memory=node.memory_mb,
            partitions=frozenset(names.index(name) for name in node.partitions or names),
        )

    return Capacity(
        shape=FleetShape(
            clusters=tuple(tuple(node_of(node) for node in each) for each in nodes), partition_limit=limits
        ),
        names=tuple(str(view.cluster) for view in views),
        gpu_types=types,
        partitions=names,
    )


def device_column(jobs: pl.DataFrame, cores: bool | None = None) -> str:
    """What counts as a device: ``gpus`` or ``cpus``; where nobody says, cores if most jobs ask for no GPU."""
    if cores is None:
        cores = int((jobs["gpus"] > 0).sum()) * 2 < len(jobs)
    return "cpus" if cores else "gpus"


def estimate(trace: Trace, gpus_per_node: int = 8, *, cores: bool | None = None) -> Capacity:
    """A guess, for a trace whose fleet nobody knows: what each cluster had in use at its busiest moment.

    Devices are as `device_column` says. It is too small if the fleet was never full.

    Raises:
        TraceError: no job ran.
    """
    jobs = trace.jobs.filter(pl.col("runtime").is_not_null())
    column = device_column(jobs, cores)
    if not len(jobs):
        raise TraceError("no job is left to simulate", file=trace.name)
    clusters = {}
    for (name,), part in jobs.group_by(["cluster"], maintain_order=True):
        size = part[column].to_numpy()
        start = (part["submit"] + part["wait"]).to_numpy()
        end = start + part["runtime"].to_numpy()
        change = np.concatenate([size, -size])
        # At one instant ends come before starts, so that a handover is not counted twice.
        order = np.lexsort((change, np.concatenate([start, end])))
        peak = int(np.cumsum(change[order]).max(initial=0))
        clusters[str(name)] = max(peak, int(size.max(initial=1)), 1)
    most = dict(sorted(clusters.items(), key=lambda item: -item[1])[:MAX_CLUSTERS])
    per_node = gpus_per_node if column == "gpus" else max(most.values(), default=1)
    shape = FleetShape(
        clusters=tuple((NodeShape(gpus=min(per_node, peak)),) * -(-peak // per_node) for peak in most.values())
    )
    return Capacity(shape=shape, names=tuple(most), estimated=True)


__all__ = ["Capacity", "estimate", "load", "of_views", "pool", "sample"]
