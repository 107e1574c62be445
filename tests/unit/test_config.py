"""Settings: where they come from, what is refused and in which words, and that their reference is complete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from slurm_evo.config import ClusterSettings, HoldBackSettings, Settings, effective, find, hidden, load
from slurm_evo.model import ConfigError

REFERENCE = Path(__file__).parents[2] / "docs/reference"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "slurm-evo.toml"


def refused(text: str, file: Path, env: dict[str, str] | None = None) -> str:
    """What is said of a file that cannot be used."""
    file.write_text(text)
    with pytest.raises(ConfigError) as failure:
        load(file, env or {})
    return str(failure.value)


def sources(text: str, file: Path, env: dict[str, str]) -> dict[str, tuple[Any, str]]:
    file.write_text(text)
    return {row.key: (row.value, row.source) for row in effective(load(file, env), file, env)}


def test_without_anything_the_defaults_hold_on_simulated_clusters(file: Path) -> None:
    file.write_text("")
    settings = load(file, {})
    assert settings == Settings()
    assert settings.simulated
    assert settings.names == ()
    assert settings.cycle.period_s == 30.0
    assert settings.objectives.as_mapping() == {"average_wait": 1.0, "maximum_wait": 0.5, "utilization": 0.5}


def test_the_file_goes_before_the_defaults_and_the_environment_before_the_file(file: Path) -> None:
    file.write_text("[cycle]\nperiod_s = 40\nlease_s = 100\n[rules.never]\nuser = ['ada']\n")
    env = {
        "SLURM_EVO_CYCLE__PERIOD_S": "50",
        "SLURM_EVO_MOVES__ENABLED": "false",
        "SLURM_EVO_RULES__NEVER__QOS": "['low']",
        "SLURM_EVO_STORE__URL": "sqlite:////tmp/journal.sqlite",
        "HOME": "/root",
    }
    settings = load(file, env)
    assert settings.cycle.period_s == 50.0
    assert settings.cycle.lease_s == 100.0
    assert settings.moves.enabled is False
    assert (settings.rules.never.user, settings.rules.never.qos) == (("ada",), ("low",))
    assert settings.store_url == "sqlite:////tmp/journal.sqlite"


def test_the_named_file_goes_before_the_one_of_the_environment(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[cycle]\nperiod_s = 11\n")
    file.write_text("[cycle]\nperiod_s = 22\n")
    env = {"SLURM_EVO_CONFIG": str(other)}
    assert find(None, env) == other
    assert find(file, env) == file
    assert load(None, env).cycle.period_s == 11.0
    assert load(file, env).cycle.period_s == 22.0


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().cycle.period_s = 1.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[cycel]\n", "unknown key cycel; did you mean cycle?"),
        ("[cycle]\nperiods = 3", "unknown key cycle.periods; did you mean period_s?"),
        ("[rules.never]\nusers = []", "unknown key rules.never.users; did you mean user?"),
        ("[objectives]\nzzz = 1", "unknown key objectives.zzz; known are average_wait, maximum_wait, utilization"),
        ("[[clusters]]\nname='a'\ntimeout=3", "unknown key clusters.0.timeout; did you mean timeout_s?"),
        ("[[clusters]]\nway='command'", "clusters.0.name is missing"),
        ("[[clusters]]\nname='a'\nway='ssh'", "clusters.0.way: Input should be 'pyslurm', 'command'"),
        ("[[clusters]]\nname='Alpha'", "clusters.0.name: a ClusterName has 1 to 40 lower-case letters"),
        ("[cycle]\nperiod_s = 'often'", "cycle.period_s: Input should be a valid number"),
        ("[cycle]\nperiod_s = 0", "cycle.period_s: Input should be greater than 0 (given: 0)"),
        ("[moves]\ncooldown_s = -1", "moves.cooldown_s: Input should be greater than or equal to 0"),
        ("[moves]\ncooldown_s = inf", "moves.cooldown_s: Input should be a finite number"),
        ("[moves]\ncooldown_s = nan", "moves.cooldown_s: Input should be a finite number"),
        ("[priority]\nband = 3_000_000_000", "priority.band: Input should be less than or equal to 2000000000"),
        ("[weights]\nqos = { low = 0 }", "weights.qos.low: Input should be greater than 0"),
        ("cycle = 3", "cycle: Input should be a valid dictionary"),
        ("[cycle\n", "is no TOML: "),
    ],
)
def test_a_wrong_file_is_named_with_its_key(text: str, words: str, file: Path) -> None:
    said = refused(text, file)
    assert said.startswith(f"{file}: ")
    assert words in said


def test_all_problems_are_told_at_once(file: Path) -> None:
    said = refused("[cycle]\nperiod = 3\n[moves]\nenabled = 'perhaps'\n", file)
    assert "cycle.period;" in said
    assert "moves.enabled" in said


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, file: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path / 'none.toml'}: cannot be read: No such file"):
        load(tmp_path / "none.toml", {})
    with pytest.raises(ConfigError, match=f"{tmp_path}: cannot be read"):
        load(tmp_path, {})
    file.write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match=rf"{file}: is not UTF-8 text \(byte 5\)"):
        load(file, {})


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("SLURM_EVO_CYCLE__PERIOD_S", "often", "SLURM_EVO_CYCLE__PERIOD_S: cycle.period_s: Input should be"),
        (
            "SLURM_EVO_CYCLE__PERIOD",
            "3",
            "SLURM_EVO_CYCLE__PERIOD: unknown key cycle.period; did you mean period_s?",
        ),
        ("SLURM_EVO_CYCEL__PERIOD_S", "3", "SLURM_EVO_CYCEL__PERIOD_S: no topic 'cycel'; did you mean cycle?"),
        ("SLURM_EVO_CYCLE_PERIOD_S", "3", "did you mean SLURM_EVO_CYCLE__PERIOD_S?"),
        ("SLURM_EVO_CYCLE", "3", "write SLURM_EVO_CYCLE__KEY"),
        ("SLURM_EVO_CLUSTERS__0__NAME", "x", "SLURM_EVO_CLUSTERS__0__NAME: clusters holds no keys"),
    ],
)
def test_a_wrong_variable_is_named_not_the_file(variable: str, value: str, words: str, file: Path) -> None:
    said = refused("[[clusters]]\nname = 'a'\n", file, {variable: value})
    assert words in said
    assert said.startswith(variable)


def test_other_variables_of_that_prefix_are_nobodys_business(file: Path) -> None:
    file.write_text("")
    assert load(file, {"SLURM_EVO_RELEASE": "forky", "SLURM_EVO_CONFIG": str(file)}) == Settings()


REST = "[[clusters]]\nname='{}'\nway='rest'\nurl='{}'\ntoken_file='/t'\nuser='evo'\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[cycle]\nperiod_s=100\nlease_s=150", "cycle.lease_s must be at least twice cycle.period_s"),
        ("[optimizer]\nbudget_s=30", "optimizer.budget_s must be below cycle.period_s"),
        (
            "[objectives]\naverage_wait=0\nmaximum_wait=0\nutilization=0",
            "objectives: one of average_wait, maximum_wait and utilization must be above 0",
        ),
        ("[policy]\nexpression='wait'\nfile='/p'", "policy: give expression or file, not both"),
        ("[[clusters]]\nname='a'\nslurm_conf='/1'\n[[clusters]]\nname='a'\nslurm_conf='/2'", "a is given twice"),
        (
            "[[clusters]]\nname='a'\nway='simulated'\n[[clusters]]\nname='b'",
            "simulated and real clusters cannot be mixed",
        ),
        (
            "[[clusters]]\nname='a'\n[[clusters]]\nname='b'\nway='command'",
            "the clusters a and b have the same slurm_conf /etc/slurm/slurm.conf: each needs its own",
        ),
        (
            REST.format("a", "http://u:hunter2@h:1") + REST.format("b", "http://u:hunter2@h:1/"),
            "the clusters a and b have the same url http://u:***@h:1",
        ),
        ("[[clusters]]\nname='a'\nway='rest'\nurl='http://h'", "way = 'rest' needs url, token_file and user"),
        (
            "[[clusters]]\nname='a'\nurl='http://h'",
            "url, token_file and user belong to way = 'rest', not 'pyslurm'",
        ),
        ("[[clusters]]\nname='a'\ncommands='bin'", "clusters.0.commands: bin is no absolute path"),
        (
            "[[clusters]]\nname='a'\ncommands='/proc'",
            "/proc has no sacct; it must hold sacct, sacctmgr, sbatch, scancel, scontrol, sprio, squeue",
        ),
        ("[[clusters]]\nname='a'\nuser='evo'", "url, token_file and user belong to way = 'rest', not 'pyslurm'"),
    ],
)
def test_what_does_not_fit_together_is_refused(text: str, words: str, file: Path) -> None:
    said = refused(text, file)
    assert said.startswith(f"{file}: ")
    assert words in said
    assert "hunter2" not in said


def test_simulated_clusters_may_share_everything_but_their_name(file: Path) -> None:
    file.write_text("[[clusters]]\nname='a'\nway='simulated'\n[[clusters]]\nname='b'\nway='simulated'\n")
    assert load(file, {}).names == ("a", "b")


def test_every_value_tells_its_source(file: Path) -> None:
    env = {"SLURM_EVO_CYCLE__LEASE_S": "300", "SLURM_EVO_WEIGHTS__QOS__HIGH": "3"}
    text = "[cycle]\nperiod_s = 40\nlease_s = 200\n[weights.qos]\nlow = 0.5\n[moves]\n[[clusters]]\nname = 'a'\n"
    seen = sources(text, file, env)
    assert seen["cycle.period_s"] == (40.0, str(file))
    assert seen["cycle.lease_s"] == (300.0, "SLURM_EVO_CYCLE__LEASE_S")
    assert seen["cycle.dry_run"] == (False, "default")
    assert seen["weights.qos.low"] == (0.5, str(file))
    assert seen["weights.qos.high"] == (3.0, "SLURM_EVO_WEIGHTS__QOS__HIGH")
    assert seen["moves.enabled"] == (True, "default"), "an empty topic says nothing"
    assert seen["clusters"][1] == str(file)
    assert seen["store.url"] == ("", "default")
    json.dumps([value for value, _ in seen.values()])


def test_passwords_are_not_among_the_values_shown(file: Path) -> None:
    text = "[store]\nurl = 'postgresql://evo:hunter2@x@h/db'\n" + REST.format("a", "https://u:hunter2@h:6820")
    seen = sources(text, file, {})
    assert seen["store.url"][0] == "postgresql://evo:***@h/db"
    assert seen["clusters"][0][0]["url"] == "https://u:***@h:6820"
    assert "hunter2" not in repr(seen)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////var/lib/slurm-evo/journal.sqlite", "sqlite:////var/lib/slurm-evo/journal.sqlite"),
        ("postgresql://evo@h:5432/db", "postgresql://evo@h:5432/db"),
        ("postgresql://evo@h/db?password=x&sslmode=require", "postgresql://evo@h/db?password=***&sslmode=require"),
        ("postgresql://h/db?sslmode=require&Passwd=x", "postgresql://h/db?sslmode=require&Passwd=***"),
        ("", ""),
    ],
)
def test_a_url_loses_its_password_and_nothing_else(url: str, shown: str) -> None:
    assert hidden(url) == shown


def test_the_journal_is_in_the_state_folder_unless_a_url_is_given(file: Path, tmp_path: Path) -> None:
    file.write_text(f"[store]\nstate_dir = '{tmp_path}'\n")
    assert load(file, {}).store_url == f"sqlite:///{tmp_path}/journal.sqlite"


def test_rules_say_who_may_be_touched_and_who_moved(file: Path) -> None:
    file.write_text(
        "[rules.only]\npartition=['gpu']\n[rules.never]\nuser=['ada']\n[rules.rank_only]\nqos=['kept']\n"
        "partition=['big']\n"
    )
    rules = load(file, {}).rules
    assert rules.allows("partition", "gpu")
    assert not rules.allows("partition", "cpu")
    assert not rules.allows("user", "ada")
    assert rules.allows("user", "bob")
    assert rules.moves_allowed(("gpu",), "normal", "physics", "bob")
    assert not rules.moves_allowed(("gpu",), "kept", "physics", "bob")
    assert not rules.moves_allowed(("gpu", "big"), "normal", "physics", "bob")


def test_a_weight_is_the_product_of_what_applies(file: Path) -> None:
    file.write_text("[weights]\ndefault=2\nqos={high=3}\npartition={gpu=5}\naccount={physics=7}\n")
    weights = load(file, {}).weights
    assert weights.of("high", "gpu", "physics") == 210.0
    assert weights.of("low", "gpu", "arts") == 10.0


def test_the_example_loads_and_uses_every_topic() -> None:
    settings = load(REFERENCE / "slurm-evo.example.toml", {})
    assert settings.names == ("alpha", "beta", "gamma")
    assert [cluster.way for cluster in settings.clusters] == ["pyslurm", "command", "rest"]
    assert settings.cycle.dry_run, "whoever copies it changes nothing at first"
    assert set(Settings.model_fields) - settings.model_fields_set == {"policy"}


def fields(model: type[BaseModel] = Settings, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every key with its default."""
    for name, field in model.model_fields.items():
        inner = {"clusters": ClusterSettings, "hold_backs": HoldBackSettings}.get(name, field.annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from fields(inner, f"{above}{name}.")
        else:
            yield above + name, "required" if field.is_required() else field.get_default()


def test_the_reference_lists_every_key_with_its_default() -> None:
    text = (REFERENCE / "configuration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_.]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    written = {key: default for key, _, default, _ in rows}

    def as_written(default: Any) -> str:
        if default is None or default == "required":
            return default or "none"
        plain = str(default) if isinstance(default, Path) else default
        return f"`{json.dumps(plain)}`"

    assert written == {key: as_written(default) for key, default in fields()}
    assert len(rows) == len(written), "each key once"
    assert all(unit.strip() and len(reason) > 10 for _, unit, _, reason in rows)


@pytest.mark.parametrize("wrong", ["0", "-1", "'fast'", "1001"])
def test_a_speed_that_is_none_is_refused_with_its_key(file: Path, wrong: str) -> None:
    file.write_text(f"[gpu_speed]\na100 = {wrong}\n")
    with pytest.raises(ConfigError, match=r"gpu_speed\.a100: .*given"):
        load(file, {})
    file.write_text("")
    assert load(file, {"SLURM_EVO_GPU_SPEED__A100": "2"}).gpu_speed == {"a100": 2.0}


def test_a_file_in_a_folder_that_is_closed_to_us_is_no_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated clusters in its place would answer for the site's."""

    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    there = tmp_path / "slurm-evo.toml"
    monkeypatch.setattr("slurm_evo.config.SEARCHED", (there,))
    assert find(None, {}) is None
    monkeypatch.setattr(Path, "stat", closed)
    assert find(None, {}) == there
