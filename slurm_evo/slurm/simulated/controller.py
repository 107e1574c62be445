"""One simulated slurmctld: its nodes, its queue, whom it lets in and whom it starts.

Time is whole seconds after the fleet's start and always an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from slurm_evo.model import Hold, JobState
from slurm_evo.slurm.simulated.record import PRIORITY_MAX, Record
from slurm_evo.slurm.simulated.spec import ClusterSpec, Reservation, Submission

Start = Callable[[Sequence[tuple[Record, tuple[int, ...]]]], None]
"""Start a job: each component's record with the nodes it gets."""


class Free:
    """What is free on each node, by node index."""

    def __init__(self, gpus: list[int], cpus: list[int], memory: list[int]) -> None:
        self.gpus = gpus
        self.cpus = cpus
        self.memory = memory

    def copy(self) -> Free:
        """The same amounts, to reckon with."""
        return Free(self.gpus[:], self.cpus[:], self.memory[:])

    def change(self, asked: Submission, nodes: Iterable[int], sign: int) -> None:
        """Give back (sign 1) or take (sign -1) what a job has on ``nodes``."""
        gpus, cpus, memory = asked.per_node()
        for node in nodes:
            self.gpus[node] += sign * gpus
            self.cpus[node] += sign * cpus
            self.memory[node] += sign * memory

    def least(self, other: Free) -> Free:
        """The smaller of both, everywhere."""
        return Free(
            list(map(min, self.gpus, other.gpus)),
            list(map(min, self.cpus, other.cpus)),
            list(map(min, self.memory, other.memory)),
        )

    def place(self, asked: Submission, candidates: Sequence[int]) -> tuple[int, ...] | None:
        """The tightest nodes that hold the job, or None."""
        gpus, cpus, memory = asked.per_node()
        fitting = [
            (self.gpus[node], node)
            for node in candidates
            if self.gpus[node] >= gpus and self.cpus[node] >= cpus and self.memory[node] >= memory
        ]
        if len(fitting) < asked.nodes:
            return None
        fitting.sort()
        return tuple(node for _, node in fitting[: asked.nodes])


Placed = list[tuple[Record, tuple[int, ...]]]


class Controller:
    """One cluster. The fleet tells it the time and carries out what it decides to start."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.up = True
        self.records: dict[int, Record] = {}
        """All that it lists: alive ones, and ended ones until they are purged."""
        self.waiting: dict[int, Record] = {}
        self.running: dict[int, Record] = {}
        self.reservations: dict[str, Reservation] = {}
        self.node_up = [True] * len(spec.nodes)
        self.free = Free(
            [node.gpus for node in spec.nodes],
            [node.cpus for node in spec.nodes],
            [node.memory_mb for node in spec.nodes],
        )
        self.partitions = {partition.name: partition for partition in spec.partitions}
        self.qos = {qos.name: qos for qos in spec.qos}
        self.users = {user.name: user for user in spec.users}
        self._top_qos = max((qos.priority for qos in spec.qos), default=0) or 1
        self._gpus = max(1, spec.gpus)
        self._gpus_of: Counter[tuple[str, str]] = Counter()
        self._jobs_of: Counter[str] = Counter()
        self._members = {
            partition.name: [
                index
                for index, node in enumerate(spec.nodes)
                if partition.nodes is None or node.name in partition.nodes
            ]
            for partition in spec.partitions
        }
        self._candidates: dict[tuple[tuple[str, ...], str | None], list[int]] = {}

    # -- whom it lets in ------------------------------------------------------------------------------

    def default_partition(self) -> str:
        """The one of a job that names none."""
        return next((p.name for p in self.spec.partitions if p.default), self.spec.partitions[0].name)

    def rejection(self, asked: Submission) -> str:
        """Slurm's words if it would not take the job; empty if it would."""
        user = self.users.get(asked.user)
        if user is None or (asked.account and asked.account != user.account):
            return "Invalid account or account/partition combination specified"
        if asked.qos not in self.qos:
            return "Invalid qos specification"
        partitions = asked.partitions or (self.default_partition(),)
        return (
            self._partition_rejection(asked, partitions, user.account)
            or self._reservation_rejection(asked)
            or ("" if self._could_ever_fit(asked, partitions) else "Requested node configuration is not available")
        )

    def _partition_rejection(self, asked: Submission, names: tuple[str, ...], account: str) -> str:
        for name in names:
            partition = self.partitions.get(name)
            if partition is None:
                return "Invalid partition name specified"
            if not _allowed(partition.allow_accounts, account):
                return "Invalid account or account/partition combination specified"
            if not _allowed(partition.allow_qos, asked.qos):
                return "Invalid qos specification"
        return ""

    def _reservation_rejection(self, asked: Submission) -> str:
        if not asked.reservation:
            return ""
        reservation = self.reservations.get(asked.reservation)
        if reservation is None:
            return "Requested reservation is invalid"
        return "" if asked.user in reservation.users else "Access denied to requested reservation"

    def _could_ever_fit(self, asked: Submission, partitions: tuple[str, ...]) -> bool:
        gpus, cpus, memory = asked.per_node()
        nodes = [self.spec.nodes[index] for index in self._nodes_of(partitions, asked.gpu_type)]
        able = [n for n in nodes if n.gpus >= gpus and n.cpus >= cpus and n.memory_mb >= memory]
        return len(able) >= asked.nodes

    def add(self, record: Record) -> None:
        """List a record, and queue it if it waits here."""
        self.records[record.id] = record
        self.requeue(record)

    def requeue(self, record: Record) -> None:
        """Put a record into the queue or take it out, as its state says."""
        if record.waiting_here:
            self.waiting[record.id] = record
        else:
            self.waiting.pop(record.id, None)

    # -- who comes first ------------------------------------------------------------------------------

    def priority(self, record: Record, now: int) -> int:
        """Multifactor without fair share: weighted age, QOS and size, plus SiteFactor, minus Nice.

        Floored at 1 and capped at 2**32 - 1 (priority_multifactor.c); 0 if held; the pinned number in
        direct-priority mode.
        """
        if record.hold is not Hold.NONE:
            return 0
        if record.pinned is not None:
            return record.pinned
        weights = self.spec.weights
        age = min(1.0, max(0, now - max(record.submitted, record.eligible)) / self.spec.max_age_s)
        total = weights.get("age", 0) * age
        total += weights.get("qos", 0) * self.qos[record.asked.qos].priority / self._top_qos
        total += weights.get("jobsize", 0) * record.asked.gpus / self._gpus
        return max(1, min(PRIORITY_MAX, int(total) + record.site_factor - record.nice))

    def queue(self, now: int) -> list[Record]:
        """What may start now, first come first: by priority, then by submission."""
        ready = []
        for record in self.waiting.values():
            if self._ready(record, now):
                key = (-self.priority(record, now), record.submitted, record.id)
                ready.append((key, record))
        ready.sort(key=itemgetter(0))
        return [record for _, record in ready]

    def _ready(self, record: Record, now: int) -> bool:
        if record.hold is not Hold.NONE:
            record.reason = "JobHeldUser" if record.hold is Hold.USER else "JobHeldAdmin"
        elif record.waits_for:
            record.reason = "Dependency"
        elif record.eligible > now:
            record.reason = "BeginTime"
        else:
            # The leader of a heterogeneous job starts its other components.
            return record.het_id is None or record.het_id == record.id
        return False

    # -- whom it starts -------------------------------------------------------------------------------

    def schedule(self, now: int, start: Start, *, backfill: bool) -> None:
        """One pass of the main scheduler (sched(8)), or one of sched/backfill.

        The main pass goes by priority and stops in a partition at the first job that does not fit.
        The backfill pass keeps the place of that first job (EASY) and starts others around it, trusting
        time limits.
        """
        if not self.waiting or not self._anything_free():
            return
        if backfill:
            self._backfill(now, start)
        else:
            self._main(now, start)

    def _anything_free(self) -> bool:
        if any(gpus > 0 and up for gpus, up in zip(self.free.gpus, self.node_up, strict=True)):
            return True
        return any(record.asked.gpus == 0 for record in self.waiting.values())

    def _main(self, now: int, start: Start) -> None:
        blocked: set[str] = set()
        for record in self.queue(now):
            if not blocked.isdisjoint(record.partitions):
                record.reason = "Priority"
                continue
            while record.waiting_here and not self._limited(record):
                placed = self._place(record, now, self.free)
                if placed is None:
                    if record.reason != "Reservation":
                        record.reason = "Resources"
                        blocked.update(record.partitions)
                    break
                start(placed)

    def _backfill(self, now: int, start: Start) -> None:
        shadow: tuple[int, Free] | None = None
        for record in self.queue(now):
            while record.waiting_here and not self._limited(record):
                if shadow is None:
                    placed = self._place(record, now, self.free)
                    if placed is None:
                        if record.reason != "Reservation":
                            record.reason = "Resources"
                            shadow = self._shadow(record, now)
                        break
                else:
                    placed = self._around(record, now, *shadow)
                    if placed is None:
                        break
                start(placed)

    def _around(self, record: Record, now: int, shadow_s: int, spare: Free) -> Placed | None:
        """Where a job may start without delaying the first one; takes from ``spare`` what it keeps."""
        if now + record.limit_s <= shadow_s:
            return self._place(record, now, self.free)
        placed = self._place(record, now, self.free.least(spare))
        for component, nodes in placed or ():
            spare.change(component.asked, nodes, -1)
        return placed

    def _shadow(self, record: Record, now: int) -> tuple[int, Free] | None:
        """When the first job is sure to start, and what is left beside it then; None if never."""
        then = self.free.copy()
        by_end = sorted(((other.started or 0) + other.limit_s, other.id) for other in self.running.values())
        for end, job in by_end:
            other = self.running[job]
            then.change(other.asked, other.nodes, 1)
            placed = self._place(record, max(end, now), then)
            if placed is not None:
                for component, nodes in placed:
                    then.change(component.asked, nodes, -1)
                return end, then
        return None

    def _place(self, record: Record, now: int, free: Free) -> Placed | None:
        if not record.components:
            nodes = free.place(record.asked, self._usable(record, now))
            return None if nodes is None else [(record, nodes)]
        left = free.copy()
        placed: Placed = []
        for component in (record, *record.components):
            nodes = left.place(component.asked, self._usable(component, now))
            if nodes is None:
                return None
            left.change(component.asked, nodes, -1)
            placed.append((component, nodes))
        return placed

    def _usable(self, record: Record, now: int) -> list[int]:
        """Nodes that are up, in its partitions, of its GPU type and not reserved against it."""
        nodes = [node for node in self._nodes_of(record.partitions, record.asked.gpu_type) if self.node_up[node]]
        if not self.reservations:
            return nodes
        name, end = record.asked.reservation, now + record.limit_s
        mine = self.reservations.get(name)
        if name and (mine is None or now < mine.start_s or end > mine.end_s):
            record.reason = "Reservation"
            return []
        kept = set() if mine is None else set(mine.nodes)
        against = {
            node
            for other in self.reservations.values()
            if other.name != name and now < other.end_s and end > other.start_s
            for node in other.nodes
        }
        names = [self.spec.nodes[node].name for node in nodes]
        return [
            node
            for node, its in zip(nodes, names, strict=True)
            if its not in against and (mine is None or its in kept)
        ]

    def _nodes_of(self, partitions: tuple[str, ...], gpu_type: str | None) -> list[int]:
        known = self._candidates.get((partitions, gpu_type))
        if known is None:
            members = {node for name in partitions for node in self._members.get(name, ())}
            known = sorted(
                node for node in members if gpu_type is None or self.spec.nodes[node].gpu_type == gpu_type
            )
            self._candidates[partitions, gpu_type] = known
        return known

    def _limited(self, record: Record) -> bool:
        """A limit keeps it from starting; says so in its reason. Such a job blocks nobody."""
        asked = record.asked
        qos = self.qos[asked.qos]
        user = self.users[asked.user]
        gpus = asked.gpus + sum(component.asked.gpus for component in record.components)
        jobs = 1 + len(record.components)
        if all(self._too_long(record, name) for name in record.partitions):
            record.reason = "PartitionTimeLimit"
        elif qos.max_wall_s is not None and record.limit_s > qos.max_wall_s:
            record.reason = "QOSMaxWallDurationPerJobLimit"
        elif (
            qos.max_gpus_per_user is not None
            and self._gpus_of[asked.user, asked.qos] + gpus > qos.max_gpus_per_user
        ):
            record.reason = "QOSMaxGRESPerUser"
        elif user.max_jobs is not None and self._jobs_of[asked.user] + jobs > user.max_jobs:
            record.reason = "AssocMaxJobsLimit"
        else:
            if record.reason not in ("Resources", "Priority"):
                record.reason = "Priority"
            return False
        return True

    def _too_long(self, record: Record, partition: str) -> bool:
        limit_s = self.partitions[partition].limit_s
        return limit_s is not None and record.limit_s > limit_s

    # -- what runs ------------------------------------------------------------------------------------

    def take(self, record: Record, nodes: tuple[int, ...], now: int) -> None:
        """Give a record its nodes: it runs from now on."""
        self.free.change(record.asked, nodes, -1)
        record.nodes = nodes
        record.state, record.started, record.reason = JobState.RUNNING, now, "None"
        self._gpus_of[record.asked.user, record.asked.qos] += record.asked.gpus
        self._jobs_of[record.asked.user] += 1
        self.requeue(record)
        self.running[record.id] = record

    def finish(self, record: Record, ending: str, now: int) -> None:
        """End a record, running or not, and free what it had."""
        if self.running.pop(record.id, None) is not None:
            self.free.change(record.asked, record.nodes, 1)
            self._gpus_of[record.asked.user, record.asked.qos] -= record.asked.gpus
            self._jobs_of[record.asked.user] -= 1
        record.state, record.ended, record.ending, record.reason = JobState.DONE, now, ending, "None"
        self.requeue(record)


def _allowed(names: tuple[str, ...] | None, name: str) -> bool:
    return names is None or name in names
