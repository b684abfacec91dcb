"""Make the pictures of docs/guide/explain.md, tuning.md and intervals.md with matplotlib: ``python docs/images/plots.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

import dtrees
from dtrees.cli.fit import flats

matplotlib.use("Agg")
matplotlib.rcParams.update({"svg.hashsalt": "dtrees", "svg.fonttype": "path"})


FOLDER = Path(__file__).parent

table = flats(5000, seed=0)
X, y = table.drop(columns="rent"), table["rent"]
tree = dtrees.DecisionTreeRegressor(max_depth=3, min_samples_leaf=50).fit(X, y)
model = dtrees.GradientBoostingRegressor(n_estimators=200, learning_rate=0.2, early_stopping_rounds=10, random_state=0)
model.fit(X[:4000], y[:4000], eval_set={"validation": (X[4000:], y[4000:])})
quick = dtrees.GradientBoostingRegressor(n_estimators=150, learning_rate=0.3, random_state=0)
result = dtrees.cross_validate(quick, X[:1000], y[:1000])
dtrees.plot_metric(result).figure.savefig(FOLDER / "tuning_curves.svg", metadata={"Date": None})
for name, ax in (
    ("tree", dtrees.plot_tree(tree, impurity=False)),
    ("importance", dtrees.plot_importance(model)),
    ("curves", dtrees.plot_metric(model)),
    ("dependence", dtrees.plot_partial_dependence(model, X, ["centre_km", "built", "district"])[0]),
    ("shap", dtrees.plot_shap(model, X, max_rows=500)),
    ("row", dtrees.plot_shap(model, X, row=3)),
):
    ax.figure.savefig(FOLDER / f"plot_{name}.svg", metadata={"Date": None})

random = np.random.default_rng(0)
x = random.uniform(0, 1, (8000, 1))
z = np.sin(6 * x[:, 0]) + (0.05 + x[:, 0] ** 2) * random.normal(size=len(x))
fit, calibrate, rest = slice(2000), slice(2000, 3000), slice(3000, None)
boosting = dtrees.GradientBoostingRegressor(loss="quantile", alpha=[0.05, 0.95], n_estimators=100, random_state=0)
forest = dtrees.RandomForestRegressor(100, keep_targets=True, min_samples_leaf=30, random_state=0)
boosting.fit(x[fit], z[fit]).calibrate(x[calibrate], z[calibrate])
grid = np.linspace(0, 1, 200)[:, np.newaxis]
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), sharey=True)
for title, one, ax in zip(
    ("boosting, calibrated", "forest, rows out of bag"), (boosting, forest.fit(x[:3000], z[:3000])), axes, strict=True
):
    low, high = one.predict_interval(x[rest]).T
    outside = (z[rest] < low) | (z[rest] > high)
    ax.fill_between(grid[:, 0], *one.predict_interval(grid).T, color="#c5d9ee", linewidth=0)
    shown = np.arange(len(outside)) < 200
    for some, color in ((shown & ~outside, "#2463a8"), (shown & outside, "#d9730d")):
        ax.plot(x[rest][some, 0], z[rest][some], ".", color=color, markersize=3.5)
    ax.set(title=f"{title}: {100 * (1 - outside.mean()):.0f} % of new rows inside", xlabel="x", xlim=(0, 1))
    ax.title.set_fontsize(10)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("target")
figure.tight_layout()
figure.savefig(FOLDER / "intervals.svg", metadata={"Date": None})
