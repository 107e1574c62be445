"""The way into a simulated cluster: the same seam, and the same permissions, as into a real one."""

from __future__ import annotations

from slurm_evo.model import (
    Action,
    Answer,
    AnswerUnreadable,
    ClusterName,
    ClusterRefused,
    ClusterUnreachable,
    ClusterView,
    Hold,
    JobState,
    Outcome,
    SetClusters,
    SetSiteFactor,
)
from slurm_evo.slurm.simulated import look as looking
from slurm_evo.slurm.simulated.fleet import SimulatedFleet
from slurm_evo.slurm.simulated.record import INFINITE, Record


class SimulatedPort:
    """ClusterPort of one cluster of a simulated fleet, as a Slurm operator.

    Args:
        fleet: the fleet.
        cluster: the cluster's name.

    Raises:
        KeyError: the fleet has no such cluster.
    """

    def __init__(self, fleet: SimulatedFleet, cluster: str) -> None:
        self._fleet = fleet
        self._name = ClusterName(cluster)
        self._controller = fleet.controllers[cluster]

    @property
    def name(self) -> ClusterName:
        """The cluster's ClusterName."""
        return self._name

    def look(self) -> ClusterView:
        """See the cluster once; see ClusterPort."""
        fleet, name = self._fleet, self._name
        self._catch_up()
        if self._silent():
            raise ClusterUnreachable(name, "the simulated controller does not answer; is it stopped?")
        view = looking.look(self._controller, fleet.spec, fleet.start, fleet.elapsed_s)
        slow_s = fleet.faults.slow_s.get(name, 0)
        if slow_s:
            fleet.advance_to_s(fleet.elapsed_s + slow_s)
        if name in fleet.faults.half_answers:
            raise AnswerUnreadable(name, "the simulated controller's answer breaks off")
        return view

    def apply(self, action: Action) -> Outcome:
        """Ask for one change; see ClusterPort."""
        fleet, name = self._fleet, self._name
        self._catch_up()
        if fleet.faults.before_apply is not None:
            fleet.faults.before_apply(action)
        if self._silent():
            return Outcome(action, Answer.UNKNOWN, f"{name} does not answer")
        outcome = self._apply(action)
        if name in fleet.faults.half_answers:
            return Outcome(action, Answer.UNKNOWN, f"{name}'s answer breaks off")
        return outcome

    def close(self) -> None:
        """Nothing is held open."""

    def _catch_up(self) -> None:
        if self._fleet.clock is not None:
            self._fleet.advance(self._fleet.clock())

    def _silent(self) -> bool:
        return self._name in self._fleet.faults.unreachable or not self._controller.up

    def _apply(self, action: Action) -> Outcome:
        if action.job.cluster != self._name:
            return Outcome(action, Answer.REFUSED, f"{action.job} does not belong to {self._name}")
        record = self._controller.records.get(action.job.id)
        if record is None:
            return Outcome(action, Answer.GONE, "Invalid job id specified")
        alive = record.state is not JobState.DONE
        # Slurm takes a SiteFactor for a started job, too.
        waits = looking.pending(record) or (alive and isinstance(action, SetSiteFactor))
        if not waits or (isinstance(action, SetClusters) and self._name in self._fleet.faults.starting):
            return Outcome(action, Answer.GONE, "Job is no longer pending execution")
        try:
            return self._change(record, action)
        except ClusterRefused as refusal:
            return Outcome(action, Answer.REFUSED, refusal.message)

    def _change(self, record: Record, action: Action) -> Outcome:
        fleet, name, job = self._fleet, self._name, record.id
        if isinstance(action, SetClusters):
            fleet.update(name, job, clusters=action.clusters)
        elif isinstance(action, SetSiteFactor):
            fleet.update(name, job, site_factor=action.value)
        elif record.hold is not Hold.NONE:
            # Priority=INFINITE would release it.
            return Outcome(action, Answer.REFUSED, "the job is held")
        else:
            fleet.update(name, job, priority=INFINITE, nice=action.nice, site_factor=action.site_factor)
        return Outcome(action, Answer.DONE)
