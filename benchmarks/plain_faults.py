"""Step by fault: what becomes of a plain job that is moved while something goes wrong at that very step.

Run inside an idle fleet of the testbed (gamma is taken out of the federation), about 15 minutes:
``python3 tests/testbed exec NAME -- /opt/slurm-evo/venv/bin/python /src/benchmarks/plain_faults.py``

``daemon is killed``: the daemon's own code and journal in a process that ends by SIGKILL at the point; then
another process goes on from the journal. All others: moves by the same code in this process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / "fleet")]

from plain import GAMMA, close_ports
from plain_daemon import PlainDaemon, prepared
from plain_faults import (
    FAULTS,
    KILLED,
    SITE,
    Case,
    Struck,
    fill_both,
    kill_self,
    looked_at,
    struck_by_death,
    struck_by_owner,
    struck_by_site,
    verdict,
)

from slurm_evo.model import ClusterName, JobKey
from slurm_evo.slurm.transfer import Transfer
from slurm_evo_daemon.observe import observe
from slurm_evo_daemon.site import at_site, open_journal
from slurm_evo_daemon.transfers import WantedTransfer, _transfer, carry_on

LONGEST_S = 240


def carried(folder: Path, job: int, point: str) -> None:
    """Do in this process what the daemon does with one move, and die at the point; without a point, to its end."""
    with at_site(folder / "slurm-evo.toml", partial(open_journal, make=True)) as (around, force):
        deadline = time.monotonic() + LONGEST_S
        lease = around.journal.acquire("faults", now=around.clock(), length_s=600)
        assert lease is not None

        def at_point(seen: str) -> None:
            if seen == point:
                kill_self()

        ways = {name: Struck(way, at_point) for name, way in around.transfers.items()}
        wanted = [WantedTransfer(JobKey(ClusterName("delta"), job), GAMMA, "a story")]
        if around.journal.transfers_of(wanted[0].job):
            wanted = []
        while time.monotonic() < deadline:
            view = observe(around.ports, around.clock())
            carry_on(
                wanted, view, force.settings, ports=ways, journal=around.journal, lease=lease, clock=around.clock
            )
            wanted = []
            moves = around.journal.open_transfers()
            if any(move.phase == "confirm" for move in moves):
                at_point("confirming")
            if not moves:
                return
            time.sleep(1)


def dies(folder: Path, case: Case) -> Transfer:
    """The first process dies at the point, the second one carries on to the end."""
    this = [sys.executable, __file__, "--folder", str(folder), "--job", str(case.job)]
    died = subprocess.run([*this, "--die", case.point], check=False)
    if died.returncode != -9:
        raise AssertionError(f"{case.point}: did not die there, but ended with {died.returncode}")
    subprocess.run(this, check=True)
    with at_site(folder / "slurm-evo.toml") as (around, _):
        (record,) = around.journal.transfers_of(JobKey(ClusterName("delta"), case.job))
    return _transfer(record)


def row(fault: str, folder: Path) -> list[Case]:
    """All points of one fault."""
    prepared()
    fill_both()
    marks = folder / f"marks-{time.time():.0f}"
    if fault == KILLED:
        cases = struck_by_death(marks, lambda case: dies(folder, case))
    elif fault in SITE:
        cases = struck_by_site(fault, marks)
    else:
        cases = struck_by_owner(fault, marks)
    looked_at(cases, marks)
    return cases


def main() -> None:
    """Print a row for each fault, and the table as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", action="append", choices=FAULTS)
    parser.add_argument("--folder", type=Path, default=Path("/scratch/plain-faults"))
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--die", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        carried(given.folder, given.job, given.die)
        return
    given.folder.mkdir(exist_ok=True)
    given.folder.chmod(0o777)
    PlainDaemon(given.folder).configure(confirm_s=12)
    table: dict[str, dict[str, str]] = {}
    wrong: dict[str, str] = {}
    for fault in given.fault or FAULTS:
        began, table[fault] = time.monotonic(), {}
        for case in row(fault, given.folder):
            what, problem = verdict(case, fault)
            told = "" if case.accepted is None else ", done" if case.accepted else ", Slurm refused it"
            table[fault][case.point] = what + told if case.reached else "not reached: " + what
            if problem:
                wrong[f"{fault}, {case.point}"] = problem
            why = case.move.move.why if case.move else ""
            print(f"{fault:28} {case.point:15} {table[fault][case.point]:30} {problem} ({why})", flush=True)
        print(f"{fault}: {time.monotonic() - began:.0f} s", flush=True)
    close_ports()
    cells = sum(map(len, table.values()))
    print(json.dumps({"benchmark": "plain_faults", "cells": cells, "wrong": wrong, "table": table}))


if __name__ == "__main__":
    main()
