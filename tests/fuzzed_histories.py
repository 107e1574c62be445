"""Histories as they may come: whole, damaged, and made of odd values."""

from __future__ import annotations

import gzip
import json
from typing import Any

from hypothesis import strategies as st
from trace_files import COLUMNS, ROW, record

ODD = st.sampled_from(
    (
        *("", "Unknown", "None", "N/A", "UNLIMITED", "Partition_Limit", "INVALID", "0", "-1", "1e9", "4294967294"),
        *(
            "18446744073709551614",
            "2026-13-01T00:00:00",
            "1-00:00:00",
            "365-23:59:59",
            "00:00",
            "9999999-00:00:00",
        ),
        *("gres/gpu=0", "gres/gpu", "cpu=,mem=", "gres/gpu:a100=1,gres/gpu:h100=2", "mem=1P", "cpu=1e3", "node=x"),
        *("CANCELLED by 0", "CANCELLED+", "REVOKED", "100_[1-", "100_[9-1]", "100_[1-999999999]", "1+1", "1+x"),
        *("2147486648Mn", "4Gc", "a|b", "\u202e", "\x00", "é", "ﬀ", "١٢٣", "²"),
    )
)
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), NUMBERS, ODD, st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(("set", "infinite", "number", "type", "name", "count")), inner, max_size=3
        ),
    ),
    max_leaves=6,
)


@st.composite
def _text(draw: st.DrawFn) -> bytes:
    columns = draw(st.lists(st.sampled_from(COLUMNS), unique=True, min_size=3)) if draw(st.booleans()) else COLUMNS
    rows = draw(
        st.lists(st.dictionaries(st.sampled_from(COLUMNS), st.one_of(ODD, st.text(max_size=12))), max_size=6)
    )
    lines = ["|".join(columns)]
    lines += [
        "|".join({**ROW, "JobID": str(place), **each}[name] for name in columns) for place, each in enumerate(rows)
    ]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


@st.composite
def _json(draw: st.DrawFn) -> bytes:
    jobs = []
    for place in range(draw(st.integers(0, 4))):
        job: dict[str, Any] = record(job_id=place)
        for _ in range(draw(st.integers(0, 3))):
            inside = draw(st.sampled_from((job, job["time"], job["tres"], job["array"], job["het"], job["state"])))
            inside = inside if isinstance(inside, dict) and inside else job
            inside[draw(st.sampled_from(sorted(inside)))] = draw(ANYTHING)
            job = {**record(), **job}
            for key in ("time", "tres", "array", "het", "state"):
                if not isinstance(job[key], dict):
                    break
            else:
                continue
            break
        jobs.append(draw(ANYTHING) if draw(st.integers(0, 9)) == 0 else job)
    return json.dumps({"jobs": jobs}).encode()


@st.composite
def _columns_of_numbers(draw: st.DrawFn) -> bytes:
    """SWF, and the CSV and events of public logs, with any words in them."""
    words = st.one_of(ODD, NUMBERS.map(str))
    kind = draw(st.sampled_from(("swf", "philly", "openb", "ub-hpc")))
    count = {"swf": 18, "philly": 5, "openb": 11, "ub-hpc": 4}[kind]
    rows = draw(st.lists(st.lists(words, min_size=count, max_size=count), max_size=5))
    if kind == "swf":
        return ("1 0 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n" + "\n".join(" ".join(row) for row in rows)).encode()
    if kind == "ub-hpc":
        events = (f"-dt {a} -sim-walltime {b} -N {c} -n 1 -t {d} x.job" for a, b, c, d in rows)
        return ("-dt 1 -sim-walltime 1 x.job\n" + "\n".join(events)).encode()
    head = "timestamp,duration,num_gpus,gpu_time,cluster"
    if kind == "openb":
        head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time"
        head += ",scheduled_time"
    return (head + "\n" + "\n".join(",".join(row) for row in rows)).encode()


@st.composite
def histories(draw: st.DrawFn) -> bytes:
    """Bytes of a file: one of the formats with odd values, cut or changed somewhere, packed or not."""
    content = draw(st.one_of(_text(), _json(), _columns_of_numbers(), st.binary(max_size=200)))
    for _ in range(draw(st.integers(0, 2))):
        if content:
            place = draw(st.integers(0, len(content) - 1))
            content = content[:place] + draw(st.binary(max_size=3)) + content[place + draw(st.integers(0, 3)) :]
    if draw(st.integers(0, 7)) == 0:
        packed = gzip.compress(content)
        content = packed[: draw(st.integers(0, len(packed)))]
    return content
