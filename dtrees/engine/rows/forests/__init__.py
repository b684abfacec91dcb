"""Forests where rows stay where they are: what shards of rows do for trees that do not depend on one another."""
