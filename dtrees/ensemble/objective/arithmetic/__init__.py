"""The arithmetic of losses, row by row, and sums without rounding."""
