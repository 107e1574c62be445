"""What every other test on real Slurm takes for granted of the testbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from testbed.fleet import Fleet

pytestmark = pytest.mark.slurm

CLUSTERS = ("alpha", "beta", "gamma", "delta")
TESTBED = Path(__file__).resolve().parent.parent / "testbed"


def eventually(true: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)


def submit(
    fleet: Fleet, *options: str, user: str = "ada", cluster: str = "alpha", command: str = "sleep 300"
) -> str:
    said = fleet.run("sbatch", "--parsable", *options, "--wrap", command, user=user, cluster=cluster).stdout
    return said.strip().split(";")[0]


def behind_a_full_cluster(fleet: Fleet, cluster: str, *everything: str, user: str) -> list[str]:
    """Two jobs that each ask for all of the cluster: the first runs, so that the second waits.

    The first must be seen to run before anything is done to the second: slurmctld may start neither at its
    submission, and then the one with the higher priority.
    """
    first = submit(fleet, *everything, f"--clusters={cluster}", user=user, cluster=cluster)
    state = ("squeue", "--noheader", "--local", f"--jobs={first}", "--format=%T")
    eventually(lambda: fleet.run(*state, cluster=cluster).stdout.strip() == "RUNNING", f"{first} runs", 60)
    return [first, submit(fleet, *everything, f"--clusters={cluster}", user=user, cluster=cluster)]


def processes_in(namespace: str) -> list[int]:
    """Processes of the whole host that live in a pid namespace, such as ``pid:[4026532301]``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str((entry / "ns" / "pid").readlink()) == namespace:
                found.append(int(entry.name))
        except OSError:
            continue  # gone meanwhile
    return found


@pytest.mark.parametrize(("cluster", "nodes"), [("alpha", 4), ("beta", 2), ("gamma", 4), ("delta", 2)])
def test_every_node_of_every_cluster_is_there_with_its_gpus(fleet, cluster, nodes):
    lines = fleet.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %G", cluster=cluster).stdout.splitlines()
    gpus = "gpu:v100:4" if cluster == "gamma" else "gpu:a100:8"
    assert [line.split("(")[0] for line in sorted(lines)] == [f"{cluster}{n} {gpus}" for n in range(1, nodes + 1)]


def test_three_clusters_are_a_federation_and_delta_stands_alone(fleet):
    seen = fleet.run("scontrol", "show", "federation", cluster="alpha").stdout
    assert {name for name in CLUSTERS if f"{name}:" in seen} == {"alpha", "beta", "gamma"}
    assert seen.count("Synced:Yes") == 2  # alpha's two siblings
    # A cluster in no federation answers with an empty one.
    assert "alpha" not in fleet.run("scontrol", "show", "federation", cluster="delta").stdout


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_rest_answers_to_the_token_of_slurm_evo_and_to_nobody_without(fleet, cluster):
    script = (
        f"import json, urllib.request as u; t = open('/etc/slurm-evo/jwt/{cluster}').read().strip();"
        "h = {'X-SLURM-USER-NAME': 'slurm-evo', 'X-SLURM-USER-TOKEN': t};"
        f"get = lambda path: json.load(u.urlopen(u.Request('{fleet.rest_url(cluster)}' + path, headers=h)));"
        "paths = [p for p in get('/openapi/v3')['paths'] if p.startswith('/slurm/')];"
        "path = sorted(p for p in paths if p.endswith('/ping/'))[-1];"
        "print(json.dumps(get(path)))"
    )
    answer = json.loads(fleet.run("python3", "-c", script, user="slurm-evo", cluster=cluster).stdout)
    assert answer["errors"] == []
    assert answer["pings"][0]["hostname"] == cluster
    # The token files are slurm-evo's alone.
    assert fleet.run("cat", f"/etc/slurm-evo/jwt/{cluster}", user="ada", check=False).returncode != 0
    bare = fleet.run(
        "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", fleet.rest_url(cluster) + "/openapi/v3"
    )
    assert bare.stdout.startswith("4")


def test_the_operator_may_set_a_site_factor_and_the_owner_may_not(fleet):
    jobs = behind_a_full_cluster(fleet, "beta", "--nodes=2", "--gres=gpu:8", user="bob")
    try:
        waiting = jobs[1]
        change = ("scontrol", "update", f"JobId={waiting}", "SiteFactor=4321")
        assert fleet.run(*change, user="bob", cluster="beta", check=False).returncode != 0
        fleet.run(*change, user="slurm-evo", cluster="beta")
        ask = ("sprio", "-h", "-j", waiting, "-o", "%Y %S")
        priority, site_factor = fleet.run(*ask, user="slurm-evo", cluster="beta").stdout.split()
        assert site_factor == "4321"
        assert int(priority) >= 4321  # and it counts
    finally:
        fleet.run("scancel", *jobs, cluster="beta")


def test_a_users_job_runs_on_the_gpus_it_asked_for(fleet):
    said = "/scratch/gpu-job.txt"
    Path(fleet.scratch / "gpu-job.txt").unlink(missing_ok=True)
    submit(
        fleet,
        "--gres=gpu:3",
        f"--output={said}",
        user="cyd",
        cluster="delta",
        command='echo "$CUDA_VISIBLE_DEVICES" as $(id -un)',
    )
    output = fleet.scratch / "gpu-job.txt"
    eventually(lambda: output.exists() and "cyd" in output.read_text(), "the job's output in /scratch")
    devices, _, user = output.read_text().split()
    assert len(set(devices.split(","))) == 3
    assert user == "cyd"


def test_a_user_starts_where_the_job_can_write_its_output(fleet):
    job = submit(fleet, user="ada", cluster="delta", command="pwd")
    read = ("cat", f"/home/ada/slurm-{job}.out")
    eventually(lambda: fleet.run(*read, check=False).stdout == "/home/ada\n", "output in the user's home")


def test_the_partition_debug_is_refused_where_it_does_not_exist(fleet):
    def ask(cluster: str) -> subprocess.CompletedProcess[str]:
        asked = ("sbatch", f"--clusters={cluster}", "--partition=debug", "--hold", "--wrap", "true")
        return fleet.run(*asked, user="ada", cluster=cluster, check=False)

    assert [ask(cluster).returncode for cluster in ("alpha", "gamma")] == [0, 0]
    refused = ask("beta")
    assert refused.returncode != 0
    assert "partition" in refused.stderr


def test_limits_of_qos_and_association_can_be_read(fleet):
    limits = fleet.run("sacctmgr", "-nP", "show", "qos", "format=name,maxtrespu,maxjobspu,priority").stdout
    assert sorted(limits.split()) == ["high||20|100", "normal|gres/gpu=64||0"]
    mine = ("sacctmgr", "-nP", "show", "assoc", "user=ada", "cluster=alpha", "format=account,qos,maxjobs")
    assert fleet.run(*mine, user="slurm-evo").stdout.strip() == "physics|high,normal|500"


def test_a_pending_jobs_priority_is_live_from_the_first_minute(fleet):
    jobs = behind_a_full_cluster(fleet, "gamma", "--nodes=4", "--gres=gpu:4", "--qos=high", user="cyd")
    try:
        shown = fleet.run("sprio", "-h", "-j", jobs[1], "-o", "%F %Q", cluster="gamma").stdout.split()
        assert [int(part) > 0 for part in shown] == [True, True]  # fair share and QOS
    finally:
        fleet.run("scancel", *jobs, cluster="gamma")


def test_job_ids_of_the_clusters_do_not_overlap(fleet):
    def bounds(cluster: str) -> tuple[int, int]:
        lines = fleet.run("scontrol", "show", "config", cluster=cluster).stdout.splitlines()
        values = {line.split("=")[0].strip(): line.split("=")[1].strip() for line in lines if "=" in line}
        return int(values["FirstJobId"]), int(values["MaxJobId"])

    ranges = sorted(bounds(cluster) for cluster in CLUSTERS)
    assert all(last < first for (_, last), (first, _) in pairwise(ranges))


def test_a_controller_can_be_taken_away_and_brought_back(fleet):
    inside = ("python3", "/testbed/inside.py")
    fleet.run(*inside, "kill", "slurmctld-delta")
    assert fleet.run("scontrol", "ping", cluster="delta", check=False).returncode != 0
    fleet.run(*inside, "start", "slurmctld-delta")
    eventually(
        lambda: fleet.run("scontrol", "ping", cluster="delta", check=False).returncode == 0, "delta answers"
    )


def test_the_checkout_inside_cannot_be_written_and_scratch_can(fleet):
    assert fleet.run("touch", "/src/written", check=False).returncode != 0
    fleet.run("touch", "/scratch/written", user="ada")
    assert (fleet.scratch / "written").exists()


def test_the_code_under_test_and_its_libraries_import_inside(fleet):
    code = "import slurm_evo.model, slurm_evo_daemon, slurm_evo_training, numba, pymoo, gplearn, sqlalchemy"
    if fleet.has_pyslurm:
        code += ", pyslurm; assert pyslurm.Jobs.load() is not None"
    fleet.run("python", "-c", code, user="slurm-evo")


def test_exec_passes_on_the_exit_code_and_keeps_arguments_apart(fleet):
    def execute(*command: str) -> subprocess.CompletedProcess[str]:
        ours = [sys.executable, str(TESTBED), "exec", fleet.name, "--user", "bob", "--cluster", "gamma", "--"]
        return subprocess.run([*ours, *command], capture_output=True, text=True, check=False)

    assert execute("sh", "-c", "exit 7").returncode == 7
    said = execute("sh", "-c", 'echo "$1" $SLURM_CONF $(id -un)', "sh", "a  b; c").stdout
    assert said == "a  b; c /etc/slurm/gamma/slurm.conf bob\n"


def test_two_fleets_side_by_side_know_nothing_of_each_other(fleet, start_fleet):
    other = start_fleet(f"{fleet.name}-other")
    try:
        submit(other, "--hold", "--job-name=elsewhere")
        names = ("squeue", "-h", "-o", "%j")
        assert "elsewhere" in other.run(*names).stdout
        assert "elsewhere" not in fleet.run(*names).stdout
        rows = json.loads(subprocess.check_output([sys.executable, str(TESTBED), "status", "--json"]))
        running = {row["name"] for row in rows if row["running"]}
        assert {fleet.name, other.name} <= running
    finally:
        other.down()
    assert fleet.run("scontrol", "ping").returncode == 0


@pytest.mark.parametrize("launcher_killed", [False, True])
def test_down_leaves_no_process_and_no_mount_behind(start_fleet, launcher_killed):
    mounts = Path("/proc/mounts").read_text()
    doomed = start_fleet(f"pytest-{os.getpid()}-doomed")
    try:
        assert Path("/proc/mounts").read_text() == mounts  # not even while it runs
        namespace = str(Path(f"/proc/{doomed.init}/ns/pid").readlink())
        assert len(processes_in(namespace)) > 20
        if launcher_killed:
            os.kill(int((doomed.folder / "launcher.pid").read_text()), signal.SIGKILL)
            eventually(lambda: doomed.init is None, "the fleet ends with its launcher", 5)
    finally:
        began = time.monotonic()
        doomed.down()
    assert time.monotonic() - began < 5
    eventually(lambda: not processes_in(namespace), "all processes gone", 5)
    assert Path("/proc/mounts").read_text() == mounts
    assert not doomed.folder.exists()


def test_a_fleet_whose_start_was_interrupted_is_cleared_by_the_next_command():
    name = f"pytest-{os.getpid()}-halted"
    starting = subprocess.Popen([sys.executable, str(TESTBED), "up", name], stderr=subprocess.DEVNULL)
    halted = Fleet(name)
    eventually(lambda: halted.init is not None, "its first process", 60)
    namespace = str(Path(f"/proc/{halted.init}/ns/pid").readlink())
    starting.kill()
    starting.wait()
    halted.down()
    eventually(lambda: not processes_in(namespace), "all processes gone", 5)
    assert not halted.folder.exists()
