"""Look at every cluster once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from slurm_evo.model import ClusterError, ClusterName, ClusterPort, ClusterView, FleetView


def observe(ports: Mapping[ClusterName, ClusterPort], now: datetime) -> FleetView:
    """See all clusters at once; one that fails is named, not fatal.

    Each port bounds its own time, so the slowest of them bounds this.
    """
    seen: list[ClusterView] = []
    unseen: dict[ClusterName, ClusterError] = {}
    with ThreadPoolExecutor(max_workers=max(1, len(ports)), thread_name_prefix="look") as pool:
        looks = {name: pool.submit(port.look) for name, port in ports.items()}
        for name, look in looks.items():
            try:
                seen.append(look.result())
            except ClusterError as failure:
                unseen[name] = failure
    return FleetView(now, tuple(seen), unseen)
