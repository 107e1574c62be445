"""The daemon: observe, decide, act, report."""
