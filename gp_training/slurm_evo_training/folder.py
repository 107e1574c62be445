"""The folder a training writes into: tried before the work begins, one run at a time, results all or none."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from slurm_evo.model import ConfigError


@contextmanager
def held(out: Path) -> Iterator[None]:
    """Make the folder, try to write, and keep other runs out. One that was made here and stays empty is removed.

    Raises:
        ConfigError: it cannot be made or written, or another run works in it.
    """
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=out, prefix=".try-"):
            handle = os.open(out, os.O_RDONLY)
    except OSError as failure:
        raise ConfigError(f"--out: {out} cannot be written: {failure.strerror or failure}") from failure
    try:
        _lock(handle, out)
        yield
    finally:
        os.close(handle)
        if made:
            with suppress(OSError):
                out.rmdir()


def _lock(handle: int, out: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as failure:
        raise ConfigError(
            f"--out: another training works in {out}; wait for it, or give another folder"
        ) from failure
    except OSError:  # a file system without locks
        return


def put(out: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill an empty folder, then move its files here. What was here stays whole until then.

    Raises:
        ConfigError: there is no room, or it cannot be written.
    """
    try:
        with TemporaryDirectory(dir=out, prefix=".new-") as beside:
            write(Path(beside))
            for file in sorted(Path(beside).iterdir()):
                file.replace(out / file.name)
    except OSError as failure:
        raise ConfigError(
            f"--out: {out} cannot be written: {failure.strerror or failure}; with room, --resume goes on from its "
            "checkpoint"
        ) from failure


__all__ = ["held", "put"]
