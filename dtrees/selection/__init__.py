"""Select models: score estimators on held-out rows, and search for better parameters.

``folds``
    a table that is presorted once, and subsets of its rows to which estimators are fitted.
``curves``
    the results: scores of folds, and losses by round.
``cross_validation``
    fits to all folds but one, and scores and losses by round on that one.
``tuning``
    the search for parameters by Optuna.
"""
