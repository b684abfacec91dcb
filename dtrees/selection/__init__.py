"""Choosing a model: how good an estimator is on rows that it has not seen, and which parameters make it better.

``folds``
    a table that is presorted once, and rows of it that an estimator is fitted to as if they were a table of their own.
``curves``
    the results: scores of folds, and losses by round.
``cross_validation``
    fits to all folds but one, scores on that one, and losses by round.
``tuning``
    the search for parameters by Optuna.
"""
