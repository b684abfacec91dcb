"""A shard of columns, and the state of its rows in the current tree."""
