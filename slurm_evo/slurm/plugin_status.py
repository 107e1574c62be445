"""What the plugin inside a slurmctld reports of itself, and what doctor makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName

PLUGIN = "site_factor/evo"
SILENT_S = 60.0
"""It reports every 10 seconds."""


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """``status.json`` as site_factor/evo writes it."""

    version: str
    slurm: str
    at: float
    """When it was written, Unix seconds."""
    policy: str
    """Id of the policy it ranks by; empty: none, every job keeps what it has."""
    policy_problem: str
    """Why the file that lies there now was not taken."""
    context_problem: str
    jobs: int
    """Ranked by its last pass."""
    seconds: float
    """Of slurmctld's time, by its last pass."""

    def fresh(self, now: datetime) -> bool:
        """A slurmctld that runs has written it."""
        return abs(now.timestamp() - self.at) <= SILENT_S


def read_status(folder: Path) -> PluginStatus | None:
    """None where there is none that can be read."""
    try:
        found = json.loads((folder / "status.json").read_text(encoding="utf-8"))
        return PluginStatus(
            version=str(found["plugin"]), slurm=str(found["slurm"]), at=float(found["time"]),
            policy=str(found["policy"]), policy_problem=str(found["policy_problem"]),
            context_problem=str(found["context_problem"]), jobs=int(found["jobs"]),
            seconds=float(found["seconds"]),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None


def verdict(cluster: ClusterName, settings: Settings, now: datetime) -> Iterable[tuple[str, str, str]]:
    """What doctor has to say of one cluster's plugin: level, what was seen, what to change.

    Reads the status file: no configuration message of Slurm tells which site_factor plugin a slurmctld has.
    """
    known = {ClusterName(one.name): one.plugin_files for one in settings.clusters}
    folder = settings.with_plugin.get(cluster)
    if folder is None:
        there = read_status(known[cluster]) if cluster in known else None
        if there is not None and there.fresh(now):
            yield (
                "warning", f"{PLUGIN} runs, but SiteFactors are sent too: it overwrites them",
                f'clusters.priority = "plugin" for {cluster}',
            )  # fmt: skip
        return
    status = read_status(folder)
    if status is None or not status.fresh(now):
        told = "never reported" if status is None else f"last reported {now.timestamp() - status.at:.0f} s ago"
        yield (
            "error", f'clusters.priority = "plugin", but {PLUGIN} {told} in {folder}: SiteFactors are sent',
            f"slurm-evo install-plugins --cluster {cluster}, restart slurmctld; the folder must be shared with it",
        )  # fmt: skip
        return
    held = f"policy {status.policy}" if status.policy else "no policy: every job keeps what it has"
    took = f"{status.jobs} jobs in {status.seconds * 1000:.1f} ms at the last pass"
    yield "ok" if status.policy else "warning", f"{PLUGIN} {status.version}, {held}; {took}", ""
    for name, problem in (("policy", status.policy_problem), ("context", status.context_problem)):
        if problem:
            yield (
                "warning", f"the plugin did not take {folder}/{name}: {problem}",
                "is the daemon running, and may it write that folder?",
            )  # fmt: skip
