"""The rows of a report, and a model's behaviour on them: importances and dependence of predictions on columns, Shapley values, as pictures.

And where the model is worst: rows with certain values of one column whose loss is higher than that of others beyond chance.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from dtrees.effects import Sample, digits_of, draw_dependence, draw_shap, members_of, most_important
from dtrees.ensemble.compat import safe_indexing
from dtrees.ensemble.estimators.gradient_boosting import joined
from dtrees.ensemble.in_process import drawn_rows
from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.ensemble.input.target import QUERIES, VALUES, check_target, check_weights, kind_of
from dtrees.ensemble.prediction import by_target
from dtrees.node_texts import short_text
from dtrees.plots import plot_importance, short_name
from dtrees.reports.figures import Picture, drawn, plot_in
from dtrees.reports.orders import Censored, target_of
from dtrees.reports.targets import Classes, Losses, Target

#: Times at which survival is predicted.
_N_TIMES = 60
#: Most cells of the rows used, which limits the rows of wide tables, and the fewest rows.
_MAX_CELLS, _LEAST_ROWS = 20_000_000, 100
#: Most columns that are shuffled, repetitions, and rows for it.
_MAX_SHUFFLED, _N_REPEATS, _ROWS_SHUFFLED = 20, 3, 2000
#: Most columns, and rows, of dependence plots.
_MAX_COLUMNS, _ROWS_OF_DEPENDENCE = 5, 500
#: Rows and columns of Shapley plots; fewer rows for models with many nodes (a second on one thread).
_ROWS_EXPLAINED, _COLUMNS_EXPLAINED, _MAX_NODES = 1000, 12, 200_000_000

#: Ranges of a numeric column; with few values, each value, and each of the most frequent categories, is a slice. Most slices shown.
_N_RANGES, _MAX_LEVELS, _MAX_SLICES = 5, 12, 10
#: Smallest slices that are considered: rows, and their share.
_LEAST_IN_SLICE, _LEAST_SHARE = 20, 0.01
#: Standard errors by which the mean loss must exceed that of the other rows, since there are many slices and few should be by chance.
_STANDARD_ERRORS = 3.0
#: If two slices share more than this part of the rows of either, only the worse one is shown.
_SAME = 0.5


@dataclass(frozen=True)
class Rows:
    """The rows of a report.

    Attributes
    ----------
    n_total : int
        Number of rows given.
    n : int
        Number of rows used.
    X : array, sparse table or frame
        The rows used, without those of classes that the model does not have.
    targets : sequence of Target
    base_margin : array or None
        Initial raw predictions, if given.
    seconds : float
        Time of the predictions.
    """

    n_total: int
    n: int
    X: Any
    targets: Sequence[Target]
    base_margin: Any
    seconds: float

    @property
    def n_unknown(self) -> int:
        """The number of rows that were left out."""
        return self.n - int(self.X.shape[0])


def take_rows(model: Any, X: Any, y: Any, sample_weight: Any, base_margin: Any, max_rows: int | None, seed: int, qid: Any = None) -> Rows:
    """Return at most ``max_rows`` rows with their predictions; of queries, all rows.

    Raises
    ------
    ValueError
        If the model cannot predict the rows, or there are none.
    """
    first = members_of(model)[0]
    backend = first._check_columns(X)
    names = [str(name) for name in getattr(y, "columns", ())]
    kind = kind_of(first)
    if kind == QUERIES:
        y = joined(y, qid)
    elif qid is not None:
        raise ValueError(f"qid is given, but a {type(model).__name__} knows no queries; leave it out")
    n_total, (X, y, sample_weight, base_margin) = backend.draw_rows(max_rows, seed, X, y, sample_weight, base_margin, queries=qid)
    n = int(X.shape[0])
    if not n:
        raise ValueError("X has no rows; a report wants at least one")
    weight = check_weights(sample_weight, n)
    more = {} if base_margin is None else {"base_margin": base_margin}
    start = time.perf_counter()
    predicted = getattr(model, "score_samples", model.predict)(X, **more)
    seconds = time.perf_counter() - start
    if kind != VALUES:
        order = target_of(model, y, predicted, weight)
        if isinstance(order, Censored) and order.right and (order.loss.later or hasattr(model, "event_times_")):
            times = np.linspace(0.0, order.actual[:, 0].max(), _N_TIMES)
            order = replace(order, times=times, curves=model.predict_survival_function(X, times, **more))
        return Rows(n_total, n, X, [order], base_margin, seconds)
    y = check_target(y, classify=is_classifier(model), name=type(model).__name__, multi_output=True)
    actual, found = y.reshape(n, -1).T, predicted.reshape(n, -1).T
    labels = names if len(names) == len(actual) else [f"target {k}" if len(actual) > 1 else "" for k in range(len(actual))]
    quantiles = getattr(model, "_quantiles", ())
    targets: list[Target]
    if quantiles and len(actual) == 1:
        targets = [Target(f"{q:g} quantile", actual[0], mine, weight, q) for q, mine in zip(quantiles, found, strict=True)]
    elif len(actual) != len(found):
        raise ValueError(f"y has {len(actual)} target(s), but the model predicts {len(found)}; pass the targets of the fit")
    elif not is_classifier(model):
        targets = [Target(*three, weight) for three in zip(labels, actual, found, strict=True)]
    else:
        classes = by_target(model.classes_)
        parts = list(zip(labels, actual, found, by_target(model.predict_proba(X, **more)), classes, strict=True))
        known = np.flatnonzero(np.all([np.isin(mine, learnt) for _, mine, _, _, learnt in parts], axis=0))
        if not len(known):
            raise ValueError(f"y has none of the model's classes, such as {classes[0][0]!r}; pass the target that it was fitted on")
        weight = None if weight is None else weight[known]
        targets = []
        for name, mine, guess, share, learnt in parts:
            mine, guess = mine[known].astype(learnt.dtype), guess[known].astype(learnt.dtype)
            targets.append(Classes(name, mine, guess, weight, probabilities=share[known], classes=learnt))
        if len(known) < n:
            X, base_margin = safe_indexing(X, known), None if base_margin is None else np.asarray(base_margin)[known]
    return Rows(n_total, n, X, targets, base_margin, seconds)


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
    output = 0
    if isinstance(looked.target, Classes) and len(chosen) > 1:
        output = int(np.searchsorted(looked.target.classes, looked.target.predicted[row]))
    draw = partial(draw_shap, sample=looked.sample.take(np.array([row])), chosen=[chosen[output]], n_columns=_COLUMNS_EXPLAINED, one=True)
    return [every, drawn("One row", caption, draw, size)]


@dataclass(frozen=True)
class Slice:
    """A slice: some rows of a table.

    Attributes
    ----------
    name : str
        Description of the rows.
    n : int
    share : float
        Their share of all rows.
    loss, ratio : float
        Their loss, and its ratio to that of all rows.
    means : dict from str to float
        Means by name; see :meth:`dtrees.reports.targets.Target.means`.
    """

    name: str
    n: int
    share: float
    loss: float
    ratio: float
    means: dict[str, float]


def worst_slices(sample: Sample, target: Target, losses: Losses) -> list[Slice]:
    """Return the slices whose loss is the highest, the worst one first; none without losses of rows.

    They are ordered by the lower end of what the mean loss may be.
    """
    if losses.of_rows is None:
        return []
    n, total, squares = len(sample), losses.of_rows.sum(), (losses.of_rows**2).sum()
    found: list[tuple[float, str, NDArray[np.bool_]]] = []
    for name, rows in (each for j in range(len(sample.names)) for each in _slices(sample, j)):
        inside = losses.of_rows[rows]
        others = n - len(inside)
        if len(inside) < max(_LEAST_IN_SLICE, _LEAST_SHARE * n) or others < _LEAST_IN_SLICE:
            continue
        mean, rest = inside.mean(), (total - inside.sum()) / others
        variance = max(0.0, (squares - (inside**2).sum()) / others - rest**2) / others
        error = np.sqrt(inside.var() / len(inside) + variance)
        if mean - rest > _STANDARD_ERRORS * error:
            found.append((float(mean - _STANDARD_ERRORS * error), name, rows))
    shown: list[tuple[str, NDArray[np.bool_]]] = []
    for _, name, rows in sorted(found, key=lambda each: -each[0]):
        if len(shown) < _MAX_SLICES and all((rows & other).sum() <= _SAME * (rows | other).sum() for _, other in shown):
            shown.append((name, rows))
    overall = losses.mean() or 1.0
    return [
        Slice(name, int(rows.sum()), float(rows.mean()), losses.mean(rows), losses.mean(rows) / overall, target.means(rows))
        for name, rows in shown
    ]


def _slices(sample: Sample, j: int) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield the slices of a column with their names."""
    column, values, name = sample.model._schema.columns[j], sample.numbers(j), short_name(sample.names[j])
    missing = np.isnan(values)
    if missing.any():
        yield f"{name} is missing", missing
    present = values[~missing]
    distinct, counts = np.unique(present, return_counts=True)
    if column.kind == CATEGORICAL or len(distinct) <= _N_RANGES:
        for k in np.argsort(-counts, kind="stable")[:_MAX_LEVELS].tolist():
            rows = values == distinct[k]
            yield f"{name} = {short_name(sample.text(j, int(rows.argmax())))}", rows
        return
    edges = np.unique(np.quantile(present, np.linspace(0, 1, _N_RANGES + 1)[1:-1], method="lower"))
    for low, high in zip([None, *edges], [*edges, None], strict=True):
        rows = ~missing & (True if low is None else values > low) & (True if high is None else values <= high)
        start = "" if low is None or high is None else f"{short_text(float(low), 3)} < "
        end = f"{name} > {short_text(float(low), 3)}" if high is None else f"{name} \u2264 {short_text(float(high), 3)}"
        if rows.any():
            yield start + end, rows
