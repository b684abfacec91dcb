"""The losses that boosting descends, and their arithmetic."""
