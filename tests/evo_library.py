"""The plugin's C code and the Lua it comes with, callable from tests: the very files that Slurm loads."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from numpy.typing import NDArray

PLUGINS = Path(__file__).resolve().parent.parent / "slurm-conf" / "plugins"
MODULE = PLUGINS.parent / "lua" / "slurm_evo.lua"
LUAS = ("lua51", "lua52", "lua53", "lua54", "luajit21")
"""Slurm is built with one of these; lupa has them all."""
ROOM = 1 << 16
"""Bytes for a struct whose fields we do not look at."""
FloatArray = NDArray[np.float64]
Message = ctypes.c_char * 256


class CJob(ctypes.Structure):
    """evo_job_t of evo_context.h."""

    _fields_ = (
        ("id", ctypes.c_uint64),
        *((name, ctypes.c_double) for name in ("submitted", "eligible", "limit_s", "gpus", "nodes", "cpus")),
        *(
            (name, ctypes.c_char_p)
            for name in ("user", "account", "qos", "partitions", "comment", "extra", "admin_comment")
        ),
    )


class Refused(Exception):
    """The C reader refused a file; its reason."""


@cache
def library() -> ctypes.CDLL:
    """The pure part of the plugin, compiled as for Slurm."""
    folder = mkdtemp(prefix="evo-library-")
    argv = ("make", "-s", "-C", str(PLUGINS), "library", f"BUILD={folder}")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert not done.returncode, f"the plugin does not compile (gcc and make are needed): {done.stderr}"
    return ctypes.CDLL(f"{folder}/libevo.so")


class CPolicy:
    """A policy as C reads it."""

    def __init__(self, text: bytes) -> None:
        self._struct = ctypes.create_string_buffer(ROOM)
        why = Message()
        copy = ctypes.create_string_buffer(text, len(text) + 1)
        if not library().evo_policy_parse(self._struct, copy, ctypes.c_size_t(len(text)), why):
            raise Refused(why.value.decode())

    def scores(self, table: FloatArray) -> FloatArray:
        """(n,) from (11, n)."""
        rows = np.ascontiguousarray(table, np.float64)
        count = rows.shape[1]
        found = np.empty(count)
        library().evo_policy_scores(
            self._struct, rows.ctypes, ctypes.c_size_t(count), ctypes.c_size_t(count), found.ctypes
        )
        return found


class CContext:
    """A context file as C reads it."""

    def __init__(self, text: bytes) -> None:
        self._struct = ctypes.create_string_buffer(ROOM)
        why = Message()
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        # The reader takes the text over.
        place = libc.malloc(ctypes.c_size_t(len(text) + 1))
        ctypes.memmove(place, text + b"\0", len(text) + 1)
        if not library().evo_context_parse(self._struct, ctypes.c_void_p(place), ctypes.c_size_t(len(text)), why):
            raise Refused(why.value.decode())

    def features(self, job: CJob, now: float) -> FloatArray:
        """(11,)."""
        column = np.empty(11)
        library().evo_features(
            self._struct, ctypes.byref(job), ctypes.c_double(now), column.ctypes, ctypes.c_size_t(1)
        )
        return column

    def excluded(self, job: CJob) -> bool:
        """Its owner or the site keeps it out."""
        library().evo_excluded.restype = ctypes.c_bool
        return bool(library().evo_excluded(self._struct, ctypes.byref(job)))


def lua_runtime(version: str = "lua54") -> Any:
    """A fresh Lua, strings as text."""
    from importlib import import_module

    return import_module(f"lupa.{version}").LuaRuntime()
