"""The process that holds libslurm for one cluster: reads requests, answers them, one JSON line each.

libslurm keeps one configuration for a process, so every cluster has a worker of its own (SLURM_CONF in its
environment). It ends when its standard input does, or with its parent. Started by `pyslurm_port`; not meant
to be run by hand.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import IO, Any

INFINITE = 0xFFFFFFFF
"""Priority=INFINITE: multifactor computes the priority again (slurm.h)."""
_PR_SET_PDEATHSIG = 1

_FIELDS = {
    "job_id": "id",
    "name": "name",
    "user_name": "user_name",
    "account": "account",
    "partition": "partition",
    "qos": "qos",
    "state_reason": "state_reason",
    "node_count": "num_nodes",
    "cpus": "cpus",
    "tasks": "ntasks",
    "submit_time": "submit_time",
    "eligible_time": "eligible_time",
    "start_time": "start_time",
    "end_time": "end_time",
    "nodes": "allocated_nodes",
    "priority": "priority",
    "nice": "nice",
    "batch_flag": "is_batch_job",
    "array_job_id": "array_id",
    "het_job_id": "heterogeneous_id",
    "resv_name": "reservation",
    "licenses": "licenses",
    "features": "constraints",
    "required_nodes": "required_nodes",
    "burst_buffer": "burst_buffer",
    "comment": "comment",
    "admin_comment": "admin_comment",
    "extra": "extra",
    "current_working_directory": "working_directory",
    "federation_origin": "federation_origin",
    "federation_siblings_viable": "federation_siblings_viable",
    "federation_siblings_active": "federation_siblings_active",
    "cluster_features": "cluster_constraints",
    "time_limit": "time_limit",
    "shared": "resource_sharing",
}
"""Field of ``squeue --json`` to attribute of pyslurm.Job; the port reads both by one parser."""


def jobs(pyslurm: Any) -> list[dict[str, Any]]:
    """Every job of the controller."""
    return [_job(job) for job in pyslurm.Jobs.load(preload_passwd_info=True).values()]


def _job(job: Any) -> dict[str, Any]:
    record = {field: _plain(getattr(job, attribute, None)) for field, attribute in _FIELDS.items()}
    record["job_state"] = [str(job.state)]
    # A time limit that is missing is UNLIMITED here, in minutes there.
    limit = record["time_limit"]
    record["time_limit"] = {"set": True, "infinite": not isinstance(limit, int), "number": limit or 0}
    return record


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return ",".join(str(key) if item is None else f"{key}:{item}" for key, item in value.items())
    return ",".join(str(item) for item in value)


def update(pyslurm: Any, job: int, changes: dict[str, Any]) -> None:
    """Change a job; zero values must not come here, since pyslurm does not send them."""
    pyslurm.Job(job).modify(pyslurm.JobSubmitDescription(**changes))


def unpin(pyslurm: Any, job: int, nice: int, site_factor: int) -> dict[str, Any]:
    """Free a pinned priority in one update, unless the job is held or gone at this instant."""
    now = pyslurm.Job.load(job)
    if now.state != "PENDING":
        return {"answer": "gone", "message": f"it no longer waits ({now.state})"}
    if now.priority == 0:
        return {"answer": "refused", "message": f"it is held ({now.state_reason}); unpinning would release it"}
    changes = {"priority": INFINITE, "nice": nice or None, "site_factor": site_factor or None}
    update(pyslurm, job, {name: value for name, value in changes.items() if value is not None})
    return {"answer": "done", "message": ""}


def answer(pyslurm: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Do what one request asks."""
    try:
        match request["do"]:
            case "jobs":
                return {"jobs": jobs(pyslurm)}
            case "update":
                update(pyslurm, request["job"], request["changes"])
                return {"answer": "done", "message": ""}
            case "unpin":
                return unpin(pyslurm, request["job"], request["nice"], request["site_factor"])
            case other:
                return {"failure": f"no request {other!r}"}
    except pyslurm.RPCError as failure:
        return {"failure": str(getattr(failure, "msg", failure) or failure)}


def serve(requests: IO[str], answers: IO[str], load: Callable[[], Any]) -> None:
    """Answer until the requests end, or nobody waits for an answer any more: what is left is then not done."""
    pyslurm = load()
    for line in requests:
        if _nobody_reads(answers):
            return
        request = json.loads(line)
        print(json.dumps({"id": request["id"], **answer(pyslurm, request)}), file=answers, flush=True)


def _nobody_reads(answers: IO[str]) -> bool:
    """The daemon died before this process could ask to die with it, and its request is still in the pipe."""
    pipe = select.poll()
    pipe.register(answers, 0)  # errors are told without being asked for: POLLERR, no reader (poll(2))
    return bool(pipe.poll(0))


def load() -> Any:
    """Import pyslurm, which reads SLURM_CONF."""
    import pyslurm

    return pyslurm


def main() -> None:
    """Give our standard output a name of its own first: what libraries print must not get among the answers."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the daemon's to handle
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    try:
        serve(sys.stdin, own, load)
    except BrokenPipeError:
        os._exit(0)  # as above, a moment later; an ordinary end would try to write the answer once more


if __name__ == "__main__":
    main()
