"""Run the tests of this folder inside real fleets, one for each Slurm release: ``python tests/fleet/run.py``.

Needs root (namespaces, chroot). Anybody else is told so, and nothing runs; with CI=true or
SLURM_EVO_REQUIRE_SLURM=1 that is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from testbed.fleet import Fleet
from testbed.plugins import deliver
from testbed.roots import RELEASES, VENV

ONLY_ON = {
    "trixie": (
        "test_command_port.py",
        "test_rest_port.py",
        "test_site_factor_plugin.py",
        "test_lua_hook.py",
        "test_install_plugins.py",
    )
}
"""Slurm 24.11 has no pyslurm here: its ports are the command line and REST. 26.05 runs all but the C plugin."""
NEED_PLUGIN = ("test_site_factor_plugin.py", "test_install_plugins.py")
WITH_PLUGIN = ("trixie",)
"""Debian offers the source of this Slurm, so that site_factor/evo can be built for it."""


def main() -> int:
    """The first exit code that is not zero."""
    required = os.environ.get("CI") == "true" or os.environ.get("SLURM_EVO_REQUIRE_SLURM") == "1"
    if os.geteuid() != 0:
        print("tests on real Slurm need root (namespaces, chroot): not run", file=sys.stderr)
        return 1 if required else 0
    result = 0
    for release in sys.argv[1:] or list(RELEASES):
        name = f"tests-{release}-{os.getpid()}"
        with Fleet.up(name, release) as fleet:
            print(f"== Slurm {fleet.slurm_version} (Debian {release}) ==", flush=True)
            if release in WITH_PLUGIN:
                deliver(fleet)
            folder = Path("/src/tests/fleet")
            paths = [str(folder / file) for file in ONLY_ON.get(release, ())] or [str(folder)]
            left_out = [] if release in WITH_PLUGIN else [f"--ignore={folder / file}" for file in NEED_PLUGIN]
            pytest = [f"{VENV}/bin/python", "-m", "pytest", "--no-header", "-p", "no:cacheprovider"]
            pytest += [*left_out, *paths]
            done = subprocess.run(fleet.argv(pytest), check=False, stdin=subprocess.DEVNULL)
            result = result or done.returncode
    return result


if __name__ == "__main__":
    sys.exit(main())
