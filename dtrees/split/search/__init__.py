"""Search for the best split of one node in one column."""
