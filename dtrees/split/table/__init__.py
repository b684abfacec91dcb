"""A table as codes: columns, some of its rows, and its zone map."""
