"""A real cluster's part in a move: scontrol, sacct, scancel, sbatch --test-only, and slurmrestd to submit.

Submission goes through slurmrestd because only there is a job description exact: sbatch would add to the
environment, take the path of a temporary file for the script's name, and cannot ask for a job id. It is
asked with SlurmUser's token and the owner's user id: only root and SlurmUser may submit for
another user and choose the job id (job_mgr.c, _valid_id). slurmctld then makes the job the owner's.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2

from slurm_evo.model import (
    Answer,
    AnswerUnreadable,
    ClusterName,
    ClusterRefused,
    ClusterUnreachable,
    JobKey,
)
from slurm_evo.slurm.answers import LAST_WITH_EXCLUSIVE
from slurm_evo.slurm.refusals import answer_of, no_contact
from slurm_evo.slurm.runner import Ran, Runner, run_process, slurm_environment, utc_now
from slurm_evo.slurm.transfer import state_directory
from slurm_evo.slurm.transfer.fields import description
from slurm_evo.slurm.transfer.image import (
    COPY,
    FROM,
    MOVING,
    TO,
    JobImage,
    NotMovable,
    fingerprint,
    mark_of,
    marked,
    moved_by_another,
    of_another,
    unmarked,
)
from slurm_evo.slurm.transfer.machine import Copy, Life, Original
from slurm_evo.slurm.transfer.port import Replied
from slurm_evo.slurm.transfer.shown import hold_of, image_of, life_of
from slurm_evo.slurm.transfer.testing import test_options

_VERSIONS = tuple(f"v0.0.{number}" for number in (44, 43, 42, 41, 40, 45))
"""Tried in this order; v0.0.45 forgets ``--exclusive`` (see answers.LAST_WITH_EXCLUSIVE)."""
_SITE_FACTOR_OFFSET = 2**31
"""slurm.h, NICE_OFFSET: REST wants the stored number."""
_NUMBER_IS_TAKEN = ("duplicate job id", "invalid job id specified")
"""The answers to a number that is taken, or that this cluster may not give (slurm_errno.h)."""
_TOKEN_S = 600
_SQUEUE = ("squeue", "--local", "--all", "--states=all")
_NO_JOB = ("invalid job id specified",)


class SlurmTransfers:
    """TransferPort of a real cluster.

    Args:
        name: the cluster's ClusterName.
        slurm_conf: path of its slurm.conf.
        commands: the folder of its own commands; None: those on PATH.
        url: its slurmrestd, ``http://HOST:PORT``; empty: nothing can be moved to it.
        slurm_user: whose token submits: SlurmUser of slurm.conf(5).
        token_file: a JWT of that user; None: ``scontrol token`` is asked, which root and SlurmUser may.
        state_dir: StateSaveLocation, where it can be read from here.
        state_reader: else a command that prints what ``state_directory`` reads; job id and command are added.
        our_uid: the Unix user number under which commands run, as accounting will name it.
        run: how commands are run.
        clock: aware UTC.
        timeout_s: how long one command or request may take.
        transport: another HTTP transport.
    """

    def __init__(
        self,
        name: ClusterName,
        *,
        slurm_conf: str,
        our_uid: int,
        commands: Path | None = None,
        url: str = "",
        slurm_user: str = "slurm",
        token_file: Path | None = None,
        state_dir: Path | None = None,
        state_reader: Sequence[str] = (),
        run: Runner = run_process,
        clock: Callable[[], datetime] = utc_now,
        timeout_s: float = 30.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._name = name
        self._env = slurm_environment(slurm_conf, commands)
        self._our_uid = our_uid
        self._url = url
        self._slurm_user = slurm_user
        self._token_file = token_file
        self._state_dir = state_dir
        self._state_reader = tuple(state_reader)
        self._run = run
        self._clock = clock
        self._timeout_s = timeout_s
        self._http = httpx2.Client(base_url=url or "http://none", timeout=timeout_s, transport=transport)
        self._version: str | None = None

    @property
    def name(self) -> ClusterName:
        """The cluster's ClusterName."""
        return self._name

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    # -- looking --------------------------------------------------------------------------------------

    def image(self, job: int) -> JobImage:
        """See TransferPort."""
        with self._understood():
            return self._image(job)

    def _image(self, job: int) -> JobImage:
        record = self._record(job)
        if record is None or life_of(record) is not Life.WAITING:
            raise NotMovable("it no longer waits")
        state = self._state(job, str(record.get("command") or ""))
        accounted = "" if state is not None else self._accounted(job)
        return image_of(JobKey(self._name, job), record, self._submit_line(job, record), state, accounted)

    def original(self, job: int, move: str) -> Original:
        """See TransferPort."""
        with self._understood():
            return self._original(job, move)

    def _original(self, job: int, move: str) -> Original:
        record = self._record(job)
        if record is None:
            return Original(life=Life.ENDED, cancelled_by_us=self._cancelled_by_us(job, None, move))
        comment = str(record.get("admin_comment") or "")
        life = life_of(record)
        left = self._left_s(record)
        ours = not moved_by_another(comment, move, left)
        put_off = ours and (mark_of(comment, MOVING) or mark_of(comment, TO))
        try:
            fields = fingerprint(description(record))
        except NotMovable as refusal:
            fields = str(refusal)
        return Original(
            life=life,
            hold=hold_of(record),
            deferred_s=left if put_off and left > 0 else None,
            ours=ours,
            fields=fields,
            cancelled_by_us=self._cancelled_by_us(job, comment, move) if life is Life.ENDED else None,
        )

    def _left_s(self, record: Mapping[str, Any]) -> float:
        """Until the job may start; below 0 if it may."""
        eligible = record.get("eligible_time") or {}
        return float(eligible.get("number") or 0) - self._clock().timestamp()

    def _cancelled_by_us(self, job: int, comment: str | None, move: str) -> bool | None:
        """By accounting's word and our mark; None while accounting has not heard of the end."""
        if comment is not None and not _went_by(comment, move):
            return False
        told = self._sacct(job, "State%80,AdminComment%500")
        if told is None:
            return False if comment is None else None
        state, _, noted = told.partition("|")
        if state.split(" ")[0] in ("PENDING", "RUNNING", "SUSPENDED"):
            return None
        # A slurmctld that is killed after a cancellation recovers the job without who cancelled it, and accounting
        # then forgets that too: our mark, set just before, is what is left.
        ours = state in (f"CANCELLED by {self._our_uid}", "CANCELLED")
        return ours and _went_by(noted if comment is None else comment, move)

    def copies(self, of: JobKey, image: JobImage | None, known: int | None, move: str) -> tuple[Copy, ...]:
        """See TransferPort."""
        with self._understood():
            return self._copies(of, image, known, move)

    def _copies(self, of: JobKey, image: JobImage | None, known: int | None, move: str) -> tuple[Copy, ...]:
        if image is None:
            record = self._record(of.id)
            records = [] if record is None else [record]
        else:
            shown = self._ask(*_SQUEUE, f"--user={image.uid}", "--json")
            records = self._decoded(shown)["jobs"]
        found = [copy for record in records if (copy := _copy(of, record, image, move)) is not None]
        if not found and known is not None:
            told = self._sacct(known, "State%80,AdminComment%500")
            state, _, noted = (told or "").partition("|")
            ours = str(of) in (mark_of(noted, COPY), mark_of(noted, FROM)) and not of_another(noted, move)
            if ours and state.split(" ")[0] not in ("PENDING", "RUNNING", "SUSPENDED"):
                found.append(Copy(id=known, life=Life.ENDED, final=mark_of(noted, FROM) is not None))
        return tuple(found)

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """An answer that is not built as expected leaves this cluster alone; it ends no daemon."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as failure:
            raise AnswerUnreadable(self._name, f"an answer was not understood ({failure!r})") from failure

    def _record(self, job: int) -> dict[str, Any] | None:
        # Not scontrol show job: on 24.11 it lists no job, exit code 0, where slurmctld is not reached.
        ran = self._command(*_SQUEUE, f"--jobs={job}", "--json")
        if ran.returncode and any(sign in ran.stderr.lower() for sign in _NO_JOB):
            return None
        records = self._decoded(self._stdout(ran))["jobs"]
        record: dict[str, Any] | None = next((one for one in records if one.get("job_id") == job), None)
        if record is not None and not record.get("shared"):
            record["shared"] = self._shared(job)
        return record

    def _shared(self, job: int) -> list[str]:
        """``--exclusive`` and ``--oversubscribe``, which the newest form of a record leaves out."""
        ran = self._command(*_SQUEUE, f"--jobs={job}", f"--json={LAST_WITH_EXCLUSIVE}")
        if ran.returncode:
            return []  # an older Slurm, whose own newest form tells it
        records = self._decoded(ran.stdout)["jobs"]
        return next((one.get("shared") or [] for one in records if one.get("job_id") == job), [])

    def _submit_line(self, job: int, record: Mapping[str, Any]) -> str:
        return str(record.get("submit_line") or "") or self._sacct(job, "SubmitLine%9999") or ""

    def _sacct(self, job: int, columns: str) -> str | None:
        """The latest record of a job in accounting."""
        told = self._ask(
            "sacct", "--allocations", "--parsable2", "--noheader", "--local", "--starttime=1970-01-01",
            f"--jobs={job}", f"--format={columns}",
        )  # fmt: skip
        return told.strip("\n").splitlines()[-1] if told.strip() else None

    def _accounted(self, job: int) -> str:
        """Environment and script; the script from slurmctld, which has it exactly."""
        told = self._ask("sacct", "--local", "--starttime=1970-01-01", f"--jobs={job}", "--env-vars")
        script = self._ask("scontrol", "write", "batch_script", str(job), "-")
        lines = told.splitlines()
        return "\n".join(line for line in lines[2:]) + "\0" + script

    def _state(self, job: int, command: str) -> Mapping[str, Any] | None:
        if self._state_dir is not None:
            try:
                return state_directory.read(self._state_dir, job, command)
            except state_directory.StateUnreadable as failure:
                raise NotMovable(f"the state directory does not tell it: {failure}") from failure
        if not self._state_reader:
            return None
        ran = self._command(*self._state_reader, str(job), command)
        if ran.returncode:
            raise NotMovable(f"the state reader does not tell it: {ran.stderr.strip()[:200]}")
        told: Mapping[str, Any] = self._decoded(ran.stdout)
        return told

    # -- changing -------------------------------------------------------------------------------------

    def test(self, image: JobImage) -> Replied:
        """See TransferPort."""
        try:
            token = self._token(image.user)
        except (ClusterUnreachable, ClusterRefused) as failure:
            return Replied(Answer.UNKNOWN, failure.message)
        argv = ("sbatch", "--test-only", *test_options(image.fields), "--wrap=true")
        return self._replied(argv, {"SLURM_JWT": token})

    def defer(self, job: int, to: ClusterName, seconds: float, move: str) -> Replied:
        """See TransferPort."""
        return self._update(job, move, MOVING, to, f"StartTime=now+{int(seconds)}")

    def restore(self, job: int, move: str) -> Replied:
        """See TransferPort."""
        return self._update(job, move, None, None, "StartTime=now")

    def cancel(self, job: int, to: JobKey | None, move: str) -> Replied:
        """See TransferPort."""
        if to is not None:
            noted = self._update(job, move, TO, to)
            if noted.answer is not Answer.DONE:
                return noted
        # --ctld: slurmctld itself leaves a job alone that has started meanwhile.
        return self._replied(("scancel", "--ctld", "--state=PENDING", str(job)))

    def submit(self, image: JobImage, move: str) -> Replied:
        """See TransferPort."""
        described = dict(image.fields) | {
            "user_id": str(image.uid),
            "group_id": str(image.gid),
            "script": image.script,
            "environment": list(image.environment),
            "argv": list(image.argv),
            "admin_comment": marked(image.admin_comment, COPY, image.key, move),
            "hold": True,
        }
        kept = self._post("job/submit", {"job": described | {"job_id": image.key.id}})
        if kept.answer is Answer.DONE or not any(words in kept.message.lower() for words in _NUMBER_IS_TAKEN):
            return kept
        try:
            if self.copies(image.key, image, None, move):
                return Replied(Answer.DONE, "it is there already")
        except (ClusterUnreachable, ClusterRefused, AnswerUnreadable) as failure:
            return Replied(Answer.UNKNOWN, failure.message)
        return self._post("job/submit", {"job": described})

    def release(self, copy: int, of: JobKey, *, move: str, site_factor: int, held: bool = False) -> Replied:
        """See TransferPort."""
        try:
            record = self._record(copy)
        except (ClusterUnreachable, ClusterRefused, AnswerUnreadable) as failure:
            return Replied(Answer.UNKNOWN, failure.message)
        if record is None:
            return Replied(Answer.GONE, "it is not listed any more")
        comment = str(record.get("admin_comment") or "")
        return self._post(
            f"job/{copy}",
            ({} if held else {"hold": False})
            | {
                "nice": int(record.get("nice") or 0),
                "site_factor": _SITE_FACTOR_OFFSET + site_factor,
                "admin_comment": marked(comment, FROM, of, move),
            },
        )

    def _update(self, job: int, move: str, mark: str | None, value: object, *fields: str) -> Replied:
        try:
            record = self._record(job)
        except (ClusterUnreachable, ClusterRefused, AnswerUnreadable) as failure:
            return Replied(Answer.UNKNOWN, failure.message)
        comment = str((record or {}).get("admin_comment") or "")
        if record is not None and moved_by_another(comment, move, self._left_s(record)):
            return Replied(Answer.REFUSED, "another slurm-evo is moving it")
        comment = unmarked(comment) if mark is None else marked(comment, mark, value, move)
        return self._replied(("scontrol", "update", f"JobId={job}", *fields, f"AdminComment={comment}"))

    def _replied(self, argv: Sequence[str], more: Mapping[str, str] = {}) -> Replied:
        try:
            ran = self._command(*argv, more=more)
        except ClusterUnreachable as failure:
            return Replied(Answer.UNKNOWN, failure.message)
        if ran.returncode == 0:
            return Replied(Answer.DONE, _words(ran))
        return Replied(answer_of(_words(ran)), _words(ran))

    # -- slurmrestd -----------------------------------------------------------------------------------

    def _post(self, path: str, body: Mapping[str, Any]) -> Replied:
        if not self._url:
            return Replied(Answer.REFUSED, f"clusters.{self._name}.transfers.url is not set: no way to submit")
        try:
            answer = self._http.post(
                f"/slurm/{self._served()}/{path}", json=body, headers=self._headers(self._slurm_user)
            )
        except httpx2.HTTPError as failure:
            return Replied(Answer.UNKNOWN, f"slurmrestd did not answer: {failure}")
        except (ClusterUnreachable, ClusterRefused) as failure:
            return Replied(Answer.UNKNOWN, failure.message)
        try:
            errors = [error for error in answer.json().get("errors", ()) if error.get("error_number")]
        except ValueError:
            return Replied(Answer.UNKNOWN, f"slurmrestd answered {answer.status_code} without JSON")
        if answer.is_success and not errors:
            return Replied(Answer.DONE)
        number = errors[0].get("error_number") if errors else answer.status_code
        words = "; ".join(dict.fromkeys(str(error.get("error") or error.get("description")) for error in errors))
        return Replied(answer_of(words), f"{number}: {words}")

    def _served(self) -> str:
        """The newest version of the API that both sides know."""
        if self._version is None:
            for version in _VERSIONS:
                answer = self._http.get(f"/slurm/{version}/ping/", headers=self._headers(self._slurm_user))
                if answer.is_success:
                    self._version = version
                    break
            else:
                raise ClusterRefused(
                    self._name, f"slurmrestd at {self._url} serves none of {', '.join(_VERSIONS)}"
                )
        return self._version

    def _headers(self, user: str) -> dict[str, str]:
        return {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": self._token(user)}

    def _token(self, user: str) -> str:
        if user == self._slurm_user and self._token_file is not None:
            try:
                return self._token_file.read_text().strip()
            except OSError as failure:
                raise ClusterRefused(self._name, f"{self._token_file}: {failure.strerror}") from failure
        told = self._ask("scontrol", "token", f"username={user}", f"lifespan={_TOKEN_S}").strip()
        return told.partition("=")[2]

    # -- asking ---------------------------------------------------------------------------------------

    def _command(self, *argv: str, more: Mapping[str, str] = {}) -> Ran:
        try:
            return self._run(argv, env={**self._env, **more}, timeout_s=self._timeout_s)
        except (subprocess.TimeoutExpired, OSError) as failure:
            raise ClusterUnreachable(self._name, f"«{argv[0]}» did not end: {failure}") from failure

    def _ask(self, *argv: str) -> str:
        return self._stdout(self._command(*argv))

    def _stdout(self, ran: Ran) -> str:
        if ran.returncode == 0:
            return ran.stdout
        words = _words(ran)
        if no_contact(words):
            raise ClusterUnreachable(self._name, words)
        raise ClusterRefused(self._name, words)

    def _decoded(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as failure:
            raise AnswerUnreadable(self._name, f"no JSON ({failure}); it began with {text[:60]!r}") from failure


def _copy(of: JobKey, record: Mapping[str, Any], image: JobImage | None, move: str) -> Copy | None:
    comment = str(record.get("admin_comment") or "")
    final = mark_of(comment, FROM) == str(of)
    if of_another(comment, move) or not (final or mark_of(comment, COPY) == str(of)):
        return None
    owner = (record.get("user_name"), record.get("user_id"))
    return Copy(
        id=int(record["job_id"]),
        life=life_of(record),
        final=final,
        owner_matches=image is None or owner == (image.user, image.uid),
    )


def _went_by(comment: str, move: str) -> bool:
    """The mark of this move on an original that was cancelled for its copy."""
    return mark_of(comment, TO) is not None and not of_another(comment, move)


def _words(ran: Ran) -> str:
    lines = [line.strip() for line in (ran.stderr + "\n" + ran.stdout).splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines))[:500]
