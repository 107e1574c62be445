"""The fleet to train on, as its clusters tell of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from slurm_evo.config import Settings
from slurm_evo.model import ClusterView, ConfigError
from slurm_evo.slurm.connect import connect
from slurm_evo.trace.capacity import of_views


def views() -> list[ClusterView]:
    ports = connect(Settings(), lambda: datetime(2026, 3, 1, 12, tzinfo=UTC))
    return [port.look() for port in ports.values()]


def test_nodes_keep_their_cluster_devices_type_and_partitions() -> None:
    seen = views()
    fleet = of_views(seen)
    assert fleet.names == tuple(str(view.cluster) for view in seen)
    assert fleet.shape.gpus.tolist() == [view.gpus for view in seen]
    assert not fleet.estimated
    for view, nodes in zip(seen, fleet.shape.clusters, strict=True):
        up = [node for node in view.nodes if node.up]
        assert [fleet.gpu_types[node.gpu_type] for node in nodes] == [node.gpu_type or "" for node in up]
        assert [sorted(fleet.partitions[place] for place in node.partitions) for node in nodes] == [
            sorted(node.partitions) for node in up
        ]


def test_what_is_down_is_no_part_of_it() -> None:
    first, *rest = views()
    half = replace(first, nodes=tuple(replace(node, up=place > 0) for place, node in enumerate(first.nodes)))
    assert of_views([half, *rest]).shape.gpus[0] == first.gpus - first.nodes[0].gpus
    gone = replace(first, nodes=tuple(replace(node, up=False) for node in first.nodes))
    assert of_views([gone, *rest]).names == tuple(str(view.cluster) for view in rest)
    with pytest.raises(ConfigError, match="no cluster has a node that is up"):
        of_views([gone])
