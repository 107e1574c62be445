"""site_factor/evo in a real slurmctld: the policy's order at once and for good, whatever lies in its folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_site import DELIVERED, PluginSite, context, eventually, put
from real_world import command

from slurm_evo.policy import Policy, compact

pytestmark = pytest.mark.skipif(
    not DELIVERED.exists(), reason=f"{DELIVERED} is missing: tests/testbed/plugins.py builds it (Debian trixie)"
)
SHORT_FIRST = Policy.parse("weight * (wait + 3600) / limit")
LONG_FIRST = Policy.parse("limit + wait")


@pytest.fixture(scope="module")
def site() -> Iterator[PluginSite]:
    """Delta, with every GPU taken, so that what is submitted waits."""
    site = PluginSite("delta", Path("/var/lib/slurm-evo/plugin/delta"))
    site.put_in()
    put(site.folder / "context", context("weight qos high 5"))
    site.use(SHORT_FIRST)
    blockers = [site.submit("-N1", "--exclusive", "--gres=gpu:8", "--time=600") for _ in range(2)]
    running = ("squeue", "--noheader", "--states=RUNNING", "--format=%A")
    eventually(lambda: command("delta", *running).count("\n") == len(blockers), "every GPU is taken", 90)
    yield site
    command("delta", "scancel", "--user=ada", check=False)
    site.take_out()


@pytest.fixture(scope="module")
def waiting(site: PluginSite) -> dict[int, int]:
    """Jobs by their limits in minutes."""
    return {site.submit("--gres=gpu:8", f"--time={minutes}"): minutes for minutes in (60, 10, 240, 30, 120, 5)}


def order(site: PluginSite, jobs: dict[int, int]) -> list[int]:
    """Limits, the job that runs first leading."""
    factors = site.factors(list(jobs))
    assert len(factors) == len(jobs)
    return [jobs[job] for job in sorted(factors, key=lambda job: -factors[job])]


def test_the_policys_order_is_there_from_the_first_second(site: PluginSite, waiting: dict[int, int]) -> None:
    assert order(site, waiting) == [5, 10, 30, 60, 120, 240]


def test_a_pass_spreads_the_jobs_over_the_band_and_newcomers_fit_in(
    site: PluginSite, waiting: dict[int, int]
) -> None:
    site.after_a_pass()
    assert order(site, waiting) == [5, 10, 30, 60, 120, 240]
    factors = sorted(site.factors(list(waiting)).values())
    assert factors == sorted(set(factors))
    assert 0 < factors[0] < 100_000
    assert 900_000 < factors[-1] < 1_000_000
    newcomer = site.submit("--gres=gpu:8", "--time=90")
    assert order(site, {**waiting, newcomer: 90}) == [5, 10, 30, 60, 90, 120, 240]
    command("delta", "scancel", str(newcomer))


@pytest.fixture(scope="module")
def changed(site: PluginSite, waiting: dict[int, int]) -> Iterator[dict[str, int]]:
    """One pass after everything changed at once: another policy, points for one job, jobs that are not touched."""
    jobs = {
        "stays": site.submit("--gres=gpu:8", "--comment=please slurm-evo:stay"),
        "array": site.submit("--gres=gpu:8", "--array=1-3"),
        "held": site.submit("--gres=gpu:8", "--hold", "--time=7"),
        "aged": next(job for job, minutes in waiting.items() if minutes == 30),
    }
    command("delta", "scontrol", "update", f"JobId={jobs['stays']}", "SiteFactor=77")
    put(site.folder / "context", context(f"job {jobs['aged']} 0 0 5000000"))
    site.use(LONG_FIRST)
    site.after_a_pass()
    yield jobs
    command("delta", "scancel", str(jobs["stays"]), str(jobs["array"]), str(jobs["held"]), check=False)


def test_a_new_policy_takes_over_without_a_restart(
    site: PluginSite, waiting: dict[int, int], changed: dict[str, int]
) -> None:
    others = {job: minutes for job, minutes in waiting.items() if job != changed["aged"]}
    assert order(site, others) == [240, 120, 60, 10, 5]


def test_lost_age_is_given_back(site: PluginSite, waiting: dict[int, int], changed: dict[str, int]) -> None:
    assert order(site, waiting)[0] == 30
    assert site.factors([changed["aged"]])[changed["aged"]] > 5_000_000


def test_what_the_daemon_would_not_touch_keeps_what_it_has(site: PluginSite, changed: dict[str, int]) -> None:
    kept = (changed["stays"], changed["array"])
    assert site.factors(kept) == {changed["stays"]: 77, changed["array"]: 0}


def test_a_released_job_has_its_place_at_once(site: PluginSite, changed: dict[str, int]) -> None:
    command("delta", "scontrol", "release", str(changed["held"]))
    held = changed["held"]
    eventually(lambda: site.factors([held]).get(held, 0) > 0, "the released job has its place", 10)


GOOD = compact.dump(SHORT_FIRST)
BAD = {
    "nonsense": "nonsense\n",
    "empty": "",
    "truncated": GOOD[:-40],
    "a NaN": compact.sealed([line.replace("const 3600.0", "const nan") for line in compact.unsealed(GOOD)]),
    "10 MB": GOOD + "#" * 10_000_000,
    "another version": compact.sealed(["slurm-evo-policy 9", *compact.unsealed(GOOD)[1:]]),
    "a binary": bytes(range(256)) * 100,
}


@pytest.fixture(scope="module")
def settled(site: PluginSite, waiting: dict[int, int]) -> None:
    """A pass of the policy that the other stories changed away from."""
    put(site.folder / "context", context())
    site.use(SHORT_FIRST)
    site.after_a_pass()
    assert order(site, waiting) == [5, 10, 30, 60, 120, 240]


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_policy_is_said_once_and_the_last_good_one_stays(
    site: PluginSite, waiting: dict[int, int], name: str
) -> None:
    before = len(site.said())
    put(site.folder / "policy", BAD[name])
    eventually(lambda: site.status()["policy_problem"] != "", "the file was looked at", 20)
    time.sleep(3)
    said = site.said()[before:]
    assert len(said) == 1
    assert "stays in force" in said[0]
    assert site.status()["policy"] == compact.policy_id(SHORT_FIRST)
    probe = site.submit("--gres=gpu:8", "--time=45")
    assert order(site, {**waiting, probe: 45}) == [5, 10, 30, 45, 60, 120, 240]
    command("delta", "scancel", str(probe))
    put(site.folder / "policy", GOOD)
    eventually(lambda: site.status()["policy_problem"] == "", "the good file is taken", 20)


def test_missing_files_and_a_bad_context_change_nothing(site: PluginSite, waiting: dict[int, int]) -> None:
    before = len(site.said())
    (site.folder / "policy").unlink()
    put(site.folder / "context", context("user ada nan 1"))
    eventually(lambda: bool(site.status()["policy_problem"] and site.status()["context_problem"]), "both seen")
    site.after_a_pass()
    assert order(site, waiting) == [5, 10, 30, 60, 120, 240]
    assert len(site.said()) == before + 2
    put(site.folder / "context", context())
    site.use(SHORT_FIRST)


def test_files_swapped_all_the_time_never_stop_slurmctld(site: PluginSite, waiting: dict[int, int]) -> None:
    """Whole, halved and unmatched ones, in place and by renaming, through a pass and many submissions."""
    stop = threading.Event()
    swaps = [0]

    def swap() -> None:
        contents = [GOOD, BAD["truncated"], compact.dump(LONG_FIRST), BAD["nonsense"], BAD["10 MB"]]
        while not stop.is_set():
            content = contents[swaps[0] % len(contents)]
            put(site.folder / "policy", content)
            (site.folder / "context").write_text(context("user ada 1 1")[: 20 + swaps[0] % 80])
            swaps[0] += 1

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        before = site.status()["passes"]
        deadline = time.monotonic() + 100
        while site.status()["passes"] <= before and time.monotonic() < deadline:
            command("delta", "scancel", str(site.submit("--gres=gpu:8", "--time=45")))
    finally:
        stop.set()
        thread.join()
    assert swaps[0] > 100
    assert site.answers()
    put(site.folder / "context", context())
    site.use(SHORT_FIRST)
    site.after_a_pass()
    assert order(site, waiting) == [5, 10, 30, 60, 120, 240]


def test_without_any_policy_slurm_is_as_without_the_plugin(site: PluginSite) -> None:
    for path in site.folder.iterdir():
        path.unlink()
    site.restart()
    job = site.submit("--gres=gpu:8", "--time=15")
    assert site.factors([job]) == {job: 0}
    assert any("No such file" in line for line in site.said()[-4:])
    put(site.folder / "context", context())
    site.use(SHORT_FIRST)
