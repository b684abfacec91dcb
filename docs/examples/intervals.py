"""Intervals for house prices, by boosting and by a forest: ``python intervals.py california_housing.csv``.

The table is that of Pace and Barry (1997).
"""

from __future__ import annotations

import sys

import pandas as pd
from sklearn.model_selection import train_test_split

import dtrees


def main(path: str) -> None:
    """Predict intervals for 90 % of the rows, and count how many rows they cover and how wide they are."""
    table = pd.read_csv(path).sample(8000, random_state=0)
    X, y = table.drop(columns="median_house_value"), table["median_house_value"]
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    X_fit, X_calibrate, y_fit, y_calibrate = train_test_split(X_train, y_train, test_size=0.25, random_state=0)

    boosting = dtrees.GradientBoostingRegressor(loss="quantile", alpha=[0.05, 0.95], n_jobs=-1).fit(X_fit, y_fit)
    boosting.calibrate(X_calibrate, y_calibrate)
    forest = dtrees.RandomForestRegressor(50, keep_targets=True, min_samples_leaf=5, max_features=0.5, n_jobs=-1, random_state=0)
    for name, model in (("boosting", boosting), ("forest", forest.fit(X_train, y_train))):
        low, high = model.predict_interval(X_test, coverage=0.9).T
        covered = ((low <= y_test) & (y_test <= high)).mean()
        print(f"{name}: intervals for 90 % cover {100 * covered:.1f} % of the held-out rows; mean width ${(high - low).mean():,.0f}")
    print("quantiles 0.1, 0.5 and 0.9 of the first row:", forest.predict_quantiles(X_test[:1], [0.1, 0.5, 0.9]).round(-2)[0])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
