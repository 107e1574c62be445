"""``slurm-evo policy``: which expressions are known, which is in force, and changing that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slurm_evo.cli.options import ConfigOption, JsonOption

if TYPE_CHECKING:
    from slurm_evo.config import Settings
    from slurm_evo.store import Journal, StoredPolicy

app = typer.Typer(
    help="The expressions that rank: list, show, add, promote, roll back, export.", no_args_is_help=True
)

IdArgument = Annotated[str, typer.Argument(help="As `policy list` shows it; a beginning that is unique will do.")]


@app.command("list")
def list_(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """All known policies, newest first, and which is in force.

    Example: `slurm-evo policy list --json | jq '.[] | select(.in_force).text'`
    """
    with _journal(config) as (_, journal):
        active = journal.active_policy()
        rows = [_row(stored, active) for stored in journal.policies()]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    if not rows:
        typer.echo(
            "None is stored: the configured or the shipped one ranks. Next: slurm-evo train, or policy add."
        )
        return
    from rich.table import Table

    from slurm_evo.cli.screen import screen

    table = Table("", "id", "policy", "from", "added", box=None)
    for row in rows:
        mark = "in force" if row["in_force"] else "promoted" if row["promoted_at"] else ""
        table.add_row(mark, row["id"], row["text"], row["source"], row["created"][:16].replace("T", " "))
    screen().print(table)


@app.command()
def show(id_: IdArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """One policy: text, formula, where it comes from, what it reached.

    Example: `slurm-evo policy show p-1f2e3d`
    """
    from slurm_evo.policy import Policy, problems

    with _journal(config) as (_, journal):
        stored = _find(journal, id_)
        row = _row(stored, journal.active_policy())
    policy = Policy.parse(stored.text)
    row |= {
        "latex": policy.latex(),
        "size": policy.size,
        "terminals": sorted(policy.terminals),
        "problems": problems(policy),
        "provenance": dict(stored.provenance),
    }
    if as_json:
        typer.echo(json.dumps(row))
        return
    for name, value in row.items():
        if name != "provenance":
            typer.echo(f"{name:12s} {', '.join(value) if isinstance(value, list | tuple) else value}")
    if row["provenance"]:
        typer.echo("provenance")
        typer.echo(json.dumps(row["provenance"], indent=2))


@app.command()
def add(
    source: Annotated[
        str,
        typer.Argument(
            help="front.json of `slurm-evo train`, a file of `policy export`, a file with an expression, or one."
        ),
    ],
    promote_: Annotated[bool, typer.Option("--promote", help="Put it in force at once.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a policy and keep it. Of a front, the weights in [objectives] choose which.

    Example: `slurm-evo policy add trained/front.json --promote`

    Exit code 2 if it is refused; the reason is told and nothing is kept.
    """
    from slurm_evo.config import load
    from slurm_evo.policy import admitted
    from slurm_evo.policy.compact import policy_id
    from slurm_evo_daemon.loop import utc_now

    text, where, provenance = _source(source, load(config))
    policy = admitted(text)
    id_ = policy_id(policy)
    with _journal(config, make=True) as (_, journal):
        stored = journal.add_policy(id_, policy.text, source=where, now=utc_now(), provenance=provenance)
        if promote_:
            stored = journal.promote(id_, now=utc_now())
        row = _row(stored, journal.active_policy())
    if as_json:
        typer.echo(json.dumps(row))
        return
    typer.echo(f"{id_}: {policy.text}")
    typer.echo("It ranks from the next cycle on." if promote_ else f"Next: slurm-evo policy promote {id_}")


@app.command()
def promote(id_: IdArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Put a known policy in force; the daemon takes it at its next cycle.

    Example: `slurm-evo policy promote p-1f2e3d`
    """
    from slurm_evo.policy import admitted
    from slurm_evo_daemon.loop import utc_now

    with _journal(config) as (_, journal):
        stored = _find(journal, id_)
        admitted(stored.text)
        stored = journal.promote(stored.id, now=utc_now())
        row = _row(stored, stored)
    typer.echo(json.dumps(row) if as_json else f"{stored.id} ranks from the next cycle on: {stored.text}")


@app.command()
def rollback(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Take the policy in force back; the one promoted before it ranks again.

    Example: `slurm-evo policy rollback`
    """
    from slurm_evo.model import ConfigError, PolicyError
    from slurm_evo_daemon.site import policy_of

    with _journal(config) as (settings, journal):
        stored = journal.rollback()
        try:
            text = policy_of(settings, journal).text
        except (ConfigError, PolicyError) as failure:
            raise PolicyError(
                f"it is taken back, yet what should rank now cannot; a running daemon goes on with it: {failure}"
            ) from failure
    if as_json:
        typer.echo(json.dumps({"id": None if stored is None else stored.id, "text": text}))
        return
    name = "The configured or shipped policy" if stored is None else stored.id
    typer.echo(f"{name} ranks from the next cycle on: {text}")


@app.command()
def export(
    id_: IdArgument,
    to: Annotated[Path | None, typer.Option("--to", help="File to write; else standard output.")] = None,
    as_lua: Annotated[bool, typer.Option("--lua", help="As a Lua module for slurm_evo.lua.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="As the file that site_factor/evo reads.")] = False,
    config: ConfigOption = None,
) -> None:
    """Write a policy with its provenance as JSON, for another site or for the record; or for Slurm's plugins.

    Example: `slurm-evo policy export p-1f2e3d --to policy.json`
    """
    from slurm_evo.model import ConfigError
    from slurm_evo.policy import Policy
    from slurm_evo.policy.compact import dump
    from slurm_evo.policy.lua import export as in_lua

    if as_lua and compact:
        raise ConfigError("--lua and --compact are two files: export one after the other")
    with _journal(config) as (_, journal):
        stored = _find(journal, id_)
    if as_lua or compact:
        policy = Policy.parse(stored.text)
        _put(in_lua(policy) if as_lua else dump(policy), to)
        return
    content = {
        "id": stored.id,
        "text": stored.text,
        "latex": Policy.parse(stored.text).latex(),
        "source": stored.source,
        "created": stored.created.isoformat(),
        "provenance": dict(stored.provenance),
    }
    _put(json.dumps(content, indent=2) + "\n", to)


def _put(text: str, to: Path | None) -> None:
    """On standard output, or into a file."""
    from slurm_evo.model import PolicyError

    if to is None:
        typer.echo(text, nl=False)
        return
    try:
        to.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise PolicyError(f"{to}: cannot be written: {failure.strerror or failure}") from failure


def _source(source: str, settings: Settings) -> tuple[str, str, dict[str, Any]]:
    """Expression, where it comes from, and provenance."""
    from slurm_evo.model import PolicyError
    from slurm_evo.policy.front import Front

    file = Path(source)
    try:
        is_file = file.is_file()
    except OSError:  # an expression longer than a file name may be
        is_file = False
    if not is_file:
        if file.suffix == ".json":
            raise PolicyError(f"{file}: no such file")
        return source, "written by hand", {}
    try:
        content = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as failure:
        raise PolicyError(f"{file}: cannot be read: {failure}") from failure
    if not content.lstrip().startswith("{"):
        return content.strip(), f"file {file.name}", {}
    exported = _exported(file, content)
    if exported is not None:
        return exported
    front = Front.load(file)
    weights = settings.objectives.as_mapping()
    member = front.choose(weights)
    trained = {"objectives": weights, "chosen_on": member.chosen_on, "judged": dict(member.judged)}
    return member.text, f"training run, {file.name}", {**front.provenance, **trained}


def _exported(file: Path, content: str) -> tuple[str, str, dict[str, Any]] | None:
    """What `export` wrote, at another site; None if it is something else."""
    from slurm_evo.model import PolicyError
    from slurm_evo.policy import Policy
    from slurm_evo.policy.compact import policy_id

    try:
        found = json.loads(content)
        if not {"id", "text", "source", "provenance"} <= set(found):
            return None
        policy = Policy.parse(str(found["text"]))
        if policy_id(policy) != found["id"]:
            raise PolicyError(
                f"{file}: was changed after it was exported: {found['id']} is another expression; "
                "add an expression by itself"
            )
        return policy.text, f"{found['source']}, exported as {file.name}", dict(found["provenance"])
    except (ValueError, TypeError, RecursionError) as failure:
        raise PolicyError(f"{file}: is neither a front nor an exported policy: {failure}") from failure


def _find(journal: Journal, id_: str) -> StoredPolicy:
    from slurm_evo.model import PolicyError

    if not id_:  # an empty variable in a script begins every id
        raise PolicyError("no policy is named; slurm-evo policy list shows them")
    known = journal.policies()
    found = [stored for stored in known if stored.id == id_] or [one for one in known if one.id.startswith(id_)]
    if len(found) == 1:
        return found[0]
    what = "is the beginning of several" if found else "is not known"
    raise PolicyError(f"policy {id_} {what}; slurm-evo policy list shows {len(known)}")


def _row(stored: StoredPolicy, active: StoredPolicy | None) -> dict[str, Any]:
    return {
        "id": stored.id,
        "text": stored.text,
        "source": stored.source,
        "created": stored.created.isoformat(),
        "promoted_at": stored.promoted_at.isoformat() if stored.promoted_at else None,
        "in_force": active is not None and active.id == stored.id,
    }


def _journal(config: Path | None, *, make: bool = False) -> Any:
    """The settings with the open journal, as a context; says so if it had to be made."""
    from contextlib import contextmanager

    from slurm_evo.cli.screen import aside
    from slurm_evo.config import load
    from slurm_evo.model import NoJournal
    from slurm_evo_daemon.site import open_journal

    def made(settings: Settings) -> Journal:
        try:
            return open_journal(settings)
        except NoJournal:
            if not make:
                raise
        journal = open_journal(settings, make=True)
        aside(f"A new journal was made: {journal.url}. A daemon that keeps its own elsewhere does not see it.")
        return journal

    @contextmanager
    def opened() -> Any:
        settings = load(config)
        with made(settings) as journal:
            yield settings, journal

    return opened()


__all__ = ["app"]
