"""The process behind the pyslurm port lives as long as its port, whoever asks; the rest is told in tests/fleet."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurm_evo.model import ClusterName
from slurm_evo.slurm.pyslurm_port import Worker

LIBRARY = "types.SimpleNamespace(Jobs=types.SimpleNamespace(load=lambda **_: {}), RPCError=OSError)"
ARGV = (
    sys.executable,
    "-c",
    f"import types; from slurm_evo.slurm import pyslurm_worker as it; it.load = lambda: {LIBRARY}; it.main()",
)
"""The real worker over a library that knows no job: pyslurm needs libslurm."""
ENV = {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(ClusterName("alpha"), ARGV, ENV, 30.0)
    yield made
    made.close()


def ask_in_a_thread_that_ends(worker: Worker) -> int:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(worker.ask, {"do": "jobs"}).result()["jobs"] == []
    assert worker._process is not None
    return worker._process.pid


def test_it_outlives_the_thread_that_first_asked(worker: Worker) -> None:
    first = ask_in_a_thread_that_ends(worker)
    time.sleep(0.3)  # a signal that comes with the end of the thread would have come by now
    assert ask_in_a_thread_that_ends(worker) == first


def test_it_ends_when_the_process_that_started_it_is_killed() -> None:
    """No worker is left that could still send something after kill -9 of the daemon."""
    program = (
        "import time; from slurm_evo.slurm.pyslurm_port import Worker;"
        f"w = Worker('alpha', {ARGV!r}, {ENV!r}, 30.0); w.ask({{'do': 'jobs'}});"
        "print(w._process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], env=ENV, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while _alive(child):
        assert time.monotonic() < deadline, "the worker is still there"
        time.sleep(0.05)


def test_a_request_of_a_dead_daemon_is_not_carried_out() -> None:
    """It was written before the worker could even ask to die with the daemon."""
    library = "types.SimpleNamespace(Jobs=types.SimpleNamespace(load=lambda **_: print('done')), RPCError=OSError)"
    program = ARGV[2].replace(LIBRARY, library)
    read, write = os.pipe()
    os.close(read)
    worker = subprocess.run(
        [sys.executable, "-c", program],
        env=ENV,
        input='{"id": 1, "do": "jobs"}\n',
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    # What libraries print goes to standard error: nothing was asked of this one.
    assert (worker.returncode, worker.stderr) == (0, "")


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
