"""Fits on a cluster: their coordinator, their tasks, and shards on workers."""
