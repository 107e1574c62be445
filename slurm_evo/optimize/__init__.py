"""Layer 1: candidates, their scores, and the choice on the front (pymoo lives here)."""
