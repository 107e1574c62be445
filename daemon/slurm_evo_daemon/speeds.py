"""How fast jobs run on which nodes, by [gpu_speed]."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_evo.model import ClusterName, FleetView, Job

NodeSpeeds = Mapping[tuple[ClusterName, str], float]
"""By cluster and node; 1 where it is missing."""


def node_speeds(view: FleetView, by_type: Mapping[str, float]) -> NodeSpeeds:
    """Of the nodes whose GPU type has a speed."""
    if not by_type:
        return {}
    return {
        (seen.cluster, node.name): by_type[node.gpu_type]
        for seen in view.seen
        for node in seen.nodes
        if node.gpu_type is not None and node.gpu_type in by_type
    }


def speed_of(job: Job, speeds: NodeSpeeds) -> float:
    """Of a running job: its slowest node's. One without GPUs is as fast everywhere."""
    if not job.gpus:
        return 1.0
    return min((speeds.get((job.cluster, node), 1.0) for node in job.nodelist), default=1.0)
