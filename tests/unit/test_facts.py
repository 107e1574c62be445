from datetime import UTC, datetime, timedelta

import pytest
from recorded import RELEASES, text

from slurm_evo.model import AnswerUnreadable, ClusterName
from slurm_evo.slurm.facts import (
    ShownFederation,
    facts_of,
    options_of,
    parse_config,
    parse_federation,
    parse_shown_partitions,
    seconds_of,
)

ALPHA = ClusterName("alpha")
NOW = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)


def facts(**changes):
    values = {"ClusterName": "alpha", "SLURM_VERSION": "26.05.5", **changes}
    lines = "\n".join(f"{key} = {value}" for key, value in values.items())
    config = parse_config(ALPHA, f"Configuration data as of 2026-12-01T06:00:10\n{lines}\n")
    return facts_of(ALPHA, config, ShownFederation(), now=NOW)


@pytest.mark.parametrize(
    ("shown", "seconds"),
    [
        ("7-00:00:00", 604_800),
        ("01:00:00", 3_600),
        ("00:05:00", 300),
        ("05:30", 330),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_durations(shown, seconds):
    assert seconds_of(shown) == seconds


@pytest.mark.parametrize("shown", ["soon", "1-", "1:2:3:4", "-5"])
def test_a_duration_that_is_none(shown):
    with pytest.raises(ValueError, match="is no duration"):
        seconds_of(shown)


@pytest.mark.parametrize("release", RELEASES)
def test_the_configuration_of_a_real_controller(release):
    config = parse_config(ALPHA, text(release, "alpha", "config.txt"))
    assert config.as_of is not None
    told = facts_of(ALPHA, config, parse_federation(text(release, "alpha", "federation.txt")), now=config.as_of)
    assert told.version.startswith(release)
    assert told.multifactor
    assert told.priority_weights == {
        **dict.fromkeys(("assoc", "fairshare", "jobsize", "partition", "qos"), 0),
        "age": 1000,
    }
    assert (told.priority_max_age_s, told.priority_calc_period_s) == (604_800, 60)
    assert told.site_factor_plugin == ""
    assert told.scheduler_parameters["bf_interval"] == "5"
    assert not told.rate_limited
    assert (told.federation, told.federation_clusters) == ("fed", ("alpha", "beta", "gamma"))
    assert told.federation_state == "ACTIVE"
    assert told.federation_alike


@pytest.mark.parametrize(
    ("given", "alike"), [(("", "", ""), True), (("a,b", "b,a", "a,b"), True), (("", "a", ""), False)]
)
def test_features_of_their_own_tell_members_apart(given, alike):
    lines = text("26.05", "alpha", "federation.txt").splitlines()
    with_features = [
        line.replace("Features:", f"Features:{found}") for line, found in zip(lines, ("", *given), strict=True)
    ]
    assert parse_federation("\n".join(with_features)).alike is alike


@pytest.mark.parametrize("release", RELEASES)
def test_a_cluster_outside_any_federation(release):
    assert parse_federation(text(release, "delta", "federation.txt")) == ShownFederation()


def test_a_controller_whose_clock_is_ahead():
    assert facts().clock_skew_s == pytest.approx(10.5)


def test_a_time_that_is_not_understood_is_no_skew():
    config = parse_config(ALPHA, "Configuration data as of yesterday\nSLURM_VERSION = 26.05.5\n")
    assert facts_of(ALPHA, config, ShownFederation(), now=NOW).clock_skew_s is None


def test_the_settings_that_matter_to_sitefactor():
    told = facts(
        PriorityType="priority/basic",
        PriorityFlags="INCR_ONLY,MAX_TRES",
        PrioritySiteFactorPlugin="site_factor/local",
        SlurmctldParameters="rl_enable,rl_bucket_size=50",
        PriorityWeightQOS="100000",
    )
    assert not told.multifactor
    assert told.priority_flags == {"INCR_ONLY", "MAX_TRES"}
    assert told.site_factor_plugin == "site_factor/local"
    assert told.rate_limited
    assert told.slurmctld_parameters["rl_bucket_size"] == "50"
    assert told.priority_weights["qos"] == 100_000


@pytest.mark.parametrize(("key", "value"), [("PriorityWeightAge", "much"), ("PriorityCalcPeriod", "often")])
def test_a_setting_that_is_not_understood_is_named(key, value):
    with pytest.raises(AnswerUnreadable, match=f"{key} is '{value}'"):
        facts(**{key: value})


def test_something_else_is_no_configuration():
    with pytest.raises(AnswerUnreadable, match="has no SLURM_VERSION"):
        parse_config(ALPHA, "scontrol: nothing here\n")


def test_options_with_and_without_values():
    assert options_of("defer,bf_interval=5,") == {"defer": "", "bf_interval": "5"}


@pytest.mark.parametrize("release", RELEASES)
def test_shown_partitions_name_the_default_on_every_version(release):
    gpu, debug = parse_shown_partitions(ALPHA, text(release, "alpha", "partitions.txt"))
    assert (gpu.name, gpu.default, gpu.up, gpu.limit_s, gpu.priority_tier) == ("gpu", True, True, 604_800, 1)
    assert (debug.name, debug.default, debug.limit_s, debug.nodes) == ("debug", False, 3_600, ("alpha1",))
    assert (gpu.allow_accounts, gpu.allow_qos, gpu.deny_accounts) == (None, None, ())


def test_a_partition_for_some_only():
    line = (
        "PartitionName=x AllowAccounts=a,b DenyQos=low Default=NO MaxTime=UNLIMITED Nodes=(null)"
        " PriorityTier=3 State=DRAIN\n"
    )
    (partition,) = parse_shown_partitions(ALPHA, line)
    assert (partition.allow_accounts, partition.deny_qos) == (("a", "b"), ("low",))
    assert (partition.limit_s, partition.nodes, partition.up) == (None, (), False)


@pytest.mark.parametrize(
    "line",
    [
        "PartitionName=x",
        "PartitionName=x State=UP MaxTime=long Nodes=n1",
        "PartitionName=x State=UP MaxTime=1:00 Nodes=n[1-",
    ],
)
def test_a_partition_that_is_not_understood_is_named(line):
    with pytest.raises(AnswerUnreadable, match="partition x: "):
        parse_shown_partitions(ALPHA, line)


def test_the_skew_is_that_of_the_instant_of_asking():
    later = NOW + timedelta(seconds=10)
    config = parse_config(ALPHA, "Configuration data as of 2026-12-01T06:00:10\nSLURM_VERSION = 26.05.5\n")
    assert facts_of(ALPHA, config, ShownFederation(), now=later).clock_skew_s == pytest.approx(0.5)
