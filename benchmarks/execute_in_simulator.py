"""The same programs in the same simulator, ranked by our evaluator and by gplearn's own ``execute``.

    python benchmarks/execute_in_simulator.py [--days 3] [--load 1.0] [--programs 6]

The history is generated: four clusters, 144 GPUs. The compiled engine is built twice, the second time with an
evaluator that calls back into Python, where gplearn's program runs ``execute`` on the queue it is given; in that
process everything else is the same. Both must start every job at the same second. Compiling the second engine
takes one or two minutes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "gp_training")]

import numpy as np

CURRENT: dict[str, Any] = {}
"""The gplearn program that is being simulated."""


def calling_back() -> Any:
    """An evaluator as the engine knows it, whose work is done by gplearn."""
    import numba

    double_p = ctypes.POINTER(ctypes.c_double)

    def score(table: int, count: int, out: int) -> None:
        rows = np.ctypeslib.as_array(ctypes.cast(table, double_p), (11, count))
        found = CURRENT["program"].execute(np.ascontiguousarray(rows.T))
        np.ctypeslib.as_array(ctypes.cast(out, double_p), (count,))[:] = np.nan_to_num(
            found, posinf=1e308, neginf=-1e308
        )

    pointer = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(score)
    CURRENT["kept"] = pointer

    @numba.njit(_nrt=False)
    def evaluate(code, constants, registers, table, out):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, ARG001
        pointer(table.ctypes.data, table.shape[1], out.ctypes.data)

    return evaluate


def measured(args: argparse.Namespace, *, by_execute: bool) -> dict[str, Any]:
    """Seconds of the replays, compiled before, and a digest of all starts."""
    if by_execute:
        from slurm_evo.policy import machine

        machine.evaluator = calling_back
    from slurm_evo.policy import Policy
    from slurm_evo.sim.replay import replay
    from slurm_evo.sim.rules import Race, Rules
    from slurm_evo.trace.capacity import sample
    from slurm_evo.trace.generate import generate
    from slurm_evo_training.gplearn_port import Breeder
    from slurm_evo_training.material import gather
    from slurm_evo_training.seeds import drawn

    fleet = sample()
    material = gather(generate(fleet, days=args.days, load=args.load, users=60, seed=args.seed), fleet)
    random = np.random.RandomState(args.seed)
    breeder = Breeder(np.random.RandomState(0))
    policies = [drawn(random) for _ in range(args.programs)]

    def run(policy: Policy) -> Any:
        CURRENT["program"] = breeder._program(policy)  # noqa: SLF001 - what `execute` of the port calls
        return replay(material.jobs, material.fleet, policy, Race(), Rules.every_event())

    run(policies[0])
    began = time.perf_counter()
    starts = [run(policy).start for policy in policies]
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "jobs": len(material.jobs),
        "starts": [int(np.sum(s * np.arange(1, len(s) + 1))) for s in starts],
    }


def apart(*argv: str) -> dict[str, Any]:
    """In a process of its own, with a cache of compiled code of its own."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, *argv, "--child"]
        told = subprocess.run(
            command, env={**os.environ, "NUMBA_CACHE_DIR": cache}, capture_output=True, text=True, check=True
        )
    return dict(json.loads(told.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=3.0)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--programs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measured(args, by_execute=True)))
        return
    theirs = apart(*sys.argv[1:])
    ours = measured(args, by_execute=False)
    same = ours["starts"] == theirs["starts"]
    for name, found in (("our evaluator", ours), ("execute", theirs)):
        print(f"{name:14s} {args.programs / found['seconds']:8.2f} simulations/s of {found['jobs']} jobs")
    ratio = theirs["seconds"] / ours["seconds"]
    print(
        json.dumps(
            {
                "benchmark": "execute_in_simulator",
                "seed": args.seed,
                "jobs": ours["jobs"],
                "ratio": ratio,
                "simulations_per_second": args.programs / ours["seconds"],
                "simulations_per_second_by_execute": args.programs / theirs["seconds"],
                "same_schedules": same,
            }
        )
    )


if __name__ == "__main__":
    main()
