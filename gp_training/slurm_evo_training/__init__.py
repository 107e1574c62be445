"""Layer 2 training."""
