"""The journal: SQLAlchemy tables, migrations, and plain values in and out."""

from slurm_evo.store.journal import Journal
from slurm_evo.store.records import (
    ActionState,
    CycleRecord,
    Intent,
    JobMemory,
    JournaledAction,
    Lease,
    Mode,
    PlacementRecord,
    PlanRecord,
    Refusal,
    StoredPolicy,
    TransferRecord,
)

__all__ = [
    "ActionState",
    "CycleRecord",
    "Intent",
    "JobMemory",
    "Journal",
    "JournaledAction",
    "Lease",
    "Mode",
    "PlacementRecord",
    "PlanRecord",
    "Refusal",
    "StoredPolicy",
    "TransferRecord",
]
