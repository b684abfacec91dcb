"""The nodes of a tree under way: their rows, their records, and the limits that apply to them."""
