"""The values on which rows are split: gradients of a loss, or one or several targets of a forest."""
