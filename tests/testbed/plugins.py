"""The plugin site_factor/evo built for a release as an admin does it: in its root, from Debian's source."""

from __future__ import annotations

import shutil
from pathlib import Path

from testbed.fleet import Fleet
from testbed.roots import CACHE, CERTIFICATES, CHECKOUT, Release, _in_root, _key, cached, root_of, say

FOLDER = CHECKOUT / "slurm-conf" / "plugins"
DELIVERED = "plugin"
"""Below a fleet's scratch folder."""
STEPS = f"""
export DEBIAN_FRONTEND=noninteractive
[ ! -s {CERTIFICATES} ] || echo "Acquire::https::CaInfo \\"{CERTIFICATES}\\";" > /etc/apt/apt.conf.d/90host
apt-get -q -o Acquire::Check-Valid-Until=false update
apt-get -q install -y --no-install-recommends make libc6-dev
cp -r /plugins /tmp/plugins
/tmp/plugins/build --from-distribution --output /out
"""


def built(release: Release) -> Path:
    """The folder with site_factor_evo.so; built if the cache does not have it (about two minutes)."""
    root = root_of(release)
    sources = [path.read_text() for path in sorted(FOLDER.rglob("*")) if path.suffix in (".c", ".h")]
    build = [(FOLDER / name).read_text() for name in ("build", "Makefile")]
    target = CACHE / f"plugin-{release.name}-{_key(root.name, STEPS, *build, *sources)}"

    def make(aside: Path) -> None:
        say(f"building site_factor/evo for Debian {release.name}")
        aside.mkdir(parents=True)
        overlay = f"""
mount -t tmpfs tmpfs /mnt; mkdir /mnt/root /mnt/upper /mnt/work
mount -t overlay overlay -o lowerdir={root},upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
"""
        lent = {path: path for path in (CERTIFICATES, "/etc/resolv.conf", "/etc/hosts")}
        lent |= {str(FOLDER): "/plugins", str(aside): "/out"}
        _in_root(Path("/mnt/root"), STEPS, lent, before=overlay)

    return cached(target, make)


def deliver(fleet: Fleet) -> Path:
    """Put the plugin into a fleet's scratch folder, where tests/fleet looks for it."""
    there = fleet.scratch / DELIVERED
    shutil.copytree(built(fleet.release), there, dirs_exist_ok=True)
    return there
