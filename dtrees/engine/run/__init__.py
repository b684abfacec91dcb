"""Whole fits: trees one after the other or side by side, with threads, recovery and checkpoints."""
