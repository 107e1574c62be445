"""Moving a pending job between clusters that share no federation, without losing anything of it."""

from slurm_evo.slurm.transfer.drive import Mover
from slurm_evo.slurm.transfer.image import JobImage, NotMovable
from slurm_evo.slurm.transfer.machine import (
    Ask,
    Copy,
    Life,
    Original,
    Patience,
    Phase,
    Seen,
    Step,
    Transfer,
    next_step,
)
from slurm_evo.slurm.transfer.port import Replied, TransferPort
from slurm_evo.slurm.transfer.tables import ClusterTables, Known, look_up, translate

__all__ = [
    "Ask",
    "ClusterTables",
    "Copy",
    "JobImage",
    "Known",
    "Life",
    "Mover",
    "NotMovable",
    "Original",
    "Patience",
    "Phase",
    "Replied",
    "Seen",
    "Step",
    "Transfer",
    "TransferPort",
    "look_up",
    "next_step",
    "translate",
]
