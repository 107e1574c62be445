import subprocess
import sys
from datetime import UTC, datetime

import pytest
from recorded import RELEASES, RecordedRunner

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
from slurm_evo.slurm.command import CommandPort
from slurm_evo.slurm.runner import Ran, run_process, slurm_environment

ALPHA = ClusterName("alpha")
NOW = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
NO_CONTACT = Ran(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")


def port(runner, name=ALPHA):
    return CommandPort(name, slurm_conf="/etc/slurm/alpha.conf", run=runner, clock=lambda: NOW)


def key(name, release="26.05"):
    view = port(RecordedRunner(release)).look()
    return next(job.key for job in view.jobs if job.name == name)


@pytest.mark.parametrize("release", RELEASES)
def test_a_look_puts_all_answers_together(release):
    view = port(RecordedRunner(release)).look()
    assert view.facts.version.startswith(release)
    assert view.facts.federation == "fed"
    assert [partition.name for partition in view.partitions if partition.default] == ["gpu"]
    assert view.gpus == 24  # one node of four is drained
    assert {job.name: job.site_factor for job in view.jobs}["site"] == 7_000
    assert {"bob", "high"} <= {limit.user or limit.qos for limit in view.limits}
    assert view.unreadable == ()
    assert view.seen_at == NOW


def test_the_cluster_is_chosen_by_slurm_conf_and_nothing_of_the_caller_gets_through(monkeypatch):
    monkeypatch.setenv("SLURM_CLUSTERS", "beta")
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    runner = RecordedRunner("26.05")
    port(runner).look()
    for environment in runner.environments:
        assert environment["SLURM_CONF"] == "/etc/slurm/alpha.conf"
        assert (environment["LC_ALL"], environment["TZ"]) == ("C", "UTC")
        assert not {"SLURM_CLUSTERS", "SQUEUE_STATES"} & environment.keys()
    assert not any(" -M" in line for line in runner.asked)


def test_slurmdbd_is_not_asked_in_every_look():
    runner = RecordedRunner("26.05")
    alpha = port(runner)
    alpha.look()
    alpha.look()
    assert sum("sacctmgr" in line for line in runner.asked) == 2


def test_without_slurmdbd_the_limits_are_unknown_and_the_look_goes_on():
    runner = RecordedRunner("26.05", sacctmgr=Ran(1, "", "sacctmgr: error: Connection refused\n"))
    assert port(runner).look().limits is None


@pytest.mark.parametrize(("release", "asked"), [("24.11", ["--json"]), ("26.05", ["--json=v0.0.44"])])
def test_jobs_are_asked_in_a_form_that_tells_exclusive(release, asked):
    runner = RecordedRunner(release)
    port(runner).look()
    assert [line.split()[-1] for line in runner.asked if line.startswith("squeue")] == asked


def test_a_slurm_that_no_longer_has_that_form_is_asked_in_its_newest():
    runner = RecordedRunner("26.05")
    runner.instead["--json=v0.0.44"] = Ran(1, "", "squeue: fatal: Unable to find plugin: v0.0.44\n")
    assert len(port(runner).look().jobs) == 14


def test_an_empty_queue_has_no_priorities():
    runner = RecordedRunner(
        "26.05", squeue=Ran(0, '{"jobs": []}', ""), sprio=Ran(1, "", "Unable to find jobs matching")
    )
    assert port(runner).look().jobs == ()


def test_priority_basic_has_no_sprio_to_ask():
    runner = RecordedRunner("26.05")
    config = runner(["scontrol", "show", "config"], env={}, timeout_s=1).stdout
    runner.instead["show config"] = Ran(0, config.replace("priority/multifactor", "priority/basic"), "")
    view = port(runner).look()
    assert not view.facts.multifactor
    assert not any("sprio" in line for line in runner.asked)


@pytest.mark.parametrize(
    ("told", "error", "sentence"),
    [
        (NO_CONTACT, ClusterUnreachable, "did not reach Slurm: slurm_load_jobs error: Unable to contact"),
        (
            subprocess.TimeoutExpired("squeue", 30),
            ClusterUnreachable,
            "did not end within 30 s; is slurmctld up",
        ),
        (
            FileNotFoundError(2, "No such file or directory"),
            ClusterUnreachable,
            "squeue could not be started",
        ),
        (Ran(1, "", "squeue: error: Access/permission denied\n"), ClusterRefused, "Access/permission denied"),
        (Ran(1, "", ""), ClusterRefused, "exit code 1"),
        (Ran(0, "CLUSTER: alpha\n{}", ""), AnswerUnreadable, "answered no JSON"),
        (Ran(0, "[" * 100_000, ""), AnswerUnreadable, "answered no JSON"),
        (Ran(0, '{"jobs": 3}', ""), AnswerUnreadable, "has no list «jobs»"),
    ],
)
def test_a_look_that_fails_says_what_to_do(told, error, sentence):
    with pytest.raises(error, match="alpha: ") as caught:
        port(RecordedRunner("26.05", squeue=told)).look()
    assert sentence in str(caught.value)
    assert type(caught.value) is error


def test_the_configuration_of_another_cluster_is_refused():
    with pytest.raises(ClusterRefused, match="belongs to the cluster 'alpha'; correct the name"):
        port(RecordedRunner("26.05"), ClusterName("beta")).look()


def test_actions_become_updates_at_the_origin():
    runner = RecordedRunner("26.05")
    alpha = port(runner)
    job = JobKey(ALPHA, 67_108_904)
    assert alpha.apply(SetClusters(job, ("alpha", "beta"))).answer is Answer.DONE
    assert alpha.apply(SetSiteFactor(job, -40)).answer is Answer.DONE
    assert runner.asked == [
        "scontrol update JobId=67108904 Clusters=alpha,beta",
        "scontrol update JobId=67108904 SiteFactor=-40",
    ]


def test_a_job_of_another_origin_is_refused_without_asking():
    runner = RecordedRunner("26.05")
    outcome = port(runner).apply(SetSiteFactor(JobKey(ClusterName("beta"), 5), 1))
    assert outcome.answer is Answer.REFUSED
    assert "beta:5 is changed at its origin" in outcome.message
    assert runner.asked == []


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        ("Job is no longer pending execution for job 5", Answer.GONE),
        ("Invalid job id specified for job 5", Answer.GONE),
        ("Job has already finished for job 5", Answer.GONE),
        ("Job can not be altered now, try again later for job 5", Answer.GONE),
        ("Access/permission denied for job 5", Answer.REFUSED),
        ("Invalid user id for job 5", Answer.REFUSED),
        ("Invalid cluster name for job 5", Answer.REFUSED),
        ("Unspecified error for job 5", Answer.REFUSED),
        ("scontrol: error: SiteFactor value out of range (+/- 2147483645). Value ignored", Answer.REFUSED),
        ("Unexpected message received for job 5", Answer.UNKNOWN),
        ("Socket timed out on send/recv operation for job 5", Answer.UNKNOWN),
        ("Unable to contact slurm controller (connect failure) for job 5", Answer.UNKNOWN),
    ],
)
def test_slurms_words_and_what_they_mean(told, answer):
    runner = RecordedRunner("26.05", update=Ran(1, "", told + "\n"))
    outcome = port(runner).apply(SetSiteFactor(JobKey(ALPHA, 5), 1))
    assert (outcome.answer, outcome.message) == (answer, told)


@pytest.mark.parametrize("told", [subprocess.TimeoutExpired("scontrol", 30), FileNotFoundError(2, "gone")])
def test_an_update_without_an_answer_may_have_happened(told):
    outcome = port(RecordedRunner("26.05", update=told)).apply(SetSiteFactor(JobKey(ALPHA, 5), 1))
    assert outcome.answer is Answer.UNKNOWN
    assert outcome.message


def test_unpinning_reads_releases_and_restores():
    job = key("moved")
    runner = RecordedRunner("26.05")
    assert port(runner).apply(Unpin(job, nice=3, site_factor=5_000)).answer is Answer.DONE
    assert runner.asked == [
        f"squeue --local --all --json --jobs={job.id}",
        f"scontrol release {job.id}",
        f"scontrol update JobId={job.id} Nice=3 SiteFactor=5000",
    ]


def test_a_held_job_is_never_released_by_unpinning():
    runner = RecordedRunner("26.05")
    outcome = port(runner).apply(Unpin(key("tasks"), nice=0, site_factor=1))
    assert outcome.answer is Answer.REFUSED
    assert "held (JobHeldUser)" in outcome.message
    assert not any("release" in line for line in runner.asked)


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        (Ran(0, '{"jobs": []}', ""), Answer.GONE),
        (Ran(1, "", "slurm_load_jobs error: Invalid job id specified\n"), Answer.GONE),
        (NO_CONTACT, Answer.UNKNOWN),
        (Ran(0, "no JSON", ""), Answer.UNKNOWN),
        (subprocess.TimeoutExpired("squeue", 30), Answer.UNKNOWN),
    ],
)
def test_a_job_that_cannot_be_read_again_is_not_unpinned(told, answer):
    runner = RecordedRunner("26.05", squeue=told)
    assert port(runner).apply(Unpin(JobKey(ALPHA, 5), nice=0, site_factor=1)).answer is answer
    assert len(runner.asked) == 1


def test_a_running_job_is_not_unpinned():
    runner = RecordedRunner("26.05")
    assert port(runner).apply(Unpin(key("part"), nice=0, site_factor=1)).answer is Answer.GONE
    assert len(runner.asked) == 1


def test_a_release_that_is_refused_is_not_followed_by_an_update():
    runner = RecordedRunner("26.05")
    runner.instead["scontrol release"] = Ran(1, "", "Access/permission denied for job 5\n")
    assert port(runner).apply(Unpin(key("moved"), nice=0, site_factor=1)).answer is Answer.REFUSED
    assert not any("update" in line for line in runner.asked)


class TestRunningCommands:
    environment = slurm_environment("/etc/slurm/slurm.conf")

    def run(self, program, timeout_s=20.0):
        return run_process([sys.executable, "-c", program], env=self.environment, timeout_s=timeout_s)

    def test_what_a_command_leaves_behind(self):
        ran = self.run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
        assert ran == Ran(3, "out\n", "err\n")

    def test_output_that_is_no_utf8_is_kept(self):
        assert self.run(r"import sys; sys.stdout.buffer.write(b'a\xffb')").stdout == "a\N{REPLACEMENT CHARACTER}b"

    def test_a_clusters_own_commands_go_before_those_on_path(self, tmp_path):
        own = tmp_path / "squeue"
        own.write_text("#!/bin/sh\necho the older one\n")
        own.chmod(0o755)
        ran = run_process(["squeue"], env=slurm_environment("/etc/slurm/slurm.conf", tmp_path), timeout_s=20.0)
        assert ran == Ran(0, "the older one\n", "")

    def test_a_command_that_asks_gets_no_answer(self):
        assert self.run("import sys; print(len(sys.stdin.read()))").stdout == "0\n"

    def test_a_command_that_hangs_is_killed(self):
        with pytest.raises(subprocess.TimeoutExpired):
            self.run("import time; time.sleep(60)", timeout_s=0.2)

    def test_a_command_that_is_missing(self):
        with pytest.raises(FileNotFoundError):
            run_process(["no-such-slurm-command"], env=self.environment, timeout_s=1)
