"""``slurm-evo trace``: look at a history, convert it, or make one up."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slurm_evo.cli.options import JsonOption
from slurm_evo.cli.traces import (
    ColumnsOption,
    FleetOption,
    FromOption,
    StrictOption,
    ToOption,
    TraceArgument,
    ZoneOption,
    instant_of,
    need_trace_extra,
    read_trace,
    say_account,
    span,
)

if TYPE_CHECKING:
    from slurm_evo.trace import Reading, Trace

app = typer.Typer(help="Look at a history of jobs, convert it, or make one up.", no_args_is_help=True)


@app.command()
def inspect(
    file: TraceArgument,
    timezone: ZoneOption = "UTC",
    columns: ColumnsOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a history holds, what was left out of it, and why.

    Example: `sacct -a -X -P -S 2026-09-01 -o ALL > history.txt; slurm-evo trace inspect history.txt`

    Exit code 2 and one sentence if it cannot be used.
    """
    reading = read_trace(file, timezone=timezone, columns=columns, strict=strict)
    facts = _facts(reading.trace)
    accounts = {name: {k: asdict(v) for k, v in getattr(reading, name).items()} for name in ("dropped", "notes")}
    if as_json:
        typer.echo(json.dumps({"file": file.name, "rows": reading.rows, **facts, **accounts}))
        return
    _print(reading, facts)


def _facts(trace: Trace) -> dict[str, Any]:
    jobs = trace.jobs
    runs = jobs["runtime"].drop_nulls()
    quantiles = {f"p{round(q * 100)}": runs.quantile(q, "nearest") for q in (0.5, 0.9, 0.99)} if len(runs) else {}
    return {
        "jobs": len(trace),
        "from": trace.begins.isoformat(),
        "to": trace.ends.isoformat(),
        "clusters": sorted(jobs["cluster"].unique().to_list()),
        "users": jobs["user"].n_unique(),
        "gpu_jobs": int((jobs["gpus"] > 0).sum()),
        "gpu_hours": float((jobs["gpus"] * jobs["runtime"].fill_null(0)).sum()) / 3600,
        "with_limit": int(jobs["limit"].is_not_null().sum()),
        "never_started": int(jobs["runtime"].is_null().sum()),
        "runtime_s": quantiles,
        "mean_wait_s": float(jobs["wait"].mean() or 0.0),  # type: ignore[arg-type]
        "states": dict(sorted(jobs["state"].value_counts().rows(), key=lambda row: -row[1])),
        "sizes": dict(sorted(jobs["gpus"].value_counts().rows())),
    }


def _print(reading: Reading, facts: dict[str, Any]) -> None:
    from rich.table import Table

    from slurm_evo.cli.screen import screen

    table = Table(title=f"{reading.trace.name}: {facts['jobs']:,} jobs", title_justify="left", show_header=False)
    known = facts["with_limit"]
    shown = facts["clusters"][:10] + (["..."] if len(facts["clusters"]) > 10 else [])
    rows = {
        "submitted": f"{facts['from']} to {facts['to']}",
        "clusters": ", ".join(name or "(none named)" for name in shown),
        "users": f"{facts['users']:,}",
        "GPU jobs": f"{facts['gpu_jobs']:,}, {facts['gpu_hours']:,.0f} GPU-hours",
        "GPUs asked": ", ".join(f"{size}: {count:,}" for size, count in list(facts["sizes"].items())[:12]),
        "running times": ", ".join(f"{name} {span(value)}" for name, value in facts["runtime_s"].items()),
        "mean wait": span(facts["mean_wait_s"]),
        "time limits": f"known of {known:,}" if known else "none: they would have to be drawn",
        "ended": ", ".join(f"{state} {count:,}" for state, count in facts["states"].items()),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console = screen()
    console.print(table)
    for title, account in (("left out", reading.dropped), ("changed", reading.notes)):
        for reason, left in account.items():
            console.print(
                f"{title}: {left.count:,} × {reason} (first {left.example})", style="yellow", markup=False
            )


@app.command()
def convert(
    file: TraceArgument,
    to: Annotated[Path, typer.Argument(help="Parquet file to write.")],
    first: FromOption = None,
    last: ToOption = None,
    timezone: ZoneOption = "UTC",
    columns: ColumnsOption = None,
    strict: StrictOption = False,
) -> None:
    """Write a history as Parquet, which everything else reads at once.

    Example: `slurm-evo trace convert history.txt history.parquet --timezone Europe/Berlin`
    """
    reading = read_trace(file, timezone=timezone, columns=columns, strict=strict)
    say_account(reading)
    trace = reading.trace.between(instant_of("--from", first), instant_of("--to", last))
    trace.save(to)
    typer.echo(f"{len(trace):,} jobs written to {to}")


@app.command()
def generate(
    to: Annotated[Path, typer.Argument(help="Parquet file to write.")],
    fleet: FleetOption = None,
    days: Annotated[float, typer.Option(help="How long.")] = 28.0,
    load: Annotated[float, typer.Option(help="GPU-seconds asked over those there are.")] = 0.9,
    users: Annotated[int, typer.Option(help="How many.")] = 120,
    seed: Annotated[int, typer.Option(help="Of everything.")] = 1,
) -> None:
    """Make up a history with the habits of real GPU clusters: sizes, tails, days and nights, users, limits.

    Example: `slurm-evo trace generate month.parquet --days 28 --load 0.95 --fleet fleet.toml`

    Without a fleet: four clusters of 8, 4, 4 and 2 nodes of 8 GPUs.
    """
    need_trace_extra()
    from slurm_evo.trace.capacity import load as load_capacity
    from slurm_evo.trace.capacity import sample
    from slurm_evo.trace.generate import generate as make_up

    capacity = load_capacity(fleet) if fleet is not None else sample()
    trace = make_up(capacity, days=days, load=load, users=users, seed=seed)
    trace.save(to)
    typer.echo(f"{len(trace):,} jobs for {capacity.said()} written to {to}")


__all__ = ["app"]
