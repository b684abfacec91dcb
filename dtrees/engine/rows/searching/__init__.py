"""How the best splits of nodes are found, whose rows several shards have: edges of zones, passes over cells, searchers, rows flagged."""
