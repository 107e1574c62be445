"""Settings: one frozen object by topic, read once, at the edge.

Precedence: defaults, then the TOML file, then the environment (``SLURM_EVO_CYCLE__PERIOD_S=60``). Unknown
keys are errors. Every field has its unit in its name or text, its default, and the reason for it.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from slurm_evo.model import ClusterName, ConfigError

SEARCHED = (Path("/etc/slurm-evo/slurm-evo.toml"),)
"""Where the file is looked for when none is named."""
PREFIX = "SLURM_EVO_"
SLURM_COMMANDS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sprio", "squeue")
"""What slurm-evo runs of a cluster's own commands."""

Seconds = Annotated[float, Field(ge=0)]
Weight = Annotated[float, Field(ge=0)]


class _Topic(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class CycleSettings(_Topic):
    """[cycle]: when the daemon looks and whether it may act."""

    period_s: Annotated[float, Field(gt=0)] = 30.0
    """Seconds from one cycle to the next; Slurm's own backfill runs every 30 s."""
    dry_run: bool = False
    """Decide and explain, send nothing."""
    lease_s: Annotated[float, Field(gt=0)] = 120.0
    """Seconds a silent daemon keeps others from acting; at least two periods."""


class StoreSettings(_Topic):
    """[store]: the journal."""

    url: str = ""
    """An SQLAlchemy URL; empty: SQLite in ``state_dir``."""
    password_file: Path | None = None
    """Holds the database password, so that the URL need not."""
    state_dir: Path | None = None
    """Default /var/lib/slurm-evo for root, else ~/.local/state/slurm-evo."""
    keep_days: Annotated[float, Field(gt=0)] = 90.0
    """Older cycles, plans and actions are dropped."""


class ObjectiveSettings(_Topic):
    """[objectives]: what matters how much; only the ratios count."""

    average_wait: Weight = 1.0
    """Average weighted queuing time."""
    maximum_wait: Weight = 0.5
    """Maximum weighted queuing time; half, since a single job decides it."""
    utilization: Weight = 0.5
    """GPU-time utilization."""

    @model_validator(mode="after")
    def _something_matters(self) -> Self:
        if not (self.average_wait or self.maximum_wait or self.utilization):
            raise ValueError("one of average_wait, maximum_wait and utilization must be above 0")
        return self

    def as_mapping(self) -> dict[str, float]:
        """By objective name."""
        return dict(self)


class OptimizerSettings(_Topic):
    """[optimizer]: how long and how boldly layer 1 searches."""

    budget_s: Annotated[float, Field(gt=0)] = 2.0
    """Seconds of search a cycle; well under Slurm's backfill interval."""
    margin: Annotated[float, Field(ge=0)] = 0.05
    """A plan must beat «change nothing» by this share of its score."""
    harm_s: Seconds = 300.0
    """A changed job may be expected to start this much later than without, or"""
    harm_share: Annotated[float, Field(ge=0)] = 0.05
    """this share of its expected wait, if it is more."""
    others_s: Seconds = 1800.0
    """The same of a job that stays as it is, or"""
    others_share: Annotated[float, Field(ge=0)] = 0.25
    """this share."""
    mean_s: Seconds = 900.0
    """The same of the jobs of any user, and of any account, on average, or"""
    mean_share: Annotated[float, Field(ge=0)] = 0.15
    """this share."""
    seed: int = 0
    """Of the search's random numbers."""


class MoveSettings(_Topic):
    """[moves]: changing where federated jobs may run."""

    enabled: bool = True
    max_per_cycle: Annotated[int, Field(ge=0)] = 50
    """Jobs under way at once; keeps storms from slurmctld."""
    max_per_user: Annotated[int, Field(ge=0)] = 0
    """Of them, of one user in one cycle; 0: no limit."""
    max_per_account: Annotated[int, Field(ge=0)] = 0
    """Of one account in one cycle; 0: no limit."""
    cooldown_s: Seconds = 600.0
    """A job that moved stays this long."""
    confirm_s: Seconds = 60.0
    """A new cluster must list the job within this time, or it counts as a refusal."""
    stranded_s: Seconds = 30.0
    """A moved job that no cluster lists for this long goes back to its origin."""
    refusal_s: Seconds = 3600.0
    """A cluster that turned a job away is not asked again for it this long."""
    respect_user_clusters: bool = True
    """Never outside the clusters its owner asked for (sbatch -M). Off where a site's tools set -M."""


class TransferSettings(_Topic):
    """[transfers]: moving pending jobs between clusters that share no federation. Needs SlurmUser's rights."""

    enabled: bool = False
    max_at_once: Annotated[int, Field(ge=0)] = 10
    """Moves under way at once: each costs slurmctld about ten requests."""
    start_within_s: Seconds = 60.0
    """A job that can start elsewhere within this time goes there (late binding: not before)."""
    earlier_s: Seconds = 600.0
    """Or one that is expected to start there earlier by this much: a move costs the job its age and a number."""
    defer_s: Annotated[float, Field(ge=120)] = 900.0
    """An original is put off this long while its copy is made; it frees itself if slurm-evo never comes back."""
    confirm_s: Seconds = 12.0
    """A copy is believed after this time: slurmctld saves its state every few seconds."""
    give_up_s: Annotated[float, Field(gt=0)] = 300.0
    """A step that does not come through for this long ends the move, and the original counts."""


class DigestSettings(_Topic):
    """[digest]: a message to the owners of jobs that were moved between clusters without a federation."""

    command: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """A program that takes a mail on its standard input, such as ["/usr/sbin/sendmail", "-t"]. None: no mails."""
    domain: Annotated[str, Field(pattern=r"^[\w.-]*$")] = ""
    """Put behind login names, as in ada@example.org; empty: the login name alone."""


class PrioritySettings(_Topic):
    """[priority]: pushing the policy's order as SiteFactors."""

    push: bool = True
    band: Annotated[int, Field(ge=1, le=2_000_000_000)] = 1_000_000
    """Largest SiteFactor; weigh it against PriorityWeightAge (``slurm-evo doctor`` does)."""
    max_updates_per_cycle: Annotated[int, Field(ge=0)] = 0
    """0: as many as the order needs. Set it where rl_enable limits slurm-evo's account."""
    recalc_s: Seconds = 60.0
    """Waits count in steps of this, so that the order changes for a reason (PriorityCalcPeriod)."""
    restore_age: bool = True
    """Make up for the age that Slurm forgets when a job moves."""


class PolicySettings(_Topic):
    """[policy]: the expression that ranks; a promoted one from the store goes before it."""

    expression: str = ""
    """Empty: ``file``, else the shipped default."""
    file: Path | None = None
    predictor: Path | None = None
    """Written by ``slurm-evo train``: running times to begin with. The daemon learns on in its state directory."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.expression and self.file:
            raise ValueError("give expression or file, not both")
        return self


class _Names(_Topic):
    partition: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    account: tuple[str, ...] = ()
    user: tuple[str, ...] = ()


class RulesSettings(_Topic):
    """[rules]: which jobs may be touched. Arrays, het, interactive, held and so on never are."""

    only: _Names = _Names()
    """[rules.only]: if a list is given, jobs outside it are not touched."""
    never: _Names = _Names()
    """[rules.never]: jobs in a list are not touched."""
    rank_only: _Names = _Names()
    """[rules.rank_only]: jobs in a list are ranked but not moved."""
    opt_out_comments: tuple[str, ...] = ("slurm-evo:stay",)
    """A job with one of these words in Comment, Extra or AdminComment is not touched."""

    def allows(self, topic: str, value: str) -> bool:
        """A job with this partition, qos, account or user may be touched."""
        only: tuple[str, ...] = getattr(self.only, topic)
        return (not only or value in only) and value not in getattr(self.never, topic)

    def moves_allowed(self, partitions: tuple[str, ...], qos: str, account: str, user: str) -> bool:
        """It may also be moved."""
        kept = self.rank_only
        return not (
            set(partitions) & set(kept.partition)
            or qos in kept.qos
            or account in kept.account
            or user in kept.user
        )


class WeightSettings(_Topic):
    """[weights]: how much a job's waiting counts; the product of what applies."""

    default: Annotated[float, Field(gt=0)] = 1.0
    qos: dict[str, Annotated[float, Field(gt=0)]] = {}
    partition: dict[str, Annotated[float, Field(gt=0)]] = {}
    account: dict[str, Annotated[float, Field(gt=0)]] = {}

    def of(self, qos: str, partition: str, account: str) -> float:
        """The weight of one job."""
        return (
            self.default
            * self.qos.get(qos, 1.0)
            * self.partition.get(partition, 1.0)
            * self.account.get(account, 1.0)
        )


class ClusterTransferSettings(_Topic):
    """[clusters.transfers]: what moving plain jobs to and from this cluster needs; without it none is moved.

    The tables put other clusters' words, as ``word`` or ``CLUSTER:word``, into this cluster's.
    """

    url: str = ""
    """Its slurmrestd, which is asked to submit; empty: jobs only leave this cluster."""
    slurm_user: str = "slurm"
    """SlurmUser of slurm.conf(5), in whose name copies are submitted for their owners."""
    token_file: Path | None = None
    """SlurmUser's JWT; without it ``scontrol token`` is asked, which root and SlurmUser may."""
    state_dir: Path | None = None
    """StateSaveLocation, if it can be read here: only it has arguments and environment exactly."""
    state_reader: tuple[str, ...] = ()
    """Else a command that prints them, such as ssh to the controller; job id and script path are added."""
    partitions: dict[str, str] = {}
    qos: dict[str, str] = {}
    accounts: dict[str, str] = {}
    gpu_types: dict[str, str] = {}
    licenses: dict[str, str] = {}
    features: dict[str, str] = {}
    paths: dict[str, str] = {}
    """Folders seen here under a name of this cluster; a path below none of them is not moved."""


class ClusterSettings(_Topic):
    """[[clusters]]: one cluster and the way into it."""

    name: str
    way: Literal["pyslurm", "command", "rest", "simulated"] = "pyslurm"
    slurm_conf: Path = Path("/etc/slurm/slurm.conf")
    """For pyslurm and command: that cluster's slurm.conf; it chooses the cluster."""
    commands: Path | None = None
    """The folder of that cluster's own Slurm commands, where it has another Slurm than those on PATH."""
    url: str = ""
    """For rest: where slurmrestd listens."""
    token_file: Path | None = None
    """For rest: a JWT; read at each use, so that it can be renewed."""
    user: str = ""
    """For rest: whose token it is."""
    timeout_s: Annotated[float, Field(gt=0)] = 20.0
    """For one question."""
    transfers: ClusterTransferSettings | None = None
    priority: Literal["rpc", "plugin"] = "rpc"
    """How the order gets in: SiteFactor updates, or the plugin site_factor/evo inside slurmctld."""
    plugin_dir: Path | None = None
    """Where that plugin and slurm_evo.lua read; default /var/lib/slurm-evo/plugin/NAME. The daemon writes it."""

    @property
    def plugin_files(self) -> Path:
        """The folder of the policy and the context for the plugin of this cluster."""
        return self.plugin_dir or Path("/var/lib/slurm-evo/plugin") / self.name

    @field_validator("name")
    @classmethod
    def _cluster_name(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9_.-]{1,40}", value):
            raise ValueError("a ClusterName has 1 to 40 lower-case letters, digits, '-', '_' or '.'")
        return value

    @field_validator("commands")
    @classmethod
    def _commands_are_there(cls, value: Path | None) -> Path | None:
        # Where one is missing, that of PATH would be run instead, which may be of the wrong version.
        if value is None:
            return value
        if not value.is_absolute():
            raise ValueError(f"{value} is no absolute path")
        missing = [name for name in SLURM_COMMANDS if not (value / name).exists()]
        if missing:
            raise ValueError(f"{value} has no {missing[0]}; it must hold {', '.join(SLURM_COMMANDS)}")
        return value

    @model_validator(mode="after")
    def _rest_is_complete(self) -> Self:
        if self.way == "rest" and not (self.url and self.token_file and self.user):
            raise ValueError("way = 'rest' needs url, token_file and user")
        if self.way != "rest" and (self.url or self.token_file or self.user):
            raise ValueError(f"url, token_file and user belong to way = 'rest', not {self.way!r}")
        return self


class HoldBackSettings(_Topic):
    """[[hold_backs]]: a cluster where long jobs that may run elsewhere too do not wait at first."""

    cluster: str
    over_s: Annotated[float, Field(gt=0)]
    """Expected running time above which a job is kept off."""
    until_s: Annotated[float, Field(gt=0)] = 14_400.0
    """Waited for so long, it is let in."""


class Settings(_Topic):
    """Everything; see each topic."""

    cycle: CycleSettings = CycleSettings()
    store: StoreSettings = StoreSettings()
    objectives: ObjectiveSettings = ObjectiveSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    moves: MoveSettings = MoveSettings()
    transfers: TransferSettings = TransferSettings()
    digest: DigestSettings = DigestSettings()
    priority: PrioritySettings = PrioritySettings()
    policy: PolicySettings = PolicySettings()
    rules: RulesSettings = RulesSettings()
    weights: WeightSettings = WeightSettings()
    gpu_speed: dict[str, Annotated[float, Field(ge=0.001, le=1000)]] = {}
    """[gpu_speed]: by GPU type, how much faster than a type of speed 1 jobs run on it; 1 where it is missing."""
    hold_backs: tuple[HoldBackSettings, ...] = ()
    """The earlier ones count first."""
    clusters: tuple[ClusterSettings, ...] = ()
    """None: simulated clusters."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        seen: set[str] = set()
        for cluster in self.clusters:
            if cluster.name in seen:
                raise ValueError(f"the cluster {cluster.name} is given twice")
            seen.add(cluster.name)
        ways = {cluster.way == "simulated" for cluster in self.clusters}
        if len(ways) > 1:
            raise ValueError("simulated and real clusters cannot be mixed")
        self._check_each_cluster_has_its_own_door()
        for place, one in enumerate(self.hold_backs):
            if seen and one.cluster not in seen:
                raise ValueError(
                    f"hold_backs.{place}.cluster: no cluster {one.cluster!r}{_did_you_mean(one.cluster, seen)}"
                )
        if self.cycle.lease_s < 2 * self.cycle.period_s:
            raise ValueError(
                "cycle.lease_s must be at least twice cycle.period_s, or the lease runs out in between"
            )
        if self.optimizer.budget_s >= self.cycle.period_s:
            raise ValueError("optimizer.budget_s must be below cycle.period_s: the search is one part of a cycle")
        return self

    def _check_each_cluster_has_its_own_door(self) -> None:
        """A slurm.conf or a slurmrestd leads to one cluster: two names for it would count its jobs twice."""
        doors: dict[str, str] = {}
        for cluster in self.clusters:
            if cluster.way == "simulated":
                continue
            key = "url" if cluster.way == "rest" else "slurm_conf"
            door = str(getattr(cluster, key)).rstrip("/")
            if door in doors:
                raise ValueError(
                    f"the clusters {doors[door]} and {cluster.name} have the same {key} {hidden(door)}: "
                    "each needs its own"
                )
            doors[door] = cluster.name

    @property
    def simulated(self) -> bool:
        """No real cluster is configured."""
        return not self.clusters or self.clusters[0].way == "simulated"

    @property
    def names(self) -> tuple[ClusterName, ...]:
        """All cluster names, as configured."""
        return tuple(ClusterName(cluster.name) for cluster in self.clusters)

    @property
    def with_plugin(self) -> Mapping[ClusterName, Path]:
        """The clusters whose own plugin ranks, with the folder it reads."""
        return {
            ClusterName(cluster.name): cluster.plugin_files
            for cluster in self.clusters
            if cluster.priority == "plugin"
        }

    @property
    def with_files(self) -> Mapping[ClusterName, Path]:
        """The clusters with a folder for plugins: the C plugin's, or one that is named for slurm_evo.lua alone."""
        return {
            ClusterName(cluster.name): cluster.plugin_files
            for cluster in self.clusters
            if cluster.priority == "plugin" or cluster.plugin_dir is not None
        }

    @property
    def state_dir(self) -> Path:
        """Where the daemon keeps its files."""
        if self.store.state_dir is not None:
            return self.store.state_dir
        if os.geteuid() == 0:
            return Path("/var/lib/slurm-evo")
        home = os.environ.get("XDG_STATE_HOME")
        return (Path(home) if home else Path.home() / ".local/state") / "slurm-evo"

    @property
    def store_url(self) -> str:
        """The journal's URL."""
        return self.store.url or f"sqlite:///{self.state_dir / 'journal.sqlite'}"


@dataclass(frozen=True, slots=True)
class Effective:
    """One setting in force, and who said so."""

    key: str
    value: Any
    source: str
    """``default``, the file's name, or the environment variable."""


def find(path: Path | None, env: Mapping[str, str] = os.environ) -> Path | None:
    """The file to read: the one named, the one in SLURM_EVO_CONFIG, the first searched one that exists."""
    if path is not None:
        return path
    if named := env.get(PREFIX + "CONFIG"):
        return Path(named)
    return next((candidate for candidate in SEARCHED if _there(candidate)), None)


def _there(file: Path) -> bool:
    """It exists, or its folder does not let us see: whoever reads it is then told so, not given other clusters."""
    try:
        return stat.S_ISREG(file.stat().st_mode)
    except PermissionError:
        return True
    except OSError:
        return False


def load(path: Path | None = None, env: Mapping[str, str] = os.environ) -> Settings:
    """Read and check the configuration.

    Args:
        path: the TOML file; None: `find` it.
        env: the environment.

    Raises:
        ConfigError: the file is missing or no TOML, a key is unknown or its value is wrong; names both.
    """
    file = find(path, env)
    given = _read(file)
    variables: dict[tuple[str, ...], str] = {}
    for variable, keys, value in _from_environment(env):
        _put(given, keys, value, variable)
        variables[keys] = variable
    try:
        return Settings.model_validate(given)
    except ValidationError as failure:
        raise ConfigError(_explain(failure, file, variables)) from failure


def effective(
    settings: Settings, path: Path | None = None, env: Mapping[str, str] = os.environ
) -> list[Effective]:
    """Every setting with its value and its source, in the order of the documentation; passwords are hidden."""
    file = find(path, env)
    in_file = {keys for keys, value in _leaves_of(_read(file)) if value != {}}
    in_env = {keys: variable for variable, keys, _ in _from_environment(env)}
    rows = []
    for keys, value in _leaves_of(settings.model_dump(mode="json")):
        source = "default"
        if any(keys[: len(known)] == known for known in in_file):
            source = str(file)
        for known, variable in in_env.items():
            if keys[: len(known)] == known:
                source = variable
        rows.append(Effective(".".join(keys), _without_passwords(keys[-1], value), source))
    return rows


def hidden(url: str) -> str:
    """A URL without its password, whether before the host or among the options."""
    before_host = re.sub(r"^([^:/]+://[^:/@]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&][^=&]*pass[^=&]*=)[^&]*", r"\1***", before_host, flags=re.IGNORECASE)


def _without_passwords(key: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_without_passwords(key, one) for one in value]
    if isinstance(value, Mapping):
        return {name: _without_passwords(name, one) for name, one in value.items()}
    return hidden(value) if key == "url" else value


def _read(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as failure:
        raise ConfigError(f"{file}: cannot be read: {failure.strerror or failure}") from failure
    except UnicodeDecodeError as failure:
        raise ConfigError(f"{file}: is not UTF-8 text (byte {failure.start})") from failure
    except tomllib.TOMLDecodeError as failure:
        raise ConfigError(f"{file}: is no TOML: {failure}") from failure


def _from_environment(env: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """SLURM_EVO_TOPIC__KEY=value; the value is read as TOML where it is TOML, else as text."""
    topics = set(Settings.model_fields)
    for variable, text in sorted(env.items()):
        if not variable.startswith(PREFIX):
            continue
        if "__" not in variable:
            _refuse_one_underscore(variable, topics)
            continue
        keys = tuple(variable.removeprefix(PREFIX).lower().split("__"))
        if keys[0] not in topics:
            raise ConfigError(f"{variable}: no topic {keys[0]!r}{_did_you_mean(keys[0], topics)}")
        try:
            value = tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            value = text
        yield variable, keys, value


def _refuse_one_underscore(variable: str, topics: set[str]) -> None:
    """SLURM_EVO_CYCLE_PERIOD_S looks like a setting and would be ignored."""
    name = variable.removeprefix(PREFIX).lower()
    for topic in topics:
        if name == topic:
            raise ConfigError(f"{variable}: sets a whole topic; write {variable}__KEY for one key of it")
        if name.startswith(topic + "_"):
            meant = f"{PREFIX}{topic}__{name.removeprefix(topic + '_')}".upper()
            raise ConfigError(f"{variable}: needs two underscores after the topic; did you mean {meant}?")


def _put(given: dict[str, Any], keys: tuple[str, ...], value: Any, variable: str) -> None:
    for key in keys[:-1]:
        given = given.setdefault(key, {})
        if not isinstance(given, dict):
            raise ConfigError(f"{variable}: {key} holds no keys")
    given[keys[-1]] = value


def _leaves_of(given: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in given.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves_of(value, (*above, key))
        else:
            yield (*above, key), value


def _explain(failure: ValidationError, file: Path | None, variables: Mapping[tuple[str, ...], str]) -> str:
    """One sentence for each problem, with its key and, for a misspelt one, the likely right one."""
    lines = []
    for problem in failure.errors():
        keys = problem["loc"]
        said_by = next((name for known, name in variables.items() if keys[: len(known)] == known), file)
        where = f"{said_by}: " if said_by else ""
        name = ".".join(str(key) for key in keys) or "the configuration"
        if problem["type"] == "extra_forbidden":
            lines.append(f"{where}unknown key {name}{_did_you_mean(str(keys[-1]), _known_keys(keys[:-1]))}")
        elif problem["type"] == "missing":
            lines.append(f"{where}{name} is missing")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            shown = "" if problem["type"] == "value_error" else f" (given: {problem['input']!r})"
            lines.append(f"{where}{name}: {message}{shown}")
    return "; ".join(lines)


def _known_keys(keys: tuple[int | str, ...]) -> set[str]:
    model: Any = Settings
    for key in keys:
        if isinstance(key, int):
            continue
        field = getattr(model, "model_fields", {}).get(key)
        if field is None:
            return set()
        model = {"clusters": ClusterSettings, "hold_backs": HoldBackSettings}.get(str(key), field.annotation)
        if model == ClusterTransferSettings | None:
            model = ClusterTransferSettings
    return set(getattr(model, "model_fields", {}))


def _did_you_mean(word: str, known: set[str]) -> str:
    near = get_close_matches(word, sorted(known), 1, 0.6)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known are {', '.join(sorted(known))}" if known else ""
