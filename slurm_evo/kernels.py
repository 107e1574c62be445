"""Functions compiled by numba, whose cache knows every file they were made from.

numba keeps what it compiled and drops it when the function's own file changes. It does not look at files from
which the function takes constants or other functions (numba's manual, «Notes on Caching»). After an upgrade in
which only those changed, the old code would run, without bounds checks, on arrays of another layout.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from numba import njit

SOURCES = ("sim/*.py", "policy/*.py", "optimize/*_kernel.py")
"""Where kernels are, and whatever they import."""


@cache
def fingerprint(root: Path) -> str:
    """Of all files that kernels are made from."""
    digest = blake2b(digest_size=16)
    for file in sorted(file for pattern in SOURCES for file in root.glob(pattern)):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` with a cache that is dropped when any of `SOURCES` changes.

    Args:
        options: further ones of ``njit``; the cache and the release of the interpreter's lock are given.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        found = njit(cache=True, nogil=True, **options)(function)
        # No public way to say what a cache depends on. Without compilation (NUMBA_DISABLE_JIT) there is none.
        if hasattr(found, "_cache"):
            file = found._cache._cache_file  # noqa: SLF001
            file._source_stamp = (file._source_stamp, fingerprint(Path(__file__).parent))  # noqa: SLF001
        return found

    return decorate


__all__ = ["fingerprint", "kernel"]
