"""Islands on Dask: the same front as in one process, also when a worker dies in the middle."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from training_stories import SMALL, problem

from slurm_evo.model import ConfigError
from slurm_evo_training.engines import dask_engine
from slurm_evo_training.evolution import evolve

ROOT = Path(__file__).resolve().parent.parent.parent


class Workers:
    """A Dask scheduler and its workers, each a process of its own as on a site."""

    def __init__(self, folder):
        paths = os.pathsep.join(str(ROOT / part) for part in ("", "gp_training", "tests"))
        self.env = {**os.environ, "PYTHONPATH": paths}
        self.file = folder / "scheduler.json"
        self.folder = folder
        self.processes = [
            self._start("scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file))
        ]
        until = time.monotonic() + 60
        while not self.file.exists():
            assert time.monotonic() < until, "the scheduler did not start"
            time.sleep(0.1)

    def _start(self, *words):
        argv = [sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]]
        return subprocess.Popen(argv, env=self.env, cwd=self.folder, stderr=subprocess.DEVNULL)

    def add(self):
        words = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--scheduler-file", str(self.file)]
        self.processes.append(self._start("worker", *words))
        return self.processes[-1]

    @property
    def address(self):
        import json

        return json.loads(self.file.read_text())["address"]

    def close(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture
def workers(tmp_path):
    found = Workers(tmp_path)
    yield found
    found.close()


@pytest.mark.filterwarnings("default")  # Dask's own
def test_a_worker_killed_in_the_middle_changes_nothing(workers):
    doomed = workers.add()
    workers.add()

    def kill(now):
        if now.done == 1:
            doomed.send_signal(signal.SIGKILL)

    recipe = replace(SMALL, refined=0, generations=6)
    evolved = evolve(problem(), recipe, engine=dask_engine(workers.address), progress=kill)
    alone = evolve(problem(), recipe)
    assert [one.policy.text for one in evolved.front] == [one.policy.text for one in alone.front]
    assert doomed.wait(timeout=10) == -signal.SIGKILL


def test_no_scheduler_is_a_sentence():
    with pytest.raises(ConfigError, match="no scheduler answers"), dask_engine("tcp://127.0.0.1:1")(problem()):
        pass
