"""The forecast once more, slow and obvious: dictionaries and sorted lists, no compiled code."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from slurm_evo.sim.forecast import Caps, Devices, Releases, Waiting


@dataclass
class Held:
    """Part of a node that somebody uses."""

    node: int
    gpus: int
    cpus: int
    end: float
    limit: float
    gives: dict[int, int] = field(default_factory=dict)
    """What limits get back, by their number."""


def plain_forecast(
    devices: Devices,
    releases: Releases,
    waiting: Waiting,
    masks: list[int],
    depth: int = 200,
    ready: list[float] | None = None,
    caps: Caps | None = None,
) -> tuple[list[float], list[int]]:
    """The same answer as `slurm_evo.sim.forecast.forecast`."""
    nodes = [
        {"cluster": int(devices.cluster[k]), "kind": int(devices.kind[k]), "gpus": int(devices.gpus[k])}
        for k in range(devices.gpus.size)
    ]
    free = [int(value) for value in devices.free_gpus]
    cpus = [int(value) for value in devices.free_cpus]
    left = [] if caps is None else [int(value) for value in caps.left]

    def takes(holder: object, cluster: int, gpus: int) -> dict[int, int]:
        """What one job takes of each limit."""
        if caps is None or holder is None or int(holder) < 0:  # type: ignore[call-overload]
            return {}
        pairs = zip(caps.of[holder, cluster], caps.times[holder, cluster], strict=True)
        return {int(m): gpus if caps.by_gpus[m] else int(times) for m, times in pairs if m >= 0}

    held = []
    for row in range(releases.node.size):
        part = [releases.node[row], releases.gpus[row], releases.cpus[row]]
        node, gpus, cores = (int(value) for value in part)
        end, limit = float(releases.end_s[row]), float(releases.limit_s[row])
        gives = {}
        if releases.holder is not None and releases.size is not None:
            gives = takes(releases.holder[row], nodes[node]["cluster"], int(releases.size[row]))
        held.append(Held(node, gpus, cores, end, limit, gives))
    jobs = range(waiting.gpus.size)
    ready = ready or [0.0 for _ in jobs]
    starts, where = [math.inf for _ in jobs], [-1 for _ in jobs]

    def fit(job: int, cluster: int, free: list[int], cpus: list[int]) -> list[int]:
        want, asked = int(waiting.kind[job]), int(waiting.gpus[job])
        there = [k for k, node in enumerate(nodes) if node["cluster"] == cluster and want in (-1, node["kind"])]
        largest = max((nodes[k]["gpus"] for k in there), default=0)
        if asked > 0 and largest == 0:
            return []
        count = max(int(waiting.nodes[job]), 1)
        if largest and asked > largest * count:
            count = math.ceil(asked / largest)
        each, cpus_each = math.ceil(asked / count), math.ceil(int(waiting.cpus[job]) / count)
        good = [k for k in there if free[k] >= each and cpus[k] >= cpus_each]
        if len(good) < count:
            return []
        return [min(good, key=lambda k: (free[k], k))] if count == 1 else good[:count]

    now, dirty = 0.0, set(range(devices.clusters))
    while any(start == math.inf for start in starts):
        for cluster in sorted(dirty):
            shadow, reserved, looked = None, set(), 0
            for job in jobs:
                if starts[job] != math.inf or not masks[job] >> cluster & 1 or ready[job] > now:
                    continue
                holder = None if waiting.holder is None else waiting.holder[job]
                taken = takes(holder, cluster, int(waiting.gpus[job]))
                if any(much > 0 and left[m] < much for m, much in taken.items()):
                    continue
                if shadow is not None:
                    looked += 1
                    if looked > depth:
                        break
                chosen = fit(job, cluster, free, cpus)
                if chosen and shadow is not None and now + waiting.limit_s[job] > shadow:
                    beside = [-1 if k in reserved else value for k, value in enumerate(free)]
                    chosen = fit(job, cluster, beside, cpus)
                if chosen:
                    each = math.ceil(int(waiting.gpus[job]) / len(chosen))
                    cpus_each = math.ceil(int(waiting.cpus[job]) / len(chosen))
                    alike = devices.speed is None or not waiting.gpus[job]
                    speed = 1.0 if alike else min(devices.speed[k] for k in chosen)
                    limit = now + waiting.limit_s[job]
                    end = now + min(waiting.runtime_s[job] / speed, waiting.limit_s[job])
                    for m, much in taken.items():
                        left[m] -= much
                    for k in chosen:
                        free[k] -= each
                        cpus[k] -= cpus_each
                        held.append(Held(k, each, cpus_each, end, limit, taken if k == chosen[0] else {}))
                    starts[job], where[job] = now, cluster
                elif shadow is None:
                    later_free, later_cpus = list(free), list(cpus)
                    mine = [part for part in held if nodes[part.node]["cluster"] == cluster]
                    for instant in sorted({part.limit for part in mine}):
                        for part in mine:
                            if part.limit == instant:
                                later_free[part.node] += part.gpus
                                later_cpus[part.node] += part.cpus
                        if found := fit(job, cluster, later_free, later_cpus):
                            shadow, reserved = max(instant, now), set(found)
                            break
        instants = [part.end for part in held] + [at for at in ready if at > now]
        if not instants:
            break
        now = max(now, min(instants))
        dirty = {c for job, at in enumerate(ready) if at == now > 0 for c in range(64) if masks[job] >> c & 1}
        dirty &= set(range(devices.clusters))
        for part in [part for part in held if part.end <= now]:
            free[part.node] += part.gpus
            cpus[part.node] += part.cpus
            for m, much in part.gives.items():
                left[m] += much
            dirty.add(nodes[part.node]["cluster"])
            held.remove(part)
    return starts, where
