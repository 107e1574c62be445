"""A job as options of ``sbatch --test-only``: all that decides whether and when a cluster would start it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_TEXTS = {
    "account": "account", "partition": "partition", "qos": "qos", "wckey": "wckey", "constraints": "constraint",
    "licenses": "licenses", "tres_per_node": "gres", "network": "network", "prefer": "prefer",
    "tres_per_task": "tres-per-task",
}  # fmt: skip
_COUNTS = {
    "tasks": "ntasks", "cpus_per_task": "cpus-per-task", "minimum_cpus_per_node": "mincpus",
    "temporary_disk_per_node": "tmp", "tasks_per_node": "ntasks-per-node", "threads_per_core": "threads-per-core",
    "core_specification": "core-spec", "nice": "nice",
}  # fmt: skip
_STRUCTS = {
    "memory_per_cpu": "mem-per-cpu",
    "memory_per_node": "mem",
    "time_limit": "time",
    "time_minimum": "time-min",
}
_TRES = {"tres_per_job": "gpus", "tres_per_socket": "gpus-per-socket"}


def test_options(fields: Mapping[str, Any]) -> list[str]:
    """The options, in a fixed order."""
    return list(_options(fields))


def _options(fields: Mapping[str, Any]) -> Iterator[str]:
    for table in (_TEXTS, _COUNTS):
        for name, option in table.items():
            if wish := _plain(name, fields.get(name)):
                yield f"--{option}={wish}"
    for name, option in _STRUCTS.items():
        if name in fields:
            yield f"--{option}={fields[name]['number']}"
    for name, option in _TRES.items():
        if str(fields.get(name, "")).startswith("gres/gpu"):
            yield f"--{option}={fields[name].removeprefix('gres/gpu').lstrip(':=')}"
    if "minimum_nodes" in fields or "maximum_nodes" in fields:
        least = fields.get("minimum_nodes", 1)
        yield f"--nodes={least}-{max(least, fields.get('maximum_nodes', least))}"
    yield f"--chdir={fields.get('current_working_directory', '/')}"
    if fields.get("contiguous"):
        yield "--contiguous"


def _plain(name: str, value: Any) -> Any:
    if name == "tres_per_node" and value:
        return str(value).removeprefix("gres/")
    if name == "tres_per_task" and value:
        # --cpus-per-task says it already, and sbatch does not take both.
        return ",".join(one for one in str(value).split(",") if not one.startswith("cpu"))
    return value
