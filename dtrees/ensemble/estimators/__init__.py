"""The estimators, and how they predict."""
