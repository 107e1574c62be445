"""What sbatch was told that no call of Slurm tells again.

A job's record shows most of what it was submitted with, but not all (sbatch(1): ``--signal``, ``--open-mode``,
``--distribution`` ...). Those options can still be found where they were written: in the submit line, in the
script's #SBATCH lines and in SBATCH_ variables. An option that is found there and neither shows in the record
nor is read here makes a job that cannot be moved.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from slurm_evo.slurm.transfer.image import NotMovable

_WORDS_OF_SHOWN = """
account array batch begin chdir comment constraint container contiguous core-spec cpus-per-gpu
cpus-per-task deadline delay-boot dependency error exclude exclusive export export-file extra extra-node-info
get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint hold
ignore-pbs input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-per-cpu
mem-per-gpu mincpus network nice no-requeue nodelist nodes ntasks ntasks-per-core ntasks-per-gpu
ntasks-per-node ntasks-per-socket output oversubscribe parsable partition prefer profile propagate qos quiet
reboot requeue reservation segment sockets-per-node spread-job switches thread-spec threads-per-core time
time-min tmp tres-bind tres-per-task uid use-min-nodes verbose wckey wrap
"""
SHOWN = frozenset(_WORDS_OF_SHOWN.split())
"""What the job's record, its flags or its environment (``--propagate``, ``--export``) shows."""
READ = frozenset(("signal", "open-mode", "nodes", "ntasks"))
"""What is read from where it was written; whether ``--nodes`` was said at all the record does not tell, and the
tasks it shows may be Slurm's."""
_GRES_FLAGS = ("disable-binding", "enforce-binding")
"""The ones that the record's flags show."""
_SHORT = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input",
    "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes",
    "n": "ntasks", "O": "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos",
    "S": "core-spec", "s": "oversubscribe", "t": "time", "v": "verbose", "W": "wait", "w": "nodelist",
    "x": "exclude",
}  # fmt: skip
_WITHOUT_VALUE = frozenset("HkOQsvW")
_WORDS_OF_VARIABLES = """
ACCOUNT ARRAY_INX BATCH CONSTRAINT CONTAINER CORE_SPEC CPUS_PER_GPU DEBUG DELAY_BOOT ERROR EXCLUSIVE
EXPORT GET_USER_ENV GPU_BIND GPU_FREQ GPUS GPUS_PER_NODE GPUS_PER_TASK GRES GRES_FLAGS HINT IGNORE_PBS INPUT
JOB_NAME MEM_PER_CPU MEM_PER_GPU MEM_PER_NODE NO_REQUEUE OUTPUT PARTITION PROFILE QOS REQUEUE RESERVATION
SPREAD_JOB THREAD_SPEC THREADS_PER_CORE TIMELIMIT TRES_BIND TRES_PER_TASK USE_MIN_NODES WCKEY
"""
_VARIABLES = frozenset(_WORDS_OF_VARIABLES.split())
"""SBATCH_ variables whose effect the record shows (sbatch(1), INPUT ENVIRONMENT VARIABLES)."""
Option = tuple[str, str | None]


def unshown(submit_line: str, script: str, environment: Iterable[str]) -> dict[str, str]:
    """The options that the job's record does not show, by long name.

    Args:
        submit_line: up to the script's name, without its arguments.
        script: the batch script.
        environment: NAME=value.

    Raises:
        NotMovable: one of them cannot be carried over; names it.
    """
    found: dict[str, str] = {}
    refused: list[str] = []
    directives = list(_directives(script, refused))
    # The command line goes before the script (sbatch(1)); of what is said twice the last counts.
    for name, value in (*_options(directives), *_options(submit_line.split())):
        if name in READ and value:
            found[name] = value
        elif name == "gres-flags" and value not in _GRES_FLAGS:
            refused.append(f"it was submitted with --gres-flags={value}, which no call of Slurm tells")
        elif name == "clusters":
            refused.append("its owner chose the cluster (--clusters)")
        elif name not in SHOWN:
            refused.append(f"it was submitted with --{name}, which no call of Slurm tells")
    for variable in environment:
        name = variable.partition("=")[0]
        if name in ("SBATCH_CLUSTERS", "SLURM_CLUSTERS"):
            refused.append(f"its owner chose the cluster ({name})")
        elif name.startswith("SBATCH_") and name.removeprefix("SBATCH_") not in _VARIABLES:
            refused.append(f"{name} was set, whose effect no call of Slurm tells")
    if refused:
        raise NotMovable(*dict.fromkeys(refused))
    return found


def said(name: str, submit_line: str, script: str, environment: Iterable[str]) -> list[str]:
    """Every value that was written for an option: as ``--NAME``, ``#SBATCH --NAME`` and ``SBATCH_NAME``."""
    words = (*_options(submit_line.split()), *_options(list(_directives(script, []))))
    variable = f"SBATCH_{name.upper()}="
    found = [value for option, value in words if option == name and value]
    return found + [one.removeprefix(variable) for one in environment if one.startswith(variable)]


def _directives(script: str, refused: list[str]) -> Iterator[str]:
    """The words of the #SBATCH lines, which end at the first command."""
    for line in script.splitlines()[1:]:
        if line.startswith("#SBATCH"):
            try:
                yield from shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError:
                refused.append(f"a line of its script was not understood: {line[:60]}")
        elif line.startswith(("#PBS", "#BSUB")):
            refused.append("its script has options of another batch system")
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def _options(words: Sequence[str]) -> Iterator[Option]:
    for place, word in enumerate(words):
        after = words[place + 1] if place + 1 < len(words) else None
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            yield _whole(name), value if equals else after
        elif word.startswith("-") and len(word) > 1 and word[1].isalpha():
            yield from _short(word[1:], after)


def _short(letters: str, after: str | None) -> Iterator[Option]:
    for place, letter in enumerate(letters):
        yield _SHORT.get(letter, letter), letters[place + 1 :] or after
        if letter not in _WITHOUT_VALUE:
            return


def _whole(name: str) -> str:
    """Getopt takes an unambiguous beginning of a long option for the whole."""
    known = SHOWN | READ
    if name in known:
        return name
    longer = [one for one in known if one.startswith(name)]
    return longer[0] if len(longer) == 1 and longer[0] in READ else name
