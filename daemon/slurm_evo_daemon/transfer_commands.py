"""Commands for clusters without a federation: where a job went, what could move, and a route at submission."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from slurm_evo.cli.options import ConfigOption, JsonOption, OwnConfigOption


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("where")(where)
    app.command("movable")(movable)
    app.command("digest")(digest)
    app.command("submit", cls=_BeforeSbatch, context_settings={"help_option_names": ["--help"]})(submit)


class _BeforeSbatch(TyperCommand):
    """A command whose own options come first; from the first other word on nothing is looked at.

    sbatch and the script have a -c, a --config and a --help of their own.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the rest as it is."""
        own = 0
        while own < len(args) and args[own].partition("=")[0] in ("--config", "--help"):
            own += 2 if args[own] == "--config" else 1
        rest = args[own + 1 :] if args[own : own + 1] == ["--"] else args[own:]
        super().parse_args(ctx, args[:own])
        ctx.args = rest
        return rest


def where(
    job: Annotated[str, typer.Argument(help="CLUSTER:ID, or the id alone.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a job over its moves between clusters without a federation.

    Asks the journal; where that may not be read or has forgotten the move, Slurm's accounting.

    Example: `slurm-evo where delta:3000016`

    Exit code 1 if no move of it is known: then it is where it was submitted.
    """
    from slurm_evo.config import load as load_settings
    from slurm_evo.model import ConfigError, JobKey
    from slurm_evo_daemon.where import whereabouts

    settings = load_settings(config)
    try:
        keys = [JobKey(name, int(job)) for name in settings.names] if job.isdecimal() else [JobKey.parse(job)]
    except ValueError as failure:
        raise ConfigError(str(failure)) from failure
    found = whereabouts(settings, keys)
    if as_json:
        told = {"job": job, "now": None if found.now is None else str(found.now)}
        typer.echo(json.dumps(told | {"moves": [leg.as_json() for leg in found.legs]}))
    else:
        for leg in found.legs:
            typer.echo(leg.sentence)
        typer.echo(f"It is {found.now} now." if found.now else _NOT_MOVED)
    if found.unasked:
        typer.echo(f"Accounting might know more, but was not reached: {found.unasked}", err=True)
    if found.now is None:
        raise typer.Exit(1)


_NOT_MOVED = "No completed move of it is known: it is where it was submitted."


def movable(
    config: ConfigOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read each job's script and environment, as a move would.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say which waiting plain jobs could be moved and which not, counted by reason. Changes nothing.

    Example: `slurm-evo movable --deep`

    Exit code 3 if a cluster was not seen, which is then named: its jobs are not counted.
    """
    from slurm_evo.cli.screen import Unseen, aside
    from slurm_evo_daemon.movable import reasons
    from slurm_evo_daemon.site import at_site, journal_or_nothing

    with at_site(config, partial(journal_or_nothing, tell=aside)) as (around, force):
        unseen = Unseen()
        found = reasons(around, force.settings, deep=deep, unseen=unseen)
    if as_json:
        typer.echo(json.dumps(found))
        unseen.end()
        return
    from rich.table import Table

    from slurm_evo.cli.screen import screen

    table = Table(title="Waiting jobs of clusters without a federation", title_justify="left")
    table.add_column("jobs", justify="right")
    table.add_column("could it move?", overflow="fold")
    for why, number in sorted(found.items(), key=lambda row: (-row[1], row[0])):
        table.add_row(str(number), why)
    screen().print(table)
    unseen.end()


def digest(
    hours: Annotated[
        float, typer.Option(min=0.1, max=100_000, help="How far back, for who was never told.")
    ] = 24.0,
    really: Annotated[
        bool, typer.Option("--send", help="Send the mails; without it they are only shown.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell owners which of their waiting jobs were moved between clusters without a federation.

    Nothing is sent by itself: call it with --send from a timer, once `digest.command` is set. Each move is
    told once.

    Example: `slurm-evo digest --hours 24`

    Exit code 1 if a mail could not be sent; the next call tries it again.
    """
    from datetime import timedelta

    from slurm_evo.config import load as load_settings
    from slurm_evo.model import ConfigError
    from slurm_evo_daemon.digest import by_owner, message, send, shown
    from slurm_evo_daemon.loop import utc_now
    from slurm_evo_daemon.site import open_journal

    settings, now = load_settings(config), utc_now()
    if really and not settings.digest.command:
        raise ConfigError('digest.command is not set: give a program that sends mail, such as ["sendmail", "-t"]')
    failed: dict[str, str] = {}
    with open_journal(settings) as journal:
        if really:
            sent, failed = send(
                journal.transfers_done, settings.state_dir, settings.digest.command,
                now=now, hours=hours, domain=settings.digest.domain,
            )  # fmt: skip
        else:
            owners = by_owner(journal.transfers_done(now - timedelta(hours=hours), now))
            sent = {owner: len(moves) for owner, moves in owners.items()}
    if as_json:
        typer.echo(json.dumps({"sent": really, "moves": sent, "failed": failed}))
    elif really:
        for owner, number in sent.items():
            typer.echo(f"{owner} was told of {number} moves.")
        for owner, complaint in failed.items():
            typer.echo(f"{owner} was not told: {complaint}", err=True)
    else:
        for owner, moves in owners.items():
            typer.echo(shown(message(owner, moves, settings.digest.domain)))
        typer.echo("Nothing was sent. Add --send to send it." if owners else "No job was moved.")
    if failed:
        raise typer.Exit(1)


def submit(context: typer.Context, config: OwnConfigOption = None) -> None:
    """Submit where the job would start first: takes sbatch's arguments unchanged and runs sbatch there.

    Each configured cluster is asked with `sbatch --test-only`, as you. Options of slurm-evo itself come
    first; everything from the first other word on is sbatch's and the script's.

    Example: `slurm-evo submit --gpus=2 --time=60 train.sh --epochs 3`
    """
    from slurm_evo.config import load as load_settings
    from slurm_evo_daemon.route import route

    sys.exit(route(load_settings(config), list(context.args)))
