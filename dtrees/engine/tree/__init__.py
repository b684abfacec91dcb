"""The growth of a tree: its steps, the same for both layouts of shards, and the decisions about its nodes."""
