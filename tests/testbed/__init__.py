"""Real Slurm fleets for tests: see README.md here."""
