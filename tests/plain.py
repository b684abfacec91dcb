"""Boosting with a learning rate, columns and leaves for tests of trees on tiny tables; defaults are for real ones."""

from typing import Any

import dtrees

PLAIN: dict[str, Any] = {
    "learning_rate": 0.15,
    "min_samples_leaf": 1,
    "min_child_weight": 1.0,
    "reg_lambda": 5.0,
    "max_features": None,
}


def regressor(**parameters: Any) -> dtrees.GradientBoostingRegressor:
    return dtrees.GradientBoostingRegressor(**{**PLAIN, **parameters})


def classifier(**parameters: Any) -> dtrees.GradientBoostingClassifier:
    return dtrees.GradientBoostingClassifier(**{**PLAIN, **parameters})
