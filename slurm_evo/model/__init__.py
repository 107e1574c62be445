"""The shared vocabulary: frozen values and the error tree. Standard library only."""

from slurm_evo.model.action import Action, Answer, Outcome, SetClusters, SetSiteFactor, Unpin
from slurm_evo.model.errors import (
    AnswerUnreadable,
    ClusterError,
    ClusterRefused,
    ClusterUnreachable,
    ConfigError,
    LeaseLost,
    NoJournal,
    PolicyError,
    SlurmEvoError,
    StoreError,
    TraceError,
)
from slurm_evo.model.job import ClusterName, FleetJob, Hold, Job, JobKey, JobState
from slurm_evo.model.plan import Changes, Placement, Plan, Scores
from slurm_evo.model.port import ClusterPort
from slurm_evo.model.view import (
    ClusterView,
    ControllerFacts,
    FleetView,
    Limit,
    LimitIndex,
    Node,
    Partition,
    join_siblings,
)

__all__ = [
    "Action",
    "Answer",
    "AnswerUnreadable",
    "Changes",
    "ClusterError",
    "ClusterName",
    "ClusterPort",
    "ClusterRefused",
    "ClusterUnreachable",
    "ClusterView",
    "ConfigError",
    "ControllerFacts",
    "FleetJob",
    "FleetView",
    "Hold",
    "Job",
    "JobKey",
    "JobState",
    "LeaseLost",
    "Limit",
    "LimitIndex",
    "NoJournal",
    "Node",
    "Outcome",
    "Partition",
    "Placement",
    "Plan",
    "PolicyError",
    "Scores",
    "SetClusters",
    "SetSiteFactor",
    "SlurmEvoError",
    "StoreError",
    "TraceError",
    "Unpin",
    "join_siblings",
]
