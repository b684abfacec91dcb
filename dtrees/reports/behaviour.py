"""Pictures of a model's behaviour on the rows of a report: importances of columns, dependence of predictions on them, Shapley values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.effects import Sample, digits_of, draw_dependence, draw_shap, members_of, most_important
from dtrees.ensemble.compat import safe_indexing
from dtrees.ensemble.in_process import drawn_rows
from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.plots import plot_importance
from dtrees.reports.figures import Picture, drawn, plot_in
from dtrees.reports.rows import Rows
from dtrees.reports.targets import Losses, Target

#: Most cells of the rows used, which limits the rows of wide tables, and the fewest rows.
_MAX_CELLS, _LEAST_ROWS = 20_000_000, 100
#: Most columns that are shuffled, repetitions, and rows for it.
_MAX_SHUFFLED, _N_REPEATS, _ROWS_SHUFFLED = 20, 3, 2000
#: Most columns, and rows, of dependence plots.
_MAX_COLUMNS, _ROWS_OF_DEPENDENCE = 5, 500
#: Rows and columns of Shapley plots; fewer rows for models with many nodes (a second on one thread).
_ROWS_EXPLAINED, _COLUMNS_EXPLAINED, _MAX_NODES = 1000, 12, 200_000_000


@dataclass(frozen=True)
class Looked:
    """The data of the pictures.

    Attributes
    ----------
    sample : Sample
        Rows of the report.
    target : Target
        The first target of these rows.
    chosen : list of int
        The outputs that belong to that target.
    """

    sample: Sample
    target: Target
    chosen: list[int]

    @classmethod
    def of(cls, model: Any, rows: Rows) -> Looked:
        """Return the rows of a report, fewer for a wide table."""
        n_rows = max(_LEAST_ROWS, _MAX_CELLS // model.n_features_in_)
        drawn = drawn_rows(rows.X.shape[0], n_rows, 0, rows.targets[0].queries)
        X, margin = (None if one is None else safe_indexing(one, drawn) for one in (rows.X, rows.base_margin))
        sample, several = Sample.of(model, X, base_margin=margin), getattr(model, "n_outputs_", 1) > 1
        chosen = [i for i, key in enumerate(sample.outputs.keys) if not several or (key[0] if isinstance(key, tuple) else key) == 0]
        return cls(sample, rows.targets[0].at(drawn), chosen)

    def some(self, n: int) -> Looked:
        """Return at most ``n`` of the rows, drawn at random."""
        rows = drawn_rows(len(self.sample), n, 0, self.target.queries)
        return replace(self, sample=self.sample.take(rows), target=self.target.at(rows))

    @property
    def losses(self) -> Losses:
        """The losses of the predictions."""
        return self.target.losses(members_of(self.sample.model)[0])


def by_shuffling(looked: Looked) -> list[Picture]:
    """Return a picture of how much predictions lose without what columns say; none where losses are not known."""
    some = looked.some(_ROWS_SHUFFLED)
    losses, n = some.losses, min(_MAX_SHUFFLED, len(looked.sample.names))
    if np.isnan(losses.mean()):
        return []
    change = "fall" if losses.of_rows is None else "rise"
    caption = (
        f"How much the {losses.name} of {len(some.sample):,} rows {change}s when the values of a column are shuffled among them: "
        f"means and standard deviations of {_N_REPEATS} times."
    )
    if n < len(looked.sample.names):
        caption += f" Of the {n} columns of most gain."
    rises = rises_by_shuffling(some)

    def draw(ax: Any) -> None:
        options = {"importances": rises, "max_num_features": n, "precision": digits_of(float(rises.max()))}
        plot_in(plot_importance, members_of(looked.sample.model)[0], ax=ax, **options)
        ax.set_xlabel(f"{change} of the {losses.name}")

    return [drawn("By permutation", caption, draw, (4.8, 1.1 + 0.28 * n))]


def rises_by_shuffling(looked: Looked) -> NDArray[np.float64]:
    """Return the increase of the loss when a column is shuffled, shape (n_features, n_repeats).

    Columns that are not shuffled get the smallest increase of all.
    """
    sample, target, first = looked.sample, looked.target, members_of(looked.sample.model)[0]
    random = np.random.default_rng(0)
    orders = np.array([random.permutation(len(sample)) for _ in range(_N_REPEATS)])
    most = most_important(sample.model, _MAX_SHUFFLED)
    rises = np.empty((len(sample.names), _N_REPEATS))
    before = target.losses(first).mean()
    for j in most:
        for k, found in enumerate(sample.predict({j: sample.table.iloc[:, j].to_numpy()[orders]})):
            rises[j, k] = target.predicting(found).losses(first).mean() - before
    rises[np.setdiff1d(np.arange(len(rises)), most)] = rises[most].min(initial=0.0)
    return rises


def dependence(looked: Looked) -> list[Picture]:
    """Return pictures of how predictions depend on each of the most important columns, and on the first two numeric columns together."""
    sample = looked.some(_ROWS_OF_DEPENDENCE).sample
    columns, every = sample.model._schema.columns, most_important(sample.model, len(sample.names))
    numbers = [j for j in every if columns[j].kind != CATEGORICAL and sample.encoded[j].dtype != bool][:2]
    found = []
    for places in [*([j] for j in every[:_MAX_COLUMNS]), *([numbers] if len(numbers) == 2 else [])]:
        levels = min(20, len(columns[places[0]].categories))
        draw = partial(draw_dependence, sample=sample, places=places, chosen=looked.chosen)
        caption = "" if len(places) == 1 else "Both together: the colour is the mean prediction, white points are rows."
        found.append(drawn(" and ".join(sample.names[j] for j in places), caption, draw, (4.6, max(3.4, 1.2 + 0.22 * levels))))
    return found


def explanations(looked: Looked) -> list[Picture]:
    """Return pictures of the Shapley values of rows, and of those of the row that is predicted worst, or comes first."""
    model, chosen = looked.sample.model, looked.chosen
    n_nodes = sum(tree.node_count for member in members_of(model) for group in member._trees.groups for tree in group)
    some = looked.some(int(np.clip(_MAX_NODES // n_nodes, 20, _ROWS_EXPLAINED)))
    size = 6.4, 1.4 + 0.28 * min(len(looked.sample.names), _COLUMNS_EXPLAINED)
    n = f"{len(some.sample):,} rows"
    caption = f"What columns have added to the predictions of {n}, mean sizes for each."
    if len(chosen) == 1:
        caption = f"A point for each of {n} and each column: to the right, the column has made the prediction greater."
    every = drawn("Many rows", caption, partial(draw_shap, sample=some.sample, chosen=chosen, n_columns=_COLUMNS_EXPLAINED), size)
    row, caption = looked.target.notable(looked.losses)
    classes, predicted = looked.target.classes, looked.target.predicted[row]
    which = chosen[int(np.searchsorted(classes, predicted))] if classes is not None and len(chosen) > 1 else chosen[0]
    draw = partial(draw_shap, sample=looked.sample.take(np.array([row])), chosen=[which], n_columns=_COLUMNS_EXPLAINED, one=True)
    return [every, drawn("One row", caption, draw, size)]
