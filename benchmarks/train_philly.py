"""Training on Microsoft's Philly log: is the front better than what people wrote, for every seed?

Trained and chosen on 2017-10-02 to 10-16, judged once on 10-16 to 10-30. Eleven clusters with a fifth of the
nodes, a federation race, EASY backfill at every event. The log has no weight, limit or estimate; they are
drawn: weight 1, 2 or 4 with probability 0.6, 0.3, 0.1; limit = running time x exp(|N(0, 1.5)|) x 1.05 + 60 s,
up to whole hours and at most 7 days; estimate = running time x exp(N(0, 0.8)). Jobs over 32 GPUs are left out,
running times capped at 7 days. Every figure on the judge window is a mean over several draws.

    python benchmarks/train_philly.py --data DIRECTORY [--seeds 1 2 3 4 5] [--minutes 10] [--workers 2]

DIRECTORY holds philly_jobs.csv.gz (timestamp, duration, num_gpus) and philly_vc.csv (vc, nodes of 8 GPUs).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import resource
import sys
import time
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "gp_training")]

from slurm_evo.sim.baselines import NAMES, baseline
from slurm_evo.sim.fleet import FleetShape, NodeShape
from slurm_evo.sim.rules import Rules
from slurm_evo.sim.workload import Workload
from slurm_evo_training.choose import beside, choose
from slurm_evo_training.evolution import Evolved, evaluate, evolve, hypervolume
from slurm_evo_training.fitness import TAIL, Evaluator, Problem, Scene, outcome
from slurm_evo_training.island import Recipe
from slurm_evo_training.seeds import drawn

DAY = 86_400
CHOOSE_DRAWS = 4
JUDGE_DRAWS = 5


class Philly:
    """The log; `draw` gives a workload with the missing fields drawn from a seed."""

    def __init__(self, data: Path) -> None:
        with gzip.open(data / "philly_jobs.csv.gz", "rt") as file:
            rows = [
                (datetime.fromisoformat(row["timestamp"]), float(row["duration"]), int(row["num_gpus"]))
                for row in csv.DictReader(file)
            ]
        self.rows = sorted(row for row in rows if row[2] <= 32)
        with (data / "philly_vc.csv").open() as file:
            nodes = [int(row["node num"]) for row in csv.DictReader(file)]
        self.fleet = FleetShape(clusters=tuple((NodeShape(gpus=8),) * max(count // 5, 2) for count in nodes))

    def draw(self, first: str, last: str, seed: int) -> Workload:
        """Jobs submitted in [first, last), ISO dates; seconds from the first."""
        begin, end = datetime.fromisoformat(first), datetime.fromisoformat(last)
        rows = [row for row in self.rows if begin <= row[0] < end]
        random = np.random.default_rng(seed)
        submit = np.array([(row[0] - begin).total_seconds() for row in rows]).astype(np.int64)
        runtime = np.minimum(np.array([row[1] for row in rows]), 7 * DAY)
        count = len(rows)
        limit = runtime * np.exp(np.abs(random.normal(0, 1.5, count))) * 1.05 + 60
        limit = np.minimum(np.ceil(limit / 3600) * 3600, 7 * DAY)
        return Workload(
            submit=submit,
            runtime=runtime.astype(np.int64),
            limit=np.maximum(limit, runtime).astype(np.int64),
            estimate=np.maximum(runtime * np.exp(random.normal(0, 0.8, count)), 1).astype(np.int64),
            gpus=np.array([row[2] for row in rows]),
            weight=random.choice([1.0, 2.0, 4.0], count, p=[0.6, 0.3, 0.1]),
        )

    def scene(self, first: str, last: str, seed: int, judged: tuple[float, float]) -> Scene:
        """Of which the days [first, last) are judged."""
        return Scene(
            name=f"{first} to {last}, draw {seed}",
            jobs=self.draw(first, last, seed),
            judged_s=(round(judged[0] * DAY), round(judged[1] * DAY)),
        )

    def problem(self, scenes: list[Scene], tail: float = 0.0) -> Problem:
        """Of these scenes, on the common fleet and rules."""
        return Problem(scenes=tuple(scenes), fleet=self.fleet, rules=Rules.every_event(), tail=tail)


def problems(log: Philly) -> tuple[Problem, Problem, Problem]:
    """To train on, to choose on (jobs before the 11th fill the fleet and are not judged), to judge on."""
    train = [
        log.scene("2017-10-03", "2017-10-07", 11, (0.5, 3.5)),
        *(log.scene("2017-10-02", "2017-10-12", draw, (0.0, 9.0)) for draw in (12, 13)),
    ]
    choosing = [log.scene("2017-10-09", "2017-10-16", 21 + draw, (2.0, 7.0)) for draw in range(CHOOSE_DRAWS)]
    judging = [log.scene("2017-10-16", "2017-10-30", 101 + draw, (0.0, 14.0)) for draw in range(JUDGE_DRAWS)]
    return log.problem(train, TAIL), log.problem(choosing, TAIL), log.problem(judging)


def judged_baselines(problem: Problem) -> dict[str, list[float]]:
    """Seconds of average and maximum, idle share: means over the draws."""
    gpus = int(problem.fleet.gpus.sum())
    found = {}
    for name in NAMES:
        rows = [outcome(problem, scene, baseline(name, scene.jobs, gpus)) for scene in problem.scenes]
        found[name] = np.mean(rows, axis=0).tolist()
        print(f"  {name:14s} average {found[name][0]:8.0f} s  maximum {found[name][1]:9.0f} s", flush=True)
    return found


def better(one: list[float], other: list[float]) -> bool:
    """In average and in maximum."""
    return one[0] < other[0] and one[1] < other[1]


def train(seed: int, args: argparse.Namespace, train_on: Problem) -> Evolved:
    recipe = replace(Recipe(), seed=seed, minutes=args.minutes, **json.loads(args.recipe))

    def tell(now: object) -> None:
        p = asdict(now)  # type: ignore[call-overload]
        print(
            f"  {p['done']}/{p['total']} {p['seconds']:.0f} s, {p['simulations']} simulations, "
            f"front {p['front']}, best average {p['best_average']:.3f}, best maximum {p['best_maximum']:.3f}, "
            f"hypervolume {p['hypervolume']:.4f}",
            flush=True,
        )

    return evolve(train_on, recipe, workers=args.workers, progress=tell)


def random_floor(problem: Problem, simulations: int, seed: int) -> float:
    """Hypervolume that random draws of the family reach with as many simulations, none given up."""
    random, evaluator = np.random.RandomState(seed), Evaluator(problem=problem)
    reached = []
    while evaluator.simulated < simulations:
        policy = drawn(random)
        values = [evaluator.value(policy, scene) for scene in range(len(problem.scenes))]
        reached.append(evaluator.objectives(policy, values))
    return hypervolume(reached)


def judge(evolved: Evolved, choosing: Problem, judging: Problem, args: argparse.Namespace) -> dict[str, object]:
    """What the front and the chosen policy reach on the judge window, in seconds."""
    front = [one.policy for one in evolved.front]
    everyone = [*front, *beside(front, choosing).values()]
    chosen = choose(everyone, choosing, workers=args.workers)
    shares = evaluate(judging, everyone, workers=args.workers)
    evaluator = Evaluator(problem=judging)
    reference = np.array([evaluator.reference(scene) for scene in range(len(judging.scenes))])
    seconds = np.maximum(reference, 0.001)[None] * shares
    rows = seconds.mean(axis=1).tolist()
    return {
        "front": [[policy.text, *row] for policy, row in zip(front, rows, strict=False)],
        "chosen": [chosen.policy.text, *rows[chosen.place]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--minutes", type=float, default=10.0, help="of one training")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--recipe", default="{}", help="other settings of the recipe, as JSON")
    parser.add_argument("--floor", action="store_true", help="also random draws at as many simulations (slow)")
    args = parser.parse_args()
    train_on, choosing, judging = problems(Philly(args.data))
    print(f"{sum(len(scene.jobs) for scene in train_on.scenes)} jobs in the training windows; baselines, judged:")
    by_hand = judged_baselines(judging)
    best_average = min(by_hand, key=lambda name: by_hand[name][0])
    best_maximum = min(by_hand, key=lambda name: by_hand[name][1])
    print(f"best average by hand: {best_average}; best maximum by hand: {best_maximum}")
    runs = []
    for seed in args.seeds:
        began = time.monotonic()
        evolved = train(seed, args, train_on)
        seconds = time.monotonic() - began
        found = judge(evolved, choosing, judging, args)
        rows = [row[1:] for row in found["front"]]  # type: ignore[attr-defined]
        text, *chosen = found["chosen"]  # type: ignore[misc]
        run = {
            "seed": seed,
            "seconds": round(seconds, 1),
            "simulations": evolved.simulations,
            "tried": evolved.tried,
            "given_up": evolved.given_up,
            "hypervolume": evolved.history[-1]["hypervolume"],
            "beats_best_average": any(better(row, by_hand[best_average]) for row in rows),
            "beats_best_maximum": any(better(row, by_hand[best_maximum]) for row in rows),
            "chosen_dominated_by": [name for name, row in by_hand.items() if better(row, chosen)],
            "chosen": text,
            "average_ratio": chosen[0] / by_hand[best_average][0],
            "maximum_ratio": chosen[1] / by_hand[best_average][1],
            # Of the front, known only afterwards: how far it is from both targets at best; 1 reaches them.
            "nearest_to_targets": min(
                max(row[0] / by_hand[best_average][0] / 0.85, row[1] / by_hand[best_average][1] / 0.6)
                for row in rows
            ),
        }
        if args.floor:
            run["random_hypervolume"] = random_floor(train_on, evolved.simulations, seed)
        runs.append(run)
        print(json.dumps(run), flush=True)
        for row in sorted(rows):
            print(f"    {row[0]:8.0f} {row[1]:9.0f}")
    peak = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        + args.workers * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    )
    print(
        json.dumps(
            {
                "benchmark": "train_philly",
                "by_hand": by_hand,
                "best_average": best_average,
                "best_maximum": best_maximum,
                "runs": runs,
                "median_average_ratio": float(np.median([run["average_ratio"] for run in runs])),
                "median_maximum_ratio": float(np.median([run["maximum_ratio"] for run in runs])),
                "peak_mib_at_most": round(peak / 1024),
            }
        )
    )


if __name__ == "__main__":
    main()
