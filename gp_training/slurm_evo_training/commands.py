"""``slurm-evo train``. Heavy modules are imported inside: the command line must start at once."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slurm_evo.cli.options import ConfigOption, JsonOption
from slurm_evo.cli.traces import (
    ColumnsOption,
    DivideOption,
    FleetOption,
    FromOption,
    LongestOption,
    MostOption,
    SchedulerOption,
    StrictOption,
    ToOption,
    WeightsOption,
    ZoneOption,
    instant_of,
    load_fleet,
    need_trace_extra,
    read_trace,
    say_account,
    seconds_of_option,
)

if TYPE_CHECKING:
    from slurm_evo.config import Settings
    from slurm_evo.policy import Policy
    from slurm_evo.trace import Trace
    from slurm_evo_training.evolution import Progress
    from slurm_evo_training.material import Material
    from slurm_evo_training.training import Trained


def register(app: typer.Typer) -> None:
    """Add the command; called through the entry-point group slurm_evo.commands."""
    app.command("train")(train)


def train(
    sacct: Annotated[
        list[Path] | None,
        typer.Option(
            "--sacct", help="History from sacct, text or JSON; as often as there are files.", show_default=False
        ),
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option("--trace", help="Any other history `slurm-evo trace inspect` reads.", show_default=False),
    ] = None,
    from_slurmdbd: Annotated[
        bool,
        typer.Option("--from-slurmdbd", help="Run sacct on each configured cluster; its nodes are the fleet."),
    ] = False,
    days: Annotated[float, typer.Option(min=1, help="With --from-slurmdbd: how far back.")] = 28.0,
    out: Annotated[Path, typer.Option("--out", help="Folder for front.json, predictor.json, report.html.")] = Path(
        "trained"
    ),
    fleet: FleetOption = None,
    divide_nodes: DivideOption = 1.0,
    first: FromOption = None,
    last: ToOption = None,
    scheduler: SchedulerOption = "easy",
    knows: Annotated[
        str, typer.Option("--knows", help="Running times policies see: predicted, limit, noisy or true.")
    ] = "predicted",
    weights: WeightsOption = "equal",
    max_devices: MostOption = None,
    longest: LongestOption = None,
    cores: Annotated[
        bool, typer.Option("--cores", help="Train on cores; else jobs without a GPU are left out.")
    ] = False,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="TOML with settings of the evolution.", show_default=False)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.1, help="Of evolution; 10 if not given.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of everything; 1 if not given.", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: one a core.")] = 0,
    dask: Annotated[
        str | None,
        typer.Option("--dask", help="Work on a Dask scheduler, such as tcp://host:8786.", show_default=False),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in --out.")] = False,
    timezone: ZoneOption = "UTC",
    columns: ColumnsOption = None,
    strict: StrictOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evolve priority expressions on the site's own history, and say which may be put in force.

    Example: `sacct -a -X -P -S 2026-09-01 -o ALL > history.txt; slurm-evo train --sacct history.txt
    --fleet fleet.toml --minutes 10; slurm-evo policy add trained/front.json --promote`

    Ctrl-C or SIGTERM keeps the best so far; `--resume` goes on. Exit code 2 and one sentence if the
    history cannot be used: nothing is written then.
    """
    _need_training_extra()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from slurm_evo.config import load as load_settings
    from slurm_evo_training.material import gather, parts
    from slurm_evo_training.training import read_recipe

    settings = load_settings(config)
    plan = read_recipe(recipe, minutes=minutes, seed=seed)
    history = _history(
        sacct or [], trace or [], settings if from_slurmdbd else None, days, timezone, columns, strict
    )
    history = history.between(instant_of("--from", first), instant_of("--to", last))
    if from_slurmdbd and fleet is None:
        from slurm_evo_training.slurmdbd import fleet as fleet_now

        capacity = fleet_now(settings).divided(divide_nodes)
    else:
        capacity = load_fleet(fleet, history, divide_nodes, cores=cores)
    choices, predicts = _choices(knows, weights, max_devices, seconds_of_option("--longest", longest))
    drawn = weights != "equal"
    material = gather(
        history, capacity,
        choices=choices, seed=plan.seed, predicts=predicts, cores=cores,
        weight_of=None if drawn else settings.weights.of,
    )  # fmt: skip
    from slurm_evo.compare import rules_of

    windows = parts(material, rules_of(scheduler))
    said = [capacity.said() + (", estimated from what was in use: give --fleet" if capacity.estimated else "")]
    for sentence in [*said, *material.said]:
        typer.secho(sentence, err=True, fg="yellow" if "estimated" in sentence else None)
    incumbent = _in_force(settings)
    from slurm_evo_training.engines import dask_engine
    from slurm_evo_training.evolution import cores as processors
    from slurm_evo_training.folder import held
    from slurm_evo_training.training import run

    digests = _digests([*(sacct or []), *(trace or [])])
    checkpoint = out / "checkpoint.json"
    with held(out), _says_what_is_kept(checkpoint), _progress(shown=not as_json) as (progress, stage):
        trained = run(
            material, windows, plan,
            incumbent=incumbent, weights=settings.objectives.as_mapping(),
            provenance={"history": history.name, "files": digests, "fleet": said[0]},
            now=_now(), workers=workers or processors(),
            engine=dask_engine(dask) if dask else None,
            checkpoint=checkpoint, resume=resume, progress=progress, stage=stage,
        )  # fmt: skip
        stage("writing")
        _write(trained, material, windows, out)
    _tell(trained, out, as_json=as_json)


def _need_training_extra() -> None:
    from importlib import import_module

    from slurm_evo.model import ConfigError

    need_trace_extra()
    try:
        for extra in ("gplearn", "sklearn"):
            import_module(extra)
    except ModuleNotFoundError as error:
        raise ConfigError(f"needs {error.name}; install with: pip install 'slurm-evo[training]'") from error


def _history(
    sacct: list[Path],
    traces: list[Path],
    settings: Settings | None,
    days: float,
    timezone: str,
    columns: str | None,
    strict: bool,
) -> Trace:
    """All files together."""
    import polars as pl

    from slurm_evo.model import ConfigError
    from slurm_evo.trace import Trace

    found = []
    for file in [*sacct, *traces]:
        reading = read_trace(file, timezone=timezone, columns=columns, strict=strict)
        say_account(reading)
        found.append(reading.trace)
    if settings is not None:
        from slurm_evo_training.slurmdbd import ask

        found += ask(settings, days=days)
    if not found:
        raise ConfigError("no history: give --sacct FILE, --trace FILE or --from-slurmdbd")
    if len(found) == 1:
        return found[0]
    jobs = pl.concat([one.jobs for one in found])
    # Exports of two months both have the jobs that ran from one into the other.
    once = jobs.unique(maintain_order=True)
    if len(once) < len(jobs):
        typer.secho(f"{len(jobs) - len(once)} jobs are in several histories and count once", err=True)
    return Trace.of(once, ", ".join(one.name for one in found))


def _choices(knows: str, weights: str, most: int | None, longest: int | None) -> tuple[Any, bool]:
    from slurm_evo.model import ConfigError
    from slurm_evo.trace.prepare import Choices, Knows, Weights

    if knows not in list(Knows):
        raise ConfigError(f"--knows: {knows!r} is none of {', '.join(Knows)}")
    if weights not in list(Weights):
        raise ConfigError(f"--weights: {weights!r} is none of {', '.join(Weights)}")
    predicts = knows == Knows.PREDICTED
    return (
        Choices(
            knows=Knows.LIMIT if predicts else Knows(knows),
            weights=Weights(weights),
            most_devices=most,
            longest_s=longest,
        ),
        predicts,
    )


def _in_force(settings: Settings) -> Policy:
    """The policy to beat: promoted, configured or shipped. A store that was never made is not made now."""
    from slurm_evo.model import PolicyError
    from slurm_evo.policy import Policy
    from slurm_evo.store import Journal

    if settings.store.url or (settings.state_dir / "journal.sqlite").is_file():
        with Journal.open(settings.store_url, password_file=settings.store.password_file) as journal:
            promoted = journal.active_policy()
        if promoted is not None:
            return Policy.parse(promoted.text)
    if settings.policy.file is not None:
        try:
            return Policy.parse(settings.policy.file.read_text(encoding="utf-8").strip())
        except OSError as failure:
            raise PolicyError(f"{settings.policy.file}: cannot be read: {failure}") from failure
    return Policy.parse(settings.policy.expression) if settings.policy.expression else Policy.default()


@contextmanager
def _says_what_is_kept(checkpoint: Path) -> Iterator[None]:
    """Ctrl-C outside the evolution, or before its first exchange, ends the command; what is left is told."""
    before = _written(checkpoint)
    try:
        yield
    except KeyboardInterrupt:
        kept = _written(checkpoint) != before
        typer.secho(
            f"Interrupted: --resume goes on from {checkpoint}." if kept
            else "Interrupted before the first exchange: nothing was found yet, and nothing is written.",
            err=True,
        )  # fmt: skip
        raise


def _written(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0


def _digests(files: list[Path]) -> dict[str, str]:
    from slurm_evo_training.training import digest

    names = [file.name for file in files]
    return {(file.name if names.count(file.name) == 1 else str(file)): digest(file) for file in files}


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


@contextmanager
def _progress(*, shown: bool) -> Iterator[tuple[Callable[[Progress], None], Callable[[str], None]]]:
    """A bar on standard error with the time left, or a line each where nobody watches a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[left]}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("first generations", total=None, left="")

        def progress(now: Progress) -> None:
            text = (
                f"front {now.front}, average {now.best_average:.2f}, maximum {now.best_maximum:.2f} of reference"
            )
            left = f"{now.seconds_left / 60:.0f} min left"
            bar.update(task, completed=now.done, total=now.total, description=text, left=left)
            if shown and not console.is_terminal:
                console.print(f"{now.done}/{now.total} {now.seconds:.0f} s: {text}; {left}", highlight=False)

        def stage(what: str) -> None:
            bar.update(task, description=what, left="")
            if shown and not console.is_terminal:
                console.print(what, highlight=False)

        yield progress, stage


def _write(trained: Trained, material: Material, windows: Any, out: Path) -> None:
    from slurm_evo_training.folder import put
    from slurm_evo_training.report import write

    def fill(folder: Path) -> None:
        write(trained, material, windows, folder / "report.html")
        trained.front.save(folder / "front.json")
        if material.predictor is not None:
            material.predictor.save(folder / "predictor.json")

    put(out, fill)
    if material.predictor is None:  # an earlier run's would look like this one's
        (out / "predictor.json").unlink(missing_ok=True)


def _tell(trained: Trained, out: Path, *, as_json: bool) -> None:
    member = trained.shown
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "chosen": member.text,
                    "by_hand": member.by_hand,
                    "admitted": trained.chosen is not None,
                    "refused": member.refused,
                    "judged": dict(member.judged),
                    "front": len(trained.front.members),
                    "simulations": trained.evolved.simulations,
                    "seconds": round(trained.evolved.seconds, 1),
                    "interrupted": trained.evolved.interrupted,
                    "out": str(out),
                }
            )
        )
        return
    typer.echo(member.text)
    if member.by_hand:
        typer.echo(f"  written by hand ({member.by_hand}): no evolved one that is usable does better")
    for name, share in member.judged.items():
        kind, rival = name.replace("_", " ").split(" of ")
        typer.echo(f"  judged {kind} wait: {share:.2f} times that of the {rival}")
    if trained.evolved.interrupted:
        typer.echo("Interrupted: this is the best so far; --resume goes on.")
    if trained.chosen is None:
        typer.secho(f"It may not be put in force: {'; '.join(member.refused)}", fg="yellow")
        typer.echo(f"The policy in force stays. See {out / 'report.html'}")
        return
    if trained.doubt:
        typer.secho(trained.doubt, fg="yellow")
    typer.echo(f"Next: read {out / 'report.html'}, then slurm-evo policy add {out / 'front.json'} --promote")
