"""Layer 2 training: from a history to a front of policies that the daemon can trust."""
