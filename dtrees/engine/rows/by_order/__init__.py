"""What follows from the order of all rows, which are spread over shards: quantiles of residuals, and what leaves hold by them."""
