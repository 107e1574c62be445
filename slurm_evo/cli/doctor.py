"""``slurm-evo doctor``: look at every configured cluster and say what to change."""

from __future__ import annotations

import getpass
import json
import subprocess
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from slurm_evo.cli.options import ConfigOption, JsonOption

if TYPE_CHECKING:
    from slurm_evo.config import ClusterSettings, Settings
    from slurm_evo.model import ClusterError, ClusterName, ClusterView


def doctor(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Look at every configured cluster and say what to change. Changes nothing.

    Example: `slurm-evo doctor --config /etc/slurm-evo/slurm-evo.toml`

    Exit code 1 if something must be changed before slurm-evo can work.
    """
    from slurm_evo.config import load
    from slurm_evo.model import ClusterName
    from slurm_evo.slurm.doctor import Level, examine

    settings = load(config)
    seen, unseen = _look(settings)
    operators = {ClusterName(cluster.name): _admin_level(cluster) for cluster in settings.clusters}
    if settings.simulated:
        operators = {view.cluster: "Operator" for view in seen}
    found = examine(seen, unseen, settings, operators)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found]))
    else:
        from rich.table import Table
        from rich.text import Text

        from slurm_evo.cli.screen import screen

        table = Table(title="slurm-evo doctor", title_justify="left")
        for column in ("cluster", "subject", "", "seen", "to change"):
            table.add_column(column, overflow="fold")
        colors = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.ERROR: "red"}
        for finding in found:
            level = Text(finding.level, style=colors[finding.level])
            table.add_row(finding.cluster, finding.subject, level, finding.seen, finding.change)
        screen().print(table)
    if any(finding.level is Level.ERROR for finding in found):
        raise typer.Exit(1)


def _look(settings: Settings) -> tuple[list[ClusterView], dict[ClusterName, ClusterError]]:
    from slurm_evo.model import ClusterError
    from slurm_evo.slurm.connect import connect
    from slurm_evo.slurm.runner import utc_now

    seen, unseen = [], {}
    for name, port in connect(settings, utc_now).items():
        try:
            seen.append(port.look())
        except ClusterError as failure:
            unseen[name] = failure
        finally:
            port.close()
    return seen, unseen


def _admin_level(cluster: ClusterSettings) -> str | None:
    """Of the account we run as, by sacctmgr; None where it cannot be asked."""
    from slurm_evo.slurm.runner import run_process, slurm_environment

    if cluster.way == "rest":
        return None
    argv = ("sacctmgr", "-nP", "--readonly", "show", "user", getpass.getuser(), "format=adminlevel")
    env = slurm_environment(str(cluster.slurm_conf), cluster.commands)
    try:
        ran = run_process(argv, env=env, timeout_s=cluster.timeout_s)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if ran.returncode:
        return None
    # root is SlurmUser's equal whatever the database says.
    return "SlurmUser" if getpass.getuser() in ("root", "slurm") else ran.stdout.strip() or "None"
