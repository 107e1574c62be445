"""The evolutionary search: pymoo's NSGA-II by ask and tell over compact genomes.

A gene is the place of a viable set in a movable job's short list of sensible ones. Operators are our own and
vectorised; pymoo does mating selection, non-dominated sorting and survival (Deb et al. 2002,
doi:10.1109/4235.996017).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_evo.optimize.evaluate import Judge, Judged
from slurm_evo.optimize.queue import Queue
from slurm_evo.sim.forecast import MaskArray

Genomes = NDArray[np.int16]
MOST_CHOICES = 12


@dataclass(frozen=True, slots=True)
class Choices:
    """For each movable job the viable sets worth trying; the first is the one it has."""

    jobs: NDArray[np.int64]
    """(m,) rows of the queue."""
    masks: MaskArray
    """(m, k) uint64; unused places repeat the first."""
    counts: NDArray[np.int64]
    """(m,) how many of the k are used."""

    def decode(self, queue: Queue, genome: Genomes) -> MaskArray:
        """(n,) masks of the whole queue."""
        masks = queue.viable.copy()
        masks[self.jobs] = self.masks[np.arange(self.jobs.size), genome]
        return masks


def choices(queue: Queue) -> Choices:
    """What it has, everything allowed, each single cluster, what it has and one more."""
    jobs = np.flatnonzero(queue.movable & (queue.allowed != 0))
    lists = []
    for job in jobs:
        has, may = int(queue.viable[job]), int(queue.allowed[job])
        singles = [1 << bit for bit in range(len(queue.clusters)) if may >> bit & 1]
        wanted = [has, may, *singles, *(has | single for single in singles)]
        lists.append(list(dict.fromkeys(mask for mask in wanted if mask))[:MOST_CHOICES])
    width = max((len(some) for some in lists), default=1)
    masks = np.array([some + [some[0]] * (width - len(some)) for some in lists], np.uint64).reshape(-1, width)
    return Choices(jobs, masks, np.array([len(some) for some in lists], np.int64))


def seeds(queue: Queue, choice: Choices, judge: Judge) -> list[Genomes]:
    """Nothing; the race (everything allowed); greedy: what it has and the cluster where the race starts it."""
    nothing = np.zeros(choice.jobs.size, np.int16)
    race = _nearest(choice, queue.allowed[choice.jobs])
    raced = judge(choice.decode(queue, race))
    winner = raced.where[choice.jobs]
    bit = np.where(winner >= 0, np.uint64(1) << np.maximum(winner, 0).astype(np.uint64), np.uint64(0))
    greedy = _nearest(choice, queue.viable[choice.jobs] | bit)
    return [nothing, race, greedy]


def _nearest(choice: Choices, masks: MaskArray) -> Genomes:
    """The place of each mask in its job's list; 0, what it has, where it is not in the list."""
    hit = choice.masks == masks[:, None]
    return np.where(hit.any(axis=1), hit.argmax(axis=1), 0).astype(np.int16)


def evolve(
    queue: Queue,
    judge: Judge,
    *,
    rng: np.random.Generator,
    stop: Callable[[int], bool],
    population: int = 24,
) -> list[Judged]:
    """The non-dominated candidates found; «change nothing» and the seeds take part.

    Args:
        queue: the problem.
        judge: evaluates candidates of that queue.
        rng: the only source of randomness.
        stop: told the number of finished generations; true ends the search. Asked after every candidate
            too, so the search ends within one evaluation of its budget.
        population: candidates a generation.
    """
    choice = choices(queue)
    if not choice.jobs.size:
        return [judge.nothing]
    found: list[Judged] = [judge.nothing]
    first = seeds(queue, choice, judge)
    found += [judge(choice.decode(queue, genome)) for genome in first]
    if stop(0):
        return non_dominated(found)
    start = np.array([first[place % len(first)] for place in range(population)], np.int16)
    start[len(first) :] = _mutated(start[len(first) :], choice, rng)
    algorithm = _nsga2(choice, start, rng)
    generation = 0
    while True:
        asked = algorithm.ask()
        if asked is None or not len(asked):  # every candidate within reach has been tried
            return non_dominated(found)
        for individual in asked:
            judged = judge(choice.decode(queue, individual.X))
            found.append(judged)
            individual.F = _objectives(judged)
            if stop(generation):
                return non_dominated(found)
        algorithm.tell(infills=asked)
        generation += 1


def _objectives(judged: Judged) -> NDArray[np.float64]:
    scores = judged.scores
    return np.array([scores.average_wait_s, scores.maximum_wait_s, -scores.utilization, scores.moves], float)


def non_dominated(found: list[Judged]) -> list[Judged]:
    """The front, each candidate once, in the order found."""
    unique = list({judged.masks.tobytes(): judged for judged in found}.values())
    values = np.array([_objectives(judged) for judged in unique])
    no_worse = (values[:, None, :] <= values[None, :, :]).all(axis=2)
    better = (values[:, None, :] < values[None, :, :]).any(axis=2)
    dominated = (no_worse & better).any(axis=0)
    return [unique[place] for place in np.flatnonzero(~dominated)]


def _mutated(genomes: Genomes, choice: Choices, rng: np.random.Generator) -> Genomes:
    """Change few genes: about three in each genome, at least one."""
    rows, genes = genomes.shape
    chosen = rng.random((rows, genes)) < min(1.0, 3 / genes)
    chosen[np.arange(rows), rng.integers(0, genes, rows)] = True
    drawn = rng.integers(0, choice.counts, (rows, genes))
    return np.where(chosen, drawn, genomes).astype(np.int16)


def _nsga2(choice: Choices, start: Genomes, rng: np.random.Generator) -> Any:
    """Pymoo's algorithm with our operators around it."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.crossover import Crossover
    from pymoo.core.duplicate import DefaultDuplicateElimination
    from pymoo.core.mutation import Mutation
    from pymoo.core.problem import Problem

    class Uniform(Crossover):  # type: ignore[misc]
        """Each gene from either parent."""

        def __init__(self) -> None:
            super().__init__(n_parents=2, n_offsprings=2)

        def _do(self, _problem: Any, parents: Any, **_: Any) -> Any:
            swap = rng.random(parents.shape[1:]) < 0.5
            children = parents.copy()
            children[0][swap], children[1][swap] = parents[1][swap], parents[0][swap]
            return children

    class Few(Mutation):  # type: ignore[misc]
        """A few genes drawn anew."""

        def _do(self, _problem: Any, genomes: Any, **_: Any) -> Any:
            return _mutated(genomes, choice, rng)

    class ByHash(DefaultDuplicateElimination):  # type: ignore[misc]
        """Equal genomes, not distances between them."""

        def _do(self, pop: Any, other: Any, is_duplicate: Any) -> Any:
            seen = set() if other is None else {individual.X.tobytes() for individual in other}
            for place, individual in enumerate(pop):
                key = individual.X.tobytes()
                is_duplicate[place] |= key in seen
                if other is None:
                    seen.add(key)
            return is_duplicate

    genes = choice.jobs.size
    problem = Problem(n_var=genes, n_obj=4, xl=np.zeros(genes), xu=choice.counts - 1.0, vtype=int)
    algorithm = NSGA2(
        pop_size=len(start),
        sampling=start,
        crossover=Uniform(),
        mutation=Few(prob=1.0),
        eliminate_duplicates=ByHash(),
    )
    algorithm.setup(problem, seed=int(rng.integers(2**31)), verbose=False, termination=("n_gen", 1_000_000))
    return algorithm
