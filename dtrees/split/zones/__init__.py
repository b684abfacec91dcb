"""Zone sums: which parts of a column can hold the best split of a large node."""
