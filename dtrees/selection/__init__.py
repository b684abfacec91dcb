"""Select models: score estimators on held-out rows, and search for better parameters.

``folds``
    a table that is presorted once, and the subsets of its rows that estimators are fitted to.
``curves``
    the results: scores of folds, and losses by round.
``cross_validation``
    fits to all folds but one, and scores and losses by round on that one.
``tuning``
    the search for parameters by Optuna.
"""
