"""Trees over shards on workers: the executors, what replaces lost shards, and workers that join."""
