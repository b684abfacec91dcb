"""Kernels that grow subtrees to their leaves, by one thread or by several."""
