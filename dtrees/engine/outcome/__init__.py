"""The finished tree: node values, statistics measured on rows, and losses."""
