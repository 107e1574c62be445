"""Root file systems with a whole Slurm in them, made once from Debian's packages and kept in a cache."""

from __future__ import annotations

import configparser
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
CACHE = Path(os.environ.get("SLURM_EVO_CACHE", "/var/cache/slurm-evo"))
VENV = "/opt/slurm-evo/venv"
USERS = ("ada", "bob", "cyd", "slurm-evo", "restd")
PACKAGES = [
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurmrestd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-plugins",
    "slurm-wlm-mysql-plugin",
    "slurm-wlm-jwt-plugin",
    "libslurm-dev",
    "mariadb-server",
    "munge",
    "python3-dev",
    "python3-venv",
    "gcc",
    "procps",
    "curl",
    "ca-certificates",
    "iproute2",
]
PYSLURM = "pyslurm==25.11.2"


@dataclass(frozen=True)
class Release:
    """A Debian release and the Slurm it is expected to bring."""

    name: str
    slurm: str
    pyslurm: bool
    """pyslurm is built in it, if Slurm is the one expected."""


RELEASES = {
    "forky": Release("forky", "26.05", pyslurm=True),
    "trixie": Release("trixie", "24.11", pyslurm=False),
}


def say(text: str) -> None:
    """One line of progress, on standard error."""
    print(f"testbed: {text}", file=sys.stderr, flush=True)


def run(*argv: str, **options: object) -> None:
    """Run a command quietly; what it said is shown only if it fails."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(f"testbed: {' '.join(argv[:4])} … failed:\n{done.stdout[-3000:]}")


def host_packages() -> None:
    """Install what the host itself lacks."""
    missing = [
        package
        for tool, package in (("debootstrap", "debootstrap"), ("ip", "iproute2"), ("nsenter", "util-linux"))
        if shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None
    ]
    if missing:
        say(f"installing {' '.join(missing)}")
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing)


def root_of(release: Release) -> Path:
    """The release's root, built if the cache does not have it."""
    made_of = (
        *PACKAGES,
        *USERS,
        "4",
    )  # the last word is the recipe's version: raise it when the recipe changes
    target = CACHE / f"root-{release.name}-{_key(release.name, *made_of)}"
    return _cached(target, lambda aside: _build_root(release, aside))


def venv_layer_of(release: Release, root: Path) -> Path:
    """A layer to lay over the root: a virtual environment with what slurm-evo needs, pyslurm where it builds."""
    wanted = requirements()
    target = CACHE / f"venv-{release.name}-{_key(str(root), PYSLURM, *wanted, '2')}"
    return _cached(target, lambda aside: _build_venv(release, root, aside, wanted))


def requirements() -> tuple[str, ...]:
    """What setup.cfg asks for, with the extras that tests inside a fleet use."""
    config = configparser.ConfigParser()
    config.read(CHECKOUT / "setup.cfg")
    extras = config["options.extras_require"]
    # Linters do not run inside a fleet.
    texts = (config["options"]["install_requires"], extras["test"], extras["training"])
    skipped = ("mypy", "ruff", "import-linter")
    lines = {line.strip() for text in texts for line in text.splitlines()}
    return tuple(sorted(line for line in lines if line and not line.startswith(skipped)))


def slurm_version(root: Path) -> str:
    """The Slurm in a root, such as 26.05.5."""
    query = ("chroot", str(root), "dpkg-query", "-W", "-f", "${Version}", "slurmctld")
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split("-")[0]


def as_expected(release: Release, root: Path) -> bool:
    """Debian moves: say so once when its Slurm is not the one this testbed was made for."""
    found = slurm_version(root)
    if found.startswith(release.slurm + "."):
        return True
    say(f"Debian {release.name} now has Slurm {found}, not {release.slurm}: only the command-line port is tested")
    return False


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _cached(target: Path, build: object) -> Path:
    """Build aside under a lock and rename, so that a half-made one is never taken for whole."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with _locked(CACHE / f"{target.name}.lock"):
        if not target.is_dir():
            aside = target.with_name(target.name + ".making")
            _remove(aside)
            build(aside)  # type: ignore[operator]
            aside.rename(target)
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _remove(tree: Path) -> None:
    if any(f" {tree}/" in line or f" {tree} " in line for line in Path("/proc/mounts").read_text().splitlines()):
        raise SystemExit(f"testbed: something is mounted under {tree}; unmount it first")
    shutil.rmtree(tree, ignore_errors=True)


def _build_root(release: Release, root: Path) -> None:
    host_packages()
    say(f"building a root with Slurm from Debian {release.name} (about a minute)")
    script = Path("/usr/share/debootstrap/scripts") / release.name
    if not script.exists():  # an older debootstrap does not know the newest release; its script is sid's
        script.symlink_to("sid")
    mirror = _mirror()
    run("debootstrap", "--variant=minbase", release.name, str(root), *([mirror] if mirror else []))
    for name in ("hosts", "resolv.conf"):
        shutil.copy(f"/etc/{name}", root / "etc" / name)
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    steps = f"""
export DEBIAN_FRONTEND=noninteractive
apt-get -o Acquire::Check-Valid-Until=false update -qq
apt-get install -y -qq --no-install-recommends {" ".join(PACKAGES)}
apt-get clean
for user in {" ".join(USERS)}; do id $user >/dev/null 2>&1 || useradd --create-home --shell /bin/bash $user; done
"""
    _in_root(root, steps)


def _build_venv(release: Release, root: Path, layer: Path, wanted: tuple[str, ...]) -> None:
    say(f"installing Python packages for Debian {release.name} (one to three minutes)")
    layer.mkdir()
    steps = f"""
python3 -m venv {VENV}
{VENV}/bin/pip install --quiet {" ".join(f"'{line}'" for line in wanted)}
"""
    if release.pyslurm and as_expected(release, root):
        # 26.05 is newer than pyslurm knows; the headers in pyslurm-compat bridge the difference.
        steps += f"""
libdir=$(dirname $(find /usr/lib -name libslurmfull.so | head -1))
SLURM_INCLUDE_DIR=/testbed/pyslurm-compat SLURM_LIB_DIR=$libdir CFLAGS=-w {VENV}/bin/pip install --quiet '{PYSLURM}'
"""
    overlay = f"""
set -eu
mount -t tmpfs tmpfs /mnt; mkdir /mnt/root
mkdir -p {layer}.work
mount -t overlay overlay -o lowerdir={root},upperdir={layer},workdir={layer}.work /mnt/root
mkdir -p /mnt/root/testbed; mount --bind {HERE} /mnt/root/testbed
"""
    try:
        _in_root(Path("/mnt/root"), steps, before=overlay, pip=True)
    finally:
        shutil.rmtree(f"{layer}.work", ignore_errors=True)
    for name in os.listdir(layer):  # only the environment is kept; caches and pip's settings are not
        if name != "opt":
            shutil.rmtree(layer / name, ignore_errors=True)


def _in_root(root: Path, steps: str, *, before: str = "set -eu\n", pip: bool = False) -> None:
    """Run shell steps inside a root, in a mount namespace of its own, with the machine's ways to the registries."""
    # Certificates and pip's settings belong to the machine that builds: lent for the build, left nowhere.
    # (Not while ca-certificates itself is being installed: it replaces the file.)
    lend = "".join(
        f"mkdir -p {root}{Path(path).parent}; touch {root}{path}; mount --bind {path} {root}{path}\n"
        for path in ("/etc/ssl/certs/ca-certificates.crt", "/etc/resolv.conf", "/etc/pip.conf")
        if pip and Path(path).is_file()
    )
    lend += "".join(
        f"mkdir -p {root}{path}; mount --bind {path} {root}{path}\n"
        for path in _folders_of_pip()
        if pip and Path(path).is_dir()
    )
    script = f"""{before}
mount -t proc proc {root}/proc; mount --rbind /dev {root}/dev; mount -t sysfs sysfs {root}/sys
{lend}
exec chroot {root} /bin/sh -euc {shlex.quote(steps)}
"""
    names = ("PIP_", "HTTP", "http", "SSL_", "REQUESTS_", "CURL_", "NO_PROXY", "no_proxy")
    env = {name: value for name, value in os.environ.items() if name.startswith(names)}
    env |= {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C",
    }
    run("unshare", "--mount", "--propagation", "private", "/bin/sh", "-euc", script, env=env)


def _folders_of_pip() -> list[str]:
    """Local folders that pip is told to look for wheels in, and the machine's pip settings."""
    links = os.environ.get("PIP_FIND_LINKS", "").split()
    return ["/etc/xdg/pip", *(link for link in links if link.startswith("/"))]


def _mirror() -> str:
    """Where this host's own apt takes Debian from; empty for debootstrap's default."""
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for source in sources:
        if not source.is_file():
            continue
        for line in source.read_text().splitlines():
            words = line.split()
            if line.startswith("URIs:") and words[1].rstrip("/").endswith("/debian"):
                return words[1]
            if words[:1] == ["deb"]:
                found = next((word for word in words if "://" in word), "")
                if found.rstrip("/").endswith("/debian"):
                    return found
    return ""
