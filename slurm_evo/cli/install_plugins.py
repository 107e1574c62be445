"""``slurm-evo install-plugins``: put slurm-evo's plugins into one controller, or take them out. Shows first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slurm_evo.cli.options import ConfigOption, JsonOption

if TYPE_CHECKING:
    from slurm_evo.slurm.plugins import Change, Site

CHECKOUT = Path(__file__).resolve().parent.parent.parent / "slurm-conf"


def install_plugins(
    cluster: Annotated[str, typer.Option("--cluster", help="The cluster whose controller this host is.")],
    slurm_conf: Annotated[
        Path | None, typer.Option("--slurm-conf", help="Its slurm.conf; default: the configured one.")
    ] = None,
    plugin: Annotated[Path, typer.Option("--plugin", help="The built site_factor_evo.so.")] = CHECKOUT
    / "plugins/out/site_factor_evo.so",
    module: Annotated[Path, typer.Option("--module", help="slurm_evo.lua.")] = CHECKOUT / "lua/slurm_evo.lua",
    lua: Annotated[bool, typer.Option("--lua", help="Also the hook in job_submit.lua.")] = False,
    only_lua: Annotated[bool, typer.Option("--only-lua", help="The hook alone, without the C plugin.")] = False,
    pin: Annotated[bool, typer.Option("--pin", help="The hook pins federated jobs to their origin.")] = False,
    uninstall: Annotated[bool, typer.Option("--uninstall", help="Take everything out again.")] = False,
    really: Annotated[
        bool, typer.Option("--really", help="Do it; without it the changes are only shown.")
    ] = False,
    test_start: Annotated[
        bool, typer.Option(help="First let a private slurmctld of this host load the plugin.")
    ] = True,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put slurm-evo's plugins into a controller; run it there, as root. Without --really nothing is changed.

    Files that are replaced are kept beside the new ones. slurmctld is not restarted: the last line says how.

    Example: `slurm-evo install-plugins --cluster alpha` shows the lines, `... --really` writes them,
    `... --uninstall --really` takes them out.
    """
    from slurm_evo.config import load
    from slurm_evo.model import ConfigError
    from slurm_evo.slurm import plugins
    from slurm_evo.slurm.plugin_trial import built_for, controller_facts, try_it

    settings = load(config)
    known = next((one for one in settings.clusters if one.name == cluster), None)
    if known is None and slurm_conf is None:
        raise ConfigError(f"the cluster {cluster} is not configured: name its --slurm-conf")
    conf = slurm_conf or (known.slurm_conf if known else Path())
    facts = controller_facts(conf, known.commands if known else None)
    site = plugins.Site(
        cluster=cluster,
        slurm_conf=conf,
        plugin_dir=facts.plugin_dir,
        folder=known.plugin_files if known else Path("/var/lib/slurm-evo/plugin") / cluster,
        library=None if only_lua else plugin,
        module=module if lua or only_lua else None,
        pin=pin,
    )
    changes = plugins.uninstalling(site) if uninstall else plugins.installing(site)
    checks: list[str] = []
    if changes and not uninstall and site.library is not None:
        checks.append(built_for(site.library, facts))
        if test_start:
            checks.append(try_it(site.library, facts))
    backups: list[Path] = []
    if really and changes:
        backups = plugins.carry_out(changes, site, now=_now(), owners=(_daemon_user(), facts.group))
    left = plugins.left_behind(site) if uninstall else []
    if as_json:
        typer.echo(json.dumps(_as_json(changes, checks, backups, left, really=really)))
        return
    _show(changes, checks, backups, left, site, really=really)


def _as_json(
    changes: list[Change], checks: list[str], backups: list[Path], left: list[str], *, really: bool
) -> dict[str, Any]:
    return {
        "done": really,
        "changes": [change.as_json() for change in changes],
        "checks": checks,
        "backups": [str(path) for path in backups],
        "left": left,
    }


def _show(
    changes: list[Change], checks: list[str], backups: list[Path], left: list[str], site: Site, *, really: bool
) -> None:
    if not changes:
        typer.echo("Nothing to change: it is as it should be.")
        return
    for check in checks:
        typer.echo(f"checked  {check}")
    for change in changes:
        source = f" from {change.source}" if change.source else ""
        typer.echo(f"{change.kind:8} {change.path}{source}: {change.why}")
        for line in change.lines:
            typer.echo(f"           {line}")
    for path in backups:
        typer.echo(f"kept     {path}")
    for name in left:
        typer.echo(f"left     {name}: it was changed since it was installed")
    if not really:
        typer.echo("Nothing was changed. Add --really to do it.")
        return
    typer.echo(
        f"Now restart slurmctld of {site.cluster} (systemctl restart slurmctld); running jobs go on. "
        f'Then set priority = "plugin" in its [[clusters]] table and run slurm-evo doctor.'
    )


def _now() -> Any:
    from slurm_evo.slurm.runner import utc_now

    return utc_now()


def _daemon_user() -> str:
    """The account of the daemon, if there is one here; else ours."""
    import getpass
    import pwd

    try:
        return pwd.getpwnam("slurm-evo").pw_name
    except KeyError:
        return getpass.getuser()
