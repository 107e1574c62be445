"""``python -m slurm_evo_training train …``: the command with this room, also where it runs uninstalled."""

from slurm_evo.cli.app import main
from slurm_evo_training.commands import register

if __name__ == "__main__":
    main(register)
