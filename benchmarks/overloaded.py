"""150 jobs of three users on an overloaded cluster, daemon off and on: waits as sacct records them.

Run inside a fleet of the testbed, which must be idle:
``python3 tests/testbed exec NAME -- /opt/slurm-evo/venv/bin/python /src/benchmarks/overloaded.py``
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / "fleet")]

from daemon_process import WAY, DaemonProcess
from overload import run


def main() -> None:
    """Run both and print a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = Path("/scratch/benchmark-overloaded")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    daemon = DaemonProcess(folder)
    daemon.configure()
    daemon.run("plan")
    found = {}
    for name, steered in (("off", None), ("on", daemon)):
        waited = run(given.jobs, given.seed, folder, steered, patience_s=1200)
        print(f"daemon {name}: {waited}", flush=True)
        found[name] = waited.as_dict()
    ratio = found["off"]["mean_wait_s"] / max(found["on"]["mean_wait_s"], 1e-9)
    print(
        json.dumps({"benchmark": "overloaded", "way": WAY, "seed": given.seed, **found, "mean_wait_ratio": ratio})
    )


if __name__ == "__main__":
    main()
