"""Bags of boosters: boosting on several draws of the rows, averaged."""
