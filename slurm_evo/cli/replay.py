"""``slurm-evo replay`` and ``slurm-evo compare``: what would have been."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slurm_evo.cli.options import JsonOption
from slurm_evo.cli.traces import (
    ColumnsOption,
    DivideOption,
    FleetOption,
    FromOption,
    KnowsOption,
    LongestOption,
    MostOption,
    SchedulerOption,
    StrictOption,
    ToOption,
    TraceArgument,
    WeightsOption,
    ZoneOption,
    instant_of,
    load_fleet,
    read_trace,
    say_account,
    seconds_of_option,
    span,
)
from slurm_evo.model import ConfigError

if TYPE_CHECKING:
    from slurm_evo.compare import Contest
    from slurm_evo.sim.replay import Replayed
    from slurm_evo.trace import Trace
    from slurm_evo.trace.capacity import Capacity
    from slurm_evo.trace.prepare import Choices, Prepared

JobsOption = Annotated[
    Path | None,
    typer.Option("--jobs", help="Write each job's start, end and cluster, Parquet.", show_default=False),
]
PictureOption = Annotated[
    Path | None, typer.Option("--picture", help="Draw it: .png, .svg or .pdf.", show_default=False)
]
SeedOption = Annotated[int, typer.Option("--seed", help="Of everything that is drawn.")]
SeedsOption = Annotated[str, typer.Option("--seeds", help="Of what is drawn; all are run. With commas.")]
PolicyOption = Annotated[str, typer.Option("--policy", help="A baseline, an expression, or name=expression.")]
PoliciesOption = Annotated[
    list[str] | None,
    typer.Option("--policy", help="As in replay; as often as wanted. Else: all baselines.", show_default=False),
]
AllocationOption = Annotated[str, typer.Option("--allocation", help="How jobs come to clusters.")]
AllocationsOption = Annotated[
    str | None, typer.Option("--allocations", help="With commas; else all.", show_default=False)
]
HoldBackOption = Annotated[
    list[str] | None,
    typer.Option(
        "--hold-back",
        metavar="CLUSTER=SECONDS",
        help="Also the race with jobs expected to run longer kept off that cluster for four hours (:SECONDS: for "
        "so long), if they may run elsewhere; as often as wanted.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class _Source:
    """A history on a fleet, as the options say."""

    trace: Trace
    fleet: Capacity
    choices: Choices

    def prepare(self, seed: int) -> Prepared:
        """The workload of one seed."""
        from slurm_evo.trace.prepare import prepare

        return prepare(self.trace, self.fleet, seed=seed, choices=self.choices)


def _choices(knows: str, weights: str, most: int | None, longest: str | None) -> Choices:
    from slurm_evo.trace.prepare import Choices, Knows, Weights

    if knows not in list(Knows):
        raise ConfigError(f"--knows: {knows!r} is none of {', '.join(Knows)}")
    if weights not in list(Weights):
        raise ConfigError(f"--weights: {weights!r} is none of {', '.join(Weights)}")
    return Choices(
        knows=Knows(knows),
        weights=Weights(weights),
        most_devices=most,
        longest_s=seconds_of_option("--longest", longest),
    )


@contextmanager
def _progress(what: str, *, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, with the time left; nothing where nobody looks."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task(what)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def replay(
    file: TraceArgument,
    policy: PolicyOption = "default",
    allocation: AllocationOption = "race",
    fleet: FleetOption = None,
    divide_nodes: DivideOption = 1.0,
    first: FromOption = None,
    last: ToOption = None,
    scheduler: SchedulerOption = "slurm",
    knows: KnowsOption = "limit",
    weights: WeightsOption = "equal",
    max_devices: MostOption = None,
    longest: LongestOption = None,
    seed: SeedOption = 1,
    jobs: JobsOption = None,
    picture: PictureOption = None,
    timezone: ZoneOption = "UTC",
    columns: ColumnsOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a history again under one policy, and say how long jobs would have waited.

    Example: `slurm-evo replay history.parquet --fleet fleet.toml --policy "weight * wait / sqrt(runtime)"
    --picture queue.png --jobs replayed.parquet`
    """
    reading = read_trace(file, timezone=timezone, columns=columns, strict=strict)
    from slurm_evo.compare import Run, rules_of, runs_of
    from slurm_evo.compare.contest import figures_of, schedule
    from slurm_evo.compare.pictures import load_and_queue

    say_account(reading)
    trace = reading.trace.between(instant_of("--from", first), instant_of("--to", last))
    source = _Source(trace, load_fleet(fleet, trace, divide_nodes), _choices(knows, weights, max_devices, longest))
    run: Run = runs_of([policy], [allocation], [seed])[0]
    prepared = source.prepare(seed)
    done = schedule(run, prepared.jobs, source.fleet, rules_of(scheduler))
    figures = figures_of(run, prepared.jobs, source.fleet, done)
    if jobs is not None:
        _write_jobs(source, prepared, done, jobs)
    if picture is not None:
        load_and_queue(
            prepared.jobs, done, source.fleet, f"{trace.name}: {run.title}, {allocation}, {scheduler}", picture
        )
    said = [*_fleet_said(source.fleet), *prepared.said]
    if as_json:
        typer.echo(json.dumps({**asdict(figures), "said": said}))
        return
    for sentence in said:
        typer.echo(sentence)
    metrics = asdict(figures.metrics)
    for name, value in metrics.items():
        shown = (
            span(value) if name.endswith("_s") else f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
        )
        typer.echo(f"{name.removesuffix('_s').replace('_', ' '):>18}  {shown}")
    if figures.unstarted:
        typer.secho(f"{figures.unstarted} jobs never started: they fit nowhere, or limits hold them", fg="yellow")


def _fleet_said(fleet: Capacity) -> list[str]:
    return [fleet.said() + (", estimated from what was in use: give --fleet" if fleet.estimated else "")]


def _write_jobs(source: _Source, prepared: Prepared, done: Replayed, file: Path) -> None:
    """The trace's rows with what the replay made of them."""
    import polars as pl

    from slurm_evo.model import TraceError
    from slurm_evo.sim.replay import End

    origin = (
        source.trace.origin if not len(prepared.rows) else int(source.trace.jobs["submit"][int(prepared.rows[0])])
    )
    names = [*source.fleet.names, ""]
    started = done.start >= 0
    table = source.trace.jobs[prepared.rows.tolist()].with_columns(
        pl.Series("replayed_start", done.start + origin),
        pl.Series("replayed_end", done.end + origin),
        pl.Series("replayed_wait", done.start - prepared.jobs.submit),
        pl.Series("replayed_cluster", [names[place] for place in done.cluster.tolist()]),
        pl.Series("replayed_state", [End(value).name for value in done.state.tolist()]),
        pl.Series("weight", prepared.jobs.weight),
    )
    late = [f"replayed_{name}" for name in ("start", "end", "wait")]
    table = table.with_columns(pl.when(pl.Series(started)).then(pl.col(name)).alias(name) for name in late)
    try:
        table.write_parquet(file)
    except OSError as error:
        raise TraceError(f"cannot be written: {error.strerror or error}", file=str(file)) from error


def compare(
    file: TraceArgument,
    policy: PoliciesOption = None,
    allocations: AllocationsOption = None,
    hold_back: HoldBackOption = None,
    seeds: SeedsOption = "1",
    fleet: FleetOption = None,
    divide_nodes: DivideOption = 1.0,
    first: FromOption = None,
    last: ToOption = None,
    scheduler: SchedulerOption = "slurm",
    knows: KnowsOption = "limit",
    weights: WeightsOption = "equal",
    max_devices: MostOption = None,
    longest: LongestOption = None,
    threads: Annotated[int, typer.Option(help="Replays at a time; 0: one a core.")] = 0,
    picture: PictureOption = None,
    timezone: ZoneOption = "UTC",
    columns: ColumnsOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Replay a history under many policies, allocations and seeds, and tabulate average against maximum wait.

    Example: `slurm-evo compare history.parquet --fleet fleet.toml --allocations race,least-loaded
    --policy fifo --policy default --seeds 1,2,3 --picture compare.png`
    """
    reading = read_trace(file, timezone=timezone, columns=columns, strict=strict)
    from slurm_evo.compare import ALLOCATIONS, contest, rules_of, runs_of, summarise
    from slurm_evo.compare.pictures import average_against_maximum
    from slurm_evo.optimize.hold_backs import hold_back_of
    from slurm_evo.sim.baselines import NAMES

    say_account(reading)
    trace = reading.trace.between(instant_of("--from", first), instant_of("--to", last))
    source = _Source(trace, load_fleet(fleet, trace, divide_nodes), _choices(knows, weights, max_devices, longest))
    single = len(source.fleet.names) == 1
    asked = allocations.split(",") if allocations else ["race"] if single else list(ALLOCATIONS)
    held = [hold_back_of(text, source.fleet.names) for text in hold_back or ()]
    runs = runs_of(policy or list(NAMES), [name.strip() for name in asked], _seeds(seeds), held=bool(held))
    with _progress("replays", shown=not as_json) as progress:
        result = contest(
            runs,
            source.prepare,
            source.fleet,
            rules_of(scheduler),
            threads=threads or os.cpu_count() or 1,
            held=held,
            progress=progress,
        )
    rows = summarise(result.figures)
    if picture is not None:
        average_against_maximum(rows, f"{trace.name}, {scheduler}, {len(result.bounds)} seed(s)", picture)
    said = [*_fleet_said(source.fleet), *source.prepare(runs[0].seed).said]
    if as_json:
        shown = {"rows": [asdict(row) for row in rows], "runs": [asdict(each) for each in result.figures]}
        typer.echo(json.dumps({**shown, "lower_bound_s": dict(result.bounds), "said": said}))
        return
    _print(result, trace, said)


def _seeds(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise ConfigError(f"--seeds: {text!r} is no list of whole numbers such as 1,2,3") from error


def _print(result: Contest, trace: Trace, said: list[str]) -> None:
    from rich.table import Table

    from slurm_evo.cli.screen import screen
    from slurm_evo.compare import summarise

    table = Table(title=f"{trace.name}: average and maximum are weighted", title_justify="left")
    table.add_column("policy", overflow="ellipsis", no_wrap=True, max_width=26)
    table.add_column("allocation", no_wrap=True)
    for column in ("average", "maximum", "p99", "slowdown", "in use"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in summarise(result.figures):
        mean, spread = row.mean, row.spread
        average = span(mean["average_wait_s"]) + (f" ± {span(spread['average_wait_s'])}" if row.seeds > 1 else "")
        waits = [span(mean[name]) for name in ("maximum_wait_s", "p99_wait_s")]
        others = [f"{mean['bounded_slowdown']:,.1f}", f"{mean['utilization']:.1%}"]
        name = row.policy + (f" ({row.unstarted} never started)" if row.unstarted else "")
        table.add_row(name, row.allocation, average, *waits, *others, style="bold" if row.on_front else "")
    console = screen()
    for sentence in said:
        console.print(sentence, markup=False, highlight=False)
    console.print(table)
    least = sum(result.bounds.values()) / max(len(result.bounds), 1)
    if least:
        console.print(f"No schedule can have an average below {span(least)} (pooled, preemptive, clairvoyant).")
    console.print("Bold: no other has both a lower average and a lower maximum.")


__all__ = ["compare", "replay"]
