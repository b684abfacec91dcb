"""Checks and encoding of input: tables, targets, weights and parameters."""
