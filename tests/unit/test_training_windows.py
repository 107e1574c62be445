"""Windows, choosing, admission."""

from dataclasses import replace

import numpy as np
import pytest
from training_stories import HOUR, busy, problem

from slurm_evo.model import PolicyError, TraceError
from slurm_evo.policy import Policy
from slurm_evo.policy.front import Front, Member
from slurm_evo_training.admission import refusals
from slurm_evo_training.choose import WEIGHTS, beside, choose, interval, paired, weighted
from slurm_evo_training.evolution import Evolved, fingerprint
from slurm_evo_training.fitness import metrics, outcome
from slurm_evo_training.training import Trained
from slurm_evo_training.windows import Span, scene, shaken, split


def test_a_history_is_cut_in_the_order_of_time_without_overlap():
    jobs = busy()
    cut = split(jobs, choose=0.2, judge=0.3)
    assert cut.train.first_s == jobs.submit[0]
    assert cut.train.last_s == cut.choose.first_s
    assert cut.choose.last_s == cut.judge.first_s
    assert cut.judge.last_s == jobs.submit[-1] + 1
    assert cut.judge.days == pytest.approx(0.3 * 2, rel=0.05)


def test_a_scene_counts_from_its_own_beginning():
    jobs = busy()
    found = scene(jobs, Span(first_s=10 * HOUR, last_s=20 * HOUR), name="middle")
    inside = jobs.submit[(jobs.submit >= 10 * HOUR) & (jobs.submit < 20 * HOUR)]
    assert np.array_equal(found.jobs.submit, inside - 10 * HOUR)
    assert found.judged_s == (HOUR, 9 * HOUR)


def test_shaking_moves_arrivals_a_little_and_changes_no_job():
    jobs = busy()
    moved = shaken(jobs, 3)
    assert sorted(moved.runtime) == sorted(jobs.runtime)
    assert np.abs(np.sort(moved.submit) - jobs.submit).max() < HOUR
    assert not np.array_equal(moved.submit, jobs.submit)
    assert np.array_equal(shaken(jobs, 3).submit, moved.submit)
    assert shaken(jobs, 0) is jobs


@pytest.mark.parametrize("shares", [(0.0, 0.2), (0.5, 0.5), (0.2, 1.0)])
def test_windows_must_leave_something_to_train_on(shares):
    with pytest.raises(TraceError):
        split(busy(), choose=shares[0], judge=shares[1])


def test_an_empty_window_is_named():
    with pytest.raises(TraceError, match="night"):
        scene(busy(), Span(first_s=500 * HOUR, last_s=501 * HOUR), name="night")


def shares(average, maximum, scenes=4, noise=0.0):
    wobble = np.linspace(-noise, noise, scenes)
    return np.column_stack([average + wobble, maximum + wobble, np.ones(scenes)])


def test_weights_choose():
    quick, fair = shares(0.8, 1.2), shares(1.0, 0.7)
    both = np.stack([quick, fair])
    average_counts = {"average_wait": 1.0, "maximum_wait": 0.1, "utilization": 0.0}
    maximum_counts = {"average_wait": 0.1, "maximum_wait": 1.0, "utilization": 0.0}
    assert np.argmin(weighted(both, average_counts)) == 0
    assert np.argmin(weighted(both, maximum_counts)) == 1


def test_a_policy_is_admitted_only_if_it_is_better_beyond_noise():
    policy = Policy.parse("wait / runtime")
    now = shares(1.0, 1.0)
    assert refusals(policy, shares(0.8, 0.9), now, WEIGHTS) == ()
    assert "no better" in refusals(policy, shares(1.1, 1.0), now, WEIGHTS)[0]
    assert "within noise" in refusals(policy, shares(0.99, 1.0, noise=0.3), now, WEIGHTS)[0]
    assert "longest" in refusals(policy, shares(0.2, 1.8), now, WEIGHTS)[0]
    assert "falls" in refusals(Policy.parse("-wait"), shares(0.8, 0.9), now, WEIGHTS)[0]


def test_one_window_alone_tells_nothing_beyond_noise():
    assert refusals(Policy.parse("wait"), shares(0.5, 0.5, 1), shares(1.0, 1.0, 1), WEIGHTS) != ()


def test_an_interval_holds_its_mean_and_pairing_removes_what_both_share():
    random = np.random.default_rng(1)
    common = random.uniform(0.5, 2.0, 20)
    found = interval(common)
    assert found.low < found.mean < found.high
    old = np.column_stack([common, common, np.ones(20)])
    new = np.column_stack([common * 0.9, common * 0.9, np.ones(20)])
    gain = paired(new, old, WEIGHTS)
    assert gain.mean == pytest.approx(np.log(0.9) * 0.75)
    assert gain.high == pytest.approx(gain.low)


def test_a_front_is_written_read_and_chosen_from_by_weights(tmp_path):
    members = (
        Member(text="wait / runtime", complexity=3, chosen_on=(0.8, 1.2, 1.0)),
        Member(text="weight * wait", complexity=3, chosen_on=(1.0, 0.7, 1.0)),
        Member(text="wait", complexity=1, chosen_on=(0.1, 0.1, 0.1), refused=("it is too good to be true",)),
    )
    file = tmp_path / "front.json"
    Front(members=members, provenance={"jobs": 5}).save(file)
    front = Front.load(file)
    assert front.members == members
    assert front.choose({"average_wait": 1, "maximum_wait": 0, "utilization": 0}).text == "wait / runtime"
    assert front.choose({"average_wait": 0, "maximum_wait": 1, "utilization": 0}).text == "weight * wait"
    with pytest.raises(PolicyError, match="too good"):
        Front(members=members[2:], provenance={}).choose(WEIGHTS)


def test_a_front_that_was_edited_does_not_pass_as_trained(tmp_path):
    file = tmp_path / "front.json"
    refused = Member(text="wait / runtime", complexity=3, chosen_on=(0.8, 1.2, 1.0), refused=("it is worse",))
    Front(members=(refused,), provenance={"jobs": 5, "share": 1 / 3, "pair": (1, 2)}).save(file)
    assert Front.load(file).members == (refused,)
    file.write_text(file.read_text().replace('"it is worse"', ""))
    with pytest.raises(PolicyError, match="was changed after it was written"):
        Front.load(file)


@pytest.mark.parametrize("shares", [(float("nan"), 1.0, 1.0), (-1.0, 1.0, 1.0), (1.0, 1.0)])
def test_shares_by_which_nothing_can_be_chosen_are_refused(tmp_path, shares):
    file = tmp_path / "front.json"
    Front(members=(Member(text="wait", complexity=1, chosen_on=shares),), provenance={}).save(file)
    with pytest.raises(PolicyError, match="needs 3 shares"):
        Front.load(file)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"format": 2}', '{"format": 1, "members": [{"text": "wat"}]}', '{"a":' + "[" * 200_000,
    ],
)  # fmt: skip
def test_what_is_no_front_is_refused_by_name(tmp_path, text):
    file = tmp_path / "front.json"
    file.write_text(text)
    with pytest.raises(PolicyError, match=r"front\.json|wat"):
        Front.load(file)


def test_training_minds_the_mean_of_the_longest_waits_and_judging_the_longest():
    judged = problem()
    trained = replace(judged, tail=0.05)
    scene, policy = judged.scenes[0], Policy.parse("wait")
    found, waits, counted = metrics(judged, scene, policy)
    weight = scene.jobs.weight[counted]
    weighted = sorted((waits[counted] * weight).tolist(), reverse=True)
    share = round(0.05 * len(weighted))
    average, longest, _ = outcome(judged, scene, policy)
    assert longest == found.maximum_wait_s == pytest.approx(weighted[0] / weight.mean())
    same, tail, _ = outcome(trained, scene, policy)
    assert same == average
    assert tail == pytest.approx(sum(weighted[:share]) / share / weight.mean())
    assert tail < longest
    assert fingerprint(trained) != fingerprint(judged)


@pytest.mark.parametrize(
    ("average", "maximum", "said"),
    [(0.9, 1.04, ""), (1.2, 0.9, "average wait is 1.20 times"), (0.8, 2.4, "maximum wait is 2.40 times")],
)
def test_what_the_judge_windows_say_against_a_policy_is_told(average, maximum, said):
    judged = {"average_of_policy_in_force": average, "maximum_of_policy_in_force": maximum}
    member = Member(text="wait", complexity=1, chosen_on=(1.0, 1.0, 1.0), judged=judged)
    front = Front(members=(member,), provenance={})
    trained = Trained(
        front=front, chosen=member, shown=member, evolved=Evolved([]), choose_values=np.ones((1, 1, 3)), judged={}
    )
    assert said in trained.doubt
    assert bool(said) == bool(trained.doubt)


def test_what_people_wrote_and_waits_less_on_the_judge_windows_is_named():
    member = Member(
        text="wait", complexity=1, chosen_on=(1.0, 1.0, 1.0),
        judged={"average_of_policy_in_force": 0.9, "maximum_of_policy_in_force": 0.9},
    )  # fmt: skip
    shares = {
        "chosen": (0.9, 0.9), "in force": (0.5, 0.5), "sjf": (0.8, 0.7), "saf": (0.7, 0.95), "fifo": (2.0, 0.8),
    }  # fmt: skip
    trained = Trained(
        front=Front(members=(member,), provenance={}), chosen=member, shown=member, evolved=Evolved([]),
        choose_values=np.ones((1, 1, 3)),
        judged={name: np.array([[*share, 1.0]] * 2) for name, share in shares.items()},
    )  # fmt: skip
    assert trained.better_by_hand == ["sjf"]
    assert "jobs wait less under sjf, written by hand" in trained.doubt


def test_what_people_wrote_stands_beside_a_front_once_for_each_order():
    windows = problem()
    front = [Policy.parse("-runtime"), Policy.parse("wait * 2")]
    found = beside(front, windows)
    assert {"fifo", "sjf"}.isdisjoint(found), "the front ranks alike"
    assert {"saf", "qssf"} & set(found) == {"saf"}, "the same expression under two names"
    assert found["smallest"].text == Policy.parse("-gpus").text


def test_a_policy_written_by_hand_that_does_best_on_the_choose_windows_is_the_one():
    windows = problem()
    worst = [Policy.parse("-wait"), Policy.parse("runtime")]
    everyone = [*worst, *beside(worst, windows).values()]
    chosen = choose(everyone, windows)
    assert chosen.place >= len(worst)
    assert chosen.scores[chosen.place] == chosen.scores.min() < chosen.scores[: len(worst)].min()
