"""A cluster through Slurm's own commands: squeue, scontrol, sprio, sacctmgr.

Works with every Slurm that has ``squeue --json`` (21.08 and later), and for clusters of different versions
side by side, because each has its commands. Costs one process, about 3 ms, for each question and action.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
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
    ClusterView,
    Hold,
    JobState,
    Limit,
    Outcome,
    SetClusters,
    SetSiteFactor,
    Unpin,
)
from slurm_evo.slurm.answers import LAST_WITH_EXCLUSIVE, parse_jobs, parse_nodes, tells_no_exclusive
from slurm_evo.slurm.facts import (
    ShownConfig,
    facts_of,
    parse_config,
    parse_federation,
    parse_shown_partitions,
)
from slurm_evo.slurm.limits import ASSOC_FORMAT, QOS_FORMAT, parse_associations, parse_qos
from slurm_evo.slurm.limits_cache import LimitsCache
from slurm_evo.slurm.priorities import SPRIO_FORMAT, parse_sprio, with_standing
from slurm_evo.slurm.refusals import answer_of, no_contact
from slurm_evo.slurm.runner import Ran, Runner, run_process, slurm_environment, utc_now

SQUEUE = ("squeue", "--local", "--all")
"""Without --all the REVOKED trackers of a federation are left out (24.11, 26.05)."""


class CommandPort:
    """A ClusterPort that runs Slurm's commands.

    Args:
        name: the cluster's ClusterName.
        slurm_conf: path of its slurm.conf, which tells the commands whom to ask.
        commands: the folder of its own commands; None: those on PATH.
        run: how commands are run.
        clock: aware UTC.
        timeout_s: how long one command may take before it is killed.
    """

    def __init__(
        self,
        name: ClusterName,
        *,
        slurm_conf: str,
        commands: Path | None = None,
        run: Runner = run_process,
        clock: Callable[[], datetime] = utc_now,
        timeout_s: float = 30.0,
    ) -> None:
        self._name = name
        self._slurm_conf = slurm_conf
        self._run = run
        self._clock = clock
        self._timeout_s = timeout_s
        self._env = slurm_environment(slurm_conf, commands)
        self._limits = LimitsCache(self._ask_limits, clock)

    @property
    def name(self) -> ClusterName:
        """The cluster's ClusterName."""
        return self._name

    def close(self) -> None:
        """Nothing is kept open between questions."""

    # -- looking ------------------------------------------------------------------------------------

    def look(self) -> ClusterView:
        """See the cluster once: about six commands.

        Raises:
            ClusterUnreachable: a command is missing or did not answer in time, or slurmctld was not reached.
            ClusterRefused: Slurm does not let us look, or slurm_conf is another cluster's.
            AnswerUnreadable: an answer was not understood.
        """
        asked = self._clock()
        config = self._config()
        federation = parse_federation(self._ask("scontrol", "show", "federation"))
        facts = facts_of(self._name, config, federation, now=asked)
        partitions = parse_shown_partitions(
            self._name, self._ask("scontrol", "--all", "--oneliner", "show", "partitions")
        )
        nodes = parse_nodes(self._name, self._ask_json("scontrol", "--all", "show", "nodes", "--json"))
        seen_at = self._clock()
        found = parse_jobs(self._name, self._jobs(facts.version), partitions)
        jobs = found.jobs
        if facts.multifactor:
            jobs = with_standing(jobs, parse_sprio(self._name, self._sprio()))
        return ClusterView(
            cluster=self._name,
            seen_at=seen_at,
            facts=facts,
            nodes=nodes,
            partitions=partitions,
            jobs=jobs,
            limits=self._limits.limits(),
            unreadable=found.unreadable,
        )

    def _config(self) -> ShownConfig:
        config = parse_config(self._name, self._ask("scontrol", "show", "config"))
        actual = config.values.get("ClusterName")
        if actual != self._name:
            raise ClusterRefused(
                self._name,
                f"{self._slurm_conf} belongs to the cluster {actual!r}; correct the name or the slurm_conf",
            )
        return config

    def _jobs(self, version: str) -> Any:
        """The job list, in the newest form that tells whether a job wants its nodes to itself."""
        if tells_no_exclusive(version):
            ran = self._command(*SQUEUE, f"--json={LAST_WITH_EXCLUSIVE}")
            if ran.returncode == 0:
                return self._decoded("squeue --json", ran.stdout)
        return self._ask_json(*SQUEUE, "--json")

    def _sprio(self) -> str:
        ran = self._command("sprio", "--noheader", "--local", f"--format={SPRIO_FORMAT}")
        if ran.returncode and "unable to find jobs" in _words(ran).lower():
            return ""
        return self._stdout("sprio", ran)

    def _ask_limits(self) -> tuple[Limit, ...]:
        associations = self._ask(
            *("sacctmgr", "--parsable2", "--noheader", "--readonly", "show", "assoc"),
            *(f"cluster={self._name}", f"format={ASSOC_FORMAT}"),
        )
        qos = self._ask(
            "sacctmgr", "--parsable2", "--noheader", "--readonly", "show", "qos", f"format={QOS_FORMAT}"
        )
        return (*parse_associations(self._name, associations), *parse_qos(self._name, qos))

    # -- acting -------------------------------------------------------------------------------------

    def apply(self, action: Action) -> Outcome:
        """Ask for one change.

        Slurm takes a SiteFactor for a job that has just started as well; it then has no effect, and the
        answer is DONE.
        """
        if action.job.cluster != self._name:
            return Outcome(
                action, Answer.REFUSED, f"job {action.job} is changed at its origin, not through {self._name}"
            )
        match action:
            case SetClusters(job, clusters):
                return self._update(action, f"JobId={job.id}", f"Clusters={','.join(clusters)}")
            case SetSiteFactor(job, value):
                return self._update(action, f"JobId={job.id}", f"SiteFactor={value}")
            case Unpin():
                return self._unpin(action)

    def _unpin(self, action: Unpin) -> Outcome:
        """Release, then restore.

        ``scontrol update`` refuses Priority=INFINITE; ``scontrol release`` sends just that, also for a job
        that is not held; in a federation it reaches all siblings and re-sends none of them. It resets Nice to
        0, so a second update follows. A job that its owner holds between our look and the release is
        released: a few milliseconds that this way in cannot close.
        """
        job = str(action.job.id)
        try:
            ran = self._command(*SQUEUE, "--json", f"--jobs={job}")
            if ran.returncode:
                return self._outcome(action, ran)
            jobs = parse_jobs(self._name, self._decoded("squeue --json", ran.stdout)).jobs
        except (ClusterUnreachable, AnswerUnreadable) as failure:
            return Outcome(action, Answer.UNKNOWN, failure.message)
        record = next((record for record in jobs if record.id == action.job.id), None)
        if record is None or record.state is not JobState.PENDING:
            return Outcome(action, Answer.GONE, "it no longer waits")
        if record.hold is not Hold.NONE:
            return Outcome(action, Answer.REFUSED, f"it is held ({record.reason}); unpinning would release it")
        released = self._change(action, "scontrol", "release", job)
        if released.answer is not Answer.DONE:
            return released
        return self._update(action, f"JobId={job}", f"Nice={action.nice}", f"SiteFactor={action.site_factor}")

    def _update(self, action: Action, *fields: str) -> Outcome:
        return self._change(action, "scontrol", "update", *fields)

    def _change(self, action: Action, *argv: str) -> Outcome:
        try:
            return self._outcome(action, self._command(*argv))
        except ClusterUnreachable as failure:
            return Outcome(action, Answer.UNKNOWN, failure.message)

    def _outcome(self, action: Action, ran: Ran) -> Outcome:
        if ran.returncode == 0:
            return Outcome(action, Answer.DONE)
        words = _words(ran)
        if "Unspecified error" in words and isinstance(action, SetClusters):
            words += " (Slurm's answer for a job outside a federation)"
        return Outcome(action, answer_of(words), words)

    # -- asking -------------------------------------------------------------------------------------

    def _command(self, *argv: str) -> Ran:
        try:
            return self._run(argv, env=self._env, timeout_s=self._timeout_s)
        except subprocess.TimeoutExpired as failure:
            raise ClusterUnreachable(
                self._name,
                f"«{_shown(argv)}» did not end within {self._timeout_s:g} s; is slurmctld up and is"
                f" {self._slurm_conf} there?",
            ) from failure
        except OSError as failure:
            raise ClusterUnreachable(
                self._name,
                f"{argv[0]} could not be started ({failure.strerror or failure}); install Slurm's client"
                " commands here, or choose the REST port",
            ) from failure

    def _ask(self, *argv: str) -> str:
        return self._stdout(_shown(argv), self._command(*argv))

    def _stdout(self, shown: str, ran: Ran) -> str:
        if ran.returncode == 0:
            return ran.stdout
        words = _words(ran) or f"exit code {ran.returncode}"
        if "protocol authentication error" in words.lower():
            words += (
                " (munge, or another Slurm version: commands newer than slurmctld are refused; name its own ones"
                " with clusters.commands)"
            )
        if no_contact(words):
            raise ClusterUnreachable(self._name, f"«{shown}» did not reach Slurm: {words}")
        raise ClusterRefused(self._name, f"«{shown}» was refused: {words}")

    def _ask_json(self, *argv: str) -> Any:
        return self._decoded(_shown(argv), self._ask(*argv))

    def _decoded(self, shown: str, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as failure:
            raise AnswerUnreadable(
                self._name, f"«{shown}» answered no JSON ({failure}); it began with {text[:60]!r}"
            ) from failure


def _shown(argv: Sequence[str]) -> str:
    return " ".join(argv)


def _words(ran: Ran) -> str:
    """What a command said, in one line; its complaints go before what it printed."""
    lines = [line.strip() for line in (ran.stderr + "\n" + ran.stdout).splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines))[:500]
