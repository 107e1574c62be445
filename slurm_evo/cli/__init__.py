"""The slurm-evo command. Rooms above add their commands through the entry-point group slurm_evo.commands."""

from slurm_evo.cli.app import main

__all__ = ["main"]
