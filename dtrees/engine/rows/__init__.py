"""Boosting over rows that stay where they are: shards of rows, what they tell each other, and the coordinator's part."""
