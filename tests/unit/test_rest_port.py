import http.server
import json
import socketserver
import threading
from datetime import UTC, datetime

import httpx2
import pytest
import stamina
from recorded import RELEASES, answer, recorded_slurmrestd

from slurm_evo.model import (
    Answer,
    AnswerUnreadable,
    ClusterName,
    ClusterRefused,
    ClusterUnreachable,
    JobKey,
    SetClusters,
    SetSiteFactor,
    Unpin,
)
from slurm_evo.slurm.rest import RestPort
from slurm_evo.slurm.rest_version import ServedApi, choose

ALPHA = ClusterName("alpha")
NOW = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
PLAIN = JobKey(ALPHA, 42)


@pytest.fixture(autouse=True)
def _no_waiting():
    with stamina.set_testing(True, attempts=3, cap=True):
        yield


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text("a.b.c\n")
    return file


def port(transport, token, name=ALPHA, version=None):
    return RestPort(
        name,
        url="http://rest:6820",
        token_file=token,
        user="slurm-evo",
        api_version=version,
        transport=transport,
        clock=lambda: NOW,
    )


@pytest.mark.parametrize(("release", "version"), [("24.11", "v0.0.42"), ("26.05", "v0.0.45")])
def test_a_look_in_the_newest_version_served(release, version, token):
    seen = []
    view = port(recorded_slurmrestd(release, seen), token).look()
    asked = {request.url.path.split("/")[3]: request.url.path.split("/")[2] for request in seen[1:]}
    # v0.0.45 does not tell --exclusive
    assert asked.pop("jobs") == min(version, "v0.0.44")
    assert set(asked.values()) == {version}
    assert view.facts.version.startswith(release)
    assert view.facts.clock_skew_s is not None
    assert view.gpus == 24
    assert len(view.jobs) == 14
    assert all(job.site_factor is None and not job.direct_priority for job in view.jobs)
    assert {"bob", "high"} <= {limit.user or limit.qos for limit in view.limits}


def test_the_configuration_is_told_by_26_05_and_unknown_before(token):
    facts = {release: port(recorded_slurmrestd(release), token).look().facts for release in RELEASES}
    assert facts["24.11"].priority_type == "unknown"
    assert facts["26.05"].multifactor
    assert facts["26.05"].priority_weights["age"] == 1_000
    assert facts["26.05"].priority_calc_period_s == 60
    assert facts["26.05"].scheduler_parameters["bf_interval"] == "5"
    assert {told.federation_state for told in facts.values()} == {"unknown"}


def test_the_token_is_read_for_each_request_so_that_it_can_be_renewed(token):
    seen = []
    alpha = port(recorded_slurmrestd("26.05", seen), token)
    alpha.look()
    token.write_text("SLURM_JWT=d.e.f\n")
    alpha.apply(SetSiteFactor(PLAIN, 1))
    assert (seen[0].headers["X-SLURM-USER-TOKEN"], seen[-1].headers["X-SLURM-USER-TOKEN"]) == (
        "a.b.c",
        "d.e.f",
    )
    assert seen[0].headers["X-SLURM-USER-NAME"] == "slurm-evo"


@pytest.mark.parametrize(
    ("content", "words"), [(None, "cannot be read"), ("", "holds no JWT"), ("a b", "holds no JWT")]
)
def test_a_token_file_without_a_token_is_named(tmp_path, content, words):
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ClusterRefused, match=f"{file}.*{words}|{words}"):
        port(recorded_slurmrestd("26.05"), file).look()


@pytest.mark.parametrize("status", [401, 511])
def test_a_token_that_is_not_accepted(token, status):
    refusal = httpx2.Response(status, text="Authentication failure")
    with pytest.raises(ClusterRefused, match=r"is not accepted for slurm-evo .*renew it with scontrol token"):
        port(recorded_slurmrestd("26.05", diag=refusal), token).look()


def test_a_slurmrestd_that_is_away_is_asked_a_few_times(token):
    seen = []
    away = recorded_slurmrestd("26.05", seen, openapi=httpx2.ConnectError("Connection refused"))
    with pytest.raises(ClusterUnreachable, match=r"did not answer .*is it running"):
        port(away, token).look()
    assert len(seen) == 3


def test_a_slurmctld_behind_it_that_is_away(token):
    error = {"errors": [{"error_number": 1800, "error": "Unable to contact slurm controller (connect failure)"}]}
    with pytest.raises(ClusterUnreachable, match="did not reach Slurm: Unable to contact"):
        port(recorded_slurmrestd("26.05", jobs=httpx2.Response(500, json=error)), token).look()


def test_an_error_in_an_answer_of_success_is_an_error(token):
    error = {"errors": [{"error_number": 2002, "error": "Access/permission denied"}], "jobs": []}
    with pytest.raises(ClusterRefused, match="Access/permission denied"):
        port(recorded_slurmrestd("26.05", jobs=httpx2.Response(200, json=error)), token).look()


def test_an_answer_that_is_no_json(token):
    with pytest.raises(AnswerUnreadable, match="answered no JSON: '<html>"):
        port(recorded_slurmrestd("26.05", nodes=httpx2.Response(200, text="<html>")), token).look()


def test_the_slurmrestd_of_another_cluster(token):
    with pytest.raises(ClusterRefused, match="belongs to the cluster 'alpha'"):
        port(recorded_slurmrestd("26.05"), token, ClusterName("beta")).look()


def test_an_upgraded_slurmrestd_is_asked_for_its_versions_again(token):
    seen = []
    transports = {"now": recorded_slurmrestd("24.11", seen)}

    def current(request):
        return transports["now"].handle_request(request)

    alpha = port(httpx2.MockTransport(current), token)
    alpha.look()

    def upgraded(request):
        if "v0.0.42" in request.url.path:
            return httpx2.Response(404, text="Unable to find requested URL endpoint.")
        return recorded_slurmrestd("26.05", seen).handle_request(request)

    transports["now"] = httpx2.MockTransport(upgraded)
    with pytest.raises(ClusterRefused, match="HTTP status 404"):
        alpha.look()
    assert alpha.look().facts.version.startswith("26.05")


def test_a_sitefactor_is_sent_as_slurm_stores_it(token):
    seen = []
    alpha = port(recorded_slurmrestd("26.05", seen), token)
    assert alpha.apply(SetSiteFactor(PLAIN, 500)).answer is Answer.DONE
    assert alpha.apply(SetSiteFactor(PLAIN, -5)).answer is Answer.DONE
    posts = [request for request in seen if request.method == "POST"]
    assert [json.loads(post.content) for post in posts] == [
        {"site_factor": 2_147_484_148},
        {"site_factor": 2_147_483_643},
    ]
    assert {post.url.path for post in posts} == {"/slurm/v0.0.45/job/42"}


@pytest.mark.parametrize(
    "action",
    [
        SetSiteFactor(JobKey(ALPHA, 67_108_904), 1),
        Unpin(JobKey(ALPHA, 67_108_904), 0, 1),
        SetClusters(JobKey(ALPHA, 67_108_904), ("beta",)),
        SetClusters(PLAIN, ("beta",)),
        SetSiteFactor(JobKey(ClusterName("beta"), 42), 1),
    ],
)
def test_what_slurmrestd_cannot_do_is_refused_without_asking(token, action):
    seen = []
    outcome = port(recorded_slurmrestd("26.05", seen), token).apply(action)
    assert outcome.answer is Answer.REFUSED
    assert outcome.message
    assert seen == []


def job_answer(**changes):
    record = next(job for job in answer("26.05", "alpha", "squeue.json")["jobs"] if job["name"] == "typed")
    return httpx2.Response(200, json={"jobs": [{**record, "job_id": 42, **changes}], "errors": []})


class RestWithOneJob(httpx2.BaseTransport):
    """alpha's slurmrestd, where job 42 reads as told and updates are answered as told."""

    def __init__(self, job, update=None):
        self.job = job
        self.update = update or httpx2.Response(200, json={"errors": []})
        self.posted = []
        self.rest = recorded_slurmrestd("26.05")

    def handle_request(self, request):
        if request.method == "POST":
            self.posted.append(json.loads(request.content))
            if isinstance(self.update, Exception):
                raise self.update
            return self.update
        return self.job if request.url.path.endswith("/job/42") else self.rest.handle_request(request)


def test_unpinning_is_one_update(token):
    rest = RestWithOneJob(job_answer())
    assert port(rest, token).apply(Unpin(PLAIN, nice=-2, site_factor=90)).answer is Answer.DONE
    assert rest.posted == [{"hold": False, "nice": -2, "site_factor": 2**31 + 90}]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (job_answer(priority=0, state_reason="JobHeldUser"), Answer.REFUSED),
        (job_answer(job_state=["RUNNING"]), Answer.GONE),
        (httpx2.Response(200, json={"jobs": [], "errors": []}), Answer.GONE),
        (
            httpx2.Response(404, json={"errors": [{"error_number": 2017, "error": "Invalid job id specified"}]}),
            Answer.GONE,
        ),
        (httpx2.Response(200, text="no JSON"), Answer.UNKNOWN),
    ],
)
def test_a_job_that_must_not_be_unpinned_is_not(token, job, expected):
    rest = RestWithOneJob(job)
    assert port(rest, token).apply(Unpin(PLAIN, nice=0, site_factor=1)).answer is expected
    assert rest.posted == []


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (
            httpx2.Response(404, json={"errors": [{"error_number": 2017, "error": "Invalid job id specified"}]}),
            Answer.GONE,
        ),
        (
            httpx2.Response(500, json={"errors": [{"error_number": -1, "error": "Unspecified error"}]}),
            Answer.REFUSED,
        ),
        (
            httpx2.Response(200, json={"results": [{"error_code": 2021, "why": "Job has already finished"}]}),
            Answer.GONE,
        ),
        (httpx2.Response(200, json={"results": [{"error_code": 0, "why": ""}], "errors": []}), Answer.DONE),
        (httpx2.Response(200, text="?"), Answer.UNKNOWN),
        (httpx2.ReadTimeout("slow"), Answer.UNKNOWN),
    ],
)
def test_an_update_and_its_answers(token, update, expected):
    rest = RestWithOneJob(job_answer(), update)
    assert port(rest, token).apply(SetSiteFactor(PLAIN, 1)).answer is expected
    assert len(rest.posted) == 1  # a write is never repeated


class TestVersions:
    @staticmethod
    def served(*versions):
        return {"paths": {f"/slurm/{version}/jobs/": {} for version in versions}}

    def test_the_newest_known_one_is_chosen(self):
        assert choose(ALPHA, self.served("v0.0.9", "v0.0.41", "v0.0.40"), wanted=None) == ServedApi(
            "v0.0.41", "v0.0.41", has_conf=False
        )
        assert choose(ALPHA, self.served("v0.0.45", "v0.0.99"), wanted=None).version == "v0.0.45"

    def test_a_wanted_one_is_taken(self):
        assert choose(ALPHA, self.served("v0.0.41", "v0.0.40"), wanted="v0.0.40").version == "v0.0.40"

    def test_a_wanted_one_that_is_not_served(self):
        with pytest.raises(ClusterRefused, match=r"does not serve api_version v0.0.44, but v0.0.41"):
            choose(ALPHA, self.served("v0.0.41"), wanted="v0.0.44")

    def test_none_in_common(self):
        with pytest.raises(ClusterRefused, match=r"serves v0.0.99; known are v0.0.40 to v0.0.45"):
            choose(ALPHA, self.served("v0.0.99"), wanted=None)

    @pytest.mark.parametrize("document", [None, {}, {"paths": []}])
    def test_something_else_than_a_slurmrestd(self, document):
        with pytest.raises(AnswerUnreadable, match="is it a slurmrestd"):
            choose(ALPHA, document, wanted=None)


class OverUnixSocket(socketserver.ThreadingUnixStreamServer):
    """Serves alpha's recorded slurmrestd on a real Unix socket."""

    daemon_threads = True


class Handler(http.server.BaseHTTPRequestHandler):
    rest = recorded_slurmrestd("26.05")

    def do_GET(self):
        told = self.rest.handle_request(httpx2.Request("GET", f"http://rest{self.path}"))
        self.send_response(told.status_code)
        self.send_header("Content-Length", str(len(told.content)))
        self.end_headers()
        self.wfile.write(told.content)

    def log_message(self, *_):
        """Say nothing."""


def test_a_unix_socket(tmp_path, token):
    socket = tmp_path / "rest.sock"
    with OverUnixSocket(str(socket), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        alpha = RestPort(ALPHA, url=f"unix://{socket}", token_file=token, user="slurm-evo")
        try:
            assert len(alpha.look().jobs) == 14
        finally:
            alpha.close()
            server.shutdown()
            serving.join()
