"""Feed the trace readers made-up and damaged files for as long as told; any error but TraceError is a crash.

    python benchmarks/fuzz_readers.py --minutes 10

Each round uses another seed, starting at --seed. Exit code 1 and the file's bytes if a reader crashes.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests")]

from fuzzed_histories import histories
from hypothesis import HealthCheck, given, seed, settings

from slurm_evo.model import TraceError
from slurm_evo.trace import read

ROUND = 2000


def one_round(number: int, folder: Path, tally: Counter[str]) -> None:
    @seed(number)
    @settings(max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(histories())
    def feed(content: bytes) -> None:
        file = folder / "anything"
        file.write_bytes(content)
        try:
            read(file)
        except TraceError:
            tally["refused"] += 1
        else:
            tally["read"] += 1

    feed()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    given_options = parser.parse_args()
    until = time.monotonic() + given_options.minutes * 60
    tally: Counter[str] = Counter()
    number = given_options.seed
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < until:
            one_round(number, Path(folder), tally)
            print(f"seed {number}: {tally['read']} files read, {tally['refused']} refused, no crash", flush=True)
            number += 1
    print(json.dumps({"seeds": [given_options.seed, number - 1], "crashes": 0, **tally}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
