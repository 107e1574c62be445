import pytest
from recorded import RELEASES, answer, text

from slurm_evo.model import AnswerUnreadable, ClusterName
from slurm_evo.slurm.answers import parse_jobs
from slurm_evo.slurm.priorities import parse_sprio, with_standing

ALPHA = ClusterName("alpha")


def standing(release, cluster):
    name = ClusterName(cluster)
    jobs = parse_jobs(name, answer(release, cluster, "squeue.json")).jobs
    joined = with_standing(jobs, parse_sprio(name, text(release, cluster, "sprio.txt")))
    return {job.name: (job.site_factor, job.direct_priority) for job in joined}


@pytest.mark.parametrize("release", RELEASES)
def test_a_real_queue(release):
    home, abroad = standing(release, "alpha"), standing(release, "beta")
    assert home["site"] == (7_000, False)
    assert home["typed"] == (0, False)
    assert home["array"] == (0, False)
    # sprio has no line for held, not yet eligible and tracked jobs, nor for running ones
    assert {home[name] for name in ("tasks", "after", "wanted", "moved", "fill")} == {(None, False)}
    # what was moved carries a pinned number
    assert abroad["moved"] == (None, True)


def one(line, **changes):
    record = next(j for j in answer("26.05", "alpha", "squeue.json")["jobs"] if j["name"] == "site")
    jobs = parse_jobs(ALPHA, {"jobs": [{**record, "job_id": 5, **changes}]}).jobs
    (job,) = with_standing(jobs, parse_sprio(ALPHA, line))
    return job.site_factor, job.direct_priority


@pytest.mark.parametrize(
    ("line", "nice", "expected"),
    [
        ("5|77|0|0|0|0|0|0||0|0", 0, (None, True)),
        ("5|1|0|0|0|0|0|0||0|0", 0, (0, False)),
        ("5|1|0|0|0|0|0|0||0|0", 7, (None, True)),
        ("5|1|0|0|0|0|0|0||0|7", 7, (0, False)),
        ("5|1|0|0|0|0|0|0||-40|0", 0, (-40, False)),
        ("5|12|12|0|0|0|0|0||0|0", 0, (0, False)),
        ("5|400|0|0|0|0|0|0|cpu=0,gres/gpu=400|0|0", 0, (0, False)),
        ("5|1000|0.00|0|0|0|0|0||1000|0", 0, (1000, False)),
    ],
)
def test_a_pinned_number_and_a_sum_of_factors(line, nice, expected):
    assert one(line + "\n", nice=nice) == expected


def test_an_array_task_stands_as_its_array():
    line = "4|90|0|0|0|0|0|0||90|0\n"
    assert one(line, array_job_id={"set": True, "infinite": False, "number": 4}) == (90, False)


def test_a_job_of_two_partitions_has_two_lines():
    assert one("5|90|0|0|0|0|0|0||90|0\n5|91|0|0|0|0|1|0||90|0\n") == (90, False)


@pytest.mark.parametrize(
    "line", ["5|77", "five|1|0|0|0|0|0|0||0|0", "5|1|0|0|0|0|0|0|cpu=x|0|0", "5|inf|0|0|0|0|0|0||0|0"]
)
def test_a_damaged_line_is_shown(line):
    with pytest.raises(AnswerUnreadable, match="alpha: sprio answered"):
        parse_sprio(ALPHA, line)
