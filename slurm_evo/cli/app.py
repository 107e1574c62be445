"""The command line's frame: exit codes, errors as sentences, and the commands that need no daemon room.

Exit codes: 0 done; 1 found something that must be changed (doctor, config check); 2 bad input; 3 a cluster
or the journal could not be reached, or the system refused; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Annotated

import typer

from slurm_evo import __version__
from slurm_evo.model import ClusterError, ConfigError, PolicyError, SlurmEvoError, StoreError, TraceError

app = typer.Typer(
    name="slurm-evo",
    help="Redistributes and ranks the pending jobs of several Slurm GPU clusters.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slurm-evo {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Redistributes and ranks the pending jobs of several Slurm GPU clusters.

    Begin with `slurm-evo demo`. On a site: `slurm-evo config check`, `slurm-evo doctor`, then
    `slurm-evo daemon --dry-run --once`.
    """


def exit_code(error: SlurmEvoError) -> int:
    """What a script is told of an error."""
    if isinstance(error, ConfigError | PolicyError | TraceError):
        return 2
    return 3 if isinstance(error, ClusterError | StoreError) else 1


def build(*rooms: Callable[[typer.Typer], None]) -> typer.Typer:
    """The whole command, with what ``rooms`` and the installed rooms add."""
    from slurm_evo.cli.config import app as config
    from slurm_evo.cli.doctor import doctor
    from slurm_evo.cli.install_plugins import install_plugins
    from slurm_evo.cli.replay import compare, replay
    from slurm_evo.cli.trace import app as trace

    app.add_typer(config, name="config")
    app.command("doctor")(doctor)
    app.command("install-plugins")(install_plugins)
    app.add_typer(trace, name="trace")
    app.command("replay")(replay)
    app.command("compare")(compare)
    points = sorted(entry_points(group="slurm_evo.commands"), key=lambda found: found.name)
    for room in dict.fromkeys([*rooms, *(point.load() for point in points)]):
        room(app)
    return app


def main(*rooms: Callable[[typer.Typer], None]) -> None:
    """Run the command; known errors end as one sentence on standard error."""
    try:
        build(*rooms)()
    except SlurmEvoError as error:
        typer.secho(f"slurm-evo: {error}", fg="red", err=True)
        sys.exit(exit_code(error))
    except OSError as error:  # a full disk, a folder that may not be written
        typer.secho(f"slurm-evo: {error}", fg="red", err=True)
        sys.exit(3)
