"""Trees for people to read, and for other tools."""
