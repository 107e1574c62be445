"""A fleet of real Slurm clusters in namespaces of its own: start, use, stop. Needs root.

Everything lives in one mount, process, network, host-name and IPC namespace whose first process is
``inside.py``: when that ends, by whatever cause, all daemons and mounts end with it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from testbed.inside import OLDER_COMMANDS, REST_PORTS
from testbed.roots import (
    CHECKOUT,
    HERE,
    RELEASES,
    VENV,
    Release,
    as_expected,
    locked,
    root_of,
    say,
    slurm_version,
    venv_layer_of,
)

RUNS = Path(os.environ.get("SLURM_EVO_RUN", "/run/slurm-evo-testbed"))
START = r"""
set -eu
ip link set lo up
# With lo alone, clients that ask the resolver with AI_ADDRCONFIG find no address and time out.
ip link add veth0 type veth peer name veth1
ip address add 192.0.2.1/24 dev veth0
ip link set veth0 up; ip link set veth1 up
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir="$LAYERS",upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
cd /mnt/root
mkdir -p src scratch testbed slurm-conf
mount --bind -o ro "$CHECKOUT" src
mount --bind "$SCRATCH" scratch
mount --bind -o ro "$HERE" testbed
mount --bind -o ro "$CHECKOUT/slurm-conf" slurm-conf
mount -t proc proc proc; mount -t sysfs sysfs sys; mount -t tmpfs tmpfs run
mount --rbind /dev dev; mount -t tmpfs tmpfs dev/shm
printf '127.0.0.1 localhost mariadb slurmdbd alpha beta gamma delta\n' > etc/hosts
if [ -n "$OLDER" ]; then
  mkdir -p /mnt/older/upper /mnt/older/work older var/lib/slurm-evo-site var/spool/slurmd
  mount -t overlay overlay -o lowerdir="$OLDER",upperdir=/mnt/older/upper,workdir=/mnt/older/work older
  cp etc/hosts older/etc/hosts
  for shared in proc sys dev run tmp home scratch src etc/slurm var/lib/slurm-evo-site var/spool/slurmd; do
    mkdir -p older/$shared
    mount --rbind $shared older/$shared
  done
fi
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
  chroot . /usr/bin/python3 /testbed/inside.py serve
"""


@dataclass(frozen=True)
class Fleet:
    """One running fleet, by its name."""

    name: str

    @property
    def folder(self) -> Path:
        """Where the host keeps what it knows of the fleet."""
        return RUNS / self.name

    @property
    def scratch(self) -> Path:
        """A folder that the fleet sees as /scratch."""
        return self.folder / "scratch"

    @cached_property
    def _known(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "fleet.json").read_text()))

    @property
    def release(self) -> Release:
        """The Debian release it runs."""
        return RELEASES[str(self._known["release"])]

    @property
    def slurm_version(self) -> str:
        """Such as 26.05.5."""
        return str(self._known["slurm"])

    @property
    def delta_version(self) -> str:
        """Of Slurm on delta."""
        return str(self._known["delta"])

    @property
    def expected(self) -> bool:
        """Its Slurm is the one this testbed was made for."""
        return bool(self._known["expected"])

    @property
    def has_pyslurm(self) -> bool:
        """Pyslurm was built for it."""
        return bool(self._known["pyslurm"])

    @property
    def init(self) -> int | None:
        """The host's number of its first process; None if it does not run."""
        try:
            launcher = int((self.folder / "launcher.pid").read_text())
            children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
            name = Path(f"/proc/{launcher}/comm").read_text().strip()
        except (FileNotFoundError, ValueError, ProcessLookupError):
            return None
        # The number may belong to somebody else by now.
        return int(children[0]) if children and name == "unshare" else None

    @classmethod
    def up(cls, name: str, release: str = "forky", *, delta: str | None = None, seconds: float = 60.0) -> Fleet:
        """Build what is missing, start the fleet, return when every daemon answers.

        Args:
            name: its name.
            release: of Debian, for all of it.
            delta: another, older release for the cluster delta alone.
            seconds: how long it may take.
        """
        if os.geteuid() != 0:
            raise SystemExit("testbed: namespaces and chroot need root")
        unknown = {release, delta or release} - RELEASES.keys()
        if unknown:
            raise SystemExit(f"testbed: no release {unknown.pop()!r}; there are {', '.join(RELEASES)}")
        wanted = RELEASES[release]
        older = root_of(RELEASES[delta]) if delta else None
        root = root_of(wanted)
        layer = venv_layer_of(wanted, root)
        RUNS.mkdir(parents=True, exist_ok=True)
        with locked(RUNS / f".{name}.lock"):
            return cls(name)._start(wanted, root, layer, older, seconds)

    def _start(self, wanted: Release, root: Path, layer: Path, older: Path | None, seconds: float) -> Fleet:
        if self.init is not None:
            raise SystemExit(f"testbed: fleet {self.name} runs already; `down {self.name}` first")
        self.down()
        expected = as_expected(wanted, root)
        self.scratch.mkdir(parents=True)
        has_pyslurm = any(layer.glob(f".{VENV}/lib/python3*/site-packages/pyslurm"))
        facts = {
            "release": wanted.name,
            "slurm": slurm_version(root),
            "delta": slurm_version(older or root),
            "expected": expected,
            "pyslurm": has_pyslurm,
        }
        (self.folder / "fleet.json").write_text(json.dumps(facts))
        env = {
            **os.environ,
            "LAYERS": f"{layer}:{root}",
            "OLDER": str(older or ""),
            "CHECKOUT": str(CHECKOUT),
            "SCRATCH": str(self.scratch),
            "HERE": str(HERE),
        }
        namespaces = ("--mount", "--pid", "--net", "--uts", "--ipc", "--propagation", "private")
        argv = ["unshare", *namespaces, "--fork", "--kill-child", "/bin/sh", "-c", START]
        with (self.folder / "fleet.log").open("wb") as log, Path(os.devnull).open("rb") as nothing:
            ends = [(os.POSIX_SPAWN_DUP2, file.fileno(), end) for end, file in enumerate((nothing, log, log))]
            # Not subprocess: the launcher outlives whoever starts it.
            launcher = os.posix_spawnp("unshare", argv, env, file_actions=ends, setsid=True)
        (self.folder / "launcher.pid").write_text(str(launcher))
        self._wait(seconds, launcher)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _wait(self, seconds: float, launcher: int) -> None:
        state, deadline = self.scratch / "state.json", time.monotonic() + seconds
        while time.monotonic() < deadline and os.waitpid(launcher, os.WNOHANG) == (0, 0):
            if state.exists() and state.read_text().endswith("}"):
                break
            time.sleep(0.1)
        found = json.loads(state.read_text()) if state.exists() else {"state": "failed", "why": self._log()}
        if found["state"] != "up":
            self._keep_logs()
            self.down()
            raise SystemExit(f"testbed: fleet {self.name} did not come up: {found['why']}")
        mixed = "" if self.delta_version == self.slurm_version else f", on delta {self.delta_version}"
        say(f"fleet {self.name}: Slurm {self.slurm_version}{mixed}, up in {found['seconds']} s")

    def _log(self) -> str:
        return (self.folder / "fleet.log").read_text()[-2000:] or "no answer in time"

    def _keep_logs(self) -> None:
        kept = RUNS / f"{self.name}.last-logs"
        shutil.rmtree(kept, ignore_errors=True)
        if (self.scratch / "log").is_dir():
            shutil.copytree(self.scratch / "log", kept)
            say(f"its logs are kept in {kept}")

    def down(self) -> None:
        """End every process of the fleet and forget it; nothing happens if it does not run."""
        init = self.init
        if init is not None:
            os.kill(init, signal.SIGKILL)  # the kernel ends the rest of a namespace with its first process
            deadline = time.monotonic() + 10
            while Path(f"/proc/{init}").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
        with suppress(ChildProcessError, FileNotFoundError, ValueError):
            os.waitpid(int((self.folder / "launcher.pid").read_text()), 0)
        shutil.rmtree(self.folder, ignore_errors=True)

    def argv(self, command: Sequence[str], *, user: str = "root", cluster: str | None = "alpha") -> list[str]:
        """The command that runs ``command`` inside the fleet."""
        init = self.init
        if init is None:
            raise SystemExit(f"testbed: fleet {self.name} does not run; `up {self.name}` starts it")
        env = {
            "PATH": f"{VENV}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root" if user == "root" else f"/home/{user}",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": "/src:/src/daemon:/src/gp_training",
            # The checkout is read-only inside.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_ADDOPTS": "-p no:cacheprovider",
            "NUMBA_CACHE_DIR": f"/tmp/numba-{user}",
            "HYPOTHESIS_STORAGE_DIRECTORY": f"/tmp/hypothesis-{user}",
            "SLURM_EVO_FLEET": self.name,
        }
        if cluster == "delta" and self.delta_version != self.slurm_version:
            env["PATH"] = f"{OLDER_COMMANDS}:{env['PATH']}"
        if cluster:
            env["SLURM_CONF"] = f"/etc/slurm/{cluster}/slurm.conf"
        for name in ("CI", "SLURM_EVO_REQUIRE_SLURM", "TERM"):
            if name in os.environ:
                env[name] = os.environ[name]
        # A user starts at home, where a job may write its output; root in the checkout, where the tests are.
        folder = "/src" if user == "root" else env["HOME"]
        setting = [f"{name}={value}" for name, value in env.items()]
        enter = [
            "nsenter",
            f"--target={init}",
            *["-m", "-p", "-n", "-u", "-i", "-r", "env", "-i", "-C"],
            folder,
            *setting,
        ]
        return [*enter, *(() if user == "root" else ("runuser", "-u", user, "--")), *command]

    def rest_url(self, cluster: str) -> str:
        """Where a slurmrestd listens, inside the fleet; its token is in /etc/slurm-evo/jwt/CLUSTER."""
        return f"http://127.0.0.1:{REST_PORTS[cluster]}"

    def run(
        self, *command: str, user: str = "root", cluster: str | None = "alpha", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and capture what it says."""
        argv = self.argv(command, user=user, cluster=cluster)
        return subprocess.run(argv, capture_output=True, text=True, check=check, stdin=subprocess.DEVNULL)


def fleets() -> list[Fleet]:
    """All fleets the host knows of, running or left by a crash."""
    return [Fleet(path.parent.name) for path in sorted(RUNS.glob("*/fleet.json"))]
