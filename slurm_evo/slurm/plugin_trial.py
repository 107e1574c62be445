"""Is a built plugin right for this controller? Asked of slurmctld's own program, beside the running one."""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from slurm_evo.model import ConfigError
from slurm_evo.policy import Policy, compact
from slurm_evo.slurm.plugin_status import PLUGIN
from slurm_evo.slurm.plugins import LIBRARY
from slurm_evo.slurm.runner import run_process, slurm_environment

PATIENCE_S = 30.0
TRIAL = """
ClusterName=slurmevotrial
SlurmctldHost={host}
SlurmUser={user}
AuthType={auth}
CredType={cred}
SlurmctldPort={port}
SlurmctldPidFile={folder}/pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
PluginDir={folder}/plugins
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
PriorityType=priority/multifactor
PrioritySiteFactorPlugin={plugin}
PrioritySiteFactorParameters=dir={folder}
NodeName=trial[1] State=FUTURE
PartitionName=trial Nodes=ALL Default=YES
"""


@dataclass(frozen=True, slots=True)
class Controller:
    """What has to be known of a running controller."""

    slurm_conf: Path
    release: str
    """Such as 24.11.5."""
    plugin_dir: Path
    auth: str
    cred: str
    group: str
    """Of SlurmUser."""


def controller_facts(slurm_conf: Path, commands: Path | None = None) -> Controller:
    """Ask the controller (scontrol(1), show config).

    Raises:
        ConfigError: it does not answer.
    """
    argv = ("scontrol", "show", "config")
    try:
        ran = run_process(argv, env=slurm_environment(str(slurm_conf), commands), timeout_s=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise ConfigError(f"scontrol cannot be asked with {slurm_conf}: {failure}") from failure
    if ran.returncode:
        raise ConfigError(f"scontrol show config with {slurm_conf}: {(ran.stderr or ran.stdout).strip()[:300]}")
    found = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", ran.stdout, re.MULTILINE))
    user = found.get("SlurmUser", "root").split("(")[0]
    folders = found.get("PluginDir", "").split(":")
    return Controller(
        slurm_conf=slurm_conf,
        release=found.get("SLURM_VERSION", ""),
        plugin_dir=Path(next((one for one in folders if Path(one).is_dir()), folders[0])),
        auth=found.get("AuthType", "auth/munge"),
        cred=found.get("CredType", "cred/munge"),
        group=grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name,
    )


def built_for(library: Path, controller: Controller) -> str:
    """The plugin was built for this release, as its build wrote beside it.

    Raises:
        ConfigError: it was built for another one: slurmctld would refuse to start.
    """
    note = library.with_suffix(".slurm")
    told = note.read_text(encoding="utf-8").strip() if note.is_file() else ""
    if told and told != controller.release:
        raise ConfigError(
            f"{library} was built for Slurm {told}, the controller is {controller.release}: "
            "build it again with slurm-conf/plugins/build --from-distribution"
        )
    return f"built for Slurm {told}" if told else f"{note} is missing: nothing says for which Slurm it was built"


def try_it(library: Path, controller: Controller) -> str:
    """Let a private slurmctld load it: own port, own state, no accounting, no nodes. It ends after the answer.

    Raises:
        ConfigError: it does not load; says what slurmctld said.
    """
    program = shutil.which("slurmctld", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        return "slurmctld is not on this host: the plugin was not tried"
    with tempfile.TemporaryDirectory(prefix="slurm-evo-trial-") as name:
        folder = Path(name)
        _plugins(folder / "plugins", library, controller.plugin_dir)
        (folder / "policy").write_text(compact.dump(Policy.default()))
        (folder / "state").mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        conf = folder / "slurm.conf"
        conf.write_text(
            TRIAL.format(
                host=socket.gethostname(), user=pwd.getpwuid(os.geteuid()).pw_name, auth=controller.auth,
                cred=controller.cred, port=port, folder=folder, plugin=PLUGIN,
            )
        )  # fmt: skip
        said = _until_loaded([program, "-D", "-i", "-f", str(conf)], folder / "log")
    if f"{PLUGIN}: policy {compact.policy_id(Policy.default())}" not in said:
        errors = [line for line in said.splitlines() if re.search(r"error|fatal", line)]
        raise ConfigError(
            f"a private slurmctld did not load {library}: {'; '.join(errors[-3:]) or said[-300:] or 'no word'}"
        )
    return "a private slurmctld loaded it and read a policy"


def _plugins(folder: Path, library: Path, installed: Path) -> None:
    """Slurm's own plugins with this one among them: an installed older one must not answer in its place."""
    folder.mkdir()
    for path in installed.glob("*.so"):
        if path.name != LIBRARY:
            (folder / path.name).symlink_to(path)
    shutil.copy(library, folder / LIBRARY)


def _until_loaded(argv: list[str], log: Path) -> str:
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if f"{PLUGIN}: policy" in log.read_text(errors="replace"):
                break
            time.sleep(0.1)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return log.read_text(errors="replace")
