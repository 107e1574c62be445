"""The first process of a fleet, inside its root: starts every daemon, then reaps what ends.

Run as ``python3 /testbed/inside.py serve``; tests stop and start single daemons with ``stop NAME`` and
``start NAME`` (see ``services``). Standard library only.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

CONF = Path("/etc/slurm")
SITE = Path("/var/lib/slurm-evo-site")
RUN = Path("/run/slurm-evo-site")
LOG = Path("/scratch/log")
TOKENS = Path("/etc/slurm-evo/jwt")
CLUSTERS = {"alpha": 4, "beta": 2, "gamma": 4, "delta": 2}
PATIENCE_S = 40
OLDER = Path("/older")
"""In a mixed fleet the root of the older release, on which delta runs; elsewhere it is not there."""
OLDER_COMMANDS = Path("/opt/slurm-older/bin")
"""Slurm's commands of that release, for everybody."""
COMMANDS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "sprio", "squeue")
REST_PORTS = {name: 6820 + place for place, name in enumerate(CLUSTERS)}


def env_of(cluster: str) -> dict[str, str]:
    """What Slurm's commands need to talk to a cluster: its slurm.conf, and on an older one its own commands."""
    env = {"SLURM_CONF": str(CONF / cluster / "slurm.conf")}
    if cluster == "delta" and OLDER.is_dir():
        env["PATH"] = f"{OLDER_COMMANDS}:{os.environ['PATH']}"
    return env


def services() -> dict[str, tuple[list[str], str, dict[str, str]]]:
    """Every daemon by name: its command, the host name it believes to have, its environment."""
    found: dict[str, tuple[list[str], str, dict[str, str]]] = {
        "munged": (["runuser", "-u", "munge", "--", "munged", "--foreground"], "slurmdbd", {}),
        "mariadb": (
            ["mariadbd", "--user=mysql", "--socket=/run/mysqld/mysqld.sock", "--bind-address=127.0.0.1",
             "--innodb-buffer-pool-size=64M", "--innodb-snapshot-isolation=OFF",
             "--innodb-lock-wait-timeout=900",
             "--innodb-flush-log-at-trx-commit=0"],
            "mariadb", {},
        ),
        "slurmdbd": (["slurmdbd", "-D"], "slurmdbd", {"SLURM_CONF": str(CONF / "slurm.conf")}),
    }  # fmt: skip
    for cluster, nodes in CLUSTERS.items():
        conf = {"SLURM_CONF": str(CONF / cluster / "slurm.conf")}
        root = ["chroot", str(OLDER)] if cluster == "delta" and OLDER.is_dir() else []
        # One that is killed in its first minutes has not saved this file and would refuse to start again.
        young = [] if (SITE / cluster / "assoc_usage").exists() else ["-i"]
        found[f"slurmctld-{cluster}"] = ([*root, "slurmctld", "-D", *young], cluster, conf)
        for node in range(1, nodes + 1):
            slurmd = [*root, "slurmd", "-D", "-N", f"{cluster}{node}"]
            found[f"slurmd-{cluster}{node}"] = (slurmd, cluster, conf)
        listen = f"127.0.0.1:{REST_PORTS[cluster]}"
        found[f"slurmrestd-{cluster}"] = (
            [*root, "runuser", "-u", "restd", "--", "slurmrestd", "-a", "rest_auth/jwt", listen], cluster,
            {**conf, "SLURM_JWT": "daemon"},  # without it the tokens of others are refused
        )  # fmt: skip
    return found


def start(name: str) -> None:
    """Start one daemon, detached; the fleet's first process becomes its parent."""
    command, host, env = services()[name]
    # slurmctld and slurmdbd insist on running on the host that the configuration names.
    argv = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', host, *command]
    with (LOG / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **env},
            start_new_session=True,
        )
    (RUN / f"{name}.pid").write_text(str(process.pid))


def stop(name: str, number: int = signal.SIGTERM) -> None:
    """Stop one daemon and wait until it is gone."""
    pid = int((RUN / f"{name}.pid").read_text())
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _alive(pid):
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(what: str, command: list[str], accept: str = "", *, env: dict[str, str] | None = None) -> str:
    """Ask until the answer is there (and holds ``accept``)."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False
        )
        if done.returncode == 0 and accept in done.stdout:
            return done.stdout
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come up in {PATIENCE_S} s: {(done.stdout + done.stderr)[-600:]}")
        time.sleep(0.2)


def prepare() -> None:
    """Files, folders and keys that the daemons expect."""
    for folder in (
        SITE / "dev",
        RUN,
        LOG,
        TOKENS,
        Path("/run/munge"),
        Path("/run/mysqld"),
        Path("/var/log/munge"),
        *(Path(f"/var/spool/slurmd/{c}{n}") for c, nodes in CLUSTERS.items() for n in range(1, nodes + 1)),
    ):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree("/slurm-conf", CONF, dirs_exist_ok=True)
    (CONF / "slurm.conf").write_text("")  # slurmdbd looks for slurmdbd.conf beside SLURM_CONF
    for number in range(8):
        # slurmd takes only device files for GPUs; nothing opens these (195 is NVIDIA's driver).
        os.mknod(SITE / "dev" / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(195, number))
    key = SITE / "jwt.key"
    key.write_bytes(os.urandom(32))
    munge_key = Path("/etc/munge/munge.key")
    munge_key.parent.mkdir(exist_ok=True)
    munge_key.write_bytes(os.urandom(1024))
    for path, owner, mode in (
        (key, "slurm", 0o600), (munge_key, "munge", 0o400), (munge_key.parent, "munge", 0o700),
        (Path("/run/munge"), "munge", 0o755), (Path("/var/log/munge"), "munge", 0o700),
        (Path("/run/mysqld"), "mysql", 0o755), (CONF / "slurmdbd.conf", "slurm", 0o600),
        (RUN, "slurm", 0o755), (SITE, "slurm", 0o755), (TOKENS, "slurm-evo", 0o700),
    ):  # fmt: skip
        entry = pwd.getpwnam(owner)
        os.chown(path, entry.pw_uid, entry.pw_gid)
        path.chmod(mode)
    for cluster in CLUSTERS:
        state = SITE / cluster
        state.mkdir(exist_ok=True)
        os.chown(state, pwd.getpwnam("slurm").pw_uid, -1)
    Path("/scratch").chmod(0o1777)
    if OLDER.is_dir():
        OLDER_COMMANDS.mkdir(parents=True)
        enter = OLDER_COMMANDS.parent / "enter"
        subprocess.run(["gcc", "-O1", "-o", str(enter), "/testbed/older.c"], check=True)
        enter.chmod(0o4755)
        for name in COMMANDS:
            (OLDER_COMMANDS / name).symlink_to(enter)


def bring_up() -> None:
    """Everything, in the order in which one needs the other; returns when all of it works."""
    prepare()
    for name in ("munged", "mariadb"):
        start(name)
    sql = (
        "create database if not exists slurm_acct_db; "
        "create user if not exists 'slurm'@'%' identified by 'slurm-demo'; "
        "create user if not exists 'slurm'@'localhost' identified by 'slurm-demo'; "
        "grant all on slurm_acct_db.* to 'slurm'@'%'; grant all on slurm_acct_db.* to 'slurm'@'localhost';"
    )
    until("MariaDB", ["mariadb", "-e", sql])
    start("slurmdbd")
    conf = {"SLURM_CONF": str(CONF / "alpha" / "slurm.conf")}
    until("slurmdbd", ["sacctmgr", "-n", "show", "qos"], env=conf)
    make_accounts("people")
    for name in services():
        if name.startswith(("slurmctld", "slurmd-")):
            start(name)
    for cluster, nodes in CLUSTERS.items():
        conf = env_of(cluster)
        idle = ["sh", "-c", f"test $(sinfo -h -p gpu -N -t idle -o %N | wc -l) = {nodes}"]
        until(f"the nodes of {cluster}", idle, env=conf)
        token = until(
            "a token", ["scontrol", "token", "username=slurm-evo", "lifespan=86400"], "SLURM_JWT=", env=conf
        )
        path = TOKENS / cluster
        path.write_text(token.split("=", 1)[1].strip() + "\n")
        os.chown(path, pwd.getpwnam("slurm-evo").pw_uid, -1)
        path.chmod(0o600)
        start(f"slurmrestd-{cluster}")
    make_accounts("federation")
    for cluster in ("alpha", "beta", "gamma"):
        conf = {"SLURM_CONF": str(CONF / cluster / "slurm.conf")}
        synced = ["sh", "-c", "test $(scontrol show federation | grep -c 'Synced:Yes') -ge 2"]
        until(f"the federation at {cluster}", synced, env=conf)
    for cluster in CLUSTERS:
        conf = env_of(cluster)
        until(
            f"the accounts at {cluster}",
            f"runuser -u ada -- sbatch -M {cluster} --test-only --wrap true".split(),
            env=conf,
        )
    for cluster, port in REST_PORTS.items():
        who = f"-H X-SLURM-USER-NAME:slurm-evo -H X-SLURM-USER-TOKEN:$(cat {TOKENS}/{cluster})"
        until(
            f"slurmrestd of {cluster}",
            ["sh", "-c", f"curl -sf -o /dev/null {who} http://127.0.0.1:{port}/openapi/v3"],
        )


def make_accounts(part: str) -> None:
    """Users, accounts and QOS ("people"); or, when the controllers run, the federation and its GPU limits."""
    env = {**os.environ, "SLURM_CONF": str(CONF / "alpha" / "slurm.conf")}
    with (LOG / "accounts.log").open("ab") as log:
        subprocess.run([str(CONF / "accounts.sh"), part], stdout=log, stderr=log, env=env, check=False)


def serve() -> None:
    """Be process 1."""
    began = time.monotonic()
    state = Path("/scratch/state.json")
    try:
        bring_up()
    except BaseException as failure:
        state.write_text(json.dumps({"state": "failed", "why": str(failure)}))
        raise
    seconds = round(time.monotonic() - began, 1)
    state.write_text(json.dumps({"state": "up", "seconds": seconds}))
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(1)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["start", name]:
            start(name)
        case ["stop", name]:
            stop(name)
        case ["kill", name]:
            stop(name, signal.SIGKILL)
        case ["names"]:
            print("\n".join(services()))
        case _:
            raise SystemExit("usage: inside.py serve | start NAME | stop NAME | kill NAME | names")
