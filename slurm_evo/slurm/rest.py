"""A cluster through slurmrestd, with a JWT.

What this way in cannot do, by Slurm's own making (seen on 24.11 and 26.05):

* It cannot change federated jobs: slurmrestd rejects their ids. Such an action is REFUSED without being sent.
* It cannot read SiteFactors or direct-priority mode: there is nothing like sprio in it.
* It does not tell the federation, and the configuration only since v0.0.45; where the configuration is
  missing, ``priority_type`` is ``unknown``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import stamina

from slurm_evo.model import (
    Action,
    Answer,
    AnswerUnreadable,
    ClusterError,
    ClusterName,
    ClusterRefused,
    ClusterUnreachable,
    ClusterView,
    ControllerFacts,
    Hold,
    Job,
    JobState,
    Limit,
    Outcome,
    SetClusters,
    SetSiteFactor,
    Unpin,
)
from slurm_evo.slurm.answers import parse_jobs, parse_nodes, parse_partitions
from slurm_evo.slurm.facts import ShownConfig, ShownFederation, facts_of
from slurm_evo.slurm.fields import Record
from slurm_evo.slurm.limits import parse_associations_json, parse_qos_json
from slurm_evo.slurm.limits_cache import LimitsCache
from slurm_evo.slurm.refusals import answer_of, no_contact
from slurm_evo.slurm.rest_version import ServedApi, choose
from slurm_evo.slurm.runner import utc_now

MAX_LOCAL_ID = 0x03FF_FFFF
"""Ids above it carry a federation origin in their high bits (slurm.h, MAX_JOB_ID)."""
_SITE_FACTOR_OFFSET = 2**31
"""slurm.h, NICE_OFFSET: REST wants the stored number, not the administrator's."""
_READ_ATTEMPTS = 3
_UNAUTHORIZED = frozenset({401, 403, 511})


class RestPort:
    """A ClusterPort that asks slurmrestd.

    Args:
        name: the cluster's ClusterName.
        url: ``http://HOST:PORT``, ``https://HOST:PORT`` or ``unix:///PATH/OF/SOCKET``.
        token_file: holds the JWT that ``scontrol token`` made; read again for each request, so that it can
            be renewed at any time.
        user: the Unix user the token is for.
        api_version: such as ``v0.0.42``; by default the newest that both slurmrestd and this port know.
        transport: another HTTP transport, for tests and unusual networks.
        clock: aware UTC.
        timeout_s: how long one request may take.
    """

    def __init__(
        self,
        name: ClusterName,
        *,
        url: str,
        token_file: Path,
        user: str,
        api_version: str | None = None,
        transport: httpx2.BaseTransport | None = None,
        clock: Callable[[], datetime] = utc_now,
        timeout_s: float = 30.0,
    ) -> None:
        self._name = name
        self._url = url
        self._token_file = token_file
        self._user = user
        self._wanted_version = api_version
        self._clock = clock
        self._timeout_s = timeout_s
        base_url = url
        if url.startswith("unix://"):
            transport = transport or httpx2.HTTPTransport(uds=url.removeprefix("unix://"))
            base_url = "http://slurmrestd"
        self._client = httpx2.Client(base_url=base_url, transport=transport, timeout=timeout_s)
        self._api: ServedApi | None = None
        self._limits = LimitsCache(self._ask_limits, clock)

    @property
    def name(self) -> ClusterName:
        """The cluster's ClusterName."""
        return self._name

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # -- looking ------------------------------------------------------------------------------------

    def look(self) -> ClusterView:
        """See the cluster once: about five requests.

        Raises:
            ClusterUnreachable: slurmrestd, or slurmctld behind it, did not answer in time.
            ClusterRefused: the token is missing or not accepted, no API version is shared, or the URL is
                another cluster's.
            AnswerUnreadable: an answer was not understood.
        """
        facts = self._facts()
        partitions = parse_partitions(self._name, self._get("slurm", "partitions/"), what="REST partitions")
        nodes = parse_nodes(self._name, self._get("slurm", "nodes/"), what="REST nodes")
        seen_at = self._clock()
        jobs = self._read(f"/slurm/{self._served().jobs_version}/jobs/")
        found = parse_jobs(self._name, jobs, partitions, what="REST jobs")
        return ClusterView(
            cluster=self._name,
            seen_at=seen_at,
            facts=facts,
            nodes=nodes,
            partitions=partitions,
            jobs=found.jobs,
            limits=self._limits.limits(),
            unreadable=found.unreadable,
        )

    def _facts(self) -> ControllerFacts:
        asked = self._clock()
        diag = Record(self._name, self._get("slurm", "diag/"), "REST diag")
        slurm = "meta.slurm" if diag.raw("meta.slurm") is not None else "meta.Slurm"
        actual = diag.text(f"{slurm}.cluster", self._name)
        if actual != self._name:
            raise ClusterRefused(
                self._name, f"{self._url} belongs to the cluster {actual!r}; correct the name or the URL"
            )
        values = {"SLURM_VERSION": diag.text(f"{slurm}.release") or "unknown"}
        if self._served().has_conf:
            values |= self._configuration()
        config = ShownConfig(values, diag.instant("statistics.req_time"))
        return facts_of(self._name, config, ShownFederation(state="unknown"), now=asked)

    def _configuration(self) -> dict[str, str]:
        """The controller's settings, as ``scontrol show config`` would write them."""
        answer = self._get("slurm", "conf")
        conf = Record(self._name, answer, "REST conf").raw("slurm_conf")
        if not isinstance(conf, dict):
            raise AnswerUnreadable(self._name, "the answer to «REST conf» has no object «slurm_conf»")
        values = {}
        for key, value in conf.items():
            if isinstance(value, list) and all(isinstance(part, str) for part in value):
                values[key] = ",".join(value)
            elif isinstance(value, str | int):
                values[key] = str(value)
        return values

    def _ask_limits(self) -> tuple[Limit, ...]:
        associations = parse_associations_json(self._name, self._get("slurmdb", "associations/"))
        return (*associations, *parse_qos_json(self._name, self._get("slurmdb", "qos/")))

    # -- acting -------------------------------------------------------------------------------------

    def apply(self, action: Action) -> Outcome:
        """Ask for one change; see the module's text for what is REFUSED."""
        if action.job.cluster != self._name:
            return Outcome(
                action, Answer.REFUSED, f"job {action.job} is changed at its origin, not through {self._name}"
            )
        if action.job.id > MAX_LOCAL_ID:
            return Outcome(
                action,
                Answer.REFUSED,
                "slurmrestd does not change federated jobs; use the pyslurm or the command-line port",
            )
        match action:
            case SetClusters():
                return Outcome(action, Answer.REFUSED, "a job outside a federation has no other clusters")
            case SetSiteFactor(value=value):
                return self._update(action, {"site_factor": _SITE_FACTOR_OFFSET + value})
            case Unpin():
                return self._unpin(action)

    def _unpin(self, action: Unpin) -> Outcome:
        """``hold: false`` is Priority=INFINITE, and nice and site factor travel in the same update."""
        try:
            record = self._job(action.job.id)
        except (ClusterUnreachable, AnswerUnreadable) as failure:
            return Outcome(action, Answer.UNKNOWN, failure.message)
        except ClusterRefused as failure:
            return Outcome(action, answer_of(failure.message), failure.message)
        if record is None or record.state is not JobState.PENDING:
            return Outcome(action, Answer.GONE, "it no longer waits")
        if record.hold is not Hold.NONE:
            return Outcome(action, Answer.REFUSED, f"it is held ({record.reason}); unpinning would release it")
        return self._update(
            action,
            {"hold": False, "nice": action.nice, "site_factor": _SITE_FACTOR_OFFSET + action.site_factor},
        )

    def _job(self, number: int) -> Job | None:
        found = parse_jobs(self._name, self._get("slurm", f"job/{number}"), what="REST job")
        return next((job for job in found.jobs if job.id == number), None)

    def _update(self, action: Action, fields: dict[str, Any]) -> Outcome:
        try:
            self._request("POST", self._path("slurm", f"job/{action.job.id}"), body=fields)
        except (ClusterUnreachable, AnswerUnreadable) as failure:
            return Outcome(action, Answer.UNKNOWN, failure.message)
        except ClusterError as failure:
            return Outcome(action, answer_of(failure.message), failure.message)
        return Outcome(action, Answer.DONE)

    # -- asking -------------------------------------------------------------------------------------

    def _served(self) -> ServedApi:
        if self._api is None:
            answer = self._read("/openapi.json")
            self._api = choose(self._name, answer, wanted=self._wanted_version)
        return self._api

    def _path(self, section: str, rest: str) -> str:
        return f"/{section}/{self._served().version}/{rest}"

    def _get(self, section: str, rest: str) -> Any:
        return self._read(self._path(section, rest))

    def _read(self, path: str) -> Any:
        """Ask; a lost connection is tried again, since asking twice does no harm."""
        for attempt in stamina.retry_context(
            on=ClusterUnreachable,
            attempts=_READ_ATTEMPTS,
            timeout=self._timeout_s,
            wait_max=1.0,
            wait_jitter=0.2,
        ):
            with attempt:
                return self._request("GET", path)
        raise AssertionError("stamina leaves its loop by return or by raise")  # pragma: no cover

    def _token(self) -> str:
        try:
            text = self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as failure:
            raise ClusterRefused(
                self._name,
                f"the token file {self._token_file} cannot be read ({failure}); make it with scontrol token",
            ) from failure
        token = text.removeprefix("SLURM_JWT=")
        if not token or not token.isascii() or any(character.isspace() for character in token):
            raise ClusterRefused(self._name, f"the token file {self._token_file} holds no JWT")
        return token

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"X-SLURM-USER-NAME": self._user, "X-SLURM-USER-TOKEN": self._token()}
        try:
            response = self._client.request(method, path, headers=headers, json=body)
        except httpx2.TransportError as failure:
            raise ClusterUnreachable(
                self._name, f"slurmrestd at {self._url} did not answer ({failure!r}); is it running?"
            ) from failure
        return self._answer(method, path, response)

    def _answer(self, method: str, path: str, response: httpx2.Response) -> Any:
        asked = f"{method} {path}"
        try:
            answer = response.json()
        except (ValueError, RecursionError) as failure:
            if response.is_success:
                raise AnswerUnreadable(
                    self._name, f"«{asked}» answered no JSON: {response.text[:80]!r}"
                ) from failure
            answer = None
        errors = _errors(answer)
        words = "; ".join(errors) or f"HTTP status {response.status_code}: {response.text[:120]}"
        if response.status_code in _UNAUTHORIZED:
            raise ClusterRefused(
                self._name,
                f"«{asked}»: the token in {self._token_file} is not accepted for {self._user} ({words});"
                " renew it with scontrol token",
            )
        if response.is_success and not errors:
            return answer
        if no_contact(words):
            raise ClusterUnreachable(self._name, f"«{asked}»: slurmrestd did not reach Slurm: {words}")
        if response.status_code == httpx2.codes.NOT_FOUND and answer is None:
            self._api = None  # slurmrestd was upgraded: its versions are found anew next time
        raise ClusterRefused(self._name, f"«{asked}» was refused: {words}")


def _errors(answer: Any) -> list[str]:
    """Slurm's error texts in an answer, of the whole request and of single jobs."""
    if not isinstance(answer, dict):
        return []
    found = []
    for key in ("errors", "results"):
        entries = answer.get(key)
        for entry in entries if isinstance(entries, list) else []:
            if not isinstance(entry, dict):
                continue
            number = entry.get("error_number") or entry.get("error_code") or entry.get("errno")
            if number or (key == "errors" and entry):
                texts = (entry.get("error"), entry.get("description"), entry.get("why"))
                found.append(": ".join(dict.fromkeys(str(text) for text in texts if text)) or f"error {number}")
    return found
