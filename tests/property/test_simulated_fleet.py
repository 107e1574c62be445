"""What holds in a simulated fleet whatever its users, administrators and slurm-evo do to it."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_evo.model import (
    Action,
    ClusterError,
    ClusterName,
    JobKey,
    SetClusters,
    SetSiteFactor,
    Unpin,
)
from slurm_evo.slurm.simulated import (
    INFINITE,
    SimulatedFleet,
    SimulatedJob,
    SimulatedPort,
    Submission,
    sample_fleet,
)

SPEC = sample_fleet()
NAMES = tuple(cluster.name for cluster in SPEC.clusters)
MEMBERS = SPEC.members

submissions = st.builds(
    Submission,
    user=st.sampled_from(("ada", "bob", "cyd")),
    run_s=st.integers(1, 8000),
    limit_s=st.integers(60, 3600),
    gpus=st.sampled_from((0, 1, 2, 4, 8, 16)),
    nodes=st.sampled_from((1, 2)),
    gpu_type=st.sampled_from((None, "a100", "v100")),
    partitions=st.sampled_from(((), ("debug",))),
    qos=st.sampled_from(("normal", "high")),
    nice=st.integers(0, 500),
    held=st.booleans(),
    tasks=st.sampled_from((0, 0, 0, 3)),
    begin_s=st.sampled_from((0, 0, 900)),
    clusters=st.sampled_from(((), (), ("beta",), ("alpha", "gamma"))),
)
clusters = st.sampled_from(NAMES)
number = st.integers(0, 30)
viable = st.sets(st.sampled_from(MEMBERS), min_size=1).map(lambda names: tuple(sorted(names)))
steps = st.one_of(
    st.tuples(st.just("submit"), clusters, submissions),
    st.tuples(st.just("submit"), clusters, submissions),
    st.tuples(st.just("pass"), st.integers(1, 4000)),
    st.tuples(st.sampled_from(("hold", "release", "cancel")), number),
    st.tuples(st.just("move"), number, viable),
    st.tuples(st.just("rank"), number, st.integers(-1000, 100_000)),
    st.tuples(st.just("unpin"), number),
    st.tuples(st.sampled_from(("unreachable", "half_answers", "stop", "start", "drain", "resume")), clusters),
)
scripts = st.lists(steps, max_size=40)


def action_of(step: tuple, key: JobKey) -> Action:
    match step:
        case ("move", _, names):
            return SetClusters(key, tuple(map(ClusterName, names)))
        case ("rank", _, value):
            return SetSiteFactor(key, value)
    return Unpin(key, nice=7, site_factor=50)


def act(fleet: SimulatedFleet, step: tuple) -> None:
    """Carry out one step; what Slurm refuses is refused."""
    match step:
        case ("submit", cluster, asked):
            fleet.submit(cluster, asked)
        case ("pass", seconds):
            fleet.advance_to_s(fleet.elapsed_s + seconds)
        case ("unreachable" | "half_answers" as fault, cluster):
            getattr(fleet.faults, fault).symmetric_difference_update({cluster})
        case ("stop", cluster):
            fleet.stop_controller(cluster)
        case ("start", cluster):
            fleet.start_controller(cluster)
        case ("drain" | "resume" as verb, cluster):
            getattr(fleet, verb)(cluster, f"{cluster}1")
        case (verb, which, *_):
            keys = list(fleet.jobs)
            if not keys:
                return
            key = keys[which % len(keys)]
            if verb in ("hold", "release", "cancel"):
                getattr(fleet, verb)(key.cluster, key.id)
            else:
                SimulatedPort(fleet, key.cluster).apply(action_of(step, key))


def play(fleet: SimulatedFleet, script: list[tuple]) -> None:
    for step in script:
        try:
            act(fleet, step)
        except ClusterError:
            continue  # a job that is gone, a controller that is down, a submission refused
        check_nodes(fleet)


def check_nodes(fleet: SimulatedFleet) -> None:
    for name, controller in fleet.controllers.items():
        for index, node in enumerate(controller.spec.nodes):
            used = [record for record in controller.running.values() if index in record.nodes]
            gpus = sum(record.asked.per_node()[0] for record in used)
            assert 0 <= gpus <= node.gpus, name
            assert controller.free.gpus[index] == node.gpus - gpus
            assert controller.free.cpus[index] >= 0
            assert controller.free.memory[index] >= 0


def heal(fleet: SimulatedFleet) -> None:
    """What a watchdog does in the end: everything up, held jobs released, stranded ones called home."""
    fleet.faults.unreachable.clear()
    fleet.faults.half_answers.clear()
    for name in NAMES:
        fleet.start_controller(name)
        fleet.resume(name, f"{name}1")
    for key, job in list(fleet.jobs.items()):
        if job.started is None and job.ended is None:
            if key.cluster in MEMBERS:
                fleet.update(key.cluster, key.id, clusters=(key.cluster,))
            fleet.update(key.cluster, key.id, priority=INFINITE)


def ran(fleet: SimulatedFleet) -> list[SimulatedJob]:
    return [job for job in fleet.jobs.values() if job.started is not None]


@settings(max_examples=60, deadline=None)
@given(scripts)
def test_no_job_is_lost_or_run_twice_and_no_node_is_overfull(script: list[tuple]) -> None:
    fleet = SimulatedFleet(SPEC)
    play(fleet, script)
    heal(fleet)
    for _ in range(200):
        if not fleet.busy:
            break
        fleet.advance_to_s(fleet.elapsed_s + 3600)
    for job in fleet.jobs.values():
        assert job.ended is not None, "a job is lost"
        assert job.ending in ("COMPLETED", "TIMEOUT", "CANCELLED")
        if job.started is None:
            assert job.ending == "CANCELLED"
            continue
        assert job.submitted + job.asked.begin_s <= job.started <= job.ended
        if job.ending == "COMPLETED":
            assert job.ended - job.started == job.asked.run_s <= job.asked.limit_s
        if job.ending == "TIMEOUT":
            assert job.ended - job.started == job.asked.limit_s < job.asked.run_s
    capacity = {cluster.name: cluster.gpus for cluster in SPEC.clusters}
    for name in NAMES:
        changes = sorted(
            change
            for job in ran(fleet)
            if job.cluster == name
            for change in ((job.started, job.asked.gpus), (job.ended, -job.asked.gpus))
        )
        in_use = 0
        for _, gpus in changes:
            in_use += gpus
            assert in_use <= capacity[name]
    for controller in fleet.controllers.values():
        assert not controller.waiting
        assert not controller.running


@settings(max_examples=60, deadline=None)
@given(scripts, number, viable, st.integers(-1000, 100_000), st.sampled_from(("move", "rank", "unpin")))
def test_an_action_applied_twice_equals_one_applied_once(
    script: list[tuple], which: int, names: tuple[str, ...], value: int, verb: str
) -> None:
    step = {"move": (verb, which, names), "rank": (verb, which, value), "unpin": (verb, which)}[verb]
    views = []
    for times in (1, 2):
        fleet = SimulatedFleet(SPEC)
        play(fleet, script)
        for _ in range(times):
            act_quietly(fleet, step)
        seen = [look(fleet, name) for name in NAMES]
        fleet.advance_to_s(fleet.elapsed_s + 3600)
        views.append((seen, [look(fleet, name) for name in NAMES]))
    assert views[0] == views[1]


def act_quietly(fleet: SimulatedFleet, step: tuple) -> None:
    with suppress(ClusterError):
        act(fleet, step)


def look(fleet: SimulatedFleet, name: str) -> object:
    try:
        return SimulatedPort(fleet, name).look()
    except ClusterError as failure:
        return str(failure)


@settings(max_examples=30, deadline=None)
@given(st.lists(submissions, max_size=12), st.integers(0, 4000))
def test_a_fleet_is_the_same_every_time(asked: list[Submission], later: int) -> None:
    ends = []
    for leaps in (1, 7):
        fleet = SimulatedFleet(SPEC)
        for each in asked:
            play(fleet, [("submit", "alpha", each)])
        for leap in range(leaps):
            fleet.advance_to_s(later * (leap + 1) // leaps)
        ends.append([look(fleet, name) for name in NAMES])
    assert ends[0] == ends[1]
