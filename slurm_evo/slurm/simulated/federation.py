"""The federation's mechanics, five edges included: who lists a job, and what an update does to it.

Sources: SchedMD/slurm src/slurmctld/fed_mgr.c (``fed_mgr_update_job_clusters``,
``_add_remove_sibling_jobs``, ``_prepare_submit_siblings``) and job_mgr.c (``_update_job``), and what
real daemons of 24.11 and 26.05 showed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slurm_evo.model import Hold, JobState
from slurm_evo.slurm.simulated.controller import Controller
from slurm_evo.slurm.simulated.record import INFINITE, Federated, Record

Touched = Callable[[str], None]
"""Tells the fleet that a cluster's queue has changed."""


class Federation:
    """Sends, revokes and updates the siblings of federated jobs.

    Args:
        controllers: all members by name.
        touched: called with the name of each cluster whose queue changes.
        ended: called with each sibling that was revoked.
    """

    def __init__(
        self, controllers: Mapping[str, Controller], touched: Touched, ended: Callable[[Record], None]
    ) -> None:
        self.controllers = controllers
        self._touched = touched
        self._ended = ended

    def siblings(self, record: Record) -> list[Record]:
        """Every cluster's record of the same job that is not done, this one included; the origin first."""
        if record.fed is None:
            return [record]
        origin = record.fed.origin
        names = [origin, *(name for name in self.controllers if name != origin)]
        found = [self.controllers[name].records.get(record.id) for name in names]
        return [other for other in found if other is not None and other.state is not JobState.DONE]

    def submit(self, origin: Record, now: int) -> None:
        """Send a new job's first siblings: they carry no priority, so nothing is pinned."""
        fed = _fed(origin)
        origin.revoked = origin.cluster not in fed.viable
        if not origin.revoked:
            fed.active.add(origin.cluster)
        self.controllers[origin.cluster].requeue(origin)
        if self._stays_at_origin(origin):
            return
        for name in sorted(fed.viable - {origin.cluster}):
            self._send(origin, name, now, pinned=None)

    def set_viable(self, origin: Record, clusters: set[str], now: int) -> None:
        """``Clusters=``: what is no longer viable is revoked, what is viable but not active is sent.

        Edge 1: ``active`` is set when the submission is queued; a destination that rejects is only
        taken off it, and nobody looks at the origin's REVOKED record. Edge 2: the new sibling carries
        the origin's number as its priority. Edge 3: its submit time is now.
        An array is stranded as a whole. A held job that loses its origin is held by the administrator from
        then on: its owner can no longer release it (seen on 26.05).
        """
        fed = _fed(origin)
        fed.viable = set(clusters)
        for name in sorted(fed.active - fed.viable - {origin.cluster}):
            self._revoke(origin, name, now)
        origin.revoked = origin.cluster not in fed.viable
        if origin.revoked and origin.hold is Hold.USER:
            origin.hold = Hold.ADMIN
        (fed.active.discard if origin.revoked else fed.active.add)(origin.cluster)
        self.controllers[origin.cluster].requeue(origin)
        self._touched(origin.cluster)
        if not self._stays_at_origin(origin):
            number = self.controllers[origin.cluster].priority(origin, now)
            for name in sorted(fed.viable - fed.active - {origin.cluster}):
                self._send(origin, name, now, pinned=number)

    def hold(self, origin: Record, now: int) -> None:
        """A hold revokes all siblings, which the origin still calls active; the release sends them again."""
        origin.hold = Hold.USER
        if origin.fed is not None:
            origin.fed.undelivered.clear()
            for name in sorted(origin.fed.active - {origin.cluster}):
                self._withdraw(origin, name, now)

    def release(self, origin: Record, now: int) -> None:
        """Siblings are sent again, unpinned, without the origin's Nice and SiteFactor (seen on 26.05)."""
        origin.hold, origin.pinned, origin.reason = Hold.NONE, None, "None"
        fed = origin.fed
        if fed is not None and not self._stays_at_origin(origin):
            for name in sorted(fed.viable - {origin.cluster}):
                self._send(origin, name, now, pinned=None, nice=0)

    def started(self, winner: Record, now: int) -> None:
        """The first start wins: every other record is revoked, the origin keeps a tracker."""
        fed = winner.fed
        if fed is None:
            return
        fed.locked = winner.cluster
        for record in self.siblings(winner):
            if record.cluster == winner.cluster:
                continue
            if record.cluster == fed.origin:
                record.revoked = True
                self.controllers[record.cluster].requeue(record)
            else:
                self._revoke(winner, record.cluster, now)
            self._touched(record.cluster)
        fed.active = {winner.cluster}
        fed.undelivered.clear()

    def update(self, record: Record, *, site_factor: int | None, nice: int | None, priority: int | None) -> None:
        """One job update without ``Clusters=``, at the origin and broadcast to all siblings (edge 4).

        ``priority=INFINITE`` ends direct-priority mode and a hold, and resets Nice unless ``nice`` is
        given with it. A SiteFactor sent to a pinned sibling is stored, without effect.
        """
        for each in self.siblings(record):
            if priority == INFINITE:
                each.pinned = None
                each.hold = Hold.NONE
                each.nice = 0
            elif priority is not None:
                each.pinned, each.nice = priority, 0
            if nice is not None and (each.pinned is None or priority is not None):
                each.nice = nice
            if site_factor is not None:
                each.site_factor = site_factor
            self._touched(each.cluster)

    def deliver(self, name: str, record: Record, now: int) -> None:
        """A controller is up again: hand it a submission that had to wait."""
        fed = _fed(record)
        fed.undelivered.discard(name)
        if fed.locked is None and name in fed.active and record.hold is Hold.NONE:
            self._send(record, name, now, pinned=self.controllers[fed.origin].priority(record, now))

    def _stays_at_origin(self, origin: Record) -> bool:
        """Held and dependent jobs are not sent before they are free; arrays and het jobs never."""
        return (
            origin.hold is not Hold.NONE
            or bool(origin.waits_for)
            or origin.array_id is not None
            or origin.het_id is not None
        )

    def _send(self, origin: Record, name: str, now: int, *, pinned: int | None, nice: int | None = None) -> None:
        fed = _fed(origin)
        fed.active.add(name)
        there = self.controllers[name]
        if not there.up:
            fed.undelivered.add(name)
            return
        if there.rejection(origin.asked):
            fed.active.discard(name)
            return
        there.add(
            Record(
                cluster=name,
                id=origin.id,
                asked=origin.asked,
                account=origin.account,
                partitions=origin.asked.partitions or (there.default_partition(),),
                submitted=now,
                eligible=origin.eligible,
                nice=origin.nice if nice is None else nice,
                pinned=pinned,
                limit_s=origin.limit_s,
                user_job=origin.user_job,
                fed=fed,
            )
        )
        self._touched(name)

    def _revoke(self, record: Record, name: str, now: int) -> None:
        fed = _fed(record)
        fed.active.discard(name)
        fed.undelivered.discard(name)
        self._withdraw(record, name, now)

    def _withdraw(self, record: Record, name: str, now: int) -> None:
        there = self.controllers[name]
        sibling = there.records.get(record.id)
        if sibling is not None and sibling.state is JobState.PENDING:
            sibling.revoked = True
            there.finish(sibling, "REVOKED", now)
            self._ended(sibling)


def _fed(record: Record) -> Federated:
    if record.fed is None:
        raise ValueError(f"job {record.id} of {record.cluster} is not federated")
    return record.fed
