"""Models and unfinished fits as plain data."""
