"""Cross-validation on one presorted table: scores, losses by round, and the best number of rounds.

The table is checked and presorted once. Each fold takes its rows from the presorted table (:mod:`dtrees.selection.folds`), so a fold
takes little longer than growing its trees. Its model equals that of a fit to these rows alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import GroupKFold, check_cv

from dtrees.engine.threads import Threads, effective_n_jobs
from dtrees.ensemble.estimators.base import Model
from dtrees.ensemble.estimators.base_boosting import Boosting
from dtrees.ensemble.in_process import LOCAL, backend_for
from dtrees.ensemble.input.target import check_lengths, check_target, check_weights, labels_of
from dtrees.ensemble.metrics import greater_is_better, metric_name
from dtrees.selection.curves import CrossValidation, Curve
from dtrees.selection.folds import PresortedTable, Rows

#: The name of the held-out rows among a fit's evaluation sets.
_TEST = "test"


@dataclass(frozen=True)
class FoldResult:
    """Results of one fold.

    Attributes
    ----------
    estimator : estimator
        The fitted estimator.
    fit_time, score_time : float
        Seconds.
    scores, train_scores : dict of float
        By names of scorers; "score" for a single scorer.
    curves : dict of ndarray of float64
        By names of metrics, after each round; empty without curves.
    """

    estimator: Any
    fit_time: float
    score_time: float
    scores: dict[str, float]
    train_scores: dict[str, float]
    curves: dict[str, NDArray[np.float64]] = field(default_factory=dict)


def check_estimator(estimator: Any) -> Any:
    """Return an estimator of dtrees; raise TypeError for anything else."""
    if not isinstance(estimator, Model):
        raise TypeError(
            f"estimator is {estimator!r:.60}; wants an estimator of dtrees, since others cannot be fitted to a presorted table (for "
            "these, and pipelines, there are the functions of sklearn.model_selection)"
        )
    return estimator


class Validation:
    """A presorted table, its folds, and how they are scored.

    Parameters
    ----------
    estimator, X, y, cv, scoring, sample_weight, groups
        As in :func:`cross_validate`; for a ranker, ``groups`` are its queries.
    """

    #: Whether several threads may fit folds at the same time.
    takes_threads = True

    def __init__(self, estimator: Any, X: Any, y: Any, cv: Any, scoring: Any, sample_weight: Any, groups: Any) -> None:
        check_estimator(estimator)
        self._ranks = learns_from_queries(estimator)
        self.scorer = check_scoring(estimator, scoring=scoring)
        if self._ranks:
            y = LOCAL.beside(y, groups)
            cv = GroupKFold(5 if cv is None else cv) if cv is None or isinstance(cv, int | np.integer) else cv
        self._y = check_target(y, classify=is_classifier(estimator), name=type(estimator).__name__, multi_output=estimator._columns_of_y)
        self._table = self._load(X, estimator)
        self.n_rows = n = self._table.n_rows
        check_lengths(n, self._y)
        self._weight = check_weights(sample_weight, n)
        splitter = check_cv(cv, self._y, classifier=is_classifier(estimator))
        every = np.arange(n)
        by = self._y[:, 0] if self._ranks else self._y
        self.folds = [(every[train], every[test]) for train, test in splitter.split(self._table.X, by, groups)]
        for train, test in self.folds if self._ranks else ():
            if np.isin(self._y[train, 1], self._y[test, 1]).any():
                raise ValueError(
                    f"cv is {cv!r:.60}, which divides the rows of a query between those of the fit and those held out; wants a number of "
                    "folds, or a splitter that keeps groups together, such as GroupKFold()"
                )

    def _load(self, X: Any, estimator: Any) -> Any:
        """Return the table whose rows form the folds."""
        return PresortedTable(X, estimator.n_jobs)

    def check_jobs(self, n_jobs: int | None) -> int | None:
        """Return the number of fits at the same time; raise ValueError if only one is possible."""
        if n_jobs in (None, 1) or self.takes_threads:
            return n_jobs
        raise ValueError(f"n_jobs is {n_jobs}, but X is a Dask collection, each of whose fits takes all workers; wants n_jobs=None")

    def has_curve(self, estimator: Any, fold: tuple[Rows, Rows]) -> bool:
        """Return whether an estimator is a booster whose training rows have all labels of a fold's held-out rows."""
        if not isinstance(estimator, Boosting) or not is_classifier(estimator):
            return isinstance(estimator, Boosting)
        train, test = (self._y[rows] for rows in fold)
        return all(np.isin(labels_of(test, k), labels_of(train, k)).all() for k in range(train.shape[1] if train.ndim == 2 else 1))

    def fit(self, estimator: Any, fold: tuple[Rows, Rows], *, curves: bool = True, score: bool = True, train: bool = False) -> FoldResult:
        """Fit a copy of an estimator to a fold, and score it on held-out rows and, with ``train``, on training rows."""
        began = time.perf_counter()
        stops = isinstance(estimator, Boosting) and estimator.early_stopping_rounds is not None
        watched = stops or (curves and self.has_curve(estimator, fold))
        with self._table.fold(*fold, self._y, self._weight) as rows:
            X, y, given = self._given(*rows.to_fit)
            estimator.fit(X, y, **given, **({"eval_set": {_TEST: self._evaluated(*rows.held_out)}} if watched else {}))
            fitted = time.perf_counter()
            scores = self._score(estimator, *rows.held_out) if score else {}
            scored = time.perf_counter()
            of_train = self._score(estimator, *rows.seen) if train else {}
        by_round = estimator.evals_result_[_TEST] if watched and curves else {}
        return FoldResult(estimator, fitted - began, scored - fitted, scores, of_train, by_round)

    def _to_score(self, estimator: Any) -> Any:
        """Return the object that scorers receive as the estimator."""
        return estimator

    def _given(self, X: Any, y: Any, weight: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Return X, y and further arguments of ``fit`` and of scorers."""
        given = {} if weight is None else {"sample_weight": weight}
        return (X, y[:, 0], {"qid": y[:, 1], **given}) if self._ranks else (X, y, given)

    def _evaluated(self, X: Any, y: Any, weight: Any) -> tuple[Any, ...]:
        """Return the held-out rows as an evaluation set."""
        return (X, y[:, 0], y[:, 1], weight) if self._ranks else (X, y, weight)

    def _score(self, estimator: Any, X: Any, y: Any, weight: Any) -> dict[str, float]:
        X, y, given = self._given(X, y, weight)
        found = self.scorer(self._to_score(estimator), X, y, **given)
        return dict(found) if isinstance(found, dict) else {"score": found}


def learns_from_queries(estimator: Any) -> bool:
    """Return whether an estimator is a ranker."""
    return bool(estimator._columns_of_y == "queries")


def groups_of(estimator: Any, groups: Any, qid: Any, scoring: Any) -> Any:
    """Return the groups for splitters, for a ranker its queries; raise ValueError for arguments that do not fit the estimator."""
    kind = type(estimator).__name__
    if not learns_from_queries(estimator):
        if qid is not None:
            raise ValueError(f"qid is given, but a {kind} knows no queries; leave it out, or pass them as groups")
        return groups
    if qid is None or groups is not None:
        given = "None" if qid is None else "given beside groups"
        raise ValueError(f"qid is {given}; a {kind} wants the query of each row as qid, by which folds are divided too, and no groups")
    if scoring is not None and not callable(scoring):
        raise ValueError(
            f"scoring is {scoring!r:.60}; wants None, for NDCG, or a function (estimator, X, y, qid=...) of a {kind} (curves are of any "
            "eval_metric, such as 'ndcg@10')"
        )
    return qid


def curves_of(estimator: Any, folds: Sequence[FoldResult]) -> dict[str, Curve]:
    """Return the curves of all folds by metric."""
    if not any(fold.curves for fold in folds):
        return {}
    curves = {}
    for metric in estimator._metrics_asked():
        name = metric_name(metric)
        found = [fold.curves.get(name, np.empty(0)) for fold in folds]
        by_fold = np.full((len(found), max(map(len, found))), np.nan)
        for values, row in zip(found, by_fold, strict=True):
            row[: len(values)] = values
        try:
            better: bool | None = greater_is_better(metric)
        except ValueError:
            better = None
        curves[name] = Curve(name, by_fold, better)
    return curves


def cross_validate(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    cv: Any = 5,
    scoring: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    qid: Any = None,
    n_jobs: int | None = None,
    return_train_score: bool = False,
    return_estimator: bool = False,
    return_indices: bool = False,
    return_curves: bool = True,
) -> CrossValidation:
    """Fit an estimator to all folds except one, in turn, and score it on that fold. The table is presorted once.

    The function takes the splitters and scorers of :func:`sklearn.model_selection.cross_validate`, and returns the same dict of results.
    Each model equals that of ``clone(estimator).fit(X[train], y[train])`` byte for byte, unless ``random_state`` is None. On a cluster, a
    fold is the whole table with weights of 0 for held-out rows: random samples are drawn from all rows, and categories and classes are
    those of all rows; otherwise the trees are the same.

    Parameters
    ----------
    estimator : estimator of dtrees
        Estimator that is cloned for each fold. With ``early_stopping_rounds``, the held-out rows decide when a fold's fit ends, so its
        score is slightly too good.
    X : array-like, sparse table, frame or Dask collection of shape (n, n_features)
        A Dask collection is loaded once on the cluster of the current client. A sparse table in memory is presorted for each fold.
    y : array-like of shape (n,) or (n, k)
    cv : int, splitter or iterable of (train, test), default=5
        As in scikit-learn: a number of folds (stratified for a classifier), a splitter such as ``GroupKFold()``, or pairs of arrays of row
        numbers.
    scoring : str, callable, list, tuple, set, dict or None, default=None
        A scorer of scikit-learn, or several. None uses the estimator's ``score``. For a ranker, scorers are functions that also take
        ``qid``.
    sample_weight : array-like of shape (n,) or None, default=None
        Weights of rows in fits, curves and scores. (scikit-learn scores without weights, unless metadata routing is on.)
    groups : array-like of shape (n,) or None, default=None
        Groups of rows, for splitters that keep groups together.
    qid : array-like of shape (n,) or None, default=None
        For a ranker: the query of each row, as a number. Folds contain whole queries, by ``GroupKFold`` if ``cv`` is a number.
    n_jobs : int or None, default=None
        Number of folds that are fitted at the same time, each with ``n_jobs`` threads of the estimator; None means 1. Folds share the
        table, but each copies its rows. Not for Dask collections.
    return_train_score, return_estimator, return_indices : bool, default=False
        As in scikit-learn.
    return_curves : bool, default=True
        Whether a booster's ``eval_metric`` is computed on the held-out rows after each round.

    Returns
    -------
    CrossValidation
        A dict of arrays with an item for each fold: "fit_time" (including the selection of the fold's rows, and curves), "score_time",
        "test_score" ("test_NAME" for several scorers) and, if requested, "train_score" or "train_NAME", "estimator" and "indices". Its
        attribute ``curves`` has a :class:`~dtrees.selection.curves.Curve` for each metric, and ``best_n_estimators`` is the number of
        rounds with the best mean of the last metric. A fold has no curve if its held-out rows have a label that no other rows have.

    Raises
    ------
    TypeError
        If ``estimator`` is not an estimator of dtrees, or only some of the data is in memory.
    ValueError
        If a parameter or the data cannot be used. Errors of fits and scorers are also raised.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import GradientBoostingRegressor, cross_validate
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> y = X[:, 0] + np.random.default_rng(1).normal(size=500)
    >>> estimator = GradientBoostingRegressor(n_estimators=100, learning_rate=0.1)
    >>> result = cross_validate(estimator, X, y, scoring=["r2", "neg_mean_absolute_error"])
    >>> sorted(result)
    ['fit_time', 'score_time', 'test_neg_mean_absolute_error', 'test_r2']
    >>> curve = result.curves["rmse"]
    >>> curve.by_fold.shape, int(curve.mean.argmin()) + 1 == result.best_n_estimators < 100
    ((5, 100), True)
    """
    groups = groups_of(check_estimator(estimator), groups, qid, scoring)
    kept = {"train": return_train_score, "curves": return_curves}
    run = partial(_cross_validate, cv=cv, scoring=scoring, n_jobs=n_jobs, estimators=return_estimator, indices=return_indices, kept=kept)
    return backend_for(X).coordinate(run, estimator, X, y, sample_weight, groups, label="cross_validate")


def _cross_validate(
    estimator: Any, X: Any, y: Any, sample_weight: Any, groups: Any, *, cv: Any, scoring: Any, n_jobs: int | None, estimators: bool,
    indices: bool, kept: dict[str, bool],
) -> CrossValidation:  # fmt: skip
    """Cross-validate in the process, or on the cluster, that holds the data."""
    validation = backend_for(X).validation(Validation, estimator, X, y, cv, scoring, sample_weight, groups)

    def run(fold: tuple[Rows, Rows]) -> FoldResult:
        done: FoldResult = validation.fit(clone(estimator), fold, **kept)
        return done if estimators else replace(done, estimator=None)

    with Threads(effective_n_jobs(validation.check_jobs(n_jobs))) as threads:
        folds = threads.map(run, validation.folds)
    result = CrossValidation(fit_time=np.array([fold.fit_time for fold in folds]), score_time=np.array([fold.score_time for fold in folds]))
    if estimators:
        result["estimator"] = [fold.estimator for fold in folds]
    if indices:
        train, test = zip(*validation.folds, strict=True)
        result["indices"] = {"train": train, "test": test}
    for kind, scores in (("test", [fold.scores for fold in folds]), ("train", [fold.train_scores for fold in folds])):
        result.update({f"{kind}_{name}": np.array([of_fold[name] for of_fold in scores]) for name in scores[0]})
    result.curves = curves_of(estimator, folds)
    return result
