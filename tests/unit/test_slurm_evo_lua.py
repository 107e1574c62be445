"""slurm_evo.lua in a submission: what it sets, what it leaves alone, and that it never gets in the way."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from builders import fleet
from evo_library import LUAS, MODULE, lua_runtime

from slurm_evo.config import Settings
from slurm_evo.model import ClusterName, Limit
from slurm_evo.policy import Policy, compact, lua
from slurm_evo_daemon.hold_backs import places

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

    def submit(self, uid: int = 1000, gpu: dict[str, Any] | None = None, **fields: Any) -> Any:
        job = self.lua.table_from(
            {"script": "#!/bin/sh", "time_limit": 10.0, "user_name": "ada", "partition": "gpu", "min_nodes": 1.0,
             "account": "physics", "tres_per_node": "gres/gpu:2", "priority": float(NO_VAL), **fields}
        )  # fmt: skip
        partitions = self.lua.table_from({"gpu": self.lua.table_from(gpu)} if gpu else {})
        self.result = self.lua.globals().slurm_job_submit(job, partitions, uid)
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


# Hold-backs ------------------------------------------------------------------------------------------------------

ROOMS = (
    "default alpha gpu", "room alpha gpu 604800 8 8 64 512000", "room alpha debug 604800 8 8 64 512000",
    "default beta gpu", "room beta gpu 604800 4 8 64 512000",
    "default gamma gpu", "room gamma gpu -1 4 4 32 256000", "room gamma debug 3600 4 4 32 256000",
)  # fmt: skip


def told(
    folder: Path,
    *lines: str,
    backs: tuple[str, ...] = ("alpha 3600",),
    age_s: float = 20.0,
    rooms: tuple[str, ...] = ROOMS,
) -> None:
    """A places file of so many seconds ago."""
    head = ["slurm-evo-places 1", f"time {time.time() - age_s:.0f}", "good_s 300", "cluster alpha"]
    head += [f"member {name}" for name in ("alpha", "beta", "gamma")]
    text = [*head, *(f"back {one}" for one in backs), *lines, *rooms]
    (folder / "places").write_text(compact.sealed(text))


LONG: dict[str, Any] = {"user_id": 1000, "time_limit": 120.0, "tres_per_node": "gres/gpu:2"}


@pytest.mark.parametrize("version", LUAS)
def test_a_long_job_starts_out_where_it_is_not_held_back(folder: Path, version: str) -> None:
    told(folder)
    site = Site(folder, version)
    job = site.submit(**LONG, admin_comment="mine")
    assert (job.clusters, job.admin_comment) == ("beta,gamma", "mine slurm-evo:held-back")
    short = site.submit(**{**LONG, "time_limit": 60.0})
    assert (short.clusters, short.admin_comment) == (None, None)
    assert site.texts("logged") == []


def test_the_expected_running_time_counts_not_the_limit(folder: Path) -> None:
    told(folder)
    context = compact.unsealed((folder / "context").read_text())
    (folder / "context").write_text(compact.sealed([*context, "runtime user ada 0.4"]))
    assert Site(folder).submit(**LONG).clusters is None
    assert Site(folder).submit(**{**LONG, "time_limit": 160.0}).clusters == "beta,gamma"


def test_hold_backs_come_one_after_the_other_and_never_take_the_last_cluster(folder: Path) -> None:
    told(folder, backs=("alpha 3600", "beta 3600", "gamma 3600"))
    site = Site(folder)
    assert site.submit(**LONG).clusters == "gamma"
    # gamma has no 8 GPUs in a node: beta is the last one, and gamma is no loss and no gain
    assert site.submit(**{**LONG, "tres_per_node": "gres/gpu:8"}).clusters == "beta,gamma"
    assert site.submit(**{**LONG, "partition": "debug"}).clusters is None, "an hour at most in gamma's debug"
    assert site.submit(**{**LONG, "partition": "gpu,debug"}).clusters is None


@pytest.mark.parametrize(
    ("fields", "clusters"),
    [
        ({"min_nodes": 4.0}, "beta,gamma"),
        ({"min_nodes": 5.0}, None),
        ({"partition": None}, "beta,gamma"),
        ({"partition": "debug"}, None),
        ({"tres_per_node": "gres/gpu:9"}, None),
        ({"tres_per_node": None, "tres_per_job": "gres/gpu:32", "min_nodes": 4.0}, "beta,gamma"),
        ({"tres_per_node": None, "tres_per_job": "gres/gpu:33", "min_nodes": 4.0}, None),
        ({"tres_per_task": "gres/gpu:4", "num_tasks": 8.0, "min_nodes": 4.0}, "beta,gamma"),
        ({"tres_per_task": "gres/gpu:4", "num_tasks": 9.0, "min_nodes": 4.0}, None),
        ({"num_tasks": 8.0, "cpus_per_task": 8.0, "min_cpus": 64.0}, "beta,gamma"),
        ({"num_tasks": 8.0, "cpus_per_task": 9.0, "min_cpus": 72.0}, None),
        ({"ntasks_per_node": 65.0}, None),
        ({"pn_min_cpus": 65.0}, None),
        ({"cpus_per_tres": "gres/gpu:33"}, None),
        ({"min_mem_per_node": 512000.0}, "beta,gamma"),
        ({"min_mem_per_node": 512001.0}, None),
        ({"min_mem_per_cpu": 8000.0, "min_cpus": 64.0}, "beta,gamma"),
        ({"min_mem_per_cpu": 8001.0, "min_cpus": 64.0}, None),
        ({"mem_per_tres": "gres/gpu:256001"}, None),
        ({"time_limit": 10081.0}, None),
    ],
)
def test_a_job_is_held_back_only_if_it_fits_somewhere_else(
    folder: Path, fields: dict[str, Any], clusters: str | None
) -> None:
    told(folder, rooms=(*ROOMS[:5], "default gamma cpu"))
    assert Site(folder).submit(**{**LONG, **fields}).clusters == clusters


@pytest.mark.parametrize(
    "fields",
    [
        {"clusters": "alpha"},
        {"comment": "slurm-evo:stay"},
        {"user_name": "bob"},
        {"array_inx": "1-4"},
        {"features": "a100"},
        {"prefer": "a100"},
        {"batch_features": "a100"},
        {"req_nodes": "alpha1"},
        {"exc_nodes": "alpha1"},
        {"licenses": "matlab:1"},
        {"burst_buffer": "x"},
        {"network": "x"},
        {"tres_per_socket": "gres/gpu:1"},
        {"tres_per_node": "gres/gpu:a100:2"},
        {"tres_per_node": "gres/gpu:2,gres/shard:1"},
        {"tres_per_job": "license/matlab:1"},
        {"contiguous": 1},
        {"threads_per_core": 1},
        {"core_spec": 2},
        {"pn_min_tmp_disk": 1000},
        {"account": "chemistry"},
        {"qos": "calm"},
        {"user_name": "eve d"},
        {"user_name": "kim"},
        {"user_id": 1001},
    ],
)
def test_what_might_not_be_as_well_off_elsewhere_is_left_alone(folder: Path, fields: dict[str, Any]) -> None:
    told(folder, "keep qos calm", "keep account chemistry", "keep user kim", "apart eve%20d physics")
    job = Site(folder).submit(**{**LONG, **fields})
    assert job.clusters == fields.get("clusters")
    assert job.admin_comment is None


def test_numbers_that_slurm_did_not_get_are_none(folder: Path) -> None:
    told(folder)
    unset = {
        **dict.fromkeys(("num_tasks", "min_cpus", "pn_min_tmp_disk", "min_mem_per_node"), float(NO_VAL)),
        **dict.fromkeys(("ntasks_per_node", "cpus_per_task", "pn_min_cpus", "threads_per_core"), 65534.0),
        **dict.fromkeys(("core_spec", "contiguous", "sockets_per_node", "ntasks_per_tres"), 65534.0),
    }
    assert Site(folder).submit(**LONG, **unset).clusters == "beta,gamma"


def test_a_copy_from_another_cluster_is_left_alone(folder: Path) -> None:
    told(folder)
    assert Site(folder).submit(uid=0, **LONG).clusters is None
    assert Site(folder).submit(uid=0, **{**LONG, "user_id": 0}).clusters is None


def test_a_job_that_is_held_back_is_not_pinned_and_others_are(folder: Path) -> None:
    told(folder)
    site = Site(folder, pin='"alpha"', site_factor="true")
    job = site.submit(**LONG)
    assert (job.clusters, job.site_factor) == ("beta,gamma", 50)
    assert site.submit(**{**LONG, "time_limit": 10.0}).clusters == "alpha"


@pytest.mark.parametrize("age_s", [302, -302])
def test_an_old_file_holds_nobody_back(folder: Path, age_s: float) -> None:
    told(folder, age_s=age_s)
    site = Site(folder)
    assert site.submit(**LONG).clusters is None
    assert site.texts("logged") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "slurm-evo-places 2\ncrc32 00000000\n",
        "slurm-evo-places 1\nback alpha 60\n",
        "slurm-evo-places 1\ntime soon\ncrc32 00000000\n",
        "slurm-evo-places 1\nroom alpha gpu 1\ncrc32 00000000\n",
        "slurm-evo-places 1\nback alpha\ncrc32 00000000\n",
    ],
)
@pytest.mark.parametrize("version", ["lua51", "lua54", "luajit21"])
def test_a_broken_file_holds_nobody_back_and_is_told_once(folder: Path, text: str, version: str) -> None:
    (folder / "places").write_text(text)
    site = Site(folder, version, site_factor="true")
    for _ in range(3):
        job = site.submit(**LONG)
        assert (job.clusters, job.site_factor) == (None, 50)
    assert len(site.texts("logged")) == 1
    assert "nothing is done" in site.texts("logged")[0]


def test_the_partitions_usual_limit_counts_where_none_is_given(folder: Path) -> None:
    site = Site(folder, site_factor="true")
    partition = {"name": "gpu", "flag_default": 1, "max_time": 10_080.0, "default_time": 10.0}
    assert site.submit(gpu=partition, time_limit=float(NO_VAL)).site_factor == 500
    unset = {**partition, "default_time": float(NO_VAL)}
    assert site.submit(gpu=unset, time_limit=float(NO_VAL)).site_factor == 50


def test_the_hook_understands_what_the_daemon_writes(folder: Path) -> None:
    clusters = [{"name": name, "slurm_conf": f"/etc/{name}"} for name in ("alpha", "beta", "gamma")]
    settings = Settings.model_validate({
        "clusters": clusters, "hold_backs": [{"cluster": "alpha", "over_s": 3600}],
        "rules": {"rank_only": {"user": ["kim d"]}},
    })  # fmt: skip
    view = fleet(now=datetime.now(UTC))
    limits = (Limit(scope="association", user="ada", account="physics"),)
    open_to_ada = tuple(replace(each, limits=limits) for each in view.seen)
    text = places(ClusterName("alpha"), replace(view, seen=open_to_ada), settings)
    assert text is not None
    (folder / "places").write_text(text)
    site = Site(folder)
    assert site.submit(**LONG).clusters == "beta,gamma"
    assert site.submit(**{**LONG, "user_name": "kim d"}).clusters is None
