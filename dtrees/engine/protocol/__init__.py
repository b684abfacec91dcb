"""What the coordinator and the shards say to each other, and what carries it."""
