"""Run the tests of this folder inside real fleets, by stages: ``python tests/fleet/run.py [STAGE …]``.

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
from testbed.roots import VENV

HERE = Path(__file__).resolve().parent
PLUGIN = ("test_site_factor_plugin.py", "test_install_plugins.py")
"""Where Debian offers the source of Slurm, so that site_factor/evo can be built: trixie."""
PLAIN = ("test_plain_moves.py", "test_plain_killed.py")
"""They take a cluster out of the federation: in a fleet of their own."""
STAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "forky": (
        "forky",
        tuple(sorted(file.name for file in HERE.glob("test_*.py") if file.name not in (*PLUGIN, *PLAIN))),
    ),
    "plain": ("forky", PLAIN),
    "trixie": ("trixie", ("test_command_port.py", "test_rest_port.py", "test_lua_hook.py", *PLUGIN)),
}
"""Debian release and files of each stage, which has a fleet of its own. Slurm 24.11 has no pyslurm here."""


def main() -> int:
    """The first exit code that is not zero."""
    required = os.environ.get("CI") == "true" or os.environ.get("SLURM_EVO_REQUIRE_SLURM") == "1"
    if os.geteuid() != 0:
        print("tests on real Slurm need root (namespaces, chroot): not run", file=sys.stderr)
        return 1 if required else 0
    result = 0
    for stage in sys.argv[1:] or list(STAGES):
        release, files = STAGES[stage]
        with Fleet.up(f"tests-{stage}-{os.getpid()}", release) as fleet:
            print(f"== {stage}: Slurm {fleet.slurm_version} (Debian {release}) ==", flush=True)
            if set(PLUGIN) & set(files):
                deliver(fleet)
            paths = [f"/src/tests/fleet/{file}" for file in files]
            pytest = [f"{VENV}/bin/python", "-m", "pytest", "--no-header", "-p", "no:cacheprovider", *paths]
            done = subprocess.run(fleet.argv(pytest), check=False, stdin=subprocess.DEVNULL)
            result = result or done.returncode
    return result


if __name__ == "__main__":
    sys.exit(main())
