"""What the rows of a tree are split on: gradients of a loss, one target of a forest, or several."""
