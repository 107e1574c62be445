"""``python -m slurm_evo.cli``."""

from slurm_evo.cli.app import main

main()
