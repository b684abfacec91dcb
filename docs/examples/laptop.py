"""Boosting on a table in memory, with an evaluation set and early stopping: ``python laptop.py california_housing.csv``.

The table is that of Pace and Barry (1997), with a text column and missing values. They need no preprocessing.
"""

from __future__ import annotations

import sys

import pandas as pd
from sklearn.model_selection import train_test_split

import dtrees


def main(path: str) -> None:
    """Fit, score, save and load a model, and print its first tree."""
    table = pd.read_csv(path)
    X, y = table.drop(columns="median_house_value"), table["median_house_value"]
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    X_fit, X_stop, y_fit, y_stop = train_test_split(X_train, y_train, test_size=0.2, random_state=0)

    model = dtrees.GradientBoostingRegressor(n_estimators=500, learning_rate=0.1, early_stopping_rounds=20, n_jobs=-1, random_state=0)
    model.fit(X_fit, y_fit, eval_set={"stop": (X_stop, y_stop)})
    print(f"{model.n_estimators_} rounds, R2 on held-out rows {model.score(X_test, y_test):.3f}")

    dtrees.save(model, "housing.dtrees")
    again = dtrees.load("housing.dtrees")
    print("the loaded model predicts the same:", (again.predict(X_test) == model.predict(X_test)).all())
    print(dtrees.export_text(model.estimators_[0, 0], max_depth=1))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
