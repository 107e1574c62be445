"""Readers meet anything: they give a trace or a TraceError that names the file, and never anything else.

`benchmarks/fuzz_readers.py` goes on for as long as it is told.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from fuzzed_histories import histories
from hypothesis import given, settings

from slurm_evo.model import TraceError
from slurm_evo.trace import read


@settings(max_examples=300, deadline=None)
@given(histories())
def test_any_file_is_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "anything"
        file.write_bytes(content)
        reading, reason = None, "anything"
        try:
            reading = read(file)
        except TraceError as refused:
            reason = str(refused)
    assert "anything" in reason
    if reading is None:
        return
    jobs = reading.trace.jobs
    assert len(jobs) > 0
    assert jobs["submit"].is_sorted()
    for column in ("wait", "runtime", "limit", "gpus", "nodes", "cpus", "memory"):
        assert (jobs[column].drop_nulls() >= 0).all(), column
