"""The pictures of docs/guide: ``python docs/images/guide.py`` writes them beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import dtrees

FOLDER = Path(__file__).parent
BLUE, ORANGE, GREEN, GREY = "#2463a8", "#d9730d", "#3a8f5a", "#8a8a8a"
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "dtrees", "font.family": "sans-serif", "font.size": 10})
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10, "legend.frameon": False})


def categories() -> Any:
    """Draw the best split of a column of text by a threshold in the alphabet, and by a set of categories."""
    random = np.random.default_rng(3)
    cities = np.array(["Bern", "Bonn", "Cork", "Graz", "Kiel", "Lyon", "Oslo", "Porto", "Riga", "Turin"])
    effect = np.array([21.0, 12.0, 13.5, 20.0, 11.0, 19.0, 22.0, 12.5, 10.5, 18.0])
    city = random.integers(0, len(cities), 2000)
    rent = effect[city] + random.normal(size=2000)
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 2.9), sharey=True)
    for axis, given, title in zip(
        axes, (None, "from_dtype"), ("by a threshold in alphabetical order", "by a set of categories"), strict=True
    ):
        table = pd.DataFrame({"city": cities[city]})
        tree = dtrees.DecisionTreeRegressor(max_depth=1, categorical_features=given).fit(table, rent)
        left = tree.apply(pd.DataFrame({"city": cities})) == 1
        means = np.array([rent[city == k].mean() for k in range(len(cities))])
        order = np.arange(len(cities)) if given is None else np.argsort(means)
        axis.bar(cities[order], means[order], color=np.where(left[order], BLUE, ORANGE), width=0.75)
        axis.tick_params(axis="x", rotation=45, length=0)
        axis.set(title=f"{title}: R2 {tree.score(table, rent):.2f}")
    axes[0].set_ylabel("mean rent")
    return figure


def losses() -> Any:
    """Draw what several losses predict for skewed targets, and what a monotonic constraint does."""
    random = np.random.default_rng(0)
    x = random.uniform(0, 1, (3000, 1))
    y = 1 + np.sin(5 * x[:, 0]) * 0.6 + (0.2 + x[:, 0]) * random.gamma(0.6, 1.0, size=len(x))
    grid = np.linspace(0, 1, 120)[:, np.newaxis]
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.0))
    axes[0].plot(x[:120, 0], y[:120], ".", color="#c4c4c4", markersize=3)
    for label, loss, color in (
        ("quantile", "quantile", GREEN),
        ("squared_error", "squared_error", ORANGE),
        ("absolute_error", "absolute_error", BLUE),
    ):
        model = dtrees.GradientBoostingRegressor(loss=loss, n_estimators=60, max_depth=3, min_samples_leaf=60).fit(x, y)
        axes[0].plot(grid[:, 0], model.predict(grid), color=color, linewidth=1.4, label=label)
    axes[0].set(title="skewed targets: 0.9-quantile, mean and median", xlabel="x", ylim=(0, 5))
    axes[0].legend(fontsize=8.5, loc="upper left")
    x = np.sort(random.uniform(0, 1, 150))[:, np.newaxis]
    y = x[:, 0] ** 2 + random.normal(scale=0.15, size=len(x))
    axes[1].plot(x[:, 0], y, ".", color="#c4c4c4", markersize=3)
    for label, signs, color in (("no constraint", None, ORANGE), ("monotonic_cst=[1]", [1], BLUE)):
        model = dtrees.GradientBoostingRegressor(n_estimators=60, max_depth=3, split_shrinkage=0, monotonic_cst=signs).fit(x, y)
        axes[1].plot(grid[:, 0], model.predict(grid), color=color, linewidth=1.4, label=label)
    axes[1].set(title="a monotonic constraint", xlabel="x")
    axes[1].legend(fontsize=8.5, loc="upper left")
    return figure


def survival() -> Any:
    """Draw predicted and true survival curves of three rows, by both losses."""
    random = np.random.default_rng(0)
    X = random.normal(size=(4000, 3))
    lasts = np.exp(1 - X[:, 0]) * random.exponential(size=len(X))
    watched = random.exponential(5, size=len(X))
    y = pd.DataFrame({"event": lasts <= watched, "time": np.minimum(lasts, watched)})
    bounds = np.column_stack([y["time"], y["time"].where(y["event"], np.inf)])
    rows, times = np.array([[1.0, 0, 0], [0.0, 0, 0], [-1.0, 0, 0]]), np.linspace(0, 8, 60)
    cox = dtrees.GradientBoostingRegressor(loss="cox", n_estimators=100, learning_rate=0.05, max_depth=3, random_state=0).fit(X, y)
    aft = dtrees.GradientBoostingRegressor(loss="aft", aft_loss_distribution="extreme", n_estimators=100, learning_rate=0.05, max_depth=3)
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.0), sharey=True)
    for axis, title, model in zip(axes, ('loss="cox"', 'loss="aft", "extreme"'), (cox, aft.fit(X, bounds)), strict=True):
        curves = model.predict_survival_function(rows, times)
        for row, curve, color in zip(rows, curves, (ORANGE, BLUE, GREEN), strict=True):
            axis.plot(times, curve, color=color, linewidth=1.6, label=f"x = {row[0]:g}")
            axis.plot(times, np.exp(-times / np.exp(1 - row[0])), color=GREY, linewidth=1.0, linestyle=":")
        axis.set(title=title, xlabel="time", ylim=(0, 1), xlim=(0, 8))
    axes[1].plot([], [], color=GREY, linestyle=":", label="true curve")
    axes[0].set_ylabel("share without an event")
    axes[1].legend(fontsize=8.5)
    return figure


def ranking() -> Any:
    """Draw NDCG by round on other queries, by LambdaMART and by regression of the relevance."""
    random = np.random.default_rng(0)
    n, size = 400, 20
    query = np.repeat(np.arange(n), size)
    X = random.normal(size=(n * size, 5))
    # How relevant rows are differs from query to query by much more than within one.
    level = np.repeat(random.normal(scale=2, size=n), size)
    X[:, 4] = level + random.normal(scale=0.3, size=n * size)
    relevance = np.digitize(X[:, 0] + np.sin(2 * X[:, 1]) + 2 * level + random.normal(size=n * size), [2, 4, 6, 8])
    learn, test = query < 250, query >= 250
    ranker = dtrees.GradientBoostingRanker(n_estimators=80, learning_rate=0.1, eval_metric="ndcg@5", random_state=0)
    ranker.fit(X[learn], relevance[learn], qid=query[learn], eval_set=[(X[test], relevance[test], query[test])])
    by_round = ranker.evals_result_["validation_0"]["ndcg@5"]
    regressor = dtrees.GradientBoostingRegressor(n_estimators=80, learning_rate=0.1).fit(X[learn], relevance[learn])
    measure = dtrees.GradientBoostingRanker(n_estimators=1, eval_metric="ndcg@5")
    one = {"qid": query[learn], "base_margin": np.zeros(learn.sum())}
    other = []
    for scores in regressor.staged_predict(X[test]):
        flat = measure.set_params(learning_rate=0.0).fit(
            X[learn], relevance[learn], **one, eval_set=[(X[test], relevance[test], query[test], None, scores)]
        )
        other.append(flat.evals_result_["validation_0"]["ndcg@5"][0])
    figure, axis = plt.subplots(figsize=(6.0, 3.0))
    axis.plot(np.arange(1, 81), by_round, color=BLUE, linewidth=1.6, label="GradientBoostingRanker")
    axis.plot(np.arange(1, 81), other, color=ORANGE, linewidth=1.6, label="GradientBoostingRegressor")
    axis.set(xlabel="rounds", ylabel="NDCG@5 on other queries")
    axis.legend(fontsize=8.5, loc="lower right")
    return figure


def anomalies() -> Any:
    """Draw the scores of an isolation forest over two columns, and the rows that it calls outliers."""
    random = np.random.default_rng(4)
    angle = random.uniform(0, np.pi, 160)
    moon = np.column_stack([np.cos(angle), np.sin(angle)]) + random.normal(scale=0.12, size=(160, 2))
    X = np.concatenate([moon, random.normal([0.1, -0.6], 0.15, size=(90, 2)), random.uniform([-2, -1.5], [2, 2], size=(12, 2))])
    forest = dtrees.IsolationForest(200, contamination=0.03, random_state=0).fit(X)
    cells = 56
    across, up = (low + (np.arange(cells) + 0.5) * (high - low) / cells for low, high in ((-2.2, 2.2), (-1.7, 2.2)))
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    figure, axis = plt.subplots(figsize=(5.6, 3.8))
    image = axis.imshow(
        forest.score_samples(grid).reshape(cells, cells),
        origin="lower",
        extent=(-2.2, 2.2, -1.7, 2.2),
        cmap="Blues_r",
        aspect="auto",
        interpolation="none",
    )
    outlier = forest.predict(X) < 0
    axis.plot(*X[~outlier].T, ".", color="#222222", markersize=2.5, label="1")
    axis.plot(*X[outlier].T, "o", color=ORANGE, markersize=5, label="-1 (outliers)")
    axis.set(xlabel="first column", ylabel="second column", title="score_samples, and what predict returns")
    axis.legend(fontsize=8.5, loc="upper right", frameon=True)
    figure.colorbar(image, ax=axis, shrink=0.9)
    return figure


if __name__ == "__main__":
    for draw in (categories, losses, survival, ranking, anomalies):
        figure = draw()
        figure.tight_layout()
        figure.savefig(FOLDER / f"guide_{draw.__name__}.svg", metadata={"Date": None})
