"""Run the tests of this folder inside real fleets: ``python tests/fleet/run.py [LANE …]``.

Needs root (namespaces, chroot). Anybody else is told so, and nothing runs; with CI=true or
SLURM_EVO_REQUIRE_SLURM=1 that is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
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
MIXED = ("test_mixed_versions.py",)
"""Delta on an older Slurm than the others."""
OWN_FLEETS = (*PLUGIN, *PLAIN, *MIXED)
REST = tuple(sorted(file.name for file in HERE.glob("test_*.py") if file.name not in OWN_FLEETS))


@dataclass(frozen=True)
class Stage:
    """Files that share a fleet."""

    release: str
    files: tuple[str, ...]
    delta: str | None = None
    """The Debian release of delta, if it is another one."""


LANES: dict[str, tuple[Stage, ...]] = {
    "forky": (Stage("forky", REST),),
    "plain": (Stage("forky", PLAIN),),
    # Slurm 24.11 has no pyslurm here: command line and REST.
    "trixie": (
        Stage(
            "trixie",
            ("test_command_port.py", "test_rest_port.py", "test_lua_hook.py", "test_hold_backs.py", *PLUGIN),
        ),
        Stage("forky", MIXED, delta="trixie"),
    ),
}
"""What can run side by side, about as long each."""


def main() -> int:
    """The first exit code that is not zero."""
    required = os.environ.get("CI") == "true" or os.environ.get("SLURM_EVO_REQUIRE_SLURM") == "1"
    if os.geteuid() != 0:
        print("tests on real Slurm need root (namespaces, chroot): not run", file=sys.stderr)
        return 1 if required else 0
    result = 0
    for lane in sys.argv[1:] or list(LANES):
        for place, stage in enumerate(LANES[lane]):
            with Fleet.up(f"tests-{lane}-{os.getpid()}-{place}", stage.release, delta=stage.delta) as fleet:
                print(
                    f"== {lane}: Slurm {fleet.slurm_version}, delta {stage.delta or stage.release} ==", flush=True
                )
                if set(PLUGIN) & set(stage.files):
                    deliver(fleet)
                paths = [f"/src/tests/fleet/{file}" for file in stage.files]
                pytest = [f"{VENV}/bin/python", "-m", "pytest", "--no-header", "-p", "no:cacheprovider", *paths]
                done = subprocess.run(fleet.argv(pytest), check=False, stdin=subprocess.DEVNULL)
                result = result or done.returncode
    return result


if __name__ == "__main__":
    sys.exit(main())
