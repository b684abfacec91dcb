"""Comparisons with other libraries: ``python -m benchmarks --help``."""
