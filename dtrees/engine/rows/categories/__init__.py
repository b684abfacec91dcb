"""Columns of categories of shards of rows: a shard's own rows in them, and the search by the sums of all."""
