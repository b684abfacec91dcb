"""The best threshold of a node in a column, by sums of rows: swept, or drawn at random."""
