"""``slurm-evo config``: what is in force, and where it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from slurm_evo.cli.options import ConfigOption, JsonOption

app = typer.Typer(help="Check the configuration.", no_args_is_help=True, rich_markup_mode="markdown")


@app.command()
def check(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Read the configuration and show every value with its source.

    Example: `slurm-evo config check --config slurm-evo.toml`

    Exit code 2 and one sentence for each problem if it cannot be used.
    """
    from slurm_evo.config import effective, find, load

    settings = load(config)
    rows = effective(settings, config)
    if as_json:
        typer.echo(json.dumps([{"key": row.key, "value": row.value, "source": row.source} for row in rows]))
        return
    from rich.table import Table

    from slurm_evo.cli.screen import screen

    file: Path | None = find(config)
    table = Table(title=f"Configuration from {file or 'the defaults: simulated clusters'}", title_justify="left")
    for column in ("key", "value", "source"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(row.key, json.dumps(row.value), row.source, style="" if row.source == "default" else "bold")
    screen().print(table)
