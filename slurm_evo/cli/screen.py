"""Where tables for people go."""

from __future__ import annotations

import typer
from rich.console import Console


def screen() -> Console:
    """Standard output; words of users, sites and Slurm come through as they are, brackets and colons too."""
    return Console(markup=False, emoji=False)


def aside(text: str) -> None:
    """A sentence on standard error, beside what a script reads."""
    typer.echo(text, err=True)


class Unseen:
    """Tells of clusters that were not seen: what is said of the others does not hold for them."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str, why: str) -> None:
        """One cluster, and why."""
        self.names.append(name)
        typer.echo(f"{name} was not seen: {why}", err=True)

    def end(self) -> None:
        """End with exit code 3 if there was one."""
        if self.names:
            raise typer.Exit(3)
