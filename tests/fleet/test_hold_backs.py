"""Hold-backs on real daemons: the hook keeps a new job off a cluster, the daemon gives it back, none is lost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import WAY
from plugin_site import PluginSite, eventually, put
from real_world import MEMBERS, RealWorld, clear, command, slurm_conf
from steered import QUICK, Steered, shown
from test_command_port import command_port
from test_pyslurm_port import pyslurm_port

from slurm_evo.model import ClusterName, JobKey
from slurm_evo.policy import compact

make_port = pyslurm_port if WAY == "pyslurm" else command_port
MODULE = Path("/src/slurm-conf/lua/slurm_evo.lua")
OWN = """
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
"""
LINES = "\nJobSubmitPlugins=lua\n"
HOOKED = ("alpha", "beta")
UNTIL_S = 25
UNREAD_S = 11
"""The hook looks at its files every 10 s."""


@pytest.fixture(scope="module")
def sites() -> Iterator[dict[str, PluginSite]]:
    """Alpha is idle, beta and gamma are full; the hook runs at alpha and beta."""
    found = {name: PluginSite(name, Path(f"/var/lib/slurm-evo/plugin/{name}-held")) for name in HOOKED}
    for name, site in found.items():
        site.folder.mkdir(parents=True)
        conf = Path(slurm_conf(name))
        shutil.copy(MODULE, conf.parent / "slurm_evo.lua")
        (conf.parent / "job_submit.lua").write_text(
            f'{OWN}local ok, evo = pcall(dofile, "{conf.parent}/slurm_evo.lua")\n'
            f'if ok then evo.hook_job_submit({{ dir = "{site.folder}" }}) end\n'
        )
        conf.write_text(conf.read_text() + LINES)
        site.restart()
    real = RealWorld(make_port)
    for name in ("beta", "gamma"):
        real.fill(name)
    yield found
    real.close()
    for name, site in found.items():
        conf = Path(slurm_conf(name))
        conf.write_text(conf.read_text().replace(LINES, ""))
        (conf.parent / "job_submit.lua").unlink()
        site.restart()
        shutil.rmtree(site.folder)


@pytest.fixture(scope="module")
def steered(sites: dict[str, PluginSite], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steered]:
    """The daemon keeps jobs over an hour off alpha; its first cycle has told the hooks."""
    settings = QUICK | {
        "moves": QUICK["moves"] | {"enabled": True},
        "hold_backs": [{"cluster": "alpha", "over_s": 3600, "until_s": UNTIL_S}],
        "clusters": [
            {"name": name, "slurm_conf": slurm_conf(name)}
            | ({"plugin_dir": str(sites[name].folder)} if name in sites else {})
            for name in (*MEMBERS, "delta")
        ],
    }
    fleet = Steered(make_port, tmp_path_factory.mktemp("journal"), settings)
    fleet.cycle()
    time.sleep(UNREAD_S)
    yield fleet
    fleet.close()
    clear()  # before the restarts: they forget what siblings were still to be told


def submitted(site: PluginSite, *options: str) -> JobKey:
    return JobKey(ClusterName(site.cluster), site.submit(*options))


def where(key: JobKey, field: str = "FedViableSiblings") -> str:
    return shown(key.cluster, key.id, field)


def runs_at(key: JobKey, cluster: str) -> bool:
    return shown(cluster, key.id, "JobState") == "RUNNING"


def test_a_long_job_waits_elsewhere_and_is_let_in_when_it_has_waited(
    sites: dict[str, PluginSite], steered: Steered
) -> None:
    keys = [submitted(site, "--gres=gpu:4", "--time=180", "--comment=mine") for site in sites.values()]
    began = time.monotonic()
    for key in keys:
        assert (where(key), where(key, "AdminComment")) == ("beta,gamma", "slurm-evo:held-back")
        eventually(lambda key=key: steered.waits_at(key) == {"beta", "gamma"}, "both list it")
    steered.until(
        lambda: all(runs_at(key, "alpha") for key in keys), "they run at alpha, which was idle all the time"
    )
    assert time.monotonic() - began > UNTIL_S - 5, "the story is void: they were let in at once"
    for key in keys:
        assert steered.memory(key).asked == {"alpha", "beta", "gamma"}
        assert where(key, "Comment") == "mine"


@pytest.mark.usefixtures("steered")
def test_a_short_job_starts_at_once(sites: dict[str, PluginSite]) -> None:
    short = submitted(sites["alpha"], "--gres=gpu:4", "--time=60")
    assert where(short) == "alpha,beta,gamma"
    eventually(lambda: runs_at(short, "alpha"), "it runs")


@pytest.mark.usefixtures("steered")
@pytest.mark.parametrize(
    ("options", "viable"),
    [
        (("-Malpha", "--gres=gpu:1"), "alpha"),
        (("--gres=gpu:a100:1",), "alpha,beta,gamma"),
        (("--gres=gpu:1", "--comment=slurm-evo:stay"), "alpha,beta,gamma"),
        (("-N3", "--gres=gpu:8"), "alpha,beta,gamma"),
        (("-N3", "--gpus=24"), "alpha,beta,gamma"),
        (("--uid=ada", "--gres=gpu:1"), "alpha,beta,gamma"),
    ],
)
def test_what_its_owner_its_needs_or_root_tie_down_is_left_alone(options: tuple[str, ...], viable: str) -> None:
    argv = ("sbatch", "--parsable", "--hold", "--chdir=/tmp", "--output=/dev/null", "--time=180", *options)
    told = command("alpha", *argv, "--wrap=true", user="root" if "--uid=ada" in options else "ada")
    key = JobKey(ClusterName("alpha"), int(told.split(";")[0]))
    assert (where(key), "held-back" in where(key, "AdminComment")) == (viable, False)


def test_a_job_that_no_other_cluster_took_comes_home(sites: dict[str, PluginSite], steered: Steered) -> None:
    """The file tells of a partition that beta has no more."""
    wrong = ["slurm-evo-places 1", f"time {time.time():.0f}", "good_s 300", "cluster alpha"]
    wrong += ["member alpha", "member beta", "back alpha 60"]
    wrong += [f"room {name} debug -1 2 8 64 4000" for name in ("alpha", "beta")]
    put(sites["alpha"].folder / "places", compact.sealed(wrong))
    time.sleep(UNREAD_S)
    key = submitted(sites["alpha"], "--gres=gpu:1", "--partition=debug", "--time=5")
    assert where(key) == "beta"
    time.sleep(2)
    eventually(lambda: steered.waits_at(key) == set(), "nobody lists the job: the edge itself")
    steered.until(lambda: "alpha" in steered.waits_at(key) or runs_at(key, "alpha"), "its origin has it")


@pytest.mark.usefixtures("steered")
def test_without_the_daemon_nobody_is_held_back_for_long(sites: dict[str, PluginSite]) -> None:
    places = sites["alpha"].folder / "places"
    lines = [line for line in compact.unsealed(places.read_text()) if not line.startswith("time ")]
    lines.insert(1, f"time {time.time() - 301:.0f}")
    put(places, compact.sealed(lines))
    time.sleep(UNREAD_S)
    key = submitted(sites["alpha"], "--gres=gpu:4", "--time=180")
    assert where(key) == "alpha,beta,gamma"
