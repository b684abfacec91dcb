"""Forests and bags by tasks: whole trees, or boosters, on workers that hold the whole table."""
