"""Estimators with scikit-learn's interface; no growth logic, and no Dask.

How a fit goes::

    X, y --backend.load--> Table (schema, classes, handles) --parameters--> plan --backend.grow_forest or boost--> trees

and a prediction: a function of a block of rows (:mod:`dtrees.ensemble.prediction`), which the backend of X maps over it.

- :mod:`~dtrees.ensemble.tree`, :mod:`~dtrees.ensemble.forests`, :mod:`~dtrees.ensemble.gradient_boosting`: the ten estimators.
- :mod:`~dtrees.ensemble.base`, :mod:`~dtrees.ensemble.forest`, :mod:`~dtrees.ensemble.boosting`: what they share.
- :mod:`~dtrees.ensemble.schema`, :mod:`~dtrees.ensemble.target`: input to numbers; :mod:`~dtrees.ensemble.parameters`: to rules.
- :mod:`~dtrees.ensemble.losses`: what boosting descends; :mod:`~dtrees.ensemble.metrics`: what is measured as it goes on, on the sets of
  :mod:`~dtrees.ensemble.evaluation`; :mod:`~dtrees.ensemble.callbacks`: who is told, and early stopping.
- :mod:`~dtrees.ensemble.checkpoint`: finished trees, kept for a fit to go on from.
- :mod:`~dtrees.ensemble.backend`, :mod:`~dtrees.ensemble.local`: where the data is, and the backend for this process.
- :mod:`~dtrees.ensemble.state`: what a model file holds.
"""

from __future__ import annotations

from dtrees.ensemble.callbacks import EarlyStopping
from dtrees.ensemble.forests import ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor
from dtrees.ensemble.gradient_boosting import GradientBoostingClassifier, GradientBoostingRegressor
from dtrees.ensemble.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor

__all__ = [
    "DecisionTreeClassifier",
    "DecisionTreeRegressor",
    "EarlyStopping",
    "ExtraTreeClassifier",
    "ExtraTreeRegressor",
    "ExtraTreesClassifier",
    "ExtraTreesRegressor",
    "GradientBoostingClassifier",
    "GradientBoostingRegressor",
    "RandomForestClassifier",
    "RandomForestRegressor",
]
