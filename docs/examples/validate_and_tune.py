"""Cross-validate and tune boosting on a presorted table: ``python validate_and_tune.py california_housing.csv``.

The table is that of Pace and Barry (1997). Tuning needs Optuna: ``pip install 'dask-dtrees[tune]'``.
"""

from __future__ import annotations

import sys

import pandas as pd
from sklearn.model_selection import train_test_split

import dtrees


def main(path: str) -> None:
    """Compare boosting with its defaults and with the parameters of a short search, on rows that neither has seen."""
    table = pd.read_csv(path).sample(2000, random_state=0)
    X, y = table.drop(columns="median_house_value"), table["median_house_value"]
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

    estimator = dtrees.GradientBoostingRegressor(n_estimators=300, random_state=0)
    result = dtrees.cross_validate(estimator, X_train, y_train, cv=3)
    print(f"R2 of 3 folds: {result['test_score'].round(3)}, best after {result.best_n_estimators} rounds")
    default = dtrees.GradientBoostingRegressor(random_state=0).fit(X_train, y_train)

    study, tuned = dtrees.tune(estimator, X_train, y_train, n_trials=5, cv=3, random_state=0)
    print("best parameters:", {name: round(value, 3) for name, value in study.best_params.items()}, "with", tuned.n_estimators, "rounds")
    print(f"R2 on held-out rows: defaults {default.score(X_test, y_test):.3f}, tuned {tuned.score(X_test, y_test):.3f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
