"""A shard: some columns of a table, and the state of its rows in the tree under way."""
