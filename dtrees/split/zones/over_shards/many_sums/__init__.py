"""The search of nodes whose rows are spread over shards, where many numbers are summed: weights of classes, or of several targets."""
