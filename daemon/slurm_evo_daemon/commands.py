"""The daemon room's commands. Heavy modules are imported inside: the command line must start at once."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slurm_evo.cli.options import ConfigOption, JsonOption

if TYPE_CHECKING:
    from slurm_evo_daemon.demo import Contestant


def register(app: typer.Typer) -> None:
    """Add the commands; called through the entry-point group slurm_evo.commands."""
    for command in (demo, daemon, plan, status, explain, history, withdraw):
        app.command(command.__name__)(command)
    from slurm_evo_daemon.policy_commands import app as policy
    from slurm_evo_daemon.transfer_commands import register as transfers

    app.add_typer(policy, name="policy")
    transfers(app)


def demo(
    jobs: Annotated[int, typer.Option(min=20, help="How many jobs arrive.")] = 500,
    days: Annotated[float, typer.Option(min=0.1, help="Over how many simulated days.")] = 2.0,
    load: Annotated[float, typer.Option(min=0.1, max=3.0, help="GPU time asked for by GPU time there is.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Of the workload and the search.")] = 1,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the daemon in fast time on simulated clusters and compare.

    The same workload goes through the same four clusters three times: each cluster alone, a plain Slurm
    federation, and with slurm-evo. The workload is drawn, not recorded.

    Example: `slurm-evo demo --jobs 500 --days 2 --seed 3`
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from slurm_evo.cli.screen import screen
    from slurm_evo.config import load as load_settings
    from slurm_evo_daemon.demo import contest
    from slurm_evo_daemon.site import policy_of

    settings = load_settings(config)
    policy = policy_of(settings)
    found: list[Contestant] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("day {task.fields[day]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=as_json) as progress:
        tasks: dict[str, Any] = {}

        def tick(name: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=1.0, day="0.0")
            progress.update(tasks[name], completed=share, day=f"{share * days:.1f}")

        found += contest(settings, policy, jobs=jobs, days=days, load=load, seed=seed, progress=tick)
    from slurm_evo_daemon.screens import contest_table

    if as_json:
        typer.echo(json.dumps([_contestant(contestant) for contestant in found]))
        return
    console = screen()
    console.print(contest_table(found, jobs=jobs, days=days, load=load, seed=seed))
    console.print(f"Ranked by: {policy.text}")
    console.print(
        "Next: slurm-evo plan (a dry run on simulated clusters), or write a configuration and slurm-evo doctor."
    )


def _contestant(found: Contestant) -> dict[str, Any]:
    from dataclasses import asdict

    return {"name": found.name, "unstarted": found.unstarted, "moves": found.moves, "updates": found.updates,
            **asdict(found.metrics)}  # fmt: skip


def daemon(
    config: ConfigOption = None,
    once: Annotated[bool, typer.Option("--once", help="One cycle, then stop.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and explain, send nothing.")] = False,
) -> None:
    """Run the loop: observe, decide, act, report; one JSON line a cycle on standard error.

    SIGTERM and SIGINT stop it after the cycle under way, SIGHUP reads the configuration again.

    Example: `slurm-evo daemon --dry-run --once --config /etc/slurm-evo/slurm-evo.toml`
    """
    from slurm_evo import telemetry
    from slurm_evo.config import load as load_settings
    from slurm_evo_daemon.loop import InForce, Signals, run
    from slurm_evo_daemon.site import alone, at_site, holder, open_journal, policy_of

    log = telemetry.configure()
    signals = Signals()
    signals.install()
    made = partial(open_journal, make=True)
    with alone(load_settings(config)), at_site(config, made) as (around, force):

        def read_again() -> InForce:
            return InForce(_dry(load_settings(config), dry_run), force.policy)

        def stop_after_one(_: object) -> None:
            if once:
                signals.stop.set()
                signals.wake.set()

        settings = _dry(force.settings, dry_run)
        log.info(
            "daemon.started",
            clusters=list(around.ports),
            journal=around.journal.url,
            dry_run=settings.cycle.dry_run,
        )
        run(
            around,
            InForce(settings, force.policy),
            holder=holder(settings),
            read_again=read_again,
            policy_now=lambda now: policy_of(now, around.journal),
            log=log,
            signals=signals,
            on_report=stop_after_one,
        )
        log.info("daemon.stopped")


def _dry(settings: Any, dry_run: bool) -> Any:
    if not dry_run:
        return settings
    return settings.model_copy(update={"cycle": settings.cycle.model_copy(update={"dry_run": True})})


def plan(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Look at the clusters once and show what would be done; nothing is sent.

    Example: `slurm-evo plan --json | jq .why`
    """
    from slurm_evo.cli.screen import aside
    from slurm_evo_daemon.screens import plan_json, plan_table
    from slurm_evo_daemon.site import at_site, journal_or_nothing

    with at_site(config, partial(journal_or_nothing, tell=aside)) as (around, force):
        view, decision = _look_and_decide(around, force)
    if as_json:
        typer.echo(json.dumps(plan_json(view, decision)))
        return
    from slurm_evo.cli.screen import screen

    console = screen()
    for part in plan_table(view, decision):
        console.print(part)


def _look_and_decide(around: Any, force: Any) -> Any:
    """What a cycle would see and decide now; writes nothing, not even into the journal."""
    from slurm_evo_daemon.decide import decide
    from slurm_evo_daemon.observe import observe
    from slurm_evo_daemon.plugin_files import ranked_inside
    from slurm_evo_daemon.transfers import under_way

    view = observe(around.ports, around.clock())
    known = around.journal.jobs()
    return view, decide(
        view, known, force.settings, force.policy, around.times,
        rng=around.rng, stopwatch=around.stopwatch, inside=ranked_inside(force.settings, around.clock()),
        moving=under_way(around.journal.open_transfers()),
    )  # fmt: skip


def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Who acts, what the last cycle did, how many jobs wait: from the journal, no cluster is asked.

    Example: `slurm-evo status --json`
    """
    from slurm_evo.config import load as load_settings
    from slurm_evo_daemon.loop import utc_now
    from slurm_evo_daemon.screens import status_json, status_table
    from slurm_evo_daemon.site import open_journal, policy_of

    settings = load_settings(config)
    with open_journal(settings) as journal:
        found = status_json(journal, policy_of(settings, journal), utc_now())
    if as_json:
        typer.echo(json.dumps(found))
        return
    from slurm_evo.cli.screen import screen

    screen().print(status_table(found))


def explain(
    job: Annotated[str, typer.Argument(help="CLUSTER:ID, or the id where only one job has it.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a job is where it is: rules, rank, plan, moves, and what each came from.

    Example: `slurm-evo explain alpha:1042`
    """
    from dataclasses import replace

    from slurm_evo.cli.screen import aside
    from slurm_evo_daemon.explain import explain as gather
    from slurm_evo_daemon.explain import find
    from slurm_evo_daemon.screens import explanation_parts
    from slurm_evo_daemon.site import at_site, journal_or_nothing
    from slurm_evo_daemon.where import last_name, leg_of, moves_of

    with at_site(config, partial(journal_or_nothing, tell=aside)) as (around, force):
        view, decision = _look_and_decide(around, force)
        journal = around.journal
        key = find(job, view, partial(last_name, journal))
        found = gather(
            key, view, decision, force.policy, journal.history(limit=20, job=key), journal.placements(key, limit=5)
        )
        found = replace(found, moves=tuple(map(leg_of, moves_of(journal, key))))
    if as_json:
        typer.echo(json.dumps(found.as_json()))
        return
    from slurm_evo.cli.screen import screen

    console = screen()
    for part in explanation_parts(found):
        console.print(part)


def history(
    job: Annotated[str | None, typer.Option("--job", help="Only this job, as CLUSTER:ID.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 30,
    cycles: Annotated[
        bool, typer.Option("--cycles", help="Cycles with their sentences instead of actions.")
    ] = False,
    moves: Annotated[
        bool, typer.Option("--moves", help="Moves between clusters without a federation instead of actions.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what was done, newest first: every action with what was before and what Slurm answered.

    Example: `slurm-evo history --job alpha:1042`
    """
    from slurm_evo.config import load as load_settings
    from slurm_evo.model import ConfigError, JobKey
    from slurm_evo_daemon.screens import history_rows, history_table
    from slurm_evo_daemon.site import open_journal

    if cycles and moves:
        raise ConfigError("give --cycles or --moves, not both")
    try:
        key = None if job is None else JobKey.parse(job)
    except ValueError as failure:
        raise ConfigError(str(failure)) from failure
    with open_journal(load_settings(config)) as journal:
        rows = history_rows(journal, key, limit, cycles=cycles, moves=moves)
    if as_json:
        typer.echo(json.dumps(rows))
        return
    from slurm_evo.cli.screen import screen

    screen().print(history_table(rows))


def withdraw(
    config: ConfigOption = None,
    really: Annotated[
        bool, typer.Option("--really", help="Send the changes; without it they are only shown.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Put every pending job back: the viable set its user asked for, SiteFactor 0. No new one is held back.

    Stop the daemon first.

    Example: `slurm-evo withdraw` shows what would be sent, `slurm-evo withdraw --really` sends it.

    Exit code 3 if a cluster was not seen, which is then named: its jobs stay as they are.
    """
    from slurm_evo.cli.screen import Unseen
    from slurm_evo_daemon.site import at_site, holder
    from slurm_evo_daemon.withdraw import withdraw as put_back

    with at_site(config) as (around, force):
        unseen = Unseen()
        us = holder(force.settings) + ":withdraw"
        rows = put_back(around, force.settings, us, really=really, unseen=unseen)
    if as_json:
        typer.echo(json.dumps(rows))
        unseen.end()
        return
    if not rows:
        if not unseen.names:
            typer.echo("Nothing to put back: every pending job is as its user left it.")
        unseen.end()
        return
    from slurm_evo.cli.screen import screen
    from slurm_evo_daemon.screens import history_table

    screen().print(history_table(rows))
    if not really:
        typer.echo("Nothing was sent. Add --really to send it.")
    unseen.end()
