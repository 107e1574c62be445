"""Ways into a cluster: pyslurm, command line, REST, simulated."""
