"""Putting the plugins in and taking them out: exactly the lines shown, and byte for byte back again."""

from __future__ import annotations

import grp
import json
import os
import pwd
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from builders import fleet

from slurm_evo.config import Settings
from slurm_evo.model import ConfigError
from slurm_evo.slurm import plugins
from slurm_evo.slurm.doctor import Level, examine

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
ME = pwd.getpwuid(os.geteuid()).pw_name
CONF = "ClusterName=alpha\n# a comment\nPriorityType=priority/multifactor\nPartitionName=gpu Nodes=ALL"


@pytest.fixture
def site(tmp_path: Path) -> plugins.Site:
    for folder in ("etc", "lib", "built"):
        (tmp_path / folder).mkdir()
    (tmp_path / "etc/slurm.conf").write_text(CONF)
    (tmp_path / "built/site_factor_evo.so").write_bytes(b"\x7fELF")
    (tmp_path / "built/slurm_evo.lua").write_text("return {}")
    return plugins.Site(
        cluster="alpha",
        slurm_conf=tmp_path / "etc/slurm.conf",
        plugin_dir=tmp_path / "lib",
        folder=tmp_path / "var/plugin/alpha",
        library=tmp_path / "built/site_factor_evo.so",
        module=tmp_path / "built/slurm_evo.lua",
        pin=True,
    )


def carried_out(changes: list[plugins.Change], site: plugins.Site) -> list[Path]:
    owners = (ME, grp.getgrgid(os.getegid()).gr_name)
    return plugins.carry_out(changes, site, now=NOW, owners=owners)


def tree(site: plugins.Site) -> dict[str, bytes]:
    top = site.slurm_conf.parent.parent
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in sorted(top.rglob("*"))
        if path.is_file() and ".slurm-evo-2026" not in path.name
    }


def test_what_is_shown_is_what_is_done_and_twice_is_once(site: plugins.Site) -> None:
    changes = plugins.installing(site)
    assert [change.kind for change in changes] == ["folder", "copy", "copy", "write", "write"]
    assert "+ PrioritySiteFactorPlugin=site_factor/evo" in changes[-1].lines
    assert f"+ PrioritySiteFactorParameters=dir={site.folder}" in changes[-1].lines
    assert "+ JobSubmitPlugins=lua" in changes[-1].lines
    assert site.slurm_conf.read_text() == CONF
    (backup,) = carried_out(changes, site)
    assert backup.read_text() == CONF
    assert site.slurm_conf.read_text() == changes[-1].text
    assert (site.plugin_dir / "site_factor_evo.so").read_bytes() == b"\x7fELF"
    assert 'pin = "alpha"' in site.script.read_text()
    assert "slurm_job_submit" in site.script.read_text()
    assert plugins.installing(site) == []


def test_uninstalling_leaves_everything_as_it_was(site: plugins.Site) -> None:
    before = tree(site)
    carried_out(plugins.installing(site), site)
    (site.folder / "policy").write_text("x")
    carried_out(plugins.uninstalling(site), site)
    after = tree(site)
    # one line break at the end of slurm.conf is all that stays
    assert after.pop("etc/slurm.conf").rstrip() == before.pop("etc/slurm.conf")
    assert after == before
    assert not site.folder.exists()
    assert plugins.uninstalling(site) == []


def test_a_library_that_is_there_already_still_gets_its_folder(site: plugins.Site) -> None:
    (site.plugin_dir / "site_factor_evo.so").write_bytes(b"\x7fELF")
    carried_out(plugins.installing(replace(site, module=None)), site)
    assert site.folder.is_dir()
    carried_out(plugins.uninstalling(site), site)
    assert not site.folder.exists()
    assert (site.plugin_dir / "site_factor_evo.so").exists()


def test_a_sites_own_script_keeps_its_functions(site: plugins.Site) -> None:
    own = "function slurm_job_submit() return slurm.ERROR end\n"
    site.script.write_text(own)
    carried_out(plugins.installing(site), site)
    assert site.script.read_text().startswith(own)
    carried_out(plugins.uninstalling(site), site)
    assert site.script.read_text() == own


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("PrioritySiteFactorPlugin=site_factor/other", "there can be only one"),
        ("JobSubmitPlugins=throttle", "JobSubmitPlugins=throttle,lua"),
    ],
)
def test_what_is_in_the_way_is_named(site: plugins.Site, line: str, message: str) -> None:
    site.slurm_conf.write_text(f"{CONF}\n{line}\n")
    with pytest.raises(ConfigError, match=message):
        plugins.installing(site)


def test_lua_that_is_already_there_needs_no_line(site: plugins.Site) -> None:
    site.slurm_conf.write_text(f"{CONF}\njobsubmitplugins=throttle,job_submit/lua # ours\n")
    assert "JobSubmitPlugins" not in "".join(plugins.conf_lines(site, site.slurm_conf.read_text()))


def test_a_plugin_that_was_not_built_is_an_error_that_says_how(site: plugins.Site) -> None:
    with pytest.raises(ConfigError, match="build --from-distribution"):
        plugins.installing(replace(site, library=Path("/nowhere/site_factor_evo.so")))


def test_a_file_changed_since_is_left_and_told(site: plugins.Site) -> None:
    carried_out(plugins.installing(site), site)
    there = site.plugin_dir / "site_factor_evo.so"
    there.write_bytes(b"another build")
    assert all(change.path != there for change in plugins.uninstalling(site))
    assert plugins.left_behind(site) == [str(there)]


def test_half_removed_lines_are_not_guessed_about(site: plugins.Site) -> None:
    carried_out(plugins.installing(site), site)
    lines = site.slurm_conf.read_text().splitlines(keepends=True)
    site.slurm_conf.write_text("".join(lines[:-1]))
    with pytest.raises(ConfigError, match="is missing behind"):
        plugins.uninstalling(site)


STATUS = {
    "plugin": "1.0", "slurm": "24.11.5", "time": 0, "policy": "p-0123456789", "policy_problem": "",
    "context_problem": "", "jobs": 12, "seconds": 0.0021,
}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "status", "level", "word"),
    [
        (True, STATUS, Level.OK, "policy p-0123456789; 12 jobs in 2.1 ms"),
        (True, {**STATUS, "policy": ""}, Level.WARNING, "no policy"),
        (True, {**STATUS, "policy_problem": "is cut off"}, Level.WARNING, "policy: is cut off"),
        (True, {**STATUS, "time": -600}, Level.ERROR, "last reported 600 s ago"),
        (True, None, Level.ERROR, "never reported"),
        (False, STATUS, Level.WARNING, "it overwrites them"),
    ],
)
def test_doctor_knows_how_the_plugin_is(
    tmp_path: Path, wanted: bool, status: dict[str, Any] | None, level: Level, word: str
) -> None:
    view = fleet().seen[0]
    now = time.time()
    if status is not None:
        (tmp_path / "status.json").write_text(json.dumps({**status, "time": now + status["time"]}))
    view = replace(view, seen_at=datetime.fromtimestamp(now, UTC))
    alpha = {"name": "alpha", "way": "command", "plugin_dir": str(tmp_path)}
    settings = Settings.model_validate({"clusters": [{**alpha, "priority": "plugin" if wanted else "rpc"}]})
    found = [one for one in examine([view], {}, settings, {view.cluster: "Operator"}) if one.subject == "plugin"]
    assert any(one.level is level and word in one.seen for one in found), found


def test_doctor_is_silent_about_a_plugin_that_nobody_has(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"clusters": [{"name": "alpha", "way": "command", "plugin_dir": str(tmp_path)}]}
    )
    found = examine([fleet().seen[0]], {}, settings, {})
    assert all(one.subject != "plugin" for one in found)
