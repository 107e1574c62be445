"""``python -m slurm_evo_daemon daemon``: the whole command, also where the package runs uninstalled."""

from slurm_evo.cli import main
from slurm_evo_daemon.commands import register

if __name__ == "__main__":
    main(register)
