"""How long a job will run: learned from jobs that ended, updated as they end, kept as data."""

from slurm_evo.predict.groups import Asked, groups_of
from slurm_evo.predict.predictor import Predicted, Predictor

__all__ = ["Asked", "Predicted", "Predictor", "groups_of"]
