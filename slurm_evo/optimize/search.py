"""The evolutionary search: pymoo's NSGA-II by ask and tell over compact genomes.

Operators are our own, vectorised over all children of a generation; pymoo does non-dominated sorting, crowding
and survival (Deb et al. 2002, doi:10.1109/4235.996017). With few candidates in all, every one is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_evo.optimize.choices import Choices, Genomes, choices, urgency
from slurm_evo.optimize.evaluate import Judge, Judged
from slurm_evo.optimize.queue import Queue
from slurm_evo.optimize.seeds import distinct, seeds
from slurm_evo.sim.forecast import FloatArray, IntArray, MaskArray

POPULATION = 24
FEW = 512
"""So many candidates are judged one and all."""
MOST_ON_FRONT = 100
MOST_CHANGES = 4
LEAPS, LEAP_SHARES = 0.3, (0.05, 0.2, 0.6)
"""Of the children, and of their genes that change then."""
Stop = Callable[[int, Judged], bool]


def evolve(
    queue: Queue,
    judge: Judge,
    *,
    rng: np.random.Generator,
    stop: Stop,
    also: MaskArray | None = None,
    last: Sequence[MaskArray] = (),
) -> Judged:
    """The non-dominated candidates found; «change nothing» and the seeds take part.

    Args:
        queue: the problem.
        judge: evaluates candidates of that queue.
        rng: the only source of randomness.
        stop: told how many generations are finished and what was just judged; true ends the search. Asked at
            least after every `Judge.chunk` candidates.
        also: (n,) sets to begin with, besides the seeds.
        last: (n,) sets each, found by the search before; they are no reason to search.
    """
    choice = choices(queue)
    front = _Front(judge.nothing)
    if not choice.jobs.size:
        return front.judged

    def judged_in_time(genomes: Genomes, generation: int) -> FloatArray | None:
        """(p, 4) values; None where time ran out."""
        values = []
        for begin in range(0, len(genomes), judge.chunk):
            some = judge(choice.decode(queue, genomes[begin : begin + judge.chunk]))
            front.add(some)
            values.append(some.means)
            if stop(generation, some):
                return None
        return np.concatenate(values)

    if choice.combinations <= FEW:
        judged_in_time(choice.every(), 0)
        return front.judged
    start = seeds(queue, choice, judge, also)
    if len(start) == 1:
        # All wait wherever they may, and nobody needs a place kept free: equal clusters are left to the race.
        return front.judged
    start = distinct([*start, *(choice.nearest(masks[choice.jobs]) for masks in last)])
    if judged_in_time(start, 0) is not None:
        _generations(choice, start, _urgent(queue, choice, judge), judged_in_time, rng)
    return front.judged


def _urgent(queue: Queue, choice: Choices, judge: Judge) -> FloatArray:
    waits = np.minimum(judge.nothing.starts_s[0].mean(axis=0), 2 * judge.horizon_s)
    return urgency((queue.weight * waits)[choice.jobs])


def _generations(
    choice: Choices,
    seeds: Genomes,
    urgent: FloatArray,
    judged_in_time: Callable[[Genomes, int], FloatArray | None],
    rng: np.random.Generator,
) -> None:
    """Run pymoo's algorithm until ``judged_in_time`` says that time is over, or nothing new can be made."""
    parents = np.arange(max(POPULATION, len(seeds))) % len(seeds)
    start = mated(seeds, parents, parents, choice, urgent, rng)
    start[: len(seeds)] = seeds
    algorithm = search_of(choice, _distinct(start, set()), urgent, rng)
    generation = 0
    while (asked := algorithm.ask()) is not None and len(asked):
        values = judged_in_time(np.asarray(asked.get("X"), np.int16), generation)
        if values is None:
            return
        asked.set("F", values)
        algorithm.tell(infills=asked)
        generation += 1


class _Front:
    """The non-dominated candidates so far, in the order found, each once; crowded ones make room."""

    def __init__(self, nothing: Judged) -> None:
        self.judged = nothing

    def add(self, more: Judged) -> None:
        """Take candidates in."""
        # What already is on the front goes first, so that of two equals the older stays.
        merged = self.judged.and_also(more)
        means = merged.means
        kept = non_dominated(means)
        if kept.size > MOST_ON_FRONT:
            from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance

            crowding = calc_crowding_distance(means[kept])
            kept = np.sort(kept[np.argsort(-crowding, kind="stable")[:MOST_ON_FRONT]])
        self.judged = merged.only(kept)


def non_dominated(values: FloatArray) -> NDArray[np.int64]:
    """Rows that no other row beats; of rows with equal values the first."""
    no_worse = (values[:, None, :] <= values[None, :, :]).all(axis=2)
    equal = (values[:, None, :] == values[None, :, :]).all(axis=2)
    beaten = (no_worse & ~equal).any(axis=0)
    again = np.triu(equal, 1).any(axis=0)
    return np.flatnonzero(~(beaten | again))


def mated(
    genomes: Genomes,
    fathers: IntArray,
    mothers: IntArray,
    choice: Choices,
    urgent: FloatArray,
    rng: np.random.Generator,
) -> Genomes:
    """Children of pairs of rows: each gene from either parent, or one run of genes from the mother; then changed.

    One to four genes change, those of jobs that wait long more often. Some leap, since a change of many jobs
    at once is not found one by one.
    """
    from slurm_evo.optimize.mating_kernel import mate

    children = np.empty((len(fathers), genomes.shape[1]), np.int16)
    seeds = rng.integers(0, 2**64, len(fathers), np.uint64)
    shares = np.array(LEAP_SHARES)
    mate(genomes, fathers, mothers, urgent, choice.counts, MOST_CHANGES, LEAPS, shares, seeds, children)
    return children


def _distinct(genomes: Genomes, known: set[int]) -> Genomes:
    """The genomes not seen before; they are known, by 64 bits of each, from now on."""
    fresh = []
    for row in genomes:
        key = hash(row.tobytes())
        if key not in known:
            known.add(key)
            fresh.append(row)
    return np.array(fresh, np.int16).reshape(-1, genomes.shape[1])


def search_of(
    choice: Choices, start: Genomes, urgent: FloatArray, rng: np.random.Generator, objectives: int = 4
) -> Any:
    """Pymoo's algorithm with our mating inside: no candidate is made twice. To be asked and told."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.infill import InfillCriterion
    from pymoo.core.population import Population
    from pymoo.core.problem import Problem

    known = {hash(genome.tobytes()) for genome in start}

    class Mating(InfillCriterion):  # type: ignore[misc]
        """Binary tournament by rank and crowding, crossover, a few mutations."""

        def _do(self, _problem: Any, pop: Any, n_offsprings: int, **_: Any) -> Any:
            genomes = np.asarray(pop.get("X"), np.int16)
            rank, crowding = pop.get("rank").astype(float), pop.get("crowding").astype(float)
            order = np.lexsort((-crowding, rank))
            place = np.empty(len(pop), np.int64)
            place[order] = np.arange(len(pop))
            drawn = rng.integers(0, len(pop), (2, n_offsprings, 2))
            father, mother = np.where(place[drawn[..., 0]] <= place[drawn[..., 1]], drawn[..., 0], drawn[..., 1])
            children = mated(genomes, father, mother, choice, urgent, rng)
            return Population.new(X=_distinct(children, known))

    genes = choice.jobs.size
    problem = Problem(n_var=genes, n_obj=objectives, xl=np.zeros(genes), xu=choice.counts - 1.0, vtype=int)
    algorithm = NSGA2(
        pop_size=len(start),
        sampling=Population.new(X=start),
        mating=Mating(n_max_iterations=20),
        eliminate_duplicates=False,
    )
    algorithm.setup(problem, seed=int(rng.integers(2**31)), verbose=False, termination=("n_gen", 1_000_000))
    return algorithm
