"""docker-compose.yml and what it names fit together; no container is started here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from slurm_evo import config

ROOT = Path(__file__).resolve().parent.parent.parent
CONF = ROOT / "slurm-conf"
CLUSTERS = ("alpha", "beta", "gamma", "delta")


def settings(path: Path) -> dict[str, str]:
    """The ``Key=value`` lines of a Slurm file that hold one setting each."""
    lines = (re.fullmatch(r"(\w+)=(\S+)", line.strip()) for line in path.read_text().splitlines())
    return {found[1]: found[2] for found in lines if found}


@pytest.fixture(scope="module")
def services():
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def test_every_host_that_slurm_conf_names_is_a_service(services):
    named = {settings(CONF / cluster / "slurm.conf")["SlurmctldHost"] for cluster in CLUSTERS}
    named.add(settings(CONF / "common.conf")["AccountingStorageHost"])
    database = settings(CONF / "slurmdbd.conf")
    named |= {database["DbdHost"], database["StorageHost"]}
    assert named <= set(services)
    # slurmctld and slurmdbd insist on the host name their configuration gives them.
    assert all(services[name]["hostname"] == name for name in named - {"mariadb"})


def test_the_database_password_is_the_same_on_both_sides(services):
    database, given = settings(CONF / "slurmdbd.conf"), services["mariadb"]["environment"]
    assert given["MARIADB_PASSWORD"] == database["StoragePass"]
    assert given["MARIADB_USER"] == database["StorageUser"]
    assert given["MARIADB_DATABASE"] == database["StorageLoc"]


def test_every_role_of_a_container_is_one_that_its_script_knows(services):
    script = (CONF / "container.sh").read_text()
    roles = set(re.findall(r"^([\w-]+)\)$", script, re.MULTILINE))
    ours = {name: service for name, service in services.items() if "build" in service}
    assert {service["command"][0] for service in ours.values()} == roles
    for service in ours.values():
        assert (ROOT / service["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("script", ["container.sh", "accounts.sh", "people.sh"])
def test_the_scripts_are_correct_shell(script):
    subprocess.run(["sh", "-n", CONF / script], check=True)
    assert (CONF / script).stat().st_mode & 0o111


def test_slurm_evos_configuration_is_accepted():
    loaded = config.load(CONF / "slurm-evo.toml", {})
    assert loaded.names == CLUSTERS
    assert loaded.cycle.dry_run
