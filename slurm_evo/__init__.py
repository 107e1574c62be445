"""slurm-evo: redistributes and ranks the pending jobs of several Slurm GPU clusters."""

__version__ = "0.1.0"
