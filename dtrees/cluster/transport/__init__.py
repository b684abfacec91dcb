"""Calls to workers and to the scheduler, each with a deadline."""
