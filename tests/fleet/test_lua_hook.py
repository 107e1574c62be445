"""slurm_evo.lua in a real slurmctld: two lines behind a site's own job_submit.lua."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_site import PluginSite, context, eventually, put
from real_world import PATIENCE_S, as_user, clear, command, slurm_conf, slurm_environment

from slurm_evo.policy import Policy, lua

MODULE = Path("/src/slurm-conf/lua/slurm_evo.lua")
OWN = """
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.name == "unwanted" then return slurm.ERROR end
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
"""
RANKS = ("band 1000", "scale 0.5 100.0", "scale 1.0 300.0", "scale 3.0 900.0")
STARTS = ("start alpha 8 7200", "start beta 2 600", "start beta 8 14400")
LINES = "\nJobSubmitPlugins=lua\nCliFilterPlugins=lua\n"


@pytest.fixture(scope="module")
def site() -> Iterator[PluginSite]:
    """Alpha, a member of the federation, with every GPU taken."""
    site = PluginSite("alpha", Path("/var/lib/slurm-evo/plugin/alpha-lua"))
    site.folder.mkdir(parents=True)
    site.folder.chmod(0o755)
    put(site.folder / "policy.lua", lua.export(Policy.parse("weight * 3600 / limit")))
    put(site.folder / "context", context(*RANKS, *STARTS))
    conf = Path(slurm_conf("alpha"))
    script = conf.parent / "job_submit.lua"
    shutil.copy(MODULE, conf.parent / "slurm_evo.lua")
    script.write_text(
        f'{OWN}local ok, evo = pcall(dofile, "{conf.parent}/slurm_evo.lua")\n'
        f'if ok then evo.hook_job_submit({{ dir = "{site.folder}", site_factor = true, pin = "alpha" }}) end\n'
    )
    conf.write_text(conf.read_text() + LINES)
    teller = conf.parent / "cli_filter.lua"
    teller.write_text(
        f'local ok, evo = pcall(dofile, "{conf.parent}/slurm_evo.lua")\n'
        f'if ok then evo.hook_cli_filter({{ dir = "{site.folder}", tell = true }}) end\n'
    )
    site.restart()
    blockers = [site.submit("-Malpha", "-N1", "--exclusive", "--gres=gpu:8", "--time=600") for _ in range(4)]
    running = ("squeue", "--noheader", "--local", "--states=RUNNING", "--format=%A")
    eventually(
        lambda: set(map(str, blockers)) <= set(command("alpha", *running).split()), "every GPU is taken", 90
    )
    yield site
    clear()  # before the restart: it forgets what siblings were still to be told
    conf.write_text(conf.read_text().replace(LINES, ""))
    script.unlink()
    teller.unlink()
    site.restart()
    shutil.rmtree(site.folder)


def viable(job: int) -> str:
    found = re.search(r"FedViableSiblings=(\S+)", command("alpha", "scontrol", "show", "job", str(job)))
    assert found is not None
    return found[1]


def test_a_federated_job_starts_at_its_origin_with_the_place_of_its_score(site: PluginSite) -> None:
    job = site.submit("--gres=gpu:8", "--time=30")
    assert viable(job) == "alpha"
    assert site.factors([job]) == {job: 600}


def test_who_opts_out_or_names_clusters_is_left_alone(site: PluginSite) -> None:
    stays = site.submit("--gres=gpu:8", "--time=30", "--comment=slurm-evo:stay")
    assert viable(stays) == "alpha,beta,gamma"
    assert site.factors([stays]).get(stays, 0) == 0
    named = site.submit("-Malpha,beta", "--gres=gpu:8", "--time=30")
    assert viable(named) == "alpha,beta"


def test_the_sites_own_refusal_stands_and_reserved_words_are_dropped(site: PluginSite) -> None:
    with pytest.raises(Exception, match="sbatch"):
        site.submit("--job-name=unwanted")
    job = site.submit("--gres=gpu:8", "--comment=mine slurm-evo:pinned")
    assert " Comment=mine " in command("alpha", "scontrol", "show", "job", str(job)).replace("\n", " ")
    command("alpha", "scontrol", "update", f"JobId={job}", "Comment=slurm-evo:pinned yes", user="ada")
    assert " Comment=yes " in command("alpha", "scontrol", "show", "job", str(job)).replace("\n", " ")


def told(*options: str) -> list[str]:
    """What sbatch says to ada beside the job's id."""
    argv = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *options, "--wrap", "sleep 3600")
    ran = as_user("ada", argv, env=slurm_environment(slurm_conf("alpha")), timeout_s=PATIENCE_S)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().split(";")[0].isdigit()
    return ran.stderr.splitlines()


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("asked", ["--gres=gpu:8", "--gpus=8", "--gpus-per-node=8", "--gpus=a100:8"])
def test_the_submitting_user_is_told_in_one_line_where_and_when(asked: str) -> None:
    assert told(asked) == ["slurm-evo: a job of 8 GPUs would now start in about 2 hours, on alpha"]


@pytest.mark.usefixtures("site")
def test_each_node_of_a_job_counts_in_what_is_told() -> None:
    assert told("-N2", "--gpus-per-node=1") == [
        "slurm-evo: a job of 2 GPUs would now start in about 10 minutes, on beta"
    ]
    assert told("-N2", "--gpus-per-node=8") == []


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("stays", ["--comment=slurm-evo:stay", "--extra=slurm-evo:stay"])
def test_who_stays_is_told_nothing(stays: str) -> None:
    assert told("--gres=gpu:8", stays) == []


def test_broken_files_cost_nobody_a_submission(site: PluginSite) -> None:
    put(site.folder / "policy.lua", "while true do end")
    put(site.folder / "context", "nonsense")
    site.restart()
    job = site.submit("--gres=gpu:8", "--time=30")
    assert site.factors([job]).get(job, 0) == 0
    assert told("--gres=gpu:8") == []
    assert site.answers()
