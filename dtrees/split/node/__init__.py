"""The nodes of a growing tree: their rows, their records, and the limits that apply to them."""
