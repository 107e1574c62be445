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

HERE = Path(__file__).resolve().parent
PLUGIN = ("test_site_factor_plugin.py", "test_install_plugins.py")
"""Where Debian offers the source of Slurm, so that site_factor/evo can be built: trixie."""
PLAIN = ("test_plain_moves.py", "test_plain_killed.py")
"""They take a cluster out of the federation: in a fleet of their own."""
STAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "forky": (
        tuple(sorted(file.name for file in HERE.glob("test_*.py") if file.name not in (*PLUGIN, *PLAIN))),
        PLAIN,
    ),
    "trixie": (("test_command_port.py", "test_rest_port.py", "test_lua_hook.py", *PLUGIN),),
}
"""By release: what each of its fleets is for. Slurm 24.11 has no pyslurm here: command line and REST."""


def main() -> int:
    """The first exit code that is not zero."""
    required = os.environ.get("CI") == "true" or os.environ.get("SLURM_EVO_REQUIRE_SLURM") == "1"
    if os.geteuid() != 0:
        print("tests on real Slurm need root (namespaces, chroot): not run", file=sys.stderr)
        return 1 if required else 0
    result = 0
    for release in sys.argv[1:] or list(RELEASES):
        for place, files in enumerate(STAGES[release]):
            with Fleet.up(f"tests-{release}-{os.getpid()}-{place}", release) as fleet:
                print(f"== Slurm {fleet.slurm_version} (Debian {release}) ==", flush=True)
                if set(PLUGIN) & set(files):
                    deliver(fleet)
                paths = [f"/src/tests/fleet/{file}" for file in files]
                pytest = [f"{VENV}/bin/python", "-m", "pytest", "--no-header", "-p", "no:cacheprovider", *paths]
                done = subprocess.run(fleet.argv(pytest), check=False, stdin=subprocess.DEVNULL)
                result = result or done.returncode
    return result


if __name__ == "__main__":
    sys.exit(main())
