"""Which of slurmrestd's API versions to speak."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurm_evo.model import AnswerUnreadable, ClusterName, ClusterRefused
from slurm_evo.slurm.answers import LAST_WITH_EXCLUSIVE

KNOWN = tuple(f"v0.0.{number}" for number in range(40, 46))
"""Slurm 23.11 to 26.05. Older ones lack what scheduling needs."""
_PATH = re.compile(r"^/slurm/(v0\.0\.\d+)/jobs/?$")


@dataclass(frozen=True, slots=True)
class ServedApi:
    """What was chosen of what a slurmrestd serves."""

    version: str
    jobs_version: str
    """For job lists: the last version that tells ``--exclusive``, where it is served."""
    has_conf: bool
    """The controller's configuration can be asked (v0.0.45)."""


def choose(cluster: ClusterName, openapi: Any, *, wanted: str | None) -> ServedApi:
    """Choose the newest known version from slurmrestd's own ``/openapi.json``.

    Args:
        cluster: whose slurmrestd it is.
        openapi: its decoded OpenAPI document.
        wanted: take this one instead.

    Raises:
        AnswerUnreadable: the document lists no paths.
        ClusterRefused: no version is shared, or the wanted one is not served.
    """
    paths = openapi.get("paths") if isinstance(openapi, Mapping) else None
    if not isinstance(paths, Mapping):
        raise AnswerUnreadable(cluster, "the answer to «GET /openapi.json» lists no paths; is it a slurmrestd?")
    served = sorted({match[1] for match in map(_PATH.match, paths) if match}, key=_number)
    usable = [version for version in served if version in KNOWN]
    if wanted is not None and wanted not in served:
        raise ClusterRefused(
            cluster, f"slurmrestd does not serve api_version {wanted}, but {', '.join(served) or 'none'}"
        )
    if wanted is None and not usable:
        raise ClusterRefused(
            cluster,
            f"slurmrestd serves {', '.join(served) or 'no version'}; known are {KNOWN[0]} to {KNOWN[-1]}:"
            " use the pyslurm or the command-line port, or a slurm-evo that knows them",
        )
    version = wanted or usable[-1]
    jobs_version = version
    if wanted is None and LAST_WITH_EXCLUSIVE in usable:
        jobs_version = LAST_WITH_EXCLUSIVE
    return ServedApi(version, jobs_version, any(f"/slurm/{version}/conf{end}" in paths for end in ("", "/")))


def _number(version: str) -> int:
    return int(version.rpartition(".")[2])
