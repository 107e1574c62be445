"""A route at submission: ask every cluster when the job would start, and run sbatch at the best."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from slurm_evo.config import ClusterSettings, Settings
from slurm_evo.model import ConfigError

_START = re.compile(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?: on cluster (\S+))?")
_WANTS_INPUT = ("batch script is empty", "batch script contains nothing", "does not look like a batch script")
_QUIET = ("-Q", "--quiet")


@dataclass(frozen=True, slots=True)
class Answered:
    """What one cluster says of a job that is about to be submitted."""

    cluster: str
    """Where it would start: another than the one asked if its owner chose it (-M, SBATCH_CLUSTERS, #SBATCH)."""
    slurm_conf: str
    sbatch: str
    """The cluster's own, or the one on PATH, which stays as it is: sbatch gives it to the job."""
    start: datetime | None
    """When it would start there; None if it would not be taken."""
    words: str
    """sbatch's own."""
    well: bool = False
    """sbatch ended well, also where it told no start (--help, --version)."""


def route(settings: Settings, arguments: Sequence[str]) -> int:
    """Submit at the cluster where the job would start first; sbatch's own exit code.

    Does not return where sbatch takes this process's place.

    Raises:
        ConfigError: no real cluster is configured that has a slurm.conf.
    """
    clusters = [cluster for cluster in settings.clusters if cluster.way in ("pyslurm", "command")]
    if not clusters:
        raise ConfigError("clusters: submit needs one with way = 'pyslurm' or 'command'")
    answers, script = _ask(clusters, arguments)
    best = choose(answers)
    if best is None:
        for answer in answers:
            sys.stderr.write(f"{answer.cluster}: {answer.words}\n")
        return 1
    if best.start is not None and not _quiet(arguments):
        sys.stderr.write(f"slurm-evo: {best.cluster}, expected start {best.start:%Y-%m-%d %H:%M:%S}\n")
    return _sbatch(best.sbatch, arguments, {**os.environ, "SLURM_CONF": best.slurm_conf}, script)


def choose(answers: Sequence[Answered]) -> Answered | None:
    """The earliest start; of equal ones the cluster that is configured first; else one that had no complaint."""
    able = [(answer.start, place) for place, answer in enumerate(answers) if answer.start is not None]
    if able:
        return answers[min(able)[1]]
    return next((answer for answer in answers if answer.well), None)


def _quiet(arguments: Sequence[str]) -> bool:
    return any(word in _QUIET for word in arguments)


def _ask(clusters: Sequence[ClusterSettings], arguments: Sequence[str]) -> tuple[list[Answered], bytes | None]:
    """Every cluster at once; again with standard input where sbatch turns out to want the script from there."""
    with ThreadPoolExecutor(len(clusters)) as pool:
        answers = list(pool.map(lambda cluster: _test(cluster, arguments, b""), clusters))
        if not any(sign in answer.words.lower() for answer in answers for sign in _WANTS_INPUT):
            return answers, None
        script = sys.stdin.buffer.read()
        return list(pool.map(lambda cluster: _test(cluster, arguments, script), clusters)), script


def _test(cluster: ClusterSettings, arguments: Sequence[str], script: bytes) -> Answered:
    conf = str(cluster.slurm_conf)
    sbatch = "sbatch" if cluster.commands is None else str(cluster.commands / "sbatch")
    env = {**os.environ, "SLURM_CONF": conf, "SLURM_TIME_FORMAT": "standard"}
    # Told to be quiet, sbatch does not tell the start either; arguments of the script do not matter here.
    aloud = [word for word in arguments if word not in _QUIET]
    try:
        ran = subprocess.run(
            [sbatch, "--test-only", *aloud],
            env=env, input=script, capture_output=True, check=False, timeout=cluster.timeout_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        words = f"sbatch did not end within {cluster.timeout_s:g} s; is slurmctld up?"
        return Answered(cluster.name, conf, sbatch, None, words)
    except (OSError, ValueError) as failure:
        return Answered(cluster.name, conf, sbatch, None, f"sbatch could not be started: {failure}")
    words = (ran.stderr + ran.stdout).decode("utf-8", "replace").strip() or f"exit code {ran.returncode}"
    told, well = _START.search(words), ran.returncode == 0
    if told is None or not well:
        return Answered(cluster.name, conf, sbatch, None, words, well)
    return Answered(told[2] or cluster.name, conf, sbatch, datetime.fromisoformat(told[1]), words, well)


def _sbatch(sbatch: str, arguments: Sequence[str], env: Mapping[str, str], script: bytes | None) -> int:
    if script is not None:
        return subprocess.run([sbatch, *arguments], env=dict(env), input=script, check=False).returncode
    try:
        os.execvpe(sbatch, [sbatch, *arguments], dict(env))  # noqa: S606  as if the user had typed it
    except OSError as failure:
        raise ConfigError(f"sbatch could not be started: {failure.strerror}") from failure
