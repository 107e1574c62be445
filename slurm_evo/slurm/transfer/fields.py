"""From a job's record to a job description that asks for the same (REST: job_info to job_desc_msg).

The list of what counts is slurmctld's own, copy_job_record_to_job_desc (job_mgr.c). What is not in the tables
here and is not empty makes a job that cannot be moved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from slurm_evo.slurm.transfer.image import NotMovable

_TEXTS = (
    "batch_features", "comment", "container", "cpus_per_tres", "current_working_directory", "extra", "licenses",
    "mcs_label", "memory_per_tres", "name", "network", "prefer", "standard_error", "standard_output", "tres_bind",
    "tres_freq", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task",
)  # fmt: skip
_DEFAULTED = {
    "account": "USING_DEFAULT_ACCOUNT",
    "partition": "USING_DEFAULT_PARTITION",
    "qos": "USING_DEFAULT_QOS",
    "wckey": "USING_DEFAULT_WCKEY",
}
"""Left out where the owner left the choice to the cluster: another cluster has its own default."""
_COUNTS = {
    "core_spec": "core_specification", "cpus": "minimum_cpus", "cpus_per_task": "cpus_per_task",
    "deadline": "deadline", "delay_boot": "delay_boot", "max_cpus": "maximum_cpus",
    "maximum_switch_wait_time": "wait_for_switch", "minimum_cpus_per_node": "minimum_cpus_per_node",
    "minimum_tmp_disk_per_node": "temporary_disk_per_node", "node_count": "minimum_nodes",
    "max_nodes": "maximum_nodes", "segment_size": "segment_size", "sockets_per_node": "sockets_per_node",
    "tasks": "tasks", "tasks_per_core": "tasks_per_core", "tasks_per_node": "tasks_per_node",
    "tasks_per_socket": "tasks_per_socket", "tasks_per_tres": "ntasks_per_tres",
    "thread_spec": "thread_specification", "threads_per_core": "threads_per_core",
}  # fmt: skip
"""Plain whole numbers in the description; 0 and 1 are what is there without a wish, see ``_ONE``."""
_ONE = frozenset(("cpus", "cpus_per_task", "minimum_cpus_per_node", "node_count"))
_ASKED = {
    "tasks": "EXACT_TASK_COUNT_REQUESTED",
    "memory_per_cpu": "EXACT_MEMORY_REQUESTED",
    "memory_per_node": "EXACT_MEMORY_REQUESTED",
}
"""Shown always, but asked for only with this flag; otherwise each cluster has its own default."""
_STRUCTS = ("memory_per_cpu", "memory_per_node", "time_limit", "time_minimum")
_TRUTHS = ("contiguous", "reboot")
_LISTS = {"mail_type": (), "profile": ("NOT_SET",), "shared": ()}
_REFUSED = {
    "burst_buffer": "it uses a burst buffer",
    "cluster_features": "its owner chose clusters by feature",
    "cores_per_socket": "it names the cores of a socket",
    "cpu_frequency_governor": "it sets the CPU frequency",
    "cpu_frequency_maximum": "it sets the CPU frequency",
    "cpu_frequency_minimum": "it sets the CPU frequency",
    "cron": "it comes from scrontab",
    "dependency": "it depends on another job",
    "excluded_nodes": "its owner named nodes to avoid",
    "array_job_id": "it belongs to a job array",
    "het_job_id": "it is part of a heterogeneous job",
    "required_nodes": "its owner named the nodes",
    "resv_name": "it uses a reservation",
    "selinux_context": "it has an SELinux context",
    "sockets_per_board": "it names the sockets of a board",
}
_FLAGS_CARRIED = frozenset((
    "KILL_INVALID_DEPENDENCY", "NO_KILL_INVALID_DEPENDENCY", "SPREAD_JOB", "PREFER_MINIMUM_NODE_COUNT",
    "GRES_BINDING_ENFORCED", "GRES_BINDING_DISABLED", "EXACT_TASK_COUNT_REQUESTED", "EXACT_CPU_COUNT_REQUESTED",
    "EXACT_MEMORY_REQUESTED", "STEPMGR_ENABLED",
))  # fmt: skip
_FLAGS_IGNORED = frozenset((
    *_DEFAULTED.values(), "PARTITION_ASSIGNED", "DEPENDENT", "BACKFILL_ATTEMPTED", "SCHEDULING_ATTEMPTED",
    "JOB_WAS_RUNNING", "JOB_ACCRUE_TIME_RESET", "ACCRUE_COUNT_CLEARED", "TESTING_BACKFILL",
    "TESTING_WHOLE_NODE_BACKFILL", "HAS_STATE_DIRECTORY", "TOP_PRIORITY_JOB", "TEST_NOW_ONLY",
    "SEND_JOB_ENVIRONMENT", "SKIP_TRES_STRING_ACCOUNTING", "JOB_IMPLICIT_MAX_NODES",
))  # fmt: skip
"""What Slurm itself notes. Anything else may be a wish."""


def description(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a waiting job's record asks for, as job_desc_msg.

    Raises:
        NotMovable: with every reason.
    """
    reasons = [why for name, why in _REFUSED.items() if _given(record.get(name))]
    flags = set(record.get("flags", ()))
    strange = flags - _FLAGS_CARRIED - _FLAGS_IGNORED
    reasons += [f"it has the flag {flag}, which is not known here" for flag in sorted(strange)]
    if reasons:
        raise NotMovable(*dict.fromkeys(reasons))
    wished: dict[str, Any] = {name: record[name] for name in _TEXTS if record.get(name)}
    wished |= {name: record[name] for name, flag in _DEFAULTED.items() if record.get(name) and flag not in flags}
    for name, called in _COUNTS.items():
        number = _number(record.get(name))
        if number > (1 if name in _ONE else 0) and _ASKED.get(name, "") in ("", *flags):
            wished[called] = number
    wished |= {
        name: record[name]
        for name in _STRUCTS
        if _number(record.get(name)) and _ASKED.get(name, "") in ("", *flags)
    }
    wished |= {name: True for name in _TRUTHS if record.get(name)}
    for name, empty in _LISTS.items():
        if tuple(record.get(name) or ()) not in ((), empty):
            wished[name] = list(record[name])
    if kept := sorted(flags & _FLAGS_CARRIED):
        wished["flags"] = kept
    if record.get("features"):
        wished["constraints"] = record["features"]
    if record.get("mail_type") and record.get("mail_user"):
        wished["mail_user"] = record["mail_user"]
    # sbatch itself writes this default into what it submits.
    wished["standard_input"] = record.get("standard_input") or "/dev/null"
    if _number(record.get("required_switches")):
        wished["required_switches"] = _struct(_number(record["required_switches"]))
    wished["nice"] = int(record.get("nice") or 0)
    wished["requeue"] = bool(record.get("requeue"))
    return wished


def with_unshown(wished: dict[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
    """Add what the record does not show: ``--signal`` and ``--open-mode`` (sbatch(1)).

    A number of nodes that nobody asked for is slurmctld's own reckoning, and goes. Of ``--gpus-per-task`` that
    contradicts ``--gres`` the scheduler of 24.11 makes another number of tasks at its first look.

    Raises:
        NotMovable: a value that was not understood, or no longer what was asked for.
    """
    if (tasks := found.get("ntasks")) is not None and tasks != str(wished.get("tasks", tasks)):
        raise NotMovable(f"its owner asked for {tasks} tasks, and Slurm shows {wished['tasks']}")
    if "nodes" not in found:
        wished.pop("minimum_nodes", None)
        wished.pop("maximum_nodes", None)
    if (mode := found.get("open-mode")) is not None:
        if mode.lower()[:1] not in ("a", "t"):
            raise NotMovable(f"its --open-mode={mode} was not understood")
        wished["open_mode"] = ["APPEND" if mode.lower().startswith("a") else "TRUNCATE"]
    if (signal := found.get("signal")) is not None:
        told = re.fullmatch(r"(?:([RB]{1,2}):)?([A-Za-z0-9]+)(?:@(\d+))?", signal)
        if told is None:
            raise NotMovable(f"its --signal={signal} was not understood")
        who, name, delay = told.groups()
        flags = {"R": "ARRAY_TASK", "B": "BATCH_JOB"}
        if "R" in (who or ""):
            raise NotMovable("its --signal is for a reservation")
        wished["kill_warning_signal"] = name.removeprefix("SIG")
        wished["kill_warning_delay"] = _struct(int(delay or 60))
        if who:
            wished["kill_warning_flags"] = [flags[letter] for letter in who]
    return wished


def _struct(number: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


def _number(value: Any) -> int:
    """A count; 0 where there is none."""
    if isinstance(value, Mapping):
        value = value["number"] if value.get("set") and not value.get("infinite") else 0
    return int(value) if isinstance(value, int | float) and 0 < value < 2**32 and value not in _NONE else 0


_NONE = frozenset((0xFFFD, 0xFFFE, 0xFFFF, 0x7FFE, 0x7FFF, 0xFFFFFFFD, 0xFFFFFFFE, 0xFFFFFFFF))


def _given(value: Any) -> bool:
    return bool(_number(value)) if isinstance(value, Mapping | int) else bool(value)
