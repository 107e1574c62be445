"""The simulator: arrays and policies, no Slurm."""
