"""The slurm-evo command."""
