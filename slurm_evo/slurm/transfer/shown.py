"""What scontrol, sacct and the state directory say of a job, put together."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_evo.model import Hold, JobKey
from slurm_evo.slurm.transfer.fields import description, with_unshown
from slurm_evo.slurm.transfer.image import JobImage, NotMovable
from slurm_evo.slurm.transfer.machine import Life
from slurm_evo.slurm.transfer.options import said, unshown
from slurm_evo.slurm.transfer.output_paths import as_written, shows_patterns

_ENDED = frozenset((
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
    "OUT_OF_MEMORY",
))  # fmt: skip
_VARIABLE = re.compile(r"[^=\s]+=")
_SBATCH = re.compile(r"(/\S*/)?sbatch( |$)")


def life_of(record: Mapping[str, Any]) -> Life:
    """Where a listed job is in its life."""
    states = {str(state).upper() for state in record.get("job_state", ())}
    if states & _ENDED:
        return Life.ENDED
    return Life.WAITING if "PENDING" in states else Life.STARTED


def hold_of(record: Mapping[str, Any]) -> Hold:
    """Who holds it."""
    priority = record.get("priority") or {}
    if not record.get("hold") and not (priority.get("set") and priority.get("number") == 0):
        return Hold.NONE
    return Hold.USER if record.get("state_reason") == "JobHeldUser" else Hold.ADMIN


def image_of(
    key: JobKey, record: Mapping[str, Any], submit_line: str, state: Mapping[str, Any] | None, accounted: str
) -> JobImage:
    """The whole job.

    Args:
        key: its name in the fleet.
        record: of ``squeue --json``.
        submit_line: as accounting has it.
        state: what the state directory tells (see state_directory.read); None where it cannot be read.
        accounted: ``sacct --env-vars`` without its heading, followed by a NUL and the batch script; used
            where ``state`` is None.

    Raises:
        NotMovable: with every reason that was found.
    """
    if not record.get("batch_flag"):
        raise NotMovable("it is interactive (srun or salloc)")
    if not _SBATCH.match(submit_line):
        raise NotMovable("it was not submitted with sbatch, so what its record does not show cannot be known")
    command = str(record.get("command") or "")
    if state is not None:
        script, environment = _decoded(state["script"]), [_decoded(one) for one in state["environment"]]
        arguments = [[_decoded(word) for word in words] for words in state["arguments"]]
    else:
        text, _, script = accounted.partition("\0")
        environment, arguments = _variables(text), None
    argv = _argv(command, submit_line, arguments)
    _check_text(script, *environment, *argv)
    line = _without_arguments(submit_line, argv)
    fields = with_unshown(description(record), unshown(line, script, environment))
    if not shows_patterns(record):
        written = {name: said(name, line, script, environment) for name in ("output", "error", "input")}
        fields.pop("standard_error", None)
        fields |= as_written(record, written)
    return JobImage(
        key=key,
        user=str(record["user_name"]),
        uid=int(record["user_id"]),
        gid=int(record["group_id"]),
        script=script,
        environment=tuple(environment),
        argv=argv,
        fields=fields,
        admin_comment=str(record.get("admin_comment") or ""),
    )


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode("utf-8", "surrogateescape")


def _variables(text: str) -> list[str]:
    """Accounting joins the variables by line breaks."""
    lines = text.splitlines()
    if not lines:
        raise NotMovable("accounting has no environment for it (AccountingStoreFlags=job_env)")
    if not all(_VARIABLE.match(line) for line in lines):
        raise NotMovable("a variable of its environment has a line break, which accounting does not keep apart")
    return lines


def _argv(command: str, submit_line: str, lists: Sequence[Sequence[str]] | None) -> tuple[str, ...]:
    if not command:
        return ()
    name = command.rpartition("/")[2]
    if lists is None:
        lists = [[command]]
    fitting = [words for words in lists if _before(submit_line, words[1:]).rpartition("/")[2].endswith(name)]
    if len(fitting) != 1:
        raise NotMovable("the arguments of its script cannot be told exactly")
    return tuple(fitting[0])


def _before(submit_line: str, arguments: Sequence[str]) -> str:
    """The submit line up to and with the script's name; empty if it does not end with these arguments."""
    tail = "".join(f" {word}" for word in arguments)
    return submit_line.removesuffix(tail) if submit_line.endswith(tail) else ""


def _without_arguments(submit_line: str, argv: Sequence[str]) -> str:
    if argv:
        return _before(submit_line, argv[1:])
    # --wrap's own words are no options of sbatch; what follows them may be, so only those words go.
    return re.sub(r"(--wrap[= ])", " --wrap=", submit_line)


def _check_text(*texts: str) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as failure:
            raise NotMovable("its script, environment or arguments are not UTF-8 text") from failure
