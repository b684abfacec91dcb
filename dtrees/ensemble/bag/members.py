"""A booster of a bag: which rows it draws, how it is boosted from presorted columns, and what it predicts for rows that it did not draw.

A booster is a function of its number, the bag's seed and the table. Who grows it, and when, leaves no trace in it. It is the model that the
boosting estimator fits, with the booster's ``random_state``, to the whole table, weighted by how often the booster drew each row.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from dtrees.engine.plan.plans import Callback
from dtrees.ensemble.backend import Table
from dtrees.ensemble.estimators.base_boosting import Boosting
from dtrees.ensemble.evaluation.scoring import check_scoring, scoring_for
from dtrees.ensemble.in_process import LOCAL
from dtrees.ensemble.input.target import TargetSummary
from dtrees.ensemble.objective import registry
from dtrees.ensemble.prediction import Predict, Step

if TYPE_CHECKING:
    from dtrees.split.table.sparse_columns import AnyColumns

#: Cells of the blocks of rows that out-of-bag predictions are made for.
_BLOCK_CELLS = 2**20


@dataclass(frozen=True)
class Draws:
    """The rows that boosters draw.

    Attributes
    ----------
    seed : int
    n_draws : int
        Rows for each booster.
    bootstrap : bool
        Whether they are drawn with replacement, in proportion to their weights; otherwise without, from those that have a weight.
    """

    seed: int
    n_draws: int
    bootstrap: bool

    def counts(self, number: int, n_rows: int, weight: NDArray[np.float64] | None) -> NDArray[np.int64]:
        """Return how often a booster draws each row, shape (n_rows,)."""
        from dtrees.split.numbers import hashing  # brings in the compiler
        from dtrees.split.numbers.fixed_point import to_fixed

        seed, counts = hashing.as_seed(self.seed), np.zeros(n_rows, np.int64)
        if self.bootstrap:
            cumulative = np.empty(0, np.int64) if weight is None else np.cumsum(to_fixed(weight)[0])
            hashing.bootstrap_counts(seed, number, self.n_draws, cumulative, counts)
            return counts
        eligible = np.ones(n_rows, np.bool_) if weight is None else weight > 0
        chosen = np.empty(n_rows, np.bool_)
        hashing.subsample(seed, hashing.STREAM_SUBSAMPLE, number, min(self.n_draws, int(eligible.sum())), eligible, chosen)
        counts[chosen] = 1
        return counts

    def weights(self, counts: NDArray[np.int64], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the weights that a booster gives to rows: how often it drew them or, without replacement, their own if it did."""
        return counts.astype(np.float64) if self.bootstrap or weight is None else counts * weight

    def random_state(self, number: int) -> int:
        """Return the ``random_state`` of a booster."""
        return int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0] >> 1)


@dataclass(frozen=True)
class Grown:
    """A booster and, where that is wanted, the rows that it did not draw, ascending, and its predictions for them, shape (n_out, k)."""

    booster: Boosting
    outside: NDArray[np.int64] | None = None
    out_of_bag: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class GrowBooster:
    """Boosts the members of a bag; travels to workers.

    Attributes
    ----------
    template : Boosting
        One that knows columns and classes, and has no trees.
    draws : Draws
    out_of_bag : bool
        Whether to predict the rows that a booster did not draw.
    """

    template: Boosting
    draws: Draws
    out_of_bag: bool

    def __call__(self, table: Table, number: int, callback: Callback | None = None) -> Grown:
        """Return booster ``number`` of a table of this process; the callback is called after each of its rounds."""
        counts = self.draws.counts(number, table.n_rows, table.weight)
        booster = copy.copy(self.template)
        booster.random_state = self.draws.random_state(number)
        fit_presorted(booster, weighted(table, self.draws.weights(counts, table.weight)), callback)
        if not self.out_of_bag:
            return Grown(booster)
        outside = np.flatnonzero(counts == 0)
        return Grown(booster, outside, _predictions(booster, table.columns, outside, table.n_jobs))


def weighted(table: Table, weight: NDArray[np.float64]) -> Table:
    """Return a table of this process with other weights."""
    summary = TargetSummary.of(table.target, weight, classify=table.classes is not None)
    sums = summary.class_weights
    return replace(
        table,
        weight=weight,
        total_weight=float(summary.total_weight),
        class_counts=summary.class_counts,
        n_weighted=summary.n_weighted,
        class_weights=None if sums is None else np.array([float(value) for value in sums]),
    )


def fit_presorted(booster: Boosting, table: Table, callback: Callback | None) -> None:
    """Boost an estimator that knows columns and classes, from a table of this process."""
    loss = booster._loss(table)
    scorer = check_scoring(booster.scoring, classify=is_classifier(booster))
    plan = replace(booster._plan(table, loss, False), scoring=scoring_for(scorer, loss, table.classes))
    initial = booster._starting_points(LOCAL, table, plan, loss, keep=False)
    booster._take_over(LOCAL.boost(table, plan, [], initial, callback), plan, keep=False)
    booster._loss_name, booster._loss_parameters = registry.name_of(booster.loss), booster._parameters_of_loss()


def steps_of(booster: Boosting) -> tuple[Step, ...]:
    """Return the steps from raw predictions to what a bag averages: values, or probabilities."""
    return booster._probability_steps() if is_classifier(booster) else booster._value_steps()


def _predictions(booster: Boosting, columns: AnyColumns, rows: NDArray[np.int64], n_jobs: int | None) -> NDArray[np.float64]:
    """Return the predictions of some rows, whose values are read from presorted columns."""
    predict = Predict(booster._schema, booster._trees, steps_of(booster), n_jobs)
    block = max(1, _BLOCK_CELLS // columns.n_columns)
    found = []
    for first in range(0, max(1, len(rows)), block):
        matrix = rows_of(columns, rows[first : first + block])
        values = predict.finish(booster._trees.raw(matrix, n_jobs))
        found.append(values if values.ndim == 2 else values[:, np.newaxis])
    return np.concatenate(found)


def rows_of(columns: AnyColumns, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return some rows of presorted columns as numbers, shape (n, n_columns), NaN where missing.

    Examples
    --------
    >>> from dtrees.split.table.columns import presort
    >>> columns = presort([np.array([5.0, np.nan, 3.0]), np.array([1, 1, 2])])
    >>> rows_of(columns, np.array([1, 2]))
    array([[nan,  1.],
           [ 3.,  2.]])
    """
    matrix = np.empty((len(rows), columns.n_columns), columns.values.dtype)
    for j in range(columns.n_columns):
        with_missing = np.append(columns.distinct(j), np.array(np.nan, matrix.dtype))
        matrix[:, j] = with_missing[_codes(columns, j, rows)]
    return matrix


def _codes(columns: Any, j: int, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the codes of some rows in a column."""
    if not hasattr(columns, "zero_code"):
        return columns.codes[j, rows]
    codes = np.full(len(rows), columns.zero_code[j])
    stored = columns.rows[columns.starts[j] : columns.starts[j + 1]]
    places = np.searchsorted(rows, stored)
    there = places < len(rows)
    there[there] = rows[places[there]] == stored[there]
    codes[places[there]] = columns.codes[columns.starts[j] : columns.starts[j + 1]][there]
    return codes


@dataclass(frozen=True)
class MeanOfBoosters:
    """A block of rows to the mean of what boosters predict; a function that a backend maps over a collection.

    Attributes
    ----------
    boosters : tuple of Predict
        Of one schema.
    steps : tuple of callable
        Applied to the mean, one after the other.
    """

    boosters: tuple[Predict, ...]
    steps: tuple[Step, ...] = ()

    def __call__(self, X: Any) -> NDArray[Any]:
        """Predict a block of rows."""
        first, *others = self.boosters
        matrix = first.schema.matrix(X)
        total = first.finish(first.trees.raw(matrix, first.n_jobs))
        for booster in others:
            total = total + booster.finish(booster.trees.raw(matrix, booster.n_jobs))
        mean = total / len(self.boosters)
        for step in self.steps:
            mean = step(mean)
        return mean


def out_of_bag_mean(grown: Sequence[Grown], n_rows: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the mean, over boosters that did not draw a row, of their predictions for it, shape (n_rows, k), and the number of these.

    They are added up in the order of the boosters.
    """
    total: Any = 0.0
    n_boosters = np.zeros(n_rows, np.int64)
    for one in grown:
        assert one.outside is not None
        assert one.out_of_bag is not None
        told = np.zeros((n_rows, one.out_of_bag.shape[1]))
        told[one.outside] = one.out_of_bag
        total = total + told
        n_boosters[one.outside] += 1
    return total / np.maximum(n_boosters, 1)[:, np.newaxis], n_boosters
