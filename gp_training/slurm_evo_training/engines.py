"""Islands on Dask: a scheduler that is there already, whose workers may be Slurm jobs (dask-jobqueue)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from slurm_evo.model import ConfigError
from slurm_evo_training.evolution import Engine, EngineOf, settle
from slurm_evo_training.fitness import Problem

CONNECT_S = 20


class _Client:
    """`evolution.Engine` on a Dask client: a lost worker's task runs again elsewhere."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def submit(self, work: Any, /, *args: Any) -> Any:
        return self._client.submit(work, *args, pure=False, retries=5)


def dask_engine(address: str) -> EngineOf:
    """Work on the scheduler at an address. Workers need this package and should have one thread each.

    Raises:
        ConfigError: Dask is not installed, or the scheduler does not answer.
    """
    try:
        from distributed import Client, WorkerPlugin
    except ModuleNotFoundError as error:
        raise ConfigError(f"needs {error.name}; install with: pip install 'slurm-evo[dask]'") from error

    class Settles(WorkerPlugin):  # type: ignore[misc,unused-ignore]  # untyped where it is not installed
        """Brings the problem to every worker, also to one that comes later."""

        name = "slurm-evo"

        def __init__(self, problem: Problem) -> None:
            self.problem = problem

        def setup(self, worker: Any) -> None:
            del worker
            settle(self.problem)

    @contextmanager
    def place(problem: Problem) -> Iterator[Engine | None]:
        try:
            client = Client(address, timeout=CONNECT_S)  # type: ignore[no-untyped-call,unused-ignore]  # partly typed
        except (OSError, ValueError) as failure:
            raise ConfigError(f"--dask: no scheduler answers at {address}: {failure}") from failure
        with client:
            client.register_plugin(Settles(problem))
            yield _Client(client)

    def opened(problem: Problem) -> AbstractContextManager[Engine | None]:
        return place(problem)

    return opened
