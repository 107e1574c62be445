"""The default way into a cluster whose slurmctld is near: pyslurm in a worker process, commands for the rest.

Jobs are listed and changed through pyslurm: listing thousands takes milliseconds and an update about half a
millisecond. What pyslurm 25.11 cannot tell comes from Slurm's commands beside it: REVOKED and scrontab
(``squeue -O``), SiteFactor (sprio), nodes, partitions, configuration, federation and limits.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from slurm_evo.model import (
    Action,
    Answer,
    AnswerUnreadable,
    ClusterName,
    ClusterRefused,
    ClusterUnreachable,
    Outcome,
    SetClusters,
    SetSiteFactor,
    Unpin,
)
from slurm_evo.slurm.command import SQUEUE, CommandPort
from slurm_evo.slurm.refusals import answer_of, no_contact
from slurm_evo.slurm.runner import Runner, run_process, slurm_environment, utc_now

WORKER = (sys.executable, "-m", "slurm_evo.slurm.pyslurm_worker")
_BESIDE = ("JobID", "State", "cronjob", "tres-alloc", "tres-per-job", "tres-per-node", "tres-per-task",
           "tres-per-socket", "Dependency")  # fmt: skip
"""What pyslurm does not tell, or tells without the types of GPUs."""
_NONE = ("N/A", "(null)", "NULL")
_STARTER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pyslurm-start")
"""Starts every worker. Linux tells a child that its parent died when the *thread* that made it ends
(prctl(2), PR_SET_PDEATHSIG): a worker made in one of the daemon's short-lived threads would end with it."""


class PyslurmPort(CommandPort):
    """A ClusterPort that lists and changes jobs through pyslurm.

    Args:
        name: the cluster's ClusterName.
        slurm_conf: path of its slurm.conf.
        commands: the folder of its own commands; None: those on PATH.
        worker: the command that starts the worker.
        run: how Slurm's commands are run.
        clock: aware UTC.
        timeout_s: for one question. slurmctld with rl_enable makes an update wait instead of refusing it.
    """

    def __init__(
        self,
        name: ClusterName,
        *,
        slurm_conf: str,
        commands: Path | None = None,
        worker: Sequence[str] = WORKER,
        run: Runner = run_process,
        clock: Callable[[], datetime] = utc_now,
        timeout_s: float = 30.0,
    ) -> None:
        super().__init__(name, slurm_conf=slurm_conf, commands=commands, run=run, clock=clock, timeout_s=timeout_s)
        python_path = {key: os.environ[key] for key in ("PYTHONPATH", "VIRTUAL_ENV") if key in os.environ}
        self._worker = Worker(name, worker, {**slurm_environment(slurm_conf), **python_path}, timeout_s)

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def _jobs(self, version: str) -> Any:  # noqa: ARG002 - every version is asked alike
        """Both lists, joined; a job that only one of them has came or went in between and is left out."""
        beside = {row[0]: row for row in self._beside()}
        listed = self._worker.ask({"do": "jobs"})
        if "failure" in listed:
            self._fail("jobs", listed["failure"])
        found = []
        for record in listed["jobs"]:
            row = beside.get(str(record["job_id"]))
            if row is not None:
                found.append(_joined(record, row))
        return {"jobs": found}

    def _beside(self) -> list[list[str]]:
        columns = ",".join(f"{column}:|" for column in _BESIDE)
        text = self._ask(*SQUEUE, "--noheader", f"--Format={columns}")
        rows = []
        for line in text.splitlines():
            row = ["" if field in _NONE else field for field in line.strip().split("|")]
            if len(row) < len(_BESIDE):
                raise AnswerUnreadable(self.name, f"squeue --Format answered {line[:80]!r}")
            rows.append(row)
        return rows

    def _fail(self, what: str, words: str) -> None:
        if no_contact(words):
            raise ClusterUnreachable(self.name, f"pyslurm did not reach slurmctld for its {what}: {words}")
        raise ClusterRefused(self.name, f"pyslurm was refused the {what}: {words}")

    def apply(self, action: Action) -> Outcome:
        """Ask for one change through pyslurm; zero, which pyslurm cannot send, through scontrol."""
        if action.job.cluster != self.name:
            return super().apply(action)  # refused there, with the reason
        match action:
            case SetClusters(job, clusters):
                return self._send(action, {"clusters": ",".join(clusters)}, job.id)
            case SetSiteFactor(job, value) if value:
                return self._send(action, {"site_factor": value}, job.id)
            case Unpin(job, nice, site_factor):
                request = {"do": "unpin", "job": job.id, "nice": nice, "site_factor": site_factor}
                freed = self._outcome_of(action, request)
                if freed.answer is not Answer.DONE or site_factor:
                    return freed
                return self._change(action, "scontrol", "update", f"JobId={job.id}", "SiteFactor=0")
        return super().apply(action)

    def _send(self, action: Action, changes: dict[str, Any], job: int) -> Outcome:
        return self._outcome_of(action, {"do": "update", "job": job, "changes": changes})

    def _outcome_of(self, action: Action, request: dict[str, Any]) -> Outcome:
        try:
            told = self._worker.ask(request)
        except (ClusterUnreachable, AnswerUnreadable) as failure:
            return Outcome(action, Answer.UNKNOWN, failure.message)
        if "failure" in told:
            return Outcome(action, answer_of(told["failure"]), told["failure"])
        return Outcome(action, Answer(told["answer"]), told["message"])


def _joined(record: dict[str, Any], row: list[str]) -> dict[str, Any]:
    """One job in the form of ``squeue --json``."""
    _, state, cron, allocated, by_job, by_node, by_task, by_socket, dependency = row[: len(_BESIDE)]
    states = record["job_state"]
    if state == "REVOKED" and "REVOKED" not in states:
        states = [*states, "REVOKED"]
    return {
        **record,
        "job_state": states,
        "cron": "yes" if cron == "Yes" else "",
        "tres_req_str": allocated,
        "tres_alloc_str": allocated,
        "tres_per_job": by_job,
        "tres_per_node": by_node,
        "tres_per_task": by_task,
        "tres_per_socket": by_socket,
        "dependency": dependency,
        "shared": "exclusive" if record["shared"] == "NO" else "",
    }


class Worker:
    """The process behind a port: started when first asked, started again after it died or hung.

    Args:
        cluster: for errors.
        argv: starts it.
        env: its whole environment.
        timeout_s: an answer that takes longer counts as none, and the worker is replaced.
    """

    def __init__(self, cluster: ClusterName, argv: Sequence[str], env: dict[str, str], timeout_s: float) -> None:
        self._cluster = cluster
        self._argv = list(argv)
        self._env = env
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0
        self._rest = b""
        self._lock = threading.Lock()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One question, one answer.

        Raises:
            ClusterUnreachable: the worker could not be started, died, or did not answer in time.
            AnswerUnreadable: it answered something else.
        """
        with self._lock:
            process = self._running()
            self._number += 1
            line = json.dumps({"id": self._number, **request}).encode() + b"\n"
            try:
                assert process.stdin is not None  # noqa: S101 - it was opened as a pipe
                process.stdin.write(line)
                process.stdin.flush()
                told = json.loads(self._line(process))
            except OSError as failure:
                raise self._lost(f"ended ({failure.strerror or failure})") from failure
            except ValueError as failure:
                self._stop()
                raise AnswerUnreadable(
                    self._cluster, f"the pyslurm worker answered no JSON: {failure}"
                ) from failure
            if not isinstance(told, dict) or told.get("id") != self._number:
                self._stop()
                raise AnswerUnreadable(self._cluster, "the pyslurm worker answered another question")
            return told

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None  # noqa: S101 - it was opened as a pipe
        out, deadline = process.stdout.fileno(), time.monotonic() + self._timeout_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([out], [], [], max(deadline - time.monotonic(), 0.0))
            if not ready:
                raise self._lost(f"did not answer within {self._timeout_s:g} s")
            piece = os.read(out, 1 << 16)
            if not piece:
                raise self._lost("ended; is pyslurm installed, and built for this Slurm?")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        try:
            self._process = _STARTER.submit(
                subprocess.Popen, self._argv, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ).result()
        except OSError as failure:
            raise ClusterUnreachable(
                self._cluster, f"the pyslurm worker could not be started: {failure.strerror or failure}"
            ) from failure
        return self._process

    def _lost(self, how: str) -> ClusterUnreachable:
        self._stop()
        return ClusterUnreachable(self._cluster, f"the pyslurm worker {how}")

    def _stop(self) -> None:
        self._rest = b""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # what could not be flushed was never sent

    def close(self) -> None:
        """End the process; the next question starts another."""
        with self._lock:
            self._stop()
