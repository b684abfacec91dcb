"""The best split of a node of few rows, all columns side by side."""
