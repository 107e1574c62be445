"""Logging: JSON lines on standard error in production, readable ones on a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog


def configure(stream: TextIO | None = None, *, json: bool | None = None) -> Any:
    """Set structlog up and return a logger.

    Args:
        stream: where lines go; standard error by default.
        json: JSON lines or readable ones; None: JSON unless the stream is a terminal.
    """
    out = sys.stderr if stream is None else stream
    as_json = not out.isatty() if json is None else json
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # A plain traceback: the default one prints local variables, and passwords with them.
    readable = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    as_lines = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, *(as_lines if as_json else [readable])],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    return structlog.get_logger("slurm_evo")
