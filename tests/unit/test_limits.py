from datetime import UTC, datetime, timedelta

import pytest
from recorded import RELEASES, answer, text

from slurm_evo.model import AnswerUnreadable, ClusterName, ClusterUnreachable, Limit
from slurm_evo.slurm.limits import (
    ASSOC_FORMAT,
    parse_associations,
    parse_associations_json,
    parse_qos,
    parse_qos_json,
)
from slurm_evo.slurm.limits_cache import REFRESH, RETRY, LimitsCache

ALPHA = ClusterName("alpha")
BOB = Limit(
    scope="association",
    account="lab",
    user="bob",
    max_jobs=3,
    max_submit=7,
    max_gpus_per_job=10,
    group_jobs=6,
    group_gpus=20,
    max_wall_s=36_000,
)
HIGH = Limit(
    scope="qos",
    qos="high",
    max_jobs=5,
    max_submit=9,
    max_gpus=16,
    max_gpus_per_job=12,
    group_jobs=20,
    group_gpus=40,
    max_wall_s=86_400,
)


@pytest.mark.parametrize("release", RELEASES)
def test_sacctmgr_and_slurmrestd_tell_the_same(release):
    associations = parse_associations(ALPHA, text(release, "alpha", "assoc.txt"))
    qos = parse_qos(ALPHA, text(release, "alpha", "qos.txt"))
    assert BOB in associations
    assert Limit(scope="association", account="lab", user="ada") in associations
    assert qos == (Limit(scope="qos", qos="normal"), HIGH)
    assert parse_qos_json(ALPHA, answer(release, "alpha", "rest_qos.json")) == qos
    by_rest = parse_associations_json(ALPHA, answer(release, "alpha", "rest_associations.json"))
    assert sorted(map(repr, by_rest)) == sorted(map(repr, associations))


def test_another_clusters_associations_are_not_ours():
    assert parse_associations(ALPHA, "beta|lab|bob||3|||||\n") == ()


@pytest.mark.parametrize(
    ("field", "value"), [("MaxJobs", "three"), ("MaxTRES", "gres/gpu=x"), ("MaxWall", "soon")]
)
def test_a_limit_that_is_not_understood_is_named(field, value):
    row = {"Cluster": "alpha", "Account": "lab", "User": "bob", field: value}
    line = "|".join(row.get(name, "") for name in ASSOC_FORMAT.split(","))
    with pytest.raises(AnswerUnreadable, match=f"limits of lab/bob: field {field} is '{value}'"):
        parse_associations(ALPHA, line + "\n")


def test_a_row_with_other_columns_is_shown():
    with pytest.raises(AnswerUnreadable, match=r"sacctmgr answered .alpha\|lab"):
        parse_associations(ALPHA, "alpha|lab\n")


class Slurmdbd:
    """Counts how often it is asked; can be taken away."""

    def __init__(self):
        self.asked = 0
        self.up = True

    def __call__(self):
        self.asked += 1
        if not self.up:
            raise ClusterUnreachable("alpha", "slurmdbd is down")
        return (BOB,)


def test_limits_are_asked_every_few_minutes_only():
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    slurmdbd = Slurmdbd()
    cache = LimitsCache(slurmdbd, lambda: now[0])
    assert cache.limits() == (BOB,)
    now[0] += REFRESH - timedelta(seconds=1)
    assert cache.limits() == (BOB,)
    assert slurmdbd.asked == 1
    now[0] += timedelta(seconds=1)
    assert cache.limits() == (BOB,)
    assert slurmdbd.asked == 2


def test_without_slurmdbd_the_last_known_limits_hold_and_it_is_asked_less():
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    slurmdbd = Slurmdbd()
    cache = LimitsCache(slurmdbd, lambda: now[0])
    cache.limits()
    slurmdbd.up = False
    now[0] += REFRESH
    assert cache.limits() == (BOB,)
    assert str(cache.failure) == "alpha: slurmdbd is down"
    now[0] += RETRY - timedelta(seconds=1)
    cache.limits()
    assert slurmdbd.asked == 2
    slurmdbd.up = True
    now[0] += timedelta(seconds=1)
    assert cache.limits() == (BOB,)
    assert cache.failure is None


def test_limits_that_never_could_be_had_are_unknown_not_unlimited():
    slurmdbd = Slurmdbd()
    slurmdbd.up = False
    assert LimitsCache(slurmdbd, lambda: datetime(2026, 1, 1, tzinfo=UTC)).limits() is None
