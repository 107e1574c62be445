"""Where tables for people go."""

from __future__ import annotations

from rich.console import Console


def screen() -> Console:
    """Standard output; words of users, sites and Slurm come through as they are, brackets and colons too."""
    return Console(markup=False, emoji=False)
