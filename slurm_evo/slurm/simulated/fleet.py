"""A simulated fleet: several clusters as Slurm behaves, in a time that only ``advance`` moves.

Everything a person does to a real fleet is a method: users submit, hold, release and cancel;
administrators drain nodes and stop controllers; ``update`` is ``scontrol update``. Events carry it
forward: nothing is done between them, so an idle week costs nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

from slurm_evo.model import ClusterName, ClusterRefused, ClusterUnreachable, Hold, JobKey, JobState
from slurm_evo.slurm.simulated.controller import Controller
from slurm_evo.slurm.simulated.faults import Faults
from slurm_evo.slurm.simulated.federation import Federation
from slurm_evo.slurm.simulated.record import Federated, Record, SimulatedJob
from slurm_evo.slurm.simulated.spec import Arrival, FleetSpec, Reservation, Submission

EPOCH = datetime(2026, 1, 5, tzinfo=UTC)
"""Where simulated time starts unless told: a Monday."""
LOCAL_ID_BITS = 26
"""A federated job id has its origin's federation id above these bits (slurm/fed_mgr.h)."""
MIN_JOB_AGE_S = 300
"""How long an ended job is still listed (slurm.conf(5), MinJobAge)."""
SCHED_DELAY_S = 1
"""From a change to the main scheduler's pass."""
_RETRY_S = 60


class SimulatedFleet:
    """Clusters, their jobs and their common time.

    Args:
        spec: the clusters.
        start: the instant of second 0, aware.
        clock: if given, ports first bring the fleet to what it tells; else only ``advance`` does.
    """

    def __init__(
        self, spec: FleetSpec, *, start: datetime = EPOCH, clock: Callable[[], datetime] | None = None
    ) -> None:
        self.spec = spec
        self.start = start
        self.clock = clock
        self.faults = Faults()
        self.controllers = {cluster.name: Controller(cluster) for cluster in spec.clusters}
        members = {name: self.controllers[name] for name in spec.members}
        self.federation = Federation(members, self._touch, self._ended)
        self.jobs: dict[JobKey, SimulatedJob] = {}
        """Every job ever submitted, as its user knows it; array tasks appear when they start."""
        self.accounted: dict[tuple[str, int], Record] = {}
        """What accounting knows of jobs that their cluster lists no more."""
        self._now = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = count()
        self._ids = {name: count(1) for name in self.controllers}
        self._due: set[tuple[str, bool]] = set()
        self._dependents: dict[JobKey, list[Record]] = {}
        self._arriving = 0
        self._open = 0

    # -- time -----------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The fleet's present."""
        return self.start + timedelta(seconds=self._now)

    @property
    def elapsed_s(self) -> int:
        """Whole seconds since the start."""
        return self._now

    def advance(self, to: datetime) -> None:
        """Let everything happen that happens until ``to``, whole seconds; the past is left as it is."""
        self.advance_to_s(int((to - self.start).total_seconds()))

    def advance_to_s(self, second: int) -> None:
        """The same, in seconds after the start."""
        events = self._events
        while events and events[0][0] <= second:
            at, _, happen = heapq.heappop(events)
            self._now = max(self._now, at)
            happen()
        self._now = max(self._now, second)

    def next_event_s(self) -> int | None:
        """When something happens next; None if nothing ever will."""
        return self._events[0][0] if self._events else None

    def at(self, second: int, happen: Callable[[], None]) -> None:
        """Have something happen at a later second."""
        heapq.heappush(self._events, (max(second, self._now), next(self._serial), happen))

    # -- users ----------------------------------------------------------------------------------------

    def submit(self, cluster: str, asked: Submission) -> JobKey:
        """Submit at one cluster, which becomes the origin if it is in the federation.

        Raises:
            ClusterUnreachable: its controller is down.
            ClusterRefused: it rejects the job, in Slurm's words.
        """
        controller = self._controller(cluster)
        refusal = self._refusal(cluster, asked)
        if refusal:
            raise ClusterRefused(cluster, refusal)
        job = self._new_id(cluster)
        key = JobKey(ClusterName(cluster), job)
        record = self._record(cluster, job, asked, SimulatedJob(key, asked, self._now))
        self._depend(record)
        self._know(record.user_job)
        record.het_id = job if asked.components else None
        controller.records[job] = record
        for part in asked.components:
            self._component(controller, record, part)
        self._touch(cluster)  # before its siblings': the origin looks at a new job first
        if record.fed is None:
            controller.requeue(record)
        else:
            self.federation.submit(record, self._now)
        if record.eligible > self._now:
            for name in self.controllers:
                self.at(record.eligible, partial(self._touch, name))
        return key

    def arrive(self, arrivals: Iterable[Arrival]) -> None:
        """Have a workload submitted, each at its second; at a controller that is down, a minute later."""
        for arrival in arrivals:
            self._arriving += 1
            self.at(arrival.at_s, partial(self._arrive, arrival))

    def hold(self, cluster: str, job: int) -> None:
        """The owner holds a pending job (``scontrol uhold``); one that is not pending stays as it is."""
        origin = self._origin(cluster, job)
        if origin.pending and origin.hold is Hold.NONE and not self._elsewhere(origin):
            self.federation.hold(origin, self._now)
            self._touch(origin.cluster)

    def release(self, cluster: str, job: int) -> None:
        """The owner releases a job; its siblings are sent again.

        Raises:
            ClusterRefused: an administrator holds it.
        """
        origin = self._origin(cluster, job)
        if not origin.pending or origin.hold is Hold.NONE:
            return
        if origin.hold is Hold.ADMIN:
            raise ClusterRefused(cluster, "Access/permission denied")
        self.federation.release(origin, self._now)
        self._touch(origin.cluster)

    def cancel(self, cluster: str, job: int, *, by: str = "owner") -> None:
        """Somebody cancels a job, pending or running, with its tasks and components."""
        origin = self._origin(cluster, job)
        controller = self.controllers[origin.cluster]
        group = [
            record
            for record in list(controller.records.values())
            if record is origin
            or (origin.array_id == origin.id and record.array_id == origin.id)
            or (origin.het_id == origin.id and record.het_id == origin.id)
        ]
        for record in group:
            if record.state is not JobState.DONE:
                record.cancelled_by = by
            self._end(record, "CANCELLED")

    def update(
        self,
        cluster: str,
        job: int,
        *,
        clusters: Sequence[str] | None = None,
        site_factor: int | None = None,
        priority: int | None = None,
        nice: int | None = None,
    ) -> None:
        """``scontrol update`` of a pending job at its origin, as an operator.

        A started job takes a new SiteFactor without a word, and nothing comes of it; so do real ones.

        Raises:
            ClusterUnreachable: the origin's controller is down (edge 5).
            ClusterRefused: Slurm says no, in its words.
        """
        origin = self._origin(cluster, job)
        if not origin.pending or self._elsewhere(origin):
            only_site_factor = clusters is None and nice is None and priority is None
            if origin.state is JobState.DONE or not only_site_factor:
                raise ClusterRefused(cluster, "Job is no longer pending execution")
        if clusters is not None:
            unknown = set(clusters) - set(self.spec.members)
            if origin.fed is None:
                raise ClusterRefused(cluster, "Job is not a federated job")
            if unknown or not clusters:
                raise ClusterRefused(cluster, "Invalid cluster name specified")
            self.federation.set_viable(origin, set(clusters), self._now)
        held = origin.hold
        if (site_factor, nice, priority) != (None, None, None):
            self.federation.update(origin, site_factor=site_factor, nice=nice, priority=priority)
        if held is not Hold.NONE and origin.hold is Hold.NONE:
            self.federation.release(origin, self._now)
        self._touch(origin.cluster)

    # -- moves between clusters without a federation ---------------------------------------------------

    def record(self, cluster: str, job: int) -> Record | None:
        """What a cluster lists of a job.

        Raises:
            ClusterUnreachable: its controller is down.
        """
        return self._controller(cluster).records.get(job)

    def defer(self, cluster: str, job: int, seconds: int) -> None:
        """``scontrol update StartTime=``: the job may not start before ``seconds`` from now."""
        record = self._origin(cluster, job)
        if not record.pending:
            raise ClusterRefused(cluster, "Job is no longer pending execution")
        record.eligible = self._now + seconds
        self.at(record.eligible, partial(self._touch, cluster))
        self._touch(cluster)

    def submit_copy(self, cluster: str, asked: Submission, of: JobKey, wanted: int, admin_comment: str) -> int:
        """Submit, held, the same user's job once more at another plain cluster; keeps its number if it is free.

        Raises:
            ClusterUnreachable: its controller is down.
            ClusterRefused: it rejects the job.
        """
        controller = self._controller(cluster)
        refusal = self._refusal(cluster, asked)
        if refusal:
            raise ClusterRefused(cluster, refusal)
        job = self._new_id(cluster) if wanted in controller.records else wanted
        user_job = self.jobs[of]
        record = self._record(cluster, job, asked, user_job)
        record.hold, record.admin_comment = Hold.USER, admin_comment
        user_job.alive += 1
        controller.records[job] = record
        controller.requeue(record)
        self._touch(cluster)
        return job

    # -- administrators -------------------------------------------------------------------------------

    def drain(self, cluster: str, node: str) -> None:
        """A node takes no new job; what runs there runs on."""
        self._set_node(cluster, node, up=False)

    def resume(self, cluster: str, node: str) -> None:
        """A drained node is back."""
        self._set_node(cluster, node, up=True)

    def reserve(self, cluster: str, reservation: Reservation) -> None:
        """Make a reservation, or replace one of that name."""
        self._controller(cluster).reservations[reservation.name] = reservation
        for second in (reservation.start_s, reservation.end_s):
            self.at(second, lambda: self._touch(cluster))

    def stop_controller(self, cluster: str) -> None:
        """The slurmctld of a cluster is gone: jobs run on, nothing starts, nothing answers."""
        self.controllers[cluster].up = False

    def start_controller(self, cluster: str) -> None:
        """It is back, and gets the siblings that were sent meanwhile."""
        self.controllers[cluster].up = True
        for name in self.spec.members:
            for record in list(self.controllers[name].records.values()):
                fed = record.fed
                if fed is not None and name == fed.origin and record.pending and cluster in fed.undelivered:
                    self.federation.deliver(cluster, record, self._now)
        self._touch(cluster)

    # -- what is left to do ---------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Some job has not arrived yet or is not done."""
        return self._arriving + self._open > 0

    # -- inside ---------------------------------------------------------------------------------------

    def _controller(self, cluster: str) -> Controller:
        controller = self.controllers[cluster]
        if not controller.up:
            raise ClusterUnreachable(cluster, "Unable to contact slurm controller (connect failure)")
        return controller

    def _refusal(self, cluster: str, asked: Submission) -> str:
        controller = self.controllers[cluster]
        if asked.clusters and cluster not in self.spec.members:
            return "Invalid cluster name specified"
        if set(asked.clusters) - set(self.spec.members):
            return "Invalid cluster name specified"
        if asked.tasks and asked.clusters and cluster not in asked.clusters:
            return "Job arrays can only run at the cluster they are submitted to"
        rejections = (controller.rejection(part) for part in (asked, *asked.components))
        return next((words for words in rejections if words), "")

    def _new_id(self, cluster: str) -> int:
        used = self.controllers[cluster].records
        local = next(number for number in self._ids[cluster] if number not in used)
        members = self.spec.members
        return (members.index(cluster) + 1 << LOCAL_ID_BITS) + local if cluster in members else local

    def _record(self, cluster: str, job: int, asked: Submission, user_job: SimulatedJob) -> Record:
        controller = self.controllers[cluster]
        fed = None
        if cluster in self.spec.members:
            local = bool(asked.tasks or asked.components)
            viable = {cluster} if local else set(asked.clusters or self.spec.members)
            fed = Federated(cluster, viable)
        return Record(
            cluster=cluster,
            id=job,
            asked=asked,
            account=asked.account or controller.users[asked.user].account,
            partitions=asked.partitions or (controller.default_partition(),),
            submitted=self._now,
            eligible=self._now + asked.begin_s,
            nice=asked.nice,
            limit_s=asked.limit_s,
            user_job=user_job,
            hold=Hold.USER if asked.held else Hold.NONE,
            tasks=asked.tasks,
            array_id=job if asked.tasks else None,
            fed=fed,
        )

    def _know(self, job: SimulatedJob) -> None:
        self.jobs[job.key] = job
        self._open += 1

    def _component(self, controller: Controller, leader: Record, part: Submission) -> None:
        job = self._new_id(leader.cluster)
        key = JobKey(ClusterName(leader.cluster), job)
        record = self._record(leader.cluster, job, part, SimulatedJob(key, part, self._now))
        self._know(record.user_job)
        record.het_id, record.hold = leader.id, leader.hold
        if leader.fed is not None:
            record.fed = Federated(leader.cluster, {leader.cluster}, {leader.cluster})
        leader.components.append(record)
        controller.add(record)

    def _depend(self, record: Record) -> None:
        for text in filter(None, record.asked.dependency.split(",")):
            kind, _, number = text.partition(":")
            if kind not in ("after", "afterok", "afternotok", "afterany") or not number.isdigit():
                raise ClusterRefused(record.cluster, "Job dependency problem")
            key = JobKey(ClusterName(record.cluster), int(number))
            other = self.jobs.get(key)
            if other is None:
                raise ClusterRefused(record.cluster, "Job dependency problem")
            if not _satisfied(kind, other):
                record.waits_for.append((kind, key.id))
                self._dependents.setdefault(key, []).append(record)

    def _arrive(self, arrival: Arrival) -> None:
        try:
            self.submit(arrival.cluster, arrival.submission)
        except ClusterUnreachable:
            self.at(self._now + _RETRY_S, lambda: self._arrive(arrival))
        else:
            self._arriving -= 1

    def _origin(self, cluster: str, job: int) -> Record:
        record = self._controller(cluster).records.get(job)
        if record is not None and record.fed is not None and record.fed.origin != cluster:
            record = self._controller(record.fed.origin).records.get(job)
        if record is None:
            raise ClusterRefused(cluster, "Invalid job id specified")
        return record

    def _elsewhere(self, origin: Record) -> bool:
        return origin.fed is not None and origin.fed.locked is not None

    def _set_node(self, cluster: str, node: str, *, up: bool) -> None:
        controller = self.controllers[cluster]
        names = [each.name for each in controller.spec.nodes]
        controller.node_up[names.index(node)] = up
        self._touch(cluster)

    def _touch(self, cluster: str) -> None:
        """A queue or its nodes changed: the main scheduler runs soon, backfill at its next interval."""
        spec = self.controllers[cluster].spec
        self._schedule_at(self._now + SCHED_DELAY_S, cluster, backfill=False)
        if spec.backfill:
            self._schedule_at((self._now // spec.bf_interval_s + 1) * spec.bf_interval_s, cluster, backfill=True)

    def _schedule_at(self, second: int, cluster: str, *, backfill: bool) -> None:
        if (cluster, backfill) not in self._due:
            self._due.add((cluster, backfill))
            self.at(second, lambda: self._schedule(cluster, backfill=backfill))

    def _schedule(self, cluster: str, *, backfill: bool) -> None:
        self._due.discard((cluster, backfill))
        controller = self.controllers[cluster]
        if controller.up:
            controller.schedule(self._now, self._start, backfill=backfill)

    def _start(self, placed: Sequence[tuple[Record, tuple[int, ...]]]) -> None:
        for component, nodes in placed:
            started = self._task(component) if component.tasks > 1 else component
            self._start_one(started, nodes)
            self.federation.started(started, self._now)

    def _task(self, array: Record) -> Record:
        """Split one task off an array; the last one keeps the array's own id."""
        array.tasks -= 1
        job = self._new_id(array.cluster)
        key = JobKey(ClusterName(array.cluster), job)
        user_job = SimulatedJob(key, array.asked, array.submitted)
        self._know(user_job)
        task = replace(array, id=job, tasks=1, user_job=user_job, waits_for=[], components=[])
        if array.fed is not None:
            task.fed = Federated(array.cluster, {array.cluster}, {array.cluster})
        self.controllers[array.cluster].records[job] = task
        return task

    def _start_one(self, record: Record, nodes: tuple[int, ...]) -> None:
        job = record.user_job
        if job.started is not None:
            raise RuntimeError(f"{job.key} was started twice: a defect of the simulated fleet")
        self.controllers[record.cluster].take(record, nodes, self._now)
        job.started, job.cluster = self._now, record.cluster
        length = max(1, min(record.asked.run_s, record.limit_s))
        ending = "COMPLETED" if record.asked.run_s <= record.limit_s else "TIMEOUT"
        self.at(self._now + length, lambda: self._run_out(record, ending))
        self._clear_dependencies(job.key)

    def _run_out(self, record: Record, ending: str) -> None:
        if record.state is JobState.RUNNING:
            self._end(record, ending)

    def _end(self, record: Record, ending: str) -> None:
        """End a job everywhere."""
        if record.state is JobState.DONE:
            return
        for each in self.federation.siblings(record):
            self.controllers[each.cluster].finish(each, ending, self._now)
            self._ended(each)
            self._touch(each.cluster)
        job = record.user_job
        job.alive -= 1
        if record.started is not None:
            job.ran_to = ending
        if job.alive:
            return
        # A held copy of a job that ran elsewhere says nothing of how it ended.
        job.ended, job.ending = self._now, job.ran_to or ending
        self._open -= 1
        self._clear_dependencies(job.key)

    def _ended(self, record: Record) -> None:
        self.at(self._now + MIN_JOB_AGE_S, lambda: self._purge(record))

    def _purge(self, record: Record) -> None:
        records = self.controllers[record.cluster].records
        if records.get(record.id) is record:
            del records[record.id]
            self.accounted[record.cluster, record.id] = record

    def _clear_dependencies(self, key: JobKey) -> None:
        job = self.jobs[key]
        for record in self._dependents.get(key, []):
            before = len(record.waits_for)
            record.waits_for = [
                (kind, other) for kind, other in record.waits_for if other != key.id or not _satisfied(kind, job)
            ]
            if before and not record.waits_for and record.pending and record.cluster == key.cluster:
                record.eligible = max(record.eligible, self._now)
                if record.fed is not None and record.hold is Hold.NONE:
                    self.federation.set_viable(record, record.fed.viable, self._now)
                self._touch(record.cluster)


def _satisfied(kind: str, job: SimulatedJob) -> bool:
    if kind == "after":
        return job.started is not None or job.ended is not None
    if job.ended is None:
        return False
    return kind == "afterany" or (job.ending == "COMPLETED") == (kind == "afterok")
