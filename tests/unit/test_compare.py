"""From a history to a comparison: the fleet, what is filled in, the replays, their table and pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from trace_files import shared

from slurm_evo.compare import ALLOCATIONS, Figures, Run, contest, rules_of, runs_of, summarise
from slurm_evo.compare.contest import figures_of, priority_of, schedule
from slurm_evo.compare.pictures import average_against_maximum, load_and_queue
from slurm_evo.model import ConfigError, PolicyError, TraceError
from slurm_evo.optimize.hold_backs import HoldBack, hold_back_of
from slurm_evo.sim import baselines
from slurm_evo.sim.tables import feasible
from slurm_evo.trace import SCHEMA, Trace
from slurm_evo.trace.capacity import Capacity, estimate, load, pool, sample
from slurm_evo.trace.generate import MONDAY, generate
from slurm_evo.trace.prepare import Choices, Knows, Prepared, Weights, prepare

FLEET = """
partition_limits = { debug = "00:30:00" }

[[clusters]]
name = "alpha"
features = ["IB"]
nodes = [
  { count = 4, gpus = 8, gpu_type = "a100", cpus = 64, memory_gib = 512, partitions = ["gpu", "debug"] },
  { count = 2, cpus = 64, partitions = ["cpu"] },
]

[[clusters]]
name = "beta"
nodes = [{ count = 2, gpus = 4, gpu_type = "v100", partitions = ["gpu"] }]
"""
TEXTS = [name for name, kind in SCHEMA.items() if kind == pl.String and name != "array"]


def trace_of(*jobs: dict[str, object]) -> Trace:
    """A trace of jobs of which only what matters is given."""
    plain = {"submit": 0, "wait": 0, "runtime": 100, "limit": 200, "gpus": 1, "nodes": 0, "cpus": 1, "memory": 0}
    rows = [{**dict.fromkeys(TEXTS, ""), "array": None, **plain, **job} for job in jobs]
    return Trace.of(pl.DataFrame(rows, schema=SCHEMA), "story")


@pytest.fixture
def fleet(tmp_path: Path) -> Capacity:
    (tmp_path / "fleet.toml").write_text(FLEET)
    return load(tmp_path / "fleet.toml")


def test_a_fleet_is_read_from_toml(fleet: Capacity) -> None:
    assert fleet.names == ("alpha", "beta")
    assert fleet.shape.gpus.tolist() == [32, 8]
    assert fleet.gpu_types == ("a100", "", "v100")
    assert fleet.partitions == ("gpu", "debug", "cpu")
    assert fleet.shape.partition_limit == {1: 1800}
    assert fleet.said() == "2 clusters, 40 devices (alpha 32, beta 8)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clusters = 3", r"fleet\.toml: clusters: "),
        ("[[clusters]]\nname = 'a'", r"clusters\.0\.nodes: Field required"),
        ("[[clusters]]\nname = 'a'\nnodes = [{count = 0}]", r"clusters\.0\.nodes\.0\.count: .*greater than"),
        ("[[clusters]]\nname = 'a'\nnodes = [{count = 1, gpu = 1}]", r"nodes\.0\.gpu: Extra inputs"),
        ("x", "is no TOML"),
        (FLEET.replace("debug = ", "night = "), "partition_limits.night: no nodes are in such a partition"),
        (FLEET.replace("00:30:00", "soon"), "partition_limits.debug: 'soon' is no duration"),
        (FLEET.replace('"beta"', '"alpha"'), "two have the same name"),
    ],
)
def test_a_bad_fleet_names_the_key(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "fleet.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load(tmp_path / "fleet.toml")


def test_what_is_no_fleet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="is no fleet; write TOML"):
        load(tmp_path / "x.csv")


def test_public_fleets_are_read() -> None:
    philly = load(shared("data", "philly", "philly_vc.csv"))
    assert (len(philly.names), int(philly.shape.gpus.sum())) == (11, 2816)
    assert int(philly.divided(5).shape.gpus.sum()) == 536
    openb = load(shared("data", "alibaba_openb2023", "openb_node_list_gpu_node.csv"))
    assert dict(zip(openb.names, openb.shape.gpus.tolist(), strict=True))["G2"] == 4392
    assert load(shared("data", "swf_hpc", "CTC-SP2-1996-3.1-cln.swf.gz")).shape.gpus.tolist() == [338]


def test_a_fleet_is_never_divided_away(fleet: Capacity) -> None:
    assert [len(nodes) for nodes in fleet.divided(100).shape.clusters] == [2, 2]
    with pytest.raises(ConfigError, match="divided by 1 or more"):
        fleet.divided(0.5)


def test_an_estimated_fleet_is_what_was_in_use_at_the_busiest_moment() -> None:
    jobs = [
        {"cluster": "a", "submit": 0, "runtime": 100, "gpus": 4},
        {"cluster": "a", "submit": 50, "runtime": 100, "gpus": 8},
        {"cluster": "a", "submit": 150, "runtime": 100, "gpus": 8},
        {"cluster": "b", "submit": 0, "wait": 10, "runtime": 5, "gpus": 2},
    ]
    fleet = estimate(trace_of(*jobs))
    assert fleet.estimated
    assert dict(zip(fleet.names, fleet.shape.gpus.tolist(), strict=True)) == {"a": 16, "b": 2}


def test_a_job_may_run_where_its_type_and_its_constraint_are(fleet: Capacity) -> None:
    asks = [("", ""), ("v100", ""), ("a100|v100", ""), ("", "IB"), ("h100", "")]
    jobs = [{"gpu_type": kind, "constraint": feature, "partition": "gpu"} for kind, feature in asks]
    ready = prepare(trace_of(*jobs), fleet, seed=1)
    assert ready.jobs.clusters.tolist() == [3, 2, 3, 1, 3]
    assert ready.jobs.gpu_type.tolist() == [-1, 2, -1, -1, -1]
    assert "1 jobs ask for a GPU type or feature no cluster has; they may run anywhere" in ready.said


def test_what_the_log_lacks_is_drawn_and_said() -> None:
    fleet = sample()
    jobs = [{"submit": place, "limit": None, "runtime": 100 + place} for place in range(500)]
    ready = prepare(
        trace_of(*jobs), fleet, seed=3, choices=Choices(knows=Knows.NOISY, weights=Weights.DRAWN, longest_s=400)
    )
    again = prepare(
        trace_of(*jobs), fleet, seed=3, choices=Choices(knows=Knows.NOISY, weights=Weights.DRAWN, longest_s=400)
    )
    other = prepare(trace_of(*jobs), fleet, seed=4, choices=Choices(knows=Knows.NOISY))
    assert (ready.jobs.limit >= ready.jobs.runtime).all()
    assert (ready.jobs.limit % 3600 == 0).all()
    assert ready.jobs.runtime.max() == 400
    assert np.array_equal(ready.jobs.limit, again.jobs.limit)
    assert not np.array_equal(ready.jobs.limit, other.jobs.limit)
    assert set(ready.jobs.weight.tolist()) == {1.0, 2.0, 4.0}
    assert 0.5 < np.log(ready.jobs.estimate / ready.jobs.runtime).std() < 1.1
    said = " / ".join(ready.said)
    for words in (
        "500 time limits are drawn",
        "noisy",
        "weights are drawn",
        "cut to 400 s",
        "500 jobs have no cluster",
    ):
        assert words in said


def test_policies_know_the_limit_unless_told_otherwise() -> None:
    ready = prepare(trace_of({"runtime": 50, "limit": 7200}), sample(), seed=1)
    assert ready.jobs.estimate.tolist() == [7200]
    truth = prepare(trace_of({"runtime": 50, "limit": 7200}), sample(), seed=1, choices=Choices(knows=Knows.TRUE))
    assert truth.jobs.estimate.tolist() == [50]


def test_jobs_that_never_started_or_are_too_large_are_left_out_and_counted() -> None:
    jobs = [{"runtime": None}, {"submit": 7, "gpus": 64}, {"submit": 9, "gpus": 2, "cluster": "beta"}]
    ready = prepare(trace_of(*jobs), sample(), seed=1, choices=Choices(most_devices=32))
    assert ready.rows.tolist() == [2]
    assert (ready.jobs.submit.tolist(), ready.jobs.home.tolist()) == ([0], [1])
    assert "1 jobs that never started are left out" in ready.said
    with pytest.raises(TraceError, match="no job is left to simulate"):
        prepare(trace_of(*jobs), sample(), seed=1, choices=Choices(most_devices=1))


def test_cores_are_the_devices_of_a_machine_without_gpus() -> None:
    ready = prepare(trace_of({"gpus": 0, "cpus": 16}), pool(64), seed=1)
    assert ready.jobs.gpus.tolist() == [16]
    assert "devices are cores: most jobs ask for no GPU" in ready.said


def test_jobs_without_gpus_do_not_turn_gpus_into_cores_where_gpus_are_asked_for() -> None:
    jobs = [{"gpus": 0, "cpus": 16}, {"gpus": 0, "cpus": 16}, {"gpus": 4, "cpus": 16}]
    ready = prepare(trace_of(*jobs), sample(), seed=1, choices=Choices(cores=False))
    assert ready.jobs.gpus.tolist() == [4]
    assert "2 jobs that ask for no GPU are left out" in ready.said
    assert estimate(trace_of(*jobs), cores=False).shape.gpus.tolist() == [4]
    # Where nobody says, the fleet and its jobs are counted in the same devices.
    assert prepare(trace_of(*jobs), pool(64), seed=1).jobs.gpus.tolist() == [16, 16, 16]
    assert int(estimate(trace_of(*jobs)).shape.gpus.sum()) == 48


def test_jobs_of_a_cluster_that_the_fleet_has_not_are_counted() -> None:
    ready = prepare(trace_of({"cluster": "beta"}, {"cluster": "machine"}), pool(64), seed=1)
    assert "1 jobs have no cluster of the fleet; one is drawn by size" in ready.said
    assert not [what for what in prepare(trace_of({"cluster": ""}), pool(64), seed=1).said if "cluster" in what]


def test_only_a_fleet_that_names_partitions_keeps_jobs_to_them(fleet: Capacity) -> None:
    jobs = trace_of({"partition": "debug,gpu"}, {"partition": "night"})
    assert prepare(jobs, sample(), seed=1).jobs.partition.tolist() == [0, 0]
    ready = prepare(jobs, fleet, seed=1)
    assert ready.jobs.partition.tolist() == [1, 0]
    assert "1 jobs name a partition the fleet has not; gpu is taken" in ready.said


def test_made_up_histories_have_the_published_habits() -> None:
    """Wide bounds around Philly's and Helios' figures, over seeds; loads are met to the point."""
    for seed in range(1, 4):
        trace = generate(sample(), days=14, load=0.8, seed=seed)
        jobs = trace.jobs
        runs = jobs["runtime"]
        assert 60 < runs.quantile(0.5) < 1_500  # type: ignore[operator]
        assert 2_000 < runs.quantile(0.9) < 25_000  # type: ignore[operator]
        assert 15_000 < runs.quantile(0.99) < 400_000  # type: ignore[operator]
        assert 0.5 < (jobs["gpus"] == 1).mean() < 0.95  # type: ignore[operator]
        assert 0.5 < (jobs["state"] == "COMPLETED").mean() < 0.7  # type: ignore[operator]
        assert (jobs["limit"] >= jobs["runtime"]).all()
        assert 4 < (jobs["limit"] / jobs["runtime"]).median() < 80  # type: ignore[operator]
        work = float((jobs["gpus"] * runs).sum()) / (144 * 14 * 86_400)
        assert 0.7 < work < 0.95
        night = ((jobs["submit"] - MONDAY) % 86_400 // 3600).is_between(0, 5).mean()
        assert night < 0.2, "nights are quieter"  # type: ignore[operator]
        weekend = ((jobs["submit"] - MONDAY) // 86_400 % 7 >= 5).mean()
        assert weekend < 0.25, "weekends are quieter"  # type: ignore[operator]
    assert generate(sample(), days=2, load=0.5, seed=9).jobs.equals(
        generate(sample(), days=2, load=0.5, seed=9).jobs
    )


@pytest.mark.parametrize("wrong", [{"days": 0}, {"load": 11}, {"users": 0}])
def test_impossible_histories_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(TraceError, match="needs a fleet with GPUs"):
        generate(sample(), **{"days": 1, "load": 0.5, **wrong})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def week() -> Trace:
    return generate(sample(), days=4, load=1.0, seed=5)


def ready(trace: Trace, seed: int) -> Prepared:
    return prepare(trace, sample(), seed=seed, choices=Choices(knows=Knows.NOISY))


def test_a_contest_gives_figures_for_every_run_in_order(week: Trace) -> None:
    runs = runs_of(["fifo", "mine = weight * wait / runtime"], ["race", "home"], [1, 2])
    seen: list[tuple[int, int]] = []
    result = contest(
        runs, lambda seed: ready(week, seed), sample(), rules_of("easy"), threads=2,
        progress=lambda done, of: seen.append((done, of)),
    )  # fmt: skip
    assert [each.run for each in result.figures[:8]] == runs
    assert [each.run.policy for each in result.figures[8:]] == ["clairvoyant"] * 2
    assert seen[0] == (0, 10)
    assert seen[-1] == (10, 10)
    assert set(result.bounds) == {1, 2}
    for each in result.figures:
        assert each.metrics.average_wait_s >= result.bounds[each.run.seed]
        assert each.unstarted == 0
    assert runs[1].title == "mine"


def test_a_contest_is_what_its_single_runs_are(week: Trace) -> None:
    run = Run(policy="sjf", allocation="least-loaded", seed=1)
    jobs = ready(week, 1).jobs
    alone = figures_of(run, jobs, sample(), schedule(run, jobs, sample(), rules_of("slurm")))
    together = contest(
        [run], lambda seed: ready(week, seed), sample(), rules_of("slurm"), threads=1, reference=False
    )
    assert together.figures == (alone,)
    assert together.bounds == {}


def test_every_baseline_and_allocation_can_run(week: Trace) -> None:
    part = Trace(week.jobs.head(60), "part")
    runs = runs_of(list(baselines.NAMES), list(ALLOCATIONS), [1])
    result = contest(runs, lambda seed: ready(part, seed), sample(), rules_of("none"), threads=2)
    assert len(result.figures) == len(baselines.NAMES) * len(ALLOCATIONS) + 1


def test_the_race_is_compared_with_long_jobs_kept_off_a_cluster(week: Trace) -> None:
    jobs, names = ready(week, 1).jobs, sample().names
    runs = runs_of(["fifo"], ["race"], [1], held=True)
    assert [run.allocation for run in runs] == ["race", "hold-back"]

    def figures(*held: HoldBack) -> tuple[Figures, ...]:
        return contest(
            runs, lambda seed: ready(week, seed), sample(), rules_of("easy"), threads=1, held=held, reference=False
        ).figures  # fmt: skip

    race, nothing = figures()
    assert nothing.metrics == race.metrics
    race, kept = figures(hold_back_of(f"{names[0]}=600", names))
    assert kept.metrics != race.metrics
    assert kept.unstarted == 0
    done = schedule(runs[1], jobs, sample(), rules_of("easy"), [HoldBack(0, 600.0)])
    long = (jobs.estimate > 600) & ((feasible(jobs, sample().shape) & ~1) != 0) & (done.cluster == 0)
    assert long.any()
    assert (done.start - jobs.submit)[long].min() >= 14_400


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nowhere=60", "no cluster 'nowhere'; there are"),
        ("{0}", "write CLUSTER=SECONDS, such as"),
        ("{0}=an hour", "write CLUSTER=SECONDS"),
        ("{0}=60:", "write CLUSTER=SECONDS"),
        ("{0}=-60", "above 0"),
        ("{0}=nan", "above 0"),
    ],
)
def test_a_hold_back_that_is_none_is_refused(text: str, words: str) -> None:
    names = sample().names
    with pytest.raises(ConfigError, match=words):
        hold_back_of(text.format(names[0]), names)
    assert hold_back_of(f"{names[1]}=60:7200", names) == HoldBack(1, 60.0, 7200.0)


def test_what_cannot_be_compared_is_said_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="no allocation 'magic'; there are home"):
        runs_of(["fifo"], ["magic"], [1])
    with pytest.raises(ConfigError, match="no scheduler 'pbs'; there are slurm, easy, none"):
        rules_of("pbs")
    with pytest.raises(PolicyError, match=r"'wait \+' is no expression .* none of the baselines: fifo"):
        priority_of("wait +", ready(generate(sample(), days=1, load=0.1, seed=1), 1).jobs, 1)
    with pytest.raises(ConfigError, match="nothing to compare"):
        runs_of([], ["race"], [1])


def figures(policy: str, seed: int, average: float, maximum: float) -> Figures:
    from slurm_evo.sim.metrics import Metrics

    numbers = dict.fromkeys(("mean_wait_s", "p95_wait_s", "p99_wait_s", "max_wait_s"), 0.0)
    metrics = Metrics(
        jobs=1, average_wait_s=average, maximum_wait_s=maximum, bounded_slowdown=1.0, utilization=0.5, **numbers
    )
    return Figures(
        run=Run(policy=policy, allocation="race", seed=seed), metrics=metrics, unstarted=0, mean_queue=0.0
    )


def test_a_table_has_means_and_spreads_over_seeds_and_knows_the_front() -> None:
    each = [figures("a", 1, 10, 100), figures("a", 2, 20, 300), figures("b", 1, 30, 50), figures("c", 1, 40, 400)]
    a, b, c = summarise(each)
    assert (a.policy, a.seeds, a.mean["average_wait_s"], a.spread["average_wait_s"]) == ("a", 2, 15.0, 5.0)
    assert (a.on_front, b.on_front, c.on_front) == (True, True, False)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures_are_drawn(tmp_path: Path, week: Trace, suffix: str) -> None:
    rows = summarise([figures("a", 1, 10, 100), figures("b", 1, 0, 0)])
    average_against_maximum(rows, "story", tmp_path / f"front.{suffix}")
    jobs = ready(week, 1).jobs
    run = Run(policy="fifo", allocation="race", seed=1)
    load_and_queue(
        jobs, schedule(run, jobs, sample(), rules_of("slurm")), sample(), "story", tmp_path / f"queue.{suffix}"
    )
    assert all((tmp_path / f"{name}.{suffix}").stat().st_size > 5_000 for name in ("front", "queue"))
    with pytest.raises(ConfigError, match="cannot be written"):
        average_against_maximum(rows, "story", tmp_path / "front.doc")
