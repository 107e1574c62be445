"""Words that the daemon shares with the plugins inside Slurm."""

from __future__ import annotations

import re

from slurm_evo.model import FleetJob

MARK = "slurm-evo:held-back"
"""The word in AdminComment of a job whose owner named no clusters, and that a hold-back keeps off some."""


def held_back(job: FleetJob) -> bool:
    """slurm_evo.lua chose where it waits, not its owner."""
    return MARK in job.job.admin_comment.split()


def encoded(name: str) -> str:
    """ASCII without spaces, reversible: a space is %20, a percent sign %25."""
    return re.sub(rb"[^!-$&-~]", lambda found: b"%%%02X" % found[0][0], name.encode()).decode()
