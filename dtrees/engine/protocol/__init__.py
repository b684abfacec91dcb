"""What the coordinator and the shards say to each other, and shards to one another, and what carries it."""
