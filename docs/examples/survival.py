"""Survival with Cox's loss on synthetic data, compared with the truth: ``python survival.py``.

Customers are observed for a limited time. Of many, it is only known that they had not left when the observation ended.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import dtrees


def main() -> None:
    """Fit, score the order, and compare the probabilities with those that generated the data."""
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
    print(f"{model.n_estimators_} rounds; concordance on held-out rows {model.score(X[test], y[test]):.3f}")

    years = [1.0, 5.0, 10.0]
    predicted, true = model.predict_survival_function(X[test], years), np.exp(-np.array(years) / scale[test].to_numpy()[:, np.newaxis])
    for year, estimate, truth in zip(years, predicted.T, true.T, strict=True):
        print(f"after {year:.0f} years, mean error of the probability to stay: {abs(estimate - truth).mean():.3f}")


if __name__ == "__main__":
    main()
