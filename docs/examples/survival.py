"""Survival by Cox's loss on synthetic data, beside the true curves: ``python survival.py``.

Customers are observed for a limited time, so that for many of them it is only known that they have stayed so far.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import dtrees


def main() -> None:
    """Fit, compare the order and the probabilities with those that the data was drawn from."""
    random = np.random.default_rng(0)
    X = pd.DataFrame({"age": random.uniform(18, 80, 5000), "plan": random.choice(["basic", "family", "pro"], 5000)})
    scale = np.exp(X["age"] / 40) * X["plan"].map({"basic": 1.0, "family": 3.0, "pro": 2.0})
    stays, observed = scale * random.exponential(size=5000), random.uniform(0, 20, 5000)
    y = pd.DataFrame({"left": stays <= observed, "time": np.minimum(stays, observed)})
    print(f"{100 * (1 - y['left'].mean()):.0f} % of the rows are censored")

    train, test = slice(4000), slice(4000, None)
    model = dtrees.GradientBoostingRegressor(
        loss="cox", n_estimators=500, learning_rate=0.05, max_depth=3, n_iter_no_change=20, scoring="concordance", random_state=0
    ).fit(X[train], y[train])
    print(f"{model.n_estimators_} rounds; concordance on other rows {model.score(X[test], y[test]):.3f}")

    years = [1.0, 5.0, 10.0]
    predicted, true = model.predict_survival_function(X[test], years), np.exp(-np.array(years) / scale[test].to_numpy()[:, np.newaxis])
    for year, ours, theirs in zip(years, predicted.T, true.T, strict=True):
        print(f"after {year:.0f} years, mean error of the probability to stay: {abs(ours - theirs).mean():.3f}")


if __name__ == "__main__":
    main()
