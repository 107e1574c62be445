"""``python3 tests/testbed``: build, start, use, inspect and stop real Slurm fleets."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from testbed.fleet import Fleet, fleets
from testbed.roots import RELEASES, root_of, venv_layer_of

EXAMPLES = """examples:
  sudo python3 tests/testbed up mine --release forky
  sudo python3 tests/testbed exec mine --user ada --cluster alpha -- sbatch --gres=gpu:2 --wrap 'sleep 60'
  sudo python3 tests/testbed exec mine -- squeue
  sudo python3 tests/testbed exec mine -- python3 /testbed/inside.py stop slurmctld-beta
  sudo python3 tests/testbed logs mine slurmctld-alpha
  sudo python3 tests/testbed down mine
"""


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(
        prog="testbed",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    build = verbs.add_parser("build", help="make the cached root file systems without starting anything")
    build.add_argument("--release", choices=RELEASES, action="append")
    up = verbs.add_parser("up", help="start a fleet; builds what is missing")
    up.add_argument("name")
    up.add_argument("--release", choices=RELEASES, default="forky")
    up.add_argument("--delta", choices=RELEASES, help="another, older release for the cluster delta alone")
    down = verbs.add_parser("down", help="stop a fleet, also one that a crash left behind")
    down.add_argument("name")
    status = verbs.add_parser("status", help="which fleets there are")
    status.add_argument("--json", action="store_true")
    run = verbs.add_parser("exec", help="run a command, given behind --, inside a fleet")
    run.add_argument("name")
    run.add_argument("--user", default="root")
    run.add_argument("--cluster", default="alpha", choices=("alpha", "beta", "gamma", "delta"))
    shell = verbs.add_parser("shell", help="a shell inside a fleet")
    shell.add_argument("name")
    logs = verbs.add_parser("logs", help="a daemon's log; without a daemon, which there are")
    logs.add_argument("name")
    logs.add_argument("daemon", nargs="?")
    ours, command = sys.argv[1:], ["bash"]
    if "--" in ours:
        ours, command = ours[: ours.index("--")], ours[ours.index("--") + 1 :]
    given = parser.parse_args(ours)
    match given.verb:
        case "build":
            for name in given.release or RELEASES:
                venv_layer_of(RELEASES[name], root_of(RELEASES[name]))
        case "up":
            Fleet.up(given.name, given.release, delta=given.delta)
        case "down":
            Fleet(given.name).down()
        case "status":
            _status(as_json=given.json)
        case "exec" | "shell":
            options = {"user": given.user, "cluster": given.cluster} if given.verb == "exec" else {}
            argv = Fleet(given.name).argv(command, **options)
            os.execvp(argv[0], argv)  # noqa: S606 - no shell between us and the command
        case "logs":
            _logs(Fleet(given.name).scratch / "log", given.daemon)


def _logs(folder: Path, daemon: str | None) -> None:
    if not folder.is_dir():
        raise SystemExit(f"testbed: no logs in {folder}; `status` lists the fleets")
    known = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if daemon is None:
        print("\n".join(str(path) for path in known.values()))
    elif daemon in known:
        print(known[daemon].read_text(), end="")
    else:
        raise SystemExit(f"testbed: no log of {daemon!r}; there are {', '.join(known)}")


def _status(*, as_json: bool) -> None:
    rows = [
        {
            "name": fleet.name,
            "running": fleet.init is not None,
            "slurm": fleet.slurm_version,
            "pyslurm": fleet.has_pyslurm,
        }
        for fleet in fleets()
    ]
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['name']:16} {'up' if row['running'] else 'dead':5} Slurm {row['slurm']}")
    if not rows:
        print("no fleet; start one with: python3 tests/testbed up NAME")


if __name__ == "__main__":
    main()
