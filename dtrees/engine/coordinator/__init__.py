"""A fit over shards of columns: the decisions about one tree, which nodes are split, what its leaves say; and shards that catch up."""
