"""Small workloads of different kinds for agreement.py: what is asked of which cluster, and when."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

USERS = ("ada", "bob", "cyd")
LIMITED = "agree"
"""A QOS that agreement.py makes: LIMITED_GPUS and LIMITED_JOBS for each user."""
LIMITED_GPUS, LIMITED_JOBS = 6, 3
SCORED = "root"
"""May ask for a negative nice value: priority above all others, from the instant of submission."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One submission."""

    at: float
    """Seconds after the workload's beginning."""
    seconds: tuple[int, ...]
    """What it sleeps: one job, or an array with as many tasks."""
    gpus: int = 1
    """On each node; with nodes 0 in all."""
    nodes: int = 1
    """0: only ``--gpus`` is given."""
    cpus: int = 1
    """Of each node."""
    limit_min: int = 1
    user: str = "ada"
    qos: str = "normal"
    score: int = 0
    """Larger first: as a negative nice value, or as a SiteFactor sent after it was submitted."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """One workload."""

    name: str
    kind: str
    clusters: tuple[str, ...]
    asks: tuple[Ask, ...]
    site_factors: bool = False
    """Scores go as SiteFactor, by the operator."""
    drains: tuple[tuple[str, float, float], ...] = ()
    """(node, from, to) in seconds after the workload's beginning."""
    seed: int = field(default=0)


def arrivals(rng: random.Random, jobs: int, span: float, seconds: tuple[int, int]) -> Iterator[Ask]:
    """Jobs of one GPU, at random instants of ``span`` seconds, that run a random time."""
    for at in sorted(rng.uniform(0, span) for _ in range(jobs)):
        yield Ask(at=at, seconds=(rng.randint(*seconds),))


def fifo(rng: random.Random) -> Iterator[Ask]:
    for ask in arrivals(rng, 70, 60, (10, 22)):
        yield replace(ask, gpus=2)


def packing(rng: random.Random) -> Iterator[Ask]:
    for ask in arrivals(rng, 75, 80, (6, 20)):
        yield replace(ask, gpus=rng.choice([1, 1, 2, 3, 4, 5, 6, 8]))


def whole_nodes(rng: random.Random) -> Iterator[Ask]:
    for ask in arrivals(rng, 40, 90, (5, 15)):
        yield replace(ask, gpus=8, nodes=rng.choice([1, 1, 1, 2, 2, 3, 4]))


def block_and_backfill(rng: random.Random) -> Iterator[Ask]:
    for ask in arrivals(rng, 60, 90, (5, 20)):
        if rng.random() < 0.15:
            yield replace(ask, gpus=8, nodes=rng.choice([2, 3, 4]), limit_min=rng.choice([1, 2, 5]))
        else:
            yield replace(ask, gpus=rng.choice([1, 2, 4, 8]), limit_min=rng.choice([1, 1, 2, 3, 10]))


def far_limits(rng: random.Random) -> Iterator[Ask]:
    for ask in arrivals(rng, 55, 80, (5, 16)):
        yield replace(ask, gpus=rng.choice([1, 2, 4, 8]), limit_min=rng.choice([1, 2, 5, 20, 60, 240]))


def killed(rng: random.Random) -> Iterator[Ask]:
    for ask in arrivals(rng, 32, 60, (5, 18)):
        too_long = rng.random() < 0.12
        yield replace(ask, gpus=rng.choice([2, 4, 8]), seconds=(600,) if too_long else ask.seconds)


def arrays(rng: random.Random) -> Iterator[Ask]:
    for at in (0, 2, 9, 20, 33, 47):
        tasks = tuple(rng.randint(5, 20) for _ in range(rng.choice([6, 10, 16])))
        yield Ask(at=at, seconds=tasks, gpus=rng.choice([1, 1, 2, 3]))
        yield Ask(at=at + 3, seconds=(rng.randint(5, 20),), gpus=rng.choice([2, 4]))


def user_limits(rng: random.Random) -> Iterator[Ask]:
    for ask in arrivals(rng, 70, 70, (5, 20)):
        limited = rng.random() < 0.7
        yield replace(
            ask, user=rng.choice(USERS), gpus=rng.choice([1, 1, 2, 4]), qos=LIMITED if limited else "normal"
        )


def scored(rng: random.Random) -> Iterator[Ask]:
    yield Ask(at=0, seconds=(12,), gpus=4, nodes=4, score=9999, user=SCORED)
    for ask in arrivals(rng, 70, 80, (5, 20)):
        yield replace(ask, at=ask.at + 6, gpus=rng.choice([1, 2, 3, 4]), score=rng.randint(1, 5000), user=SCORED)


def site_factors(rng: random.Random) -> Iterator[Ask]:
    yield Ask(at=0, seconds=(30,), gpus=8, nodes=2, score=9999)
    for ask in arrivals(rng, 50, 16, (5, 16)):
        yield replace(ask, at=ask.at + 6, gpus=rng.choice([1, 2, 4, 8]), score=rng.randint(1, 5000))


def cores(rng: random.Random) -> Iterator[Ask]:
    for ask in arrivals(rng, 50, 80, (5, 20)):
        yield replace(ask, gpus=rng.choice([1, 1, 2]), cpus=rng.choice([4, 16, 24, 32, 48]))


def gpus_only(rng: random.Random) -> Iterator[Ask]:
    for ask in arrivals(rng, 70, 80, (5, 20)):
        yield replace(ask, nodes=0, gpus=rng.choice([1, 1, 2, 3, 4, 5, 8]))


def race(rng: random.Random) -> Iterator[Ask]:
    for ask in arrivals(rng, 150, 80, (8, 30)):
        yield replace(ask, gpus=rng.choice([1, 2, 4, 4, 8]), limit_min=rng.choice([1, 2, 5]))


def stories() -> list[list[Story]]:
    """Lists of workloads: those of different lists run side by side, on clusters of their own."""

    def story(name: str, kind: str, *clusters: str, **more: object) -> Story:
        asks = tuple(globals()[name](random.Random(name)))
        return Story(name=name, kind=kind, clusters=clusters, asks=asks, **more)  # type: ignore[arg-type]

    packed = story("packing", "sizes from 1 to 8 that have to be packed on nodes of 8", "alpha")
    return [
        [
            packed,
            story("whole_nodes", "jobs of 1 to 4 whole nodes", "alpha"),
            replace(
                packed, name="drained", kind="the same, a node drained for a minute", drains=(("alpha2", 15, 65),)
            ),
            story("block_and_backfill", "wide jobs that block, small ones around them, mixed limits", "alpha"),
        ],
        [
            story("fifo", "equal jobs", "beta"),
            story("far_limits", "limits 3 to 1000 times the running time", "beta"),
            story("killed", "some run into their limit", "beta"),
        ],
        [
            story("arrays", "job arrays and single jobs", "gamma"),
            story("user_limits", "a QOS with MaxTRESPerUser and MaxJobsPerUser, three users", "gamma"),
            story("scored", "a priority for each job, as nice at submission", "gamma"),
        ],
        [
            story("site_factors", "a SiteFactor for each job, set while it waits", "delta", site_factors=True),
            story("cores", "cores and memory run out before GPUs do", "delta"),
            story("gpus_only", "jobs that give --gpus and nothing else", "delta"),
        ],
    ]


def last() -> list[Story]:
    """Those that need all clusters of the federation for themselves."""
    asks = tuple(race(random.Random("race")))
    return [Story(name="race", kind="a federation of three", clusters=("alpha", "beta", "gamma"), asks=asks)]
