"""The best split of one node in one column."""
