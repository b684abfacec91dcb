"""Subtrees grown to their ends, by one thread or by several."""
