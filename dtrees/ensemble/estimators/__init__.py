"""The estimators: their parameters, fits and predictions."""
