"""A tree on a shard level by level: its nodes, the search of a level, the division of its rows."""
