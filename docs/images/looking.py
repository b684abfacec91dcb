"""Make the pictures of docs/looking.md and docs/tuning.md: ``python docs/images/looking.py``, with matplotlib installed."""

from __future__ import annotations

from pathlib import Path

import matplotlib

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
    ax.figure.savefig(FOLDER / f"looking_{name}.svg", metadata={"Date": None})
