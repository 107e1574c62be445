"""How each cluster schedules, and how jobs come to clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from slurm_evo.model import ConfigError
from slurm_evo.sim.workload import FOREVER, Ints


class Backfill(IntEnum):
    """What may overtake a job that cannot start."""

    NONE = 0
    EASY = 1
    """At every pass; only the first job that cannot start is protected (Lifka 1995), by devices."""
    SLURM = 2
    """Every ``bf_interval``; each job looked at is planned, and keeps whole nodes for its time limit."""


class Placement(IntEnum):
    """Which of the nodes that have room a job gets."""

    TIGHTEST = 0
    """Those with fewest free GPUs, then the lowest index."""
    CONSECUTIVE = 1
    """Slurm's (select/cons_tres, topology/default): from the shortest run of neighbours that holds it all, from
    its beginning; if none does, from the longest, then the rest likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One cluster's scheduler, in slurm.conf(5)'s words; seconds. The same for all clusters.

    Periods count from the first submit time, unless a rule says otherwise.
    """

    backfill: Backfill = Backfill.SLURM
    priority_calc_period: int = 300
    """PriorityCalcPeriod: when scores that depend on time are computed again; 0: at every pass."""
    sched_interval: int = 60
    """How often a pass looks at every job, though nothing happened; 0: never."""
    default_queue_depth: int = 100
    """Jobs looked at by a pass that an event started; 0: all."""
    bf_interval: int = 30
    bf_window: int = 86_400
    """How far ahead backfill plans (Slurm's option counts minutes)."""
    bf_max_job_test: int = 500
    bf_resolution: int = 60
    """Planned starts are rounded down to it, planned ends up, as Slurm does; 1: exact."""
    will_run_window: int = 30
    """Slurm's backfill looks for room after all ends within such a window, twice as long with each vain try."""
    placement: Placement = Placement.CONSECUTIVE
    batch_sched_delay: int = 3
    """A pass that an event asks for comes no sooner than this after the last one; 0: at once."""
    sched_tick: int = 1
    """Such a pass comes at a whole multiple of this from ``sched_first``: slurmctld looks once a second."""
    reaction: int = 0
    """Until the controller heard of a submission, and until an ended job's nodes are free again (COMPLETING)."""
    time_limit_check: int = 0
    """How often jobs past their limit are looked for and killed; 0: at the limit. slurmctld: 30."""
    sched_first: int = 0
    """The first pass of ``sched_interval``, in seconds after the first submission; the others follow from it."""
    sched_last: int = FOREVER
    """How long before the first submission the last pass was, of any kind; it counts until ``sched_first``."""
    bf_first: int = 0
    """The same for backfill."""
    time_limit_first: int = 0
    """The same for ``time_limit_check``."""

    def __post_init__(self) -> None:
        """Raises ConfigError where a value makes no sense."""
        least = {"priority_calc_period": 0, "sched_interval": 0, "default_queue_depth": 0}
        least |= {
            "batch_sched_delay": 0,
            "reaction": 0,
            "time_limit_check": 0,
            "sched_first": 0,
            "bf_first": 0,
            "sched_last": 0,
            "time_limit_first": 0,
        }
        least |= {
            "bf_interval": 1,
            "bf_window": 1,
            "bf_max_job_test": 1,
            "bf_resolution": 1,
            "sched_tick": 1,
            "will_run_window": 1,
        }
        for name, bound in least.items():
            if not bound <= getattr(self, name) <= FOREVER:
                raise ConfigError(f"{name} must be {bound} to {FOREVER}, not {getattr(self, name)}")

    @classmethod
    def every_event(cls, backfill: Backfill = Backfill.EASY) -> Rules:
        """The literature's scheduler: looks at every job at every event, with scores of that instant."""
        return cls(
            backfill=backfill,
            priority_calc_period=0,
            sched_interval=0,
            default_queue_depth=0,
            bf_resolution=1,
            batch_sched_delay=0,
            placement=Placement.TIGHTEST,
        )


class Fixed(IntEnum):
    """A cluster chosen once, when the job is submitted."""

    HOME = 0
    """Where it was submitted."""
    ROUND_ROBIN = 1
    """The next one in turn that can run it."""
    LEAST_LOADED = 2
    """Fewest GPUs running and asked for, over the GPUs it has."""
    EARLIEST_START = 3
    """Where the work ahead, counted by time limits and spread over all GPUs, ends first."""


@dataclass(frozen=True, slots=True)
class Race:
    """A Slurm federation: every allowed cluster tries, the first start wins."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerOne:
    """A decision every cycle over all that wait."""

    decide: Callable[[Waiting], Ints]
    """Returns one set of clusters (bits) for each waiting job; 0 holds it everywhere."""
    cycle: int = 60
    """Seconds between decisions, from the first submit time."""
    move_s: int = 0
    """A job that is sent to a cluster it did not wait on waits nowhere for so long (a move without federation
    cancels and submits anew); at most a cycle."""
    entry: Ints | None = None
    """(n,) bits: where each new job waits until the first decision; None: on all allowed clusters."""

    def __post_init__(self) -> None:
        """Raises ConfigError where a period makes no sense."""
        if not (self.cycle >= 1 and 0 <= self.move_s < self.cycle):
            raise ConfigError(f"a move must be shorter than a cycle: {self.move_s} s and {self.cycle} s")


Allocation = Fixed | Race | LayerOne


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What layer 1 sees. Jobs are named by their index in the workload."""

    now: int
    jobs: Ints
    """(p,) pending jobs, ascending."""
    clusters: Ints
    """(p,) bits: where each waits now."""
    feasible: Ints
    """(p,) bits: where each may run at all."""
    rank: Ints
    """(p,) its place in the order in force, 0 runs first."""
    running: Ints
    """(r,) jobs that run, ascending."""
    running_on: Ints
    """(r,) their clusters."""
    running_since: Ints
    """(r,) their start times."""
    running_parts: Ints
    """(r,) how many nodes each runs on."""
    running_nodes: Ints
    """Their nodes, indices over the fleet, one job after the other."""
    free_gpus: Ints
    """(nodes,) free devices of each node of the fleet."""
