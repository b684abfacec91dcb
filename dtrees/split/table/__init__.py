"""A table as codes: its columns, tables of some of its rows, and its zone map."""
