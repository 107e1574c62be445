"""``slurm-evo install-plugins`` on a real controller: shown, tried, put in, seen by doctor, taken out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plugin_site import DELIVERED, PluginSite, eventually
from real_world import OPERATOR, slurm_conf

pytestmark = pytest.mark.skipif(
    not DELIVERED.exists(), reason=f"{DELIVERED} is missing: tests/testbed/plugins.py builds it (Debian trixie)"
)
CONF = Path(slurm_conf("gamma"))


def slurm_evo(*argv: str, user: str | None = None, code: int = 0) -> str:
    whole = [sys.executable, "-m", "slurm_evo_daemon", *argv]
    if user is not None:
        whole = ["runuser", "-u", user, "--", *whole]
    done = subprocess.run(whole, capture_output=True, text=True, check=False, cwd="/src")
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def install(*more: str) -> dict[str, Any]:
    where = ("--cluster", "gamma", "--slurm-conf", str(CONF), "--plugin", str(DELIVERED))
    return dict(json.loads(slurm_evo("install-plugins", *where, "--json", *more)))


@pytest.fixture
def site() -> Iterator[PluginSite]:
    before = CONF.read_bytes()
    site = PluginSite("gamma", Path("/var/lib/slurm-evo/plugin/gamma"))
    yield site
    if CONF.read_bytes() != before:
        CONF.write_bytes(before)
        site.restart()


def test_shown_tried_put_in_used_and_taken_out(site: PluginSite, tmp_path: Path) -> None:
    before = CONF.read_text()
    shown = install()
    assert shown["done"] is False
    assert "a private slurmctld loaded it and read a policy" in shown["checks"]
    assert CONF.read_text() == before

    done = install("--really")
    assert done["done"] is True
    assert [Path(name).read_text() for name in done["backups"]] == [before]
    site.restart()

    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    config = tmp_path / "slurm-evo.toml"
    config.write_text(
        '[store]\nstate_dir = "/tmp/slurm-evo-plugin-test"\n[[clusters]]\nname = "gamma"\nway = "command"\n'
        f'slurm_conf = "{CONF}"\npriority = "plugin"\n'
    )
    config.chmod(0o644)
    job = site.submit("-Mgamma", "--gres=gpu:4", "--time=30")
    slurm_evo("daemon", "--once", "--config", str(config), user=OPERATOR)
    eventually(lambda: bool(site.status()["policy"]), "the plugin has the daemon's policy", 30)
    history = json.loads(slurm_evo("history", "--json", "--config", str(config), user=OPERATOR))
    assert all(row.get("kind") != "set_site_factor" for row in history)
    told = json.loads(slurm_evo("doctor", "--json", "--config", str(config), user=OPERATOR))
    plugin = [finding for finding in told if finding["subject"] == "plugin"]
    assert [finding["level"] for finding in plugin] == ["ok"], plugin
    assert site.status()["policy"] in plugin[0]["seen"]
    subprocess.run(["scancel", str(job)], env={"PATH": "/usr/bin:/bin", "SLURM_CONF": str(CONF)}, check=False)

    install("--uninstall", "--really")
    assert CONF.read_text() == before
    # slurmctld still has the plugin loaded and may report once more
    left = {path.name for path in site.folder.iterdir()} if site.folder.exists() else set()
    assert left <= {"status.json"}
    site.restart()
    assert "site_factor" not in subprocess.run(
        ["scontrol", "show", "config"],
        env={"PATH": "/usr/bin:/bin", "SLURM_CONF": str(CONF)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.replace("PrioritySiteFactorPlugin = (null)", "")


def test_a_plugin_for_another_release_is_refused(tmp_path: Path) -> None:
    library = tmp_path / "site_factor_evo.so"
    library.write_bytes(DELIVERED.read_bytes())
    library.with_suffix(".slurm").write_text("23.11.4\n")
    where = ("--cluster", "gamma", "--slurm-conf", str(CONF))
    slurm_evo("install-plugins", *where, "--plugin", str(library), "--really", code=2)


def test_a_plugin_that_does_not_load_is_refused_before_anything_changes(tmp_path: Path) -> None:
    library = tmp_path / "site_factor_evo.so"
    library.write_bytes(b"\x7fELF broken")
    before = CONF.read_bytes()
    where = ("--cluster", "gamma", "--slurm-conf", str(CONF))
    slurm_evo("install-plugins", *where, "--plugin", str(library), "--really", code=2)
    assert CONF.read_bytes() == before
