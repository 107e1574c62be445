"""Root file systems with a whole Slurm in them, made once from Debian's packages and kept in a cache."""

from __future__ import annotations

import configparser
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
CACHE = Path(os.environ.get("SLURM_EVO_CACHE", "/var/cache/slurm-evo"))
VENV = "/opt/slurm-evo/venv"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PIP_SETTINGS = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/root/.config/pip/pip.conf", "/root/.pip/pip.conf")
PYSLURM = "pyslurm==25.11.2"
NO_PYSLURM = "/opt/slurm-evo/no-pyslurm"
"""In an environment in which pyslurm did not build: what the compiler said."""
EXTRAS = ("test", "training", "trace", "postgres", "mysql")
HOST_ONLY = ("mypy", "ruff", "import-linter", "pyyaml", "lupa")
"""Wanted by the tests of the checkout, not inside a fleet."""

ROOT_STEPS = """
export DEBIAN_FRONTEND=noninteractive
certificates=/run/host-certificates
apt() { apt-get -q -o Acquire::Check-Valid-Until=false -o Dpkg::Options::=--force-unsafe-io "$@"; }
[ ! -s $certificates ] || echo "Acquire::https::CaInfo \"$certificates\";" > /etc/apt/apt.conf.d/90host
apt update
apt install -y --no-install-recommends $(grep -v '^#' /slurm-conf/packages.txt)
apt clean
rm -f /etc/apt/apt.conf.d/90host
sh /slurm-conf/people.sh
"""
# Compiled afterwards, by all processors at once: pip would do it one file after the other. (Some libraries ship
# files that do not compile.)
VENV_STEPS = f"""
python3 -m venv {VENV}
{VENV}/bin/pip install --quiet --no-cache-dir --no-compile "$@"
wait
[ ! -e /tmp/wheels ] || {VENV}/bin/pip install --quiet --no-cache-dir --no-compile --no-deps /tmp/wheels/*.whl
{VENV}/bin/python -m compileall -q -j 0 -x /tests/ {VENV}/lib || true
"""
# Slurm 26.05 is newer than pyslurm knows; the headers in pyslurm-compat bridge the difference.
PYSLURM_STEPS = f"""
pyslurm() {{
  export SLURM_LIB_DIR=$(dirname $(find /usr/lib -name libslurmfull.so | head -1))
  export SLURM_INCLUDE_DIR=/testbed/pyslurm-compat CFLAGS=-w
  python3 -m venv /tmp/builder
  /tmp/builder/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /tmp/built '{PYSLURM}'
}}
{{
  if pyslurm > /tmp/pyslurm.log 2>&1; then mv /tmp/built /tmp/wheels
  else cp /tmp/pyslurm.log {NO_PYSLURM}; fi
}} &
"""


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


def run(*argv: str, env: dict[str, str] | None = None) -> None:
    """Run a command quietly; what it said is shown only if it fails."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=env)
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
    made_of = [(CHECKOUT / "slurm-conf" / name).read_text() for name in ("packages.txt", "people.sh")]
    target = CACHE / f"root-{release.name}-{_key(release.name, ROOT_STEPS, *made_of)}"
    return cached(target, lambda aside: _build_root(release, aside))


def venv_layer_of(release: Release, root: Path) -> Path:
    """A layer to lay over the root: the Python packages slurm-evo needs, pyslurm where it builds."""
    wanted, steps, headers = requirements(), VENV_STEPS, list[str]()
    if release.pyslurm and slurm_version(root).startswith(release.slurm + "."):
        steps = PYSLURM_STEPS + VENV_STEPS  # side by side
        headers = [path.read_text() for path in sorted((HERE / "pyslurm-compat").rglob("*.h"))]
    target = CACHE / f"venv-{release.name}-{_key(root.name, steps, *headers, *wanted)}"
    layer = cached(target, lambda aside: _build_venv(release, root, aside, wanted, steps))
    if (layer / NO_PYSLURM[1:]).exists():
        say(f"no pyslurm in Debian {release.name}: see {layer}{NO_PYSLURM}; to try again remove {layer}")
    return layer


def requirements() -> tuple[str, ...]:
    """What setup.cfg asks for, with the extras that tests inside a fleet use."""
    config = configparser.ConfigParser()
    config.read(CHECKOUT / "setup.cfg")
    extras = config["options.extras_require"]
    texts = (config["options"]["install_requires"], *(extras.get(name, "") for name in EXTRAS))
    lines = {line.strip() for text in texts for line in text.splitlines()}
    return tuple(sorted(line for line in lines if line and not line.startswith(HOST_ONLY)))


def slurm_version(root: Path) -> str:
    """The Slurm in a root, such as 26.05.5."""
    query = ("chroot", str(root), "dpkg-query", "-W", "-f", "${Version}", "slurmctld")
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split("-")[0]


def as_expected(release: Release, root: Path) -> bool:
    """Debian moves: say so once when its Slurm is not the one this testbed was made for."""
    found = slurm_version(root)
    if found.startswith(release.slurm + "."):
        return True
    say(f"Debian {release.name} now has Slurm {found}, not {release.slurm}: only its commands are relied on")
    return False


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def cached(target: Path, build: Callable[[Path], None]) -> Path:
    """Build aside under a lock and rename, so that a half-made one is never taken for whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(f"{target.name}.lock")):
        if not target.is_dir():
            aside = target.with_name(target.name + ".making")
            _remove(aside)
            build(aside)
            aside.rename(target)
    return target


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one process at a time; freed when the process ends, however it ends."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _remove(tree: Path) -> None:
    if any(f" {tree}/" in line or f" {tree} " in line for line in Path("/proc/mounts").read_text().splitlines()):
        raise SystemExit(f"testbed: something is mounted under {tree}; unmount it first")
    shutil.rmtree(tree, ignore_errors=True)


def _build_root(release: Release, root: Path) -> None:
    host_packages()
    say(f"building a root with Slurm from Debian {release.name} (one to two minutes)")
    scripts = Path("/usr/share/debootstrap/scripts")
    # An older debootstrap does not know the newest release by name; it is made as sid is.
    script = scripts / (release.name if (scripts / release.name).exists() else "sid")
    mirror = _mirror()
    run("debootstrap", "--variant=minbase", release.name, str(root), mirror, str(script), env=_ways_out())
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")  # nothing that is installed here starts by itself
    policy.chmod(0o755)
    lent = {"/etc/resolv.conf": "/etc/resolv.conf", "/etc/hosts": "/etc/hosts"}
    # Not in its own place: while ca-certificates is being installed it replaces that file.
    lent |= {CERTIFICATES: "/run/host-certificates", str(CHECKOUT / "slurm-conf"): "/slurm-conf"}
    _in_root(root, ROOT_STEPS, lent)


def _build_venv(release: Release, root: Path, layer: Path, wanted: tuple[str, ...], steps: str) -> None:
    say(f"installing Python packages for Debian {release.name} (one to three minutes)")
    folder = layer / "opt" / "slurm-evo"
    folder.mkdir(parents=True)
    # The root itself stays as it is: what the steps write beside the environment goes to memory and is lost.
    overlay = f"""
mount -t tmpfs tmpfs /mnt; mkdir /mnt/root /mnt/upper /mnt/work
mount -t overlay overlay -o lowerdir={root},upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
"""
    lent = {
        path: path for path in (CERTIFICATES, "/etc/resolv.conf", "/etc/hosts", *PIP_SETTINGS, *_named_by_pip())
    }
    lent |= {str(HERE): "/testbed", str(folder): "/opt/slurm-evo"}
    _in_root(Path("/mnt/root"), f"set -- {shlex.join(wanted)}\n{steps}", lent, before=overlay)


def _in_root(root: Path, steps: str, lent: dict[str, str], *, before: str = "") -> None:
    """Run shell steps inside a root, in namespaces of their own, with paths of this machine lent to it.

    Certificates and pip's settings belong to the machine that builds: they are mounted for the build only.
    """
    mounts = ""
    for ours, theirs in lent.items():
        there = shlex.quote(f"{root}{theirs}")
        make = f"mkdir -p {there}" if Path(ours).is_dir() else f"mkdir -p $(dirname {there}); touch {there}"
        if Path(ours).exists():
            mounts += f"{make}; mount --bind {shlex.quote(ours)} {there}\n"
    script = f"""{before}
mount -t proc proc {root}/proc; mount --rbind /dev {root}/dev; mount -t sysfs sysfs {root}/sys
{mounts}
exec chroot {root} /bin/sh -euc {shlex.quote(steps)}
"""
    namespaces = ("--mount", "--pid", "--propagation", "private", "--fork", "--kill-child")
    run("unshare", *namespaces, "/bin/sh", "-euc", script, env=_ways_out())


def _ways_out() -> dict[str, str]:
    """What this machine needs to reach registries: proxies, certificates, pip's settings."""
    names = ("PIP_", "HTTP", "http", "SSL_", "REQUESTS_", "CURL_", "NO_PROXY", "no_proxy", "ALL_PROXY")
    env = {name: value for name, value in os.environ.items() if name.startswith(names)}
    settings = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
    proxy = re.search(r'^Acquire::http::Proxy "(http.*)";', settings, re.MULTILINE)
    if proxy and "http_proxy" not in env:
        env["http_proxy"] = proxy[1]
    return env | {"PATH": SYSTEM_PATH, "HOME": "/root", "LC_ALL": "C"}


def _named_by_pip() -> set[str]:
    """Folders and files of this machine that pip is told to look into."""
    texts = [value for name, value in os.environ.items() if name.startswith("PIP_")]
    texts += [Path(path).read_text() for path in PIP_SETTINGS if Path(path).is_file()]
    named = re.findall(r"(?:^|\s|=|file://)(/[^\s,]+)", "\n".join(texts))
    # An index in a folder links to files beside it.
    shared = {path.rstrip("/").removesuffix("/simple") for path in named}
    return {path for path in shared if path and Path(path).exists()}


def _mirror() -> str:
    """Where this host's own apt takes Debian from; empty if it does not."""
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for source in sources:
        lines = source.read_text().splitlines() if source.is_file() else []
        for line in lines:
            if line.startswith(("deb ", "URIs:")):
                for word in line.split():
                    if "://" in word and word.rstrip("/").endswith("/debian"):
                        return word
    return ""
