"""slurm_evo.lua in a real slurmctld: two lines behind a site's own job_submit.lua."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_site import PluginSite, context, put
from real_world import command, slurm_conf

from slurm_evo.policy import Policy, lua

MODULE = Path("/src/slurm-conf/lua/slurm_evo.lua")
OWN = """
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.name == "unwanted" then return slurm.ERROR end
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
"""
LINE = "\nJobSubmitPlugins=lua\n"


@pytest.fixture(scope="module")
def site() -> Iterator[PluginSite]:
    """Alpha, a member of the federation, with every GPU taken."""
    site = PluginSite("alpha", Path("/var/lib/slurm-evo/plugin/alpha-lua"))
    site.folder.mkdir(parents=True)
    site.folder.chmod(0o755)
    put(site.folder / "policy.lua", lua.export(Policy.parse("weight * 3600 / limit")))
    put(site.folder / "context", context("band 1000", "scale 0.5 100.0", "scale 1.0 300.0", "scale 3.0 900.0"))
    conf = Path(slurm_conf("alpha"))
    script = conf.parent / "job_submit.lua"
    shutil.copy(MODULE, conf.parent / "slurm_evo.lua")
    script.write_text(
        f'{OWN}local ok, evo = pcall(dofile, "{conf.parent}/slurm_evo.lua")\n'
        f'if ok then evo.hook_job_submit({{ dir = "{site.folder}", site_factor = true, pin = "alpha" }}) end\n'
    )
    conf.write_text(conf.read_text() + LINE)
    site.restart()
    for _ in range(4):
        site.submit("-Malpha", "-N1", "--exclusive", "--gres=gpu:8", "--time=600")
    yield site
    command("alpha", "scancel", "--user=ada", check=False)
    conf.write_text(conf.read_text().replace(LINE, ""))
    script.unlink()
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


def test_broken_files_cost_nobody_a_submission(site: PluginSite) -> None:
    put(site.folder / "policy.lua", "while true do end")
    put(site.folder / "context", "nonsense")
    site.restart()
    job = site.submit("--gres=gpu:8", "--time=30")
    assert site.factors([job]).get(job, 0) == 0
    assert site.answers()
