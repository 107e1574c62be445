"""Options that many commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_CONFIG = "The TOML file; without one /etc/slurm-evo/slurm-evo.toml, else simulated clusters."
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="SLURM_EVO_CONFIG", help=_CONFIG, show_default=False),
]
OwnConfigOption = Annotated[
    Path | None, typer.Option("--config", envvar="SLURM_EVO_CONFIG", help=_CONFIG, show_default=False)
]
"""The same before sbatch's own options, whose -c is --cpus-per-task."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
