"""What grows nodes of a shard to their ends, for dense tables and for sparse ones."""
