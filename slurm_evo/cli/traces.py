"""What ``trace``, ``replay`` and ``compare`` have in common: reading a history, and the fleet it runs on."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from slurm_evo.model import ConfigError

if TYPE_CHECKING:
    from slurm_evo.trace import Reading, Trace
    from slurm_evo.trace.capacity import Capacity

TraceArgument = Annotated[
    Path,
    typer.Argument(help="History: sacct text or JSON, SWF, Philly, openb, UB-HPC, or Parquet of `trace convert`."),
]
FromOption = Annotated[str | None, typer.Option("--from", help="First day or instant, UTC.", show_default=False)]
ToOption = Annotated[str | None, typer.Option("--to", help="First instant no longer taken.", show_default=False)]
ZoneOption = Annotated[str, typer.Option("--timezone", help="Of sacct's times, such as Europe/Berlin.")]
ColumnsOption = Annotated[
    str | None,
    typer.Option("--columns", help="Of sacct's text without a header, with commas.", show_default=False),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Stop at the first bad row.")]
FleetOption = Annotated[
    Path | None,
    typer.Option(
        "--fleet",
        help="Clusters and nodes: TOML, philly_vc.csv, an openb node list, an SWF log; else estimated.",
        show_default=False,
    ),
]
DivideOption = Annotated[float, typer.Option("--divide-nodes", help="Keep one node in so many.")]
KnowsOption = Annotated[
    str, typer.Option("--knows", help="Running times policies see: limit, predicted, noisy or true.")
]
WeightsOption = Annotated[str, typer.Option("--weights", help="equal, or drawn: 1, 2 or 4.")]
MostOption = Annotated[
    int | None, typer.Option("--max-devices", help="Leave larger jobs out.", show_default=False)
]
LongestOption = Annotated[
    str | None, typer.Option("--longest", help="Cut running times to it, such as 7d or 12h.", show_default=False)
]
SchedulerOption = Annotated[str, typer.Option("--scheduler", help="Of each cluster: slurm, easy or none.")]

_SPAN = re.compile(r"^(\d+(?:\.\d+)?)\s*([smhd]?)$")


def need_trace_extra() -> None:
    """Say what to install where the extra is missing.

    Raises:
        ConfigError: it is.
    """
    try:
        for extra in ("ijson", "matplotlib", "polars"):
            import_module(extra)
    except ModuleNotFoundError as error:
        raise ConfigError(f"needs {error.name}; install with: pip install 'slurm-evo[trace]'") from error


def zone_of(name: str) -> tzinfo:
    """A time zone by its name.

    Raises:
        ConfigError: there is none.
    """
    try:
        return ZoneInfo(name) if name != "UTC" else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"--timezone: {name!r} is no time zone; write UTC or such as Europe/Berlin") from error


def instant_of(option: str, text: str | None) -> datetime | None:
    """A day or an instant; UTC unless it has an offset.

    Raises:
        ConfigError: it is neither.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {text!r} is no day or instant; write such as 2026-03-01T12:00") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def seconds_of_option(option: str, text: str | None) -> int | None:
    """Seconds of ``7d``, ``12h``, ``30m`` or ``90``.

    Raises:
        ConfigError: it is none of these.
    """
    if text is None:
        return None
    match = _SPAN.match(text.strip())
    if match is None:
        raise ConfigError(f"{option}: {text!r} is no time; write such as 7d, 12h or 90")
    return int(float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]])


def read_trace(file: Path, *, timezone: str, columns: str | None, strict: bool) -> Reading:
    """Read a history with the options above."""
    need_trace_extra()
    from slurm_evo.trace import read

    return read(file, zone=zone_of(timezone), columns=columns.split(",") if columns else None, strict=strict)


def load_fleet(file: Path | None, trace: Trace, divide: float, *, cores: bool | None = None) -> Capacity:
    """The fleet of a replay; estimated from the trace if none is given."""
    from slurm_evo.trace.capacity import estimate, load

    fleet = load(file) if file is not None else estimate(trace, cores=cores)
    return fleet.divided(divide) if divide != 1 else fleet


def say_account(reading: Reading) -> None:
    """Tell on standard error what was left out, so that it stays out of pipes."""
    for reason, left in reading.dropped.items():
        typer.secho(f"left out: {left.count} × {reason} (first {left.example})", fg="yellow", err=True)


def span(seconds: float) -> str:
    """A duration people can read."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"
