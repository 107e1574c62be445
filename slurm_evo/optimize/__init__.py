"""Layer 1: candidates, their scores, and the choice on the front (pymoo lives here)."""

from slurm_evo.optimize.care import Care
from slurm_evo.optimize.limits import Words
from slurm_evo.optimize.propose import propose
from slurm_evo.optimize.queue import Expected, Queue, queue_from

__all__ = ["Care", "Expected", "Queue", "Words", "propose", "queue_from"]
