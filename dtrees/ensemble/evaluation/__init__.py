"""Evaluation sets, metrics and callbacks."""
