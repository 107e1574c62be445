"""Shipped stand-ins for tests of slurm-evo and of what is built on it."""
