"""Trees over shards of rows, which stay on their workers: the shards, their exchanges, and the coordinator's part."""
