"""slurm_evo.lua in a submission: what it sets, what it leaves alone, and that it never gets in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evo_library import LUAS, MODULE, lua_runtime

from slurm_evo.policy import Policy, compact, lua

NO_VAL = 4294967294
SLURM = """
slurm = { SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294, NO_VAL16 = 65534, INFINITE = 4294967295 }
slurm.logged, slurm.told = {}, {}
function slurm.log_info(...) slurm.logged[#slurm.logged + 1] = string.format(...) end
function slurm.log_user(...) slurm.told[#slurm.told + 1] = string.format(...) end
"""


class Site:
    """A job_submit.lua that lets everything pass, with our two lines behind it."""

    def __init__(self, folder: Path, version: str = "lua54", own: str = "", **options: Any) -> None:
        self.lua = lua_runtime(version)
        self.lua.execute(SLURM)
        self.lua.execute(own or "function slurm_job_submit() seen = (seen or 0) + 1 return slurm.SUCCESS end")
        table = ", ".join(f"{name} = {value}" for name, value in options.items())
        self.lua.execute(
            f'local ok, evo = pcall(dofile, "{MODULE}")\n'
            f'if ok then evo.hook_job_submit({{ dir = "{folder}", {table} }}) end'
        )

    def submit(self, uid: int = 1000, **fields: Any) -> Any:
        job = self.lua.table_from(
            {"script": "#!/bin/sh", "time_limit": 10.0, "user_name": "ada", "partition": "gpu", "min_nodes": 1.0,
             "account": "physics", "tres_per_node": "gres/gpu:2", "priority": float(NO_VAL), **fields}
        )  # fmt: skip
        self.result = self.lua.globals().slurm_job_submit(job, self.lua.table_from({}), uid)
        return job

    def modify(self, uid: int = 1000, **fields: Any) -> Any:
        job = self.lua.table_from(fields)
        self.result = self.lua.globals().slurm_job_modify(job, None, None, uid)
        return job

    def texts(self, name: str) -> list[str]:
        return list(self.lua.globals().slurm[name].values())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.lua").write_text(lua.export(Policy.parse("weight * 1000 / limit")))
    lines = ["slurm-evo-context 1", "time 1796126023", "band 1000", "weight 1.0", "weight qos high 10"]
    lines += ["stay slurm-evo:stay", "never user bob", "scale 0.5 100.0", "scale 1.0 300.0", "scale 3.0 900.0"]
    (tmp_path / "context").write_text(compact.sealed(lines))
    return tmp_path


@pytest.mark.parametrize("version", LUAS)
def test_a_submission_gets_the_place_of_its_score(folder: Path, version: str) -> None:
    site = Site(folder, version, site_factor="true")
    assert site.submit().site_factor == 500  # 1000 / 600 s = 1.67, a third of the way from 1 to 3
    assert site.submit(time_limit=100.0).site_factor == 50
    assert site.submit(qos="high").site_factor == 950
    assert site.texts("logged") == []
    assert site.lua.globals().seen == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"comment": "slurm-evo:stay"},
        {"extra": "a slurm-evo:stay b"},
        {"array_inx": "1-10"},
        {"script": None},
        {"dependency": "after:1"},
        {"reservation": "r"},
        {"priority": 0},
        {"begin_time": 4e9},
        {"het_job_offset": 1},
        {"user_name": "bob"},
    ],
)
def test_what_the_daemon_would_not_touch_is_not_touched(folder: Path, fields: dict[str, Any]) -> None:
    assert Site(folder, site_factor="true").submit(**fields).site_factor is None


def test_without_being_asked_nothing_is_set(folder: Path) -> None:
    job = Site(folder).submit()
    assert job.site_factor is None
    assert job.clusters is None


def test_a_federated_job_is_pinned_unless_it_names_clusters(folder: Path) -> None:
    site = Site(folder, pin='"alpha"')
    assert site.submit().clusters == "alpha"
    assert site.submit(clusters="beta,gamma").clusters == "beta,gamma"
    assert site.submit(comment="slurm-evo:stay").clusters is None


def test_where_the_site_wants_consent_a_job_without_it_stays(folder: Path) -> None:
    site = Site(folder, go='"slurm-evo:go"', site_factor="true")
    assert site.submit().admin_comment == "slurm-evo:stay"
    agreed = site.submit(comment="slurm-evo:go")
    assert agreed.admin_comment is None
    assert agreed.site_factor == 500


@pytest.mark.parametrize("act", ["submit", "modify"])
def test_users_cannot_write_the_sites_own_words(folder: Path, act: str) -> None:
    site = Site(folder)
    job = getattr(site, act)(comment="fast slurm-evo:moved please slurm-evo:stay")
    assert job.comment == "fast please slurm-evo:stay"
    assert "slurm-evo:" in site.texts("told")[0]
    assert getattr(site, act)(uid=0, comment="slurm-evo:moved").comment == "slurm-evo:moved"


def test_the_sites_own_refusal_stands(folder: Path) -> None:
    site = Site(folder, own="function slurm_job_submit() return slurm.ERROR end", site_factor="true")
    assert site.submit().site_factor is None
    assert site.result == -1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("policy.lua", "return nothing"),
        ("policy.lua", "this is no Lua"),
        ("policy.lua", "while true do end"),
        ("policy.lua", "os.execute('touch /tmp/never')"),
        ("policy.lua", "return { version = 1, score = function() return 'x' end }"),
        ("policy.lua", "return { version = 2, score = function() return 1 end }"),
        ("policy.lua", "\x1bLua"),
        ("policy.lua", ""),
        ("context", "nonsense"),
        ("context", "slurm-evo-context 1\nscale x y\ncrc32 00000000\n"),
        ("context", "slurm-evo-context 1\nload 0.5\n"),
    ],
)
@pytest.mark.parametrize("version", ["lua51", "lua54", "luajit21"])
def test_a_bad_file_means_that_nothing_is_done_and_one_line(
    folder: Path, name: str, text: str, version: str
) -> None:
    (folder / name).write_text(text)
    site = Site(folder, version, site_factor="true")
    for _ in range(3):
        assert site.submit().site_factor is None
    assert site.result == 0
    assert len(site.texts("logged")) == 1
    assert "nothing is done" in site.texts("logged")[0]


def test_a_missing_folder_means_that_nothing_is_done(tmp_path: Path) -> None:
    site = Site(tmp_path / "gone", site_factor="true", pin='"alpha"')
    assert site.submit().clusters == "alpha"
    assert site.result == 0


def test_the_user_is_told_about_when(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = ["slurm-evo-context 1", "time 1", "start alpha 1 60", "start alpha 8 7200", "start beta 8 840"]
    lines.insert(2, "stay slurm-evo:stay")
    (folder / "context").write_text(compact.sealed(lines))
    runtime = lua_runtime()
    runtime.execute(SLURM)
    runtime.execute(f'local evo = dofile("{MODULE}")\nevo.hook_cli_filter({{ dir = "{folder}", tell = true }})')
    hook = runtime.globals().slurm_cli_pre_submit
    assert hook(runtime.table_from({"gres": "gpu:4"}), 0) == 0
    runtime.execute("io.stderr:flush()")
    assert capfd.readouterr().err == ("slurm-evo: a job of 4 GPUs would now start in about 14 minutes, on beta\n")
    hook(runtime.table_from({"nodes": "2-4", "gpus-per-node": "a100:2"}), 0)
    hook(runtime.table_from({"ntasks": "8", "gpus-per-task": "1"}), 0)
    runtime.execute("io.stderr:flush()")
    told = capfd.readouterr().err.splitlines()
    assert [line.split(" would")[0] for line in told] == [
        "slurm-evo: a job of 4 GPUs",
        "slurm-evo: a job of 8 GPUs",
    ]
    hook(runtime.table_from({"gres": "gpu:4", "comment": "slurm-evo:stay"}), 0)
    hook(runtime.table_from({"gres": "gpu:64"}), 0)
    assert capfd.readouterr().err == ""
