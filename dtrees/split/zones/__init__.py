"""Zone sums, which determine the parts of a column that may hold the best split of a large node."""
