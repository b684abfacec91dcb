"""The decisions about one tree: which nodes are searched and split, and what their leaves say."""
