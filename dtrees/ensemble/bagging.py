"""Bags of boosters, with scikit-learn's names: boosting on several draws of the rows, averaged.

A booster depends only on its number, the bag's seed and the table, and not on where and when it is grown. It is the model that the boosting
estimator fits, with the booster's ``random_state``, to the whole table, weighted by how often the booster drew each row.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from dtrees.engine.plan.plans import Callback, ForestPlan, Rules
from dtrees.engine.plan.wants import BAG, Want
from dtrees.ensemble.backend import Output, Placement, Table
from dtrees.ensemble.callbacks import called_together, grow_interruptibly
from dtrees.ensemble.compat import HasMethods, check_parameters
from dtrees.ensemble.estimators.base import Model, all_or_nothing
from dtrees.ensemble.estimators.base_boosting import Boosting
from dtrees.ensemble.estimators.base_kinds import Classifier, Regressor
from dtrees.ensemble.estimators.gradient_boosting import GradientBoostingClassifier, GradientBoostingRegressor
from dtrees.ensemble.estimators.parameters import FLOAT_SHARE, N_JOBS, POSITIVE_INTEGER, RANDOM_STATE, parameter, with_parameters
from dtrees.ensemble.in_process import LOCAL
from dtrees.ensemble.input import rules
from dtrees.ensemble.input.plain_data import from_plain, plain, take
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.target import TargetSummary
from dtrees.ensemble.objective import registry
from dtrees.ensemble.prediction import Predict, Step

if TYPE_CHECKING:
    from dtrees.split.table.sparse_columns import AnyColumns

#: Number of cells of a block of rows for out-of-bag predictions.
_BLOCK_CELLS = 2**20


@dataclass(frozen=True)
class Draws:
    """The rows that boosters draw.

    Attributes
    ----------
    seed : int
    n_draws : int
        Number of rows for each booster.
    bootstrap : bool
        Whether they are drawn with replacement, in proportion to their weights; otherwise without replacement, among rows with a positive
        weight.
    """

    seed: int
    n_draws: int
    bootstrap: bool

    def counts(self, number: int, n_rows: int, weight: NDArray[np.float64] | None) -> NDArray[np.int64]:
        """Return how often a booster draws each row, shape (n_rows,)."""
        from dtrees.engine.plan.row_draws import RowDraws  # imports Numba
        from dtrees.split.numbers import hashing

        if self.bootstrap:
            plan = ForestPlan(Rules("squared_error", 1, 1), self.seed, n_draws=self.n_draws)
            return RowDraws.of_table(plan, np.empty(n_rows), weight).counts(number)
        eligible = np.ones(n_rows, np.bool_) if weight is None else weight > 0
        chosen, n_wanted = np.empty(n_rows, np.bool_), min(self.n_draws, int(eligible.sum()))
        hashing.subsample(hashing.as_seed(self.seed), hashing.STREAM_SUBSAMPLE, number, n_wanted, eligible, chosen)
        return chosen.astype(np.int64)

    def weights(self, counts: NDArray[np.int64], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the weights of rows for a booster: the number of draws or, without replacement, the weights of the drawn rows."""
        return counts.astype(np.float64) if self.bootstrap or weight is None else counts * weight

    def random_state(self, number: int) -> int:
        """Return the ``random_state`` of a booster."""
        return int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0] >> 1)


@dataclass(frozen=True)
class Grown:
    """A booster and, if wanted, the rows that it did not draw, ascending, with its predictions for them, shape (n_out, k)."""

    booster: Boosting
    outside: NDArray[np.int64] | None = None
    out_of_bag: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class GrowBooster:
    """Grows the boosters of a bag; sent to workers.

    Attributes
    ----------
    template : Boosting
        A booster with columns and classes but without trees.
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
    return replace(table, **vars(summary), weight=weight)


def fit_presorted(booster: Boosting, table: Table, callback: Callback | None) -> None:
    """Fit a booster, whose columns and classes are set, to a table of this process."""
    loss = booster._loss(table)
    plan = booster._plan(table, loss, False)
    initial = booster._starting_points(LOCAL, table, plan, loss, keep=False)
    booster._take_over(LOCAL.boost(table, plan, [], initial, callback), plan, keep=False)


def _predictions(booster: Boosting, columns: AnyColumns, rows: NDArray[np.int64], n_jobs: int | None) -> NDArray[np.float64]:
    """Return predictions for some rows, whose values are read from presorted columns."""
    predict = Predict(booster._schema, booster._trees, booster._steps(), n_jobs)
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
    matrix, codes = np.empty((len(rows), columns.n_columns), columns.values.dtype), _codes(columns, rows)
    for j in range(columns.n_columns):
        with_missing = np.append(columns.distinct(j), np.array(np.nan, matrix.dtype))
        matrix[:, j] = with_missing[codes[:, j]]
    return matrix


def _codes(columns: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the codes of some rows, shape (n, n_columns)."""
    if not hasattr(columns, "zero_code"):
        return columns.codes[:, rows].T
    cells = csr_array((columns.row_codes, columns.row_columns, columns.row_starts), (columns.n_rows, columns.n_columns))[rows]
    cells.data = cells.data - columns.zero_code[cells.indices]
    return cells.toarray() + columns.zero_code


@dataclass(frozen=True)
class MeanOfBoosters:
    """Maps a block of rows to the mean prediction of boosters; a backend maps it over a collection.

    Attributes
    ----------
    boosters : tuple of Predict
        With a common schema.
    steps : tuple of callable
        Applied to the mean in sequence.
    """

    boosters: tuple[Predict, ...]
    steps: tuple[Step, ...] = ()

    def __call__(self, X: Any) -> NDArray[Any]:
        """Predict a block of rows."""
        matrix = self.boosters[0].schema.matrix(X)
        mean = reduce(add, (one.finish(one.trees.raw(matrix, one.n_jobs)) for one in self.boosters)) / len(self.boosters)
        for step in self.steps:
            mean = step(mean)
        return mean


def out_of_bag_mean(grown: Sequence[Any], n_rows: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the mean prediction for each row over boosters that did not draw it, shape (n_rows, k), and the number of these.

    The predictions are added in the order of the boosters.
    """
    total, n_boosters = np.zeros((n_rows, grown[0].out_of_bag.shape[1])), np.zeros(n_rows, np.int64)
    for one in grown:
        total[one.outside] += one.out_of_bag
        n_boosters[one.outside] += 1
    return total / np.maximum(n_boosters, 1)[:, np.newaxis], n_boosters


#: Fields that all boosters of a bag share, stored once in a model file.
_SHARED = ("schema", "named", "classes", "targets")


@with_parameters
class BagParameters:
    """Parameters of bags.

    Parameters
    ----------
    estimator : booster or None
        The boosting estimator; None uses its defaults. Each booster gets another ``random_state``. An estimator as ``init`` and
        ``early_stopping_rounds`` are refused, since they need more than the drawn rows (``n_iter_no_change`` is allowed).
    n_estimators : int
        The number of boosters.
    max_samples : int or float
        Number of rows drawn for each booster. A float is a share of the number of rows with a weight above 0, whatever their weights.
    bootstrap : bool
        Whether rows are drawn with replacement, with probability in proportion to their weight; a row that is drawn twice then counts with
        twice the weight. Without replacement, rows keep their weight.
    oob_score : bool or callable
        Whether to predict each row by the boosters that did not draw it, and to score these predictions: by ``score``, or by the callable
        ``metric(y_true, y_pred)``, which gets class codes (positions in ``classes_``) for classification. Requires ``bootstrap``.
    n_jobs : int or None
        Number of threads for fit and predict; None uses that of the estimator. The result does not depend on it. On a cluster, the number
        of threads of each worker counts.
    random_state : int, RandomState, Generator or None
        Seed of the rows drawn and of the ``random_state`` of each booster. Pass an int for a reproducible bag.
    verbose : int
        Verbosity, as in forests; progress is counted in boosters.
    """

    estimator: Any = parameter(default=None, allowed=[HasMethods(["fit", "predict"]), None], kw_only=False)
    n_estimators: int = parameter(default=10, allowed=[POSITIVE_INTEGER], kw_only=False)
    max_samples: int | float = parameter(default=1.0, allowed=[POSITIVE_INTEGER, FLOAT_SHARE])
    bootstrap: bool = parameter(default=True, allowed=["boolean"])
    oob_score: Any = parameter(default=False, allowed=["boolean", callable])
    n_jobs: int | None = parameter(default=None, allowed=N_JOBS)
    random_state: Any = parameter(default=None, allowed=RANDOM_STATE)
    verbose: int = parameter(default=0, allowed=["verbose"])


class Bagging(BagParameters, Model):
    """What the two bags share.

    Attributes
    ----------
    estimators_ : list of boosters
        The fitted boosters.
    estimators_samples_ : list of ndarray of int
        The rows that each booster was fitted to, repeated as often as drawn.
    n_features_in_ : int
        Number of columns at fit.
    feature_names_in_ : ndarray of str of shape (n_features_in_,)
        Names of the columns; only if all names at fit are strings.
    placement_ : dtrees.ensemble.backend.Placement
        Placement of the columns during the fit, and its reason. It is not saved with the model.
    oob_score_ : float
        Score of the out-of-bag predictions; only with ``oob_score``.
    """

    _UNIT: ClassVar[str] = "booster"
    #: Boosters are independent, unlike their trees.
    _GROUP_PER_OUTPUT: ClassVar[bool] = False
    _BOOSTER: ClassVar[type[Boosting]]

    estimators_: list[Any]
    n_features_in_: int
    placement_: Placement
    oob_score_: float

    #: The draws, the number of rows and their weights, if known.
    _drawn: tuple[Draws, int, NDArray[np.float64] | None] | None

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimators_")

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        callbacks: Sequence[Callback] = (),
        client: Any = None,
        placement: str | None = None,
    ) -> Self:
        """Fit each booster to a separate draw of the rows; on a cluster, each booster is a task.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features)
            Data that the estimator can fit.
        y : array-like of shape (n,), or, for a regressor, (n, k)
            Finite numbers for a regressor, labels (at least two) for a classifier.
        sample_weight : array-like of shape (n,) or None, default=None
            Non-negative weights. With ``bootstrap``, rows are drawn in proportion to them.
        callbacks : sequence of callable, default=()
            Functions called with a :class:`dtrees.callbacks.Progress` after each booster; a function that returns True ends the fit. See
            also :class:`dtrees.ProgressBar` and :class:`dtrees.KeepOnInterrupt`.
        client : distributed.Client or None, default=None
            Client of the Dask cluster to fit on. None uses the current client if X is a Dask collection, and no cluster otherwise. Data in
            memory is sent to one worker.
        placement : {"auto", "one-worker", "replicated"} or None, default=None
            Placement of the columns on the cluster, for a Dask collection; see :func:`dtrees.submit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data is invalid.
        """
        template = self._template()
        if not self.bootstrap and self.oob_score:
            raise ValueError("oob_score=True is only available if bootstrap=True")
        callback = called_together(callbacks)
        backend, table = template._load(
            X, y, sample_weight, keep=False, n_trees=self.n_estimators, out_of_bag=self.oob_score, bag=True, wants=self._wants(),
            multi_output=self._MULTI_OUTPUT,
        )  # fmt: skip
        template._check_classes(table)
        self._take_columns(template)
        self.placement_ = template.placement_
        n_draws = rules.number_of_draws(self.max_samples, table, None)
        draws = Draws(rules.draw_seed(self.random_state), n_draws, bool(self.bootstrap))
        grow = GrowBooster(template, draws, bool(self.oob_score))
        grown = grow_interruptibly(lambda: backend.grow_bag(table, grow, self.n_estimators, callback), callbacks)
        for one in grown:
            one.booster._schema, one.booster.placement_ = template._schema, template.placement_
            one.booster.n_jobs = None if self.estimator is None else self.estimator.n_jobs  # ``n_jobs`` of the bag is not part of boosters
        self.estimators_ = [one.booster for one in grown]
        if all(tree.node_count == 1 for booster in self.estimators_ for group in booster._trees.groups for tree in group):
            template._trees = self.estimators_[0]._trees
            template._warn_without_splits("no column of X divides rows into leaves that the parameters of the estimator allow")
        here = table.weight is None or isinstance(table.weight, np.ndarray)
        self._drawn = (draws, table.n_rows, table.weight) if here else None
        self._forget("oob_score_", "oob_prediction_", "oob_decision_function_")
        if self.oob_score:
            self._take_out_of_bag(backend, table, *out_of_bag_mean(grown, table.n_rows))
        return self

    def _wants(self) -> tuple[Want, ...]:
        return (BAG,)

    def _template(self) -> Any:
        """Return the booster to be fitted, without trees, after checking its parameters.

        Raises
        ------
        TypeError
            If the estimator is not a booster of the right kind.
        ValueError
            If it requires something that a bag does not have.
        """
        kind = self._BOOSTER
        if self.estimator is not None and type(self.estimator) is not kind:
            raise TypeError(
                f"estimator is {self.estimator!r:.60}; wants a {kind.__name__}, as bags of trees are forests; for bags of others in "
                "memory there is scikit-learn's class of the same name"
            )
        template: Any = kind() if self.estimator is None else clone(self.estimator)
        check_parameters(template)
        if self.n_jobs is not None:
            template.n_jobs = self.n_jobs
        if template.init is not None and not template._init_is_zero:
            raise ValueError(f"estimator has init={template.init!r:.60}, which a bag cannot fit to the rows drawn; wants 'zero' or None")
        if template.early_stopping_rounds is not None:
            raise ValueError(
                f"estimator has early_stopping_rounds={template.early_stopping_rounds}, which is for an eval_set, and a bag has none; "
                "use n_iter_no_change, which holds out some of the rows that a booster draws"
            )
        if registry.columns_of(template.loss):
            raise ValueError(f"estimator has loss={template.loss!r}, which predicts no values of y to average; wants another loss")
        template._warn_of_parameters_without_effect()
        template._check_combinations(None, keep=False)
        return template

    def _take_columns(self, booster: Any) -> None:
        """Set the columns and classes of a booster."""
        names = "n_features_in_", "feature_names_in_", "classes_", "n_classes_"
        self._forget(*names)
        vars(self).update({name: getattr(booster, name) for name in names if hasattr(booster, name)})

    @property
    def estimators_samples_(self) -> list[NDArray[np.integer]]:
        """The rows that each booster was fitted to, ascending and repeated as often as drawn; computed at each access.

        Raises
        ------
        AttributeError
            If the rows are not known: for a model from a file, and after rows were drawn by weights on a cluster.
        """
        check_is_fitted(self)
        drawn = getattr(self, "_drawn", None)
        if drawn is None:
            raise AttributeError("estimators_samples_ are not known: the model is from a file, or drew rows by weights on a cluster")
        draws, n_rows, weight = drawn
        rows = np.arange(n_rows)
        return [np.repeat(rows, draws.counts(number, n_rows, weight)) for number in range(len(self.estimators_))]

    @property
    def _schema(self) -> Schema:
        check_is_fitted(self)
        return self.estimators_[0]._schema

    @property
    def _n_targets(self) -> int:
        return int(self.estimators_[0]._n_targets)

    def _map(self, X: Any, function: Any, output: Output) -> Any:
        return self.estimators_[0]._map(X, function, output)

    def _steps(self) -> tuple[Step, ...]:
        """Return no steps, as boosters predict values or probabilities."""
        return ()

    def _predictor(self, *last: Step) -> MeanOfBoosters:
        """Return the function that a backend maps over rows."""
        n_jobs = self.estimators_[0].n_jobs if self.n_jobs is None else self.n_jobs
        predictors = (booster._predictor(*booster._steps()) for booster in self.estimators_)
        return MeanOfBoosters(tuple(replace(one, n_jobs=n_jobs) for one in predictors), last)

    def _to_state(self, mappable: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return metadata that JSON can hold, and named arrays; see :meth:`~dtrees.ensemble.state.EstimatorState._to_state`."""
        given = self.get_params(deep=False)
        estimator = given.pop("estimator")
        if callable(given["oob_score"]):
            given["oob_score"] = True
        states = [booster._to_state(mappable) for booster in self.estimators_]
        metadata = {
            "parameters": {name: plain(value) for name, value in given.items()},
            "estimator": None if estimator is None else states[0][0]["parameters"] | {"random_state": plain(estimator.random_state)},
            "shared": {name: states[0][0][name] for name in _SHARED if name in states[0][0]},
            "boosters": [{name: value for name, value in state.items() if name not in _SHARED} for state, _ in states],
        }
        score = getattr(self, "oob_score_", None)
        if isinstance(score, int | float):
            metadata["oob_score"] = float(score)
        arrays = {f"{k}.{name}": array for k, (_, own) in enumerate(states) for name, array in own.items()}
        return metadata, arrays

    @classmethod
    def _from_state(cls, metadata: Any, arrays: dict[str, NDArray[Any]], mapped: bool = False) -> Self:
        """Return the bag that :meth:`_to_state` described; raises ValueError if the state is invalid."""
        owner = "the bag's state"
        try:
            given = {name: from_plain(value) for name, value in take(metadata, "parameters", dict, owner).items()}
            own, shared = take(metadata, "estimator", (dict, type(None)), owner), take(metadata, "shared", dict, owner)
            bag = cls(None if own is None else cls._BOOSTER(**{name: from_plain(value) for name, value in own.items()}), **given)
            check_parameters(bag)
            boosters = take(metadata, "boosters", list, owner)
            if own is not None:
                check_parameters(bag.estimator)
                if _but_draws(own) != _but_draws(boosters[0]["parameters"]):
                    raise ValueError(f"{owner} has an estimator of other parameters than its boosters have")
            bag.estimators_ = []
            for k, state in enumerate(boosters):
                of_booster = {name.partition(".")[2]: array for name, array in arrays.items() if name.partition(".")[0] == str(k)}
                bag.estimators_.append(cls._BOOSTER._from_state({**state, **shared}, of_booster, mapped))
            if not bag.estimators_:
                raise ValueError(f"{owner} has no boosters; wants at least one")
            for booster in bag.estimators_:
                booster._schema = bag.estimators_[0]._schema
            bag._take_columns(bag.estimators_[0])
            if "oob_score" in metadata:
                bag.oob_score_ = take(metadata, "oob_score", float, owner)
        except (AttributeError, KeyError, TypeError, IndexError) as error:
            raise ValueError(f"{owner} is damaged or of another kind: {type(error).__name__}: {error}") from error
        return bag


@with_parameters
class BaggingRegressor(Regressor, Bagging):
    """Bagging for regression: the average of boosting models fitted to different draws of the rows (Breiman, 1996).

    It is scikit-learn's ``BaggingRegressor`` over :class:`GradientBoostingRegressor`, also for Dask collections, for which each booster is
    a task. The table is presorted once for all boosters.

    Attributes
    ----------
    oob_prediction_ : ndarray of float64 of shape (n,) or (n, n_outputs_)
        Out-of-bag prediction of each row, 0 for a row that every booster drew; only with ``oob_score``.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import BaggingRegressor, GradientBoostingRegressor
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> bag = BaggingRegressor(GradientBoostingRegressor(n_estimators=50), n_estimators=30, oob_score=True, random_state=0)
    >>> bag = bag.fit(X, X[:, 0] + X[:, 1] ** 2)
    >>> len(bag.estimators_), bag.predict(X).shape, bool(0.5 < bag.oob_score_ < bag.score(X, X[:, 0] + X[:, 1] ** 2))
    (30, (500,), True)
    """

    _BOOSTER: ClassVar[type[Boosting]] = GradientBoostingRegressor

    @property
    def _quantiles(self) -> tuple[float, ...]:
        return self.estimators_[0]._quantiles


@with_parameters
class BaggingClassifier(Classifier, Bagging):
    """Bagging for classification: the average probabilities of boosting models fitted to different draws of the rows (Breiman, 1996).

    It is scikit-learn's ``BaggingClassifier`` over :class:`GradientBoostingClassifier`, also for Dask collections, for which each booster
    is a task. The table is presorted once for all boosters.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes_,)
        Labels, ascending.
    n_classes_ : int
    oob_decision_function_ : ndarray of float64 of shape (n, n_classes_)
        Out-of-bag class probabilities of each row, 0 for a row that every booster drew; only with ``oob_score``.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import BaggingClassifier, GradientBoostingClassifier
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> bag = BaggingClassifier(GradientBoostingClassifier(n_estimators=20), n_estimators=5, random_state=0)
    >>> bag.fit(X, np.where(X[:, 0] > 0, "high", "low")).predict([[1.5, 0.0, 0.0], [-1.5, 0.0, 0.0]]).tolist()
    ['high', 'low']
    """

    _BOOSTER: ClassVar[type[Boosting]] = GradientBoostingClassifier
    _MULTI_OUTPUT: ClassVar[bool] = False


def _but_draws(parameters: dict[str, Any]) -> str:
    """Return the parameters of a booster without its ``random_state``, as text: they must equal those of the bag's estimator.

    As text, True differs from 1.0.
    """
    return json.dumps({name: value for name, value in parameters.items() if name != "random_state"}, sort_keys=True)
