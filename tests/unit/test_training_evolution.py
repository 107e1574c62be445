"""Evolution: the same for a seed wherever it runs, better than what it began with."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from training_stories import SMALL, problem

from slurm_evo.model import ConfigError, TraceError
from slurm_evo.policy import Policy, problems
from slurm_evo_training.evolution import evaluate, evolve, hypervolume
from slurm_evo_training.fitness import REFERENCE, Evaluator
from slurm_evo_training.island import Island, advance, constants_of, race, ranked, with_constants
from slurm_evo_training.seeds import by_hand
from slurm_evo_training.training import read_recipe


def texts(evolved):
    return [(one.policy.text, one.objectives) for one in evolved.front]


def test_a_seed_gives_the_same_front_again_and_another_seed_another():
    once, again = evolve(problem(), SMALL), evolve(problem(), SMALL)
    assert texts(once) == texts(again)
    assert texts(once) != texts(evolve(problem(), replace(SMALL, seed=4)))


def test_processes_give_the_front_that_one_process_gives():
    assert texts(evolve(problem(), SMALL, workers=2)) == texts(evolve(problem(), SMALL))


def test_a_run_that_was_stopped_and_resumed_ends_as_one_that_was_not(tmp_path):
    file = tmp_path / "checkpoint.json"
    evolve(problem(), replace(SMALL, generations=2, refined=0), checkpoint=file)
    resumed = evolve(problem(), replace(SMALL, refined=0), checkpoint=file, resume=True)
    assert texts(resumed) == texts(evolve(problem(), replace(SMALL, refined=0)))


def test_ctrl_c_keeps_the_best_so_far(tmp_path):
    def stop(now):
        if now.done == 1:
            raise KeyboardInterrupt

    file = tmp_path / "checkpoint.json"
    evolved = evolve(problem(), SMALL, checkpoint=file, progress=stop)
    assert evolved.interrupted
    assert evolved.front
    assert json.loads(file.read_text())["exchanges"] == 1


KILLED = """
import os, signal, time
from training_stories import problem
from slurm_evo_training.evolution import _local
if __name__ == "__main__":
    with _local(2)(problem()) as place:
        for work in [place.submit(time.sleep, 0.2) for _ in range(4)]:
            work.result()
        print(*place._processes, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_no_worker_outlives_a_run_that_was_killed(tmp_path):
    (tmp_path / "killed.py").write_text(KILLED)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, str(tmp_path / "killed.py")]
    killed = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    workers = [int(word) for word in killed.stdout.split()]
    assert len(workers) == 2
    deadline = time.monotonic() + 20
    while alive := [pid for pid in workers if runs(pid)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


def runs(pid):
    """A process that ended may be left as a zombie where nobody reaps."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_time_that_runs_out_ends_the_run_after_an_exchange():
    ticks = iter(range(0, 100_000, 45))
    evolved = evolve(problem(), replace(SMALL, minutes=1.0, generations=100), clock=lambda: next(ticks))
    assert evolved.history
    assert len(evolved.history) <= 3


def test_a_checkpoint_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "checkpoint.json.new").mkdir()
    with pytest.raises(ConfigError, match=r"checkpoint\.json: cannot be written"):
        evolve(problem(), SMALL, checkpoint=tmp_path / "checkpoint.json")


@pytest.mark.parametrize(
    ("key", "value"), [("exchanges", "x"), ("seconds", None), ("history", [1]), ("recipe", {})]
)
def test_a_damaged_checkpoint_is_named(tmp_path, key, value):
    file = tmp_path / "checkpoint.json"
    evolve(problem(), replace(SMALL, generations=2, refined=0), checkpoint=file)
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(TraceError, match=r"checkpoint\.json"):
        evolve(problem(), replace(SMALL, refined=0), checkpoint=file, resume=True)


def test_a_checkpoint_of_other_terminals_is_refused(tmp_path):
    file = tmp_path / "checkpoint.json"
    evolve(problem(), replace(SMALL, generations=2, refined=0), checkpoint=file)
    other = replace(SMALL, generations=2, refined=0, terminals=("wait", "runtime"))
    with pytest.raises(TraceError, match="another history, fleet or recipe"):
        evolve(problem(), other, checkpoint=file, resume=True)


@pytest.mark.parametrize("damage", ["", "{}", '{"format": 99}', "[1, 2"])
def test_a_checkpoint_that_cannot_be_used_is_named(tmp_path, damage):
    file = tmp_path / "checkpoint.json"
    file.write_text(damage)
    with pytest.raises(TraceError, match=r"checkpoint\.json"):
        evolve(problem(), SMALL, checkpoint=file, resume=True)


def test_a_checkpoint_of_another_history_is_refused(tmp_path):
    file = tmp_path / "checkpoint.json"
    evolve(problem(), replace(SMALL, generations=2, refined=0), checkpoint=file)
    with pytest.raises(TraceError, match="another history"):
        evolve(problem(seed=9), SMALL, checkpoint=file, resume=True)


def test_the_front_beats_every_policy_written_by_hand_and_holds_none_that_is_dominated():
    evolved = evolve(problem(), SMALL)
    policies = [policy for _, policy in by_hand(8)]
    by_people = evaluate(problem(), policies).mean(axis=1)
    assert hypervolume([one.objectives for one in evolved.front]) >= hypervolume(by_people.tolist())
    _, rank, _ = ranked(evolved.front)
    assert set(rank.tolist()) == {0}


def test_every_policy_of_the_front_may_be_put_in_force_as_far_as_its_form_goes():
    for one in evolve(problem(), SMALL).front:
        assert problems(one.policy) == ()
        assert one.policy.size <= SMALL.most_nodes


def test_an_island_written_and_read_goes_on_as_if_it_had_not_been():
    evaluator = Evaluator(problem=problem())
    island = advance(Island.new(0, 5), SMALL, evaluator, 1)
    again = Island.from_json(json.loads(json.dumps(island.as_json())))
    assert again.as_json() == island.as_json()
    assert advance(again, SMALL, evaluator, 2).as_json() == advance(island, SMALL, evaluator, 2).as_json()


def test_policies_that_rank_alike_are_simulated_once():
    evaluator = Evaluator(problem=problem())
    one, same = Policy.parse("wait / runtime"), Policy.parse("3 * wait / runtime")
    assert evaluator.value(one, 0) == evaluator.value(same, 0)
    assert (evaluator.simulated, evaluator.found_again) == (1, 1)
    assert evaluator.meaning(one) != evaluator.meaning(Policy.parse("wait / limit"))


def test_the_reference_is_the_measure_of_itself():
    evaluator = Evaluator(problem=problem())
    assert evaluator.value(Policy.parse(REFERENCE), 1) == pytest.approx((1.0, 1.0, 1.0))


def test_a_bad_policy_is_given_up_after_the_cheap_scene():
    evaluator = Evaluator(problem=problem())
    good = [race(policy, (), evaluator) for _, policy in by_hand(8)]
    good = sorted((one for one in good if one), key=lambda one: one.objectives)[:6]
    before = evaluator.simulated
    assert race(Policy.parse("gpus * runtime - pressure"), good, evaluator) is None
    assert evaluator.simulated == before + 1


def test_constants_come_out_and_go_back_in_order():
    policy = Policy.parse("2 * wait + max(runtime, 7) / 3")
    assert constants_of(policy) == [2.0, 7.0, 3.0]
    assert with_constants(policy, [2.0, 7.0, 3.0]) == policy
    assert with_constants(policy, [4.0, 5.0, 6.0]).text == "4 * wait + max(runtime, 5) / 6"


def test_hypervolume_is_the_area_that_is_beaten():
    assert hypervolume([]) == 0
    assert hypervolume([(1.0, 1.0)]) == 1.0
    assert hypervolume([(1.0, 1.0), (1.5, 0.5), (1.6, 1.9)]) == pytest.approx(1.0 + 0.5 * 0.5)
    assert hypervolume([(3.0, 0.1)]) == 0


def test_a_recipe_is_read_from_toml_and_what_is_wrong_is_named(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text('islands = 3\nterminals = ["wait", "runtime"]\n')
    recipe = read_recipe(file, seed=9, minutes=None)
    assert (recipe.islands, recipe.terminals, recipe.seed) == (3, ("wait", "runtime"), 9)
    assert asdict(read_recipe(None)) == asdict(read_recipe(None, seed=1))
    for text, named in [
        ("islnds = 3", "did you mean islands"),
        ("islands = 0", "islands is too small"),
        ('islands = "x"', "islands must be a number"),
        ('terminals = ["age"]', "terminals"),
        ("islands =", "recipe.toml"),
        ("minutes = nan", "minutes must be a number"),
        ("minutes = inf", "minutes must be a number"),
    ]:
        file.write_text(text)
        with pytest.raises(ConfigError, match=named):
            read_recipe(file)


def test_evaluation_gives_every_policy_its_own_row():
    policies = [Policy.parse("wait"), Policy.parse(REFERENCE)]
    values = evaluate(problem(), policies)
    assert values.shape == (2, 2, 3)
    np.testing.assert_allclose(values[1], 1.0)
    assert values[0, 1, 0] != pytest.approx(1.0)


def test_an_island_that_is_late_still_tries_what_people_wrote() -> None:
    evaluator = Evaluator(problem=problem())
    late = advance(Island.new(0, 5), SMALL, evaluator, 3, late=lambda: True)
    assert late.generation == 1
    assert late.tried == len(by_hand(int(evaluator.problem.fleet.gpus.sum())))
    assert late.population
