"""How long a job will run, learned from jobs that ended."""

from slurm_evo.predict.predictor import Asked, Predictor, stem

__all__ = ["Asked", "Predictor", "stem"]
