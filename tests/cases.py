"""Cases on which every executor must agree: estimators, tables and options, as data.

They are used by the conformance tests of estimators and of clusters. A case is small, and contains as much as possible of what could
differ between executors: the order of sums, columns on other workers, random draws, ties, missing values, categories, zero weights,
columns that are constant in a node.
"""

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from sklearn.base import clone

from dtrees import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    EarlyStopping,
    ExtraTreeRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    save,
)
from tests.cluster.samples import in_partitions, numbers, table, targets, weights
from tests.plain import classifier, regressor

N_ROWS, N_HELD_OUT = 300, 150


def _frame(n_rows: int, seed: int) -> pd.DataFrame:
    """Nine columns: those of :func:`table`, one that varies in few nodes, one that is constant, a heavy-tailed one."""
    rng = np.random.default_rng(seed + 100)
    return table(n_rows, seed).assign(
        rare=rng.random(n_rows) < 0.02, constant=1.0, skewed=np.exp(rng.normal(0, 8, n_rows)).astype(np.float32)
    )


TRAIN, HELD_OUT = _frame(N_ROWS, 0), _frame(N_HELD_OUT, 5)


def _targets(frame: pd.DataFrame) -> dict[str, Any]:
    by_task: dict[str, Any] = dict(targets(frame))
    value = by_task["regression"]
    second = frame["rounded"].abs() + frame["count"] % 3
    by_task["several"] = pd.DataFrame({"value": value, "second": second, "third": value * (frame["word"] == "oak") - second})
    by_task["several classes"] = pd.DataFrame(
        {"label": by_task["multiclass"], "sign": second > 2, "third": (frame["count"] % 4).astype(int)}
    )
    return by_task


TARGETS, HELD_OUT_TARGETS = _targets(TRAIN), _targets(HELD_OUT)
WEIGHTS, HELD_OUT_WEIGHTS = weights(N_ROWS), weights(N_HELD_OUT, seed=6)


@dataclass(frozen=True)
class Case:
    """An estimator, and the arguments of its fit.

    Attributes
    ----------
    task : {"regression", "several", "several classes", "amounts", "binary", "multiclass"}
        The target.
    estimator : estimator
        Each fit has a copy of it.
    array : bool
        Whether the table is an array (of the numeric columns) instead of a frame (with missing values and categories).
    weighted : bool
    evaluated : bool
        Whether there are evaluation sets, one of them with weights.
    callbacks : tuple
    scored : bool
        Whether trees start from a score for each row.
    before : dict
        Parameters of an earlier fit that this one continues; empty if there is none.
    """

    task: str
    estimator: Any
    array: bool = False
    weighted: bool = True
    evaluated: bool = False
    callbacks: tuple[Any, ...] = ()
    scored: bool = False
    before: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """Return an estimator to fit."""
        return clone(self.estimator)

    @property
    def is_constrained(self) -> bool:
        """Whether the case has constraints, which sparse tables do not support."""
        return self.estimator.monotonic_cst is not None or self.estimator.interaction_cst is not None

    @property
    def boosts(self) -> bool:
        """Whether it is a case of boosting."""
        return isinstance(self.estimator, GradientBoostingRegressor | GradientBoostingClassifier)


def squares_of_residuals(y: Any, raw: Any, weight: Any) -> tuple[Any, Any]:
    """An objective: squared error, except for rows with large residuals."""
    factor = np.where(np.abs(y - raw) < 3.0, 1.0, 0.5) * (1.0 if weight is None else weight)
    return factor * (raw - y), factor


def multinomial(y: Any, raw: Any, weight: Any) -> tuple[Any, Any]:
    """An objective of several outputs that is not computed row by row: log loss with a bound on its hessian."""
    shares = np.exp(raw - raw.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    factor = (np.ones(len(y)) if weight is None else weight)[:, np.newaxis]
    return factor * (shares - np.eye(raw.shape[1])[y]), factor * np.maximum(2 * shares * (1 - shares), 0.1 * shares.mean())


def coupled(y: Any, raw: Any, weight: Any) -> tuple[Any, Any]:
    """An objective of several targets that weights rows less if all their predictions are bad."""
    error = raw - y
    factor = (np.ones(len(y)) if weight is None else weight) / (1.0 + np.abs(error).sum(axis=1))
    return factor[:, np.newaxis] * error, np.repeat(factor[:, np.newaxis], y.shape[1], axis=1)


def by_estimator(model: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """A scorer, called with an estimator; the order of rows matters."""
    error = np.abs(y - model.predict(X)) * (1.0 if sample_weight is None else sample_weight)
    return -float((error * np.linspace(1.0, 2.0, len(X))).sum())


CASES: dict[str, Case] = {
    "tree": Case("regression", DecisionTreeRegressor(max_features=0.6, random_state=1)),
    "tree of absolute error": Case(
        "regression", DecisionTreeRegressor(criterion="absolute_error", max_depth=5, random_state=1), array=True
    ),
    "tree of classes": Case("multiclass", DecisionTreeClassifier(max_features=1, random_state=2), weighted=False),
    # Their sets of categories have kernels of their own, which differ from others only in the score of a split.
    "tree by entropy": Case(
        "multiclass", DecisionTreeClassifier(criterion="entropy", max_features=1, categorical_features=None, random_state=2), weighted=False
    ),
    "forest by Poisson deviance": Case(
        "amounts",
        RandomForestRegressor(3, criterion="poisson", oob_score=True, max_features=0.5, categorical_features=None, random_state=20),
    ),
    "extra tree": Case("regression", ExtraTreeRegressor(random_state=3)),
    # Without sets of categories, which have a separate case.
    "forest": Case(
        "regression",
        RandomForestRegressor(
            5, oob_score=True, keep_targets=True, max_features=0.4, max_samples=0.8, categorical_features=None, random_state=5
        ),
    ),
    "forest with categories": Case(
        "regression", RandomForestRegressor(3, oob_score=True, max_features=0.4, cat_smooth=1, min_samples_category=2, random_state=6)
    ),
    "forest of absolute error": Case(
        "regression", RandomForestRegressor(3, criterion="absolute_error", max_depth=5, oob_score=True, max_features=0.5, random_state=12)
    ),
    "forest by quantile, in order": Case(
        "regression",
        RandomForestRegressor(
            3, criterion="quantile", alpha=0.25, monotonic_cst={"wide": 1}, max_depth=5, oob_score=True, max_features=0.5, random_state=32
        ),
    ),
    "forest, best first": Case("regression", RandomForestRegressor(4, oob_score=True, max_leaf_nodes=12, max_samples=0.8, random_state=15)),
    "forest, pruned": Case(
        "regression", RandomForestRegressor(4, oob_score=True, ccp_alpha=0.05, max_features=0.5, max_leaf_nodes=40, random_state=21)
    ),
    "forest of balanced draws, pruned": Case(
        "multiclass", RandomForestClassifier(5, oob_score=True, bootstrap="balanced", ccp_alpha=0.02, random_state=22)
    ),
    "forest of classes": Case(
        "multiclass", RandomForestClassifier(5, oob_score=True, class_weight="balanced", colsample_bytree=0.7, random_state=6)
    ),
    "forest of several targets": Case(
        "several",
        RandomForestRegressor(
            4, oob_score=True, keep_targets=True, max_features=0.5, max_samples=0.8, categorical_features=None, random_state=34
        ),
    ),
    "extra trees of several targets": Case("several", ExtraTreesRegressor(3, max_depth=7, random_state=35), array=True),
    "forest of several targets of classes": Case(
        "several classes", RandomForestClassifier(4, oob_score=True, class_weight="balanced_subsample", max_leaf_nodes=40, random_state=36)
    ),
    # All columns are drawn, so that there are sets on every shard.
    "forest of several targets by sets": Case(
        "several",
        RandomForestRegressor(5, oob_score=True, max_depth=6, categorical_features=list(range(9)), min_samples_category=3, random_state=39),
    ),
    "extra trees of several targets of classes by sets": Case(
        "several classes",
        ExtraTreesClassifier(3, bootstrap=True, max_depth=6, categorical_features=list(range(9)), min_samples_category=3, random_state=39),
    ),
    "tree of medians of several targets": Case(
        "several", DecisionTreeRegressor(criterion="absolute_error", max_depth=5, random_state=37), array=True
    ),
    "extra trees": Case("regression", ExtraTreesRegressor(4, max_depth=6, keep_targets=True, random_state=7), array=True),
    # Without sets of categories, which an extra tree covers.
    "extra trees of classes": Case(
        "multiclass", ExtraTreesClassifier(4, bootstrap=True, max_samples=0.5, categorical_features=None, random_state=8), weighted=False
    ),
    # Its table has no y: the target is ignored.
    "isolation forest": Case("regression", IsolationForest(n_estimators=4, contamination=0.1, random_state=42), weighted=False),
    "isolation forest, by weight": Case(
        "regression", IsolationForest(n_estimators=4, max_samples=60, max_features=3, random_state=43), array=True
    ),
    "isolation forest, with replacement": Case(
        "regression", IsolationForest(n_estimators=4, bootstrap=True, max_samples=0.9, random_state=44)
    ),
    "boosting": Case("regression", regressor(n_estimators=5, subsample=0.7, max_features=0.4, random_state=9)),
    "boosting with defaults": Case("binary", GradientBoostingClassifier(n_estimators=4, random_state=9)),
    # Every column has some, so that there are sets on every shard.
    "boosting with categories": Case(
        "regression",
        regressor(n_estimators=4, subsample=0.7, max_depth=4, categorical_features=list(range(9)), min_samples_category=3, random_state=9),
    ),
    "boosting, best first": Case(
        "binary", classifier(n_estimators=5, max_leaf_nodes=6, n_iter_no_change=3, colsample_bytree=0.8, random_state=10), array=True
    ),
    "boosting of quantiles, best first": Case(
        "regression",
        regressor(loss="quantile", alpha=[0.3, 0.5, 0.9], n_estimators=3, subsample=0.7, max_leaf_nodes=6, random_state=16),
        evaluated=True,
    ),
    "boosting, pruned": Case("binary", classifier(n_estimators=5, ccp_alpha=0.04, subsample=0.8, random_state=23), array=True),
    "boosting of quantiles, pruned": Case(
        "regression",
        regressor(loss="quantile", alpha=0.7, n_estimators=5, subsample=0.7, ccp_alpha=0.01, max_leaf_nodes=20, random_state=24),
    ),
    "boosting by Tweedie deviance": Case(
        "amounts", regressor(loss="tweedie", tweedie_variance_power=1.2, n_estimators=4, max_depth=3, subsample=0.8, random_state=41)
    ),
    "boosting of classes": Case(
        "multiclass", classifier(n_estimators=3, subsample=0.8, max_features=1, max_depth=3, random_state=11), weighted=False
    ),
    "boosting of parallel trees": Case(
        "regression",
        regressor(n_estimators=4, n_parallel_trees=3, subsample=0.7, max_features=0.4, max_depth=4, n_iter_no_change=3, random_state=45),
        evaluated=True,
    ),
    "boosting of parallel trees of classes": Case(
        "multiclass", classifier(n_estimators=3, n_parallel_trees=2, subsample=0.8, max_depth=3, random_state=46), evaluated=True
    ),
    "boosting of rows drawn by gradients": Case(
        "multiclass", classifier(n_estimators=3, subsample=0.4, subsample_by="gradient", max_depth=3, random_state=47), evaluated=True
    ),
    "boosting with dropout": Case(
        "multiclass", classifier(n_estimators=5, drop_rate=0.5, subsample=0.8, max_depth=3, random_state=48), evaluated=True
    ),
    "boosting by gradients alone": Case(
        "multiclass",
        classifier(
            n_estimators=3,
            criterion="squared_error",
            min_weight_fraction_leaf=0.03,
            init="zero",
            subsample=0.8,
            max_depth=4,
            random_state=21,
        ),
    ),
    "boosting by an objective": Case(
        "regression",
        regressor(
            loss=squares_of_residuals, n_estimators=5, n_iter_no_change=2, scoring="r2", min_split_gain=2.0, max_depth=4, random_state=22
        ),
    ),
    "boosting of classes by an objective": Case(
        "multiclass", classifier(loss=multinomial, n_estimators=3, subsample=0.8, max_depth=3, random_state=25)
    ),
    "boosting of several targets": Case(
        "several",
        regressor(loss="huber", n_estimators=3, subsample=0.8, max_depth=3, n_iter_no_change=3, scoring="r2", random_state=31),
        evaluated=True,
    ),
    "boosting of several targets that stops early": Case(
        "several",
        regressor(n_estimators=6, learning_rate=1.0, max_depth=3, n_iter_no_change=3, eval_metric=["rmse", "r2"], random_state=32),
        array=True,
        evaluated=True,
        callbacks=(EarlyStopping(1, eval_name="plain", metric="r2", tol=0.02),),
    ),
    "boosting of several targets by an objective": Case(
        "several", regressor(loss=coupled, n_estimators=3, colsample_bytree=0.8, max_depth=3, random_state=33)
    ),
    "boosting of several targets of classes": Case(
        "several classes",
        classifier(
            n_estimators=4,
            subsample=0.8,
            max_depth=3,
            n_iter_no_change=3,
            class_weight="balanced",
            eval_metric=["logloss", "auc"],
            random_state=40,
        ),
        evaluated=True,
    ),
    "boosting of scores": Case(
        "regression",
        regressor(
            n_estimators=4, subsample=0.7, max_depth=4, n_iter_no_change=3, validation_fraction=None, scoring=by_estimator, random_state=23
        ),
        scored=True,
    ),
    "boosting with an L1 penalty": Case(
        "binary", classifier(n_estimators=4, reg_alpha=2.0, subsample=0.8, max_features=0.5, random_state=24)
    ),
    "boosting that stops early": Case(
        "regression",
        regressor(n_estimators=9, learning_rate=1.0, max_depth=4, eval_metric=["rmse", "mae"], random_state=13),
        evaluated=True,
        callbacks=(EarlyStopping(1, eval_name="weighted", metric="mae", tol=0.02),),
    ),
    "boosting of classes that stops early": Case(
        "multiclass",
        classifier(n_estimators=5, learning_rate=1.0, max_depth=3, subsample=0.8, eval_metric=["logloss", "error"], random_state=14),
        evaluated=True,
        callbacks=(EarlyStopping(1, eval_name="plain", metric="logloss"),),
    ),
    "tree in order": Case(
        "regression",
        DecisionTreeRegressor(
            monotonic_cst={"wide": 1, "count": -1}, interaction_cst="pairwise", categorical_features=None, random_state=21
        ),
    ),
    "forest in order": Case(
        "regression",
        RandomForestRegressor(
            4,
            monotonic_cst={"wide": 1, "skewed": -1, "rounded": 1},
            max_features=0.5,
            max_samples=0.8,
            oob_score=True,
            categorical_features=None,
            random_state=22,
        ),
    ),
    "forest of classes in order, best first": Case(
        "binary",
        RandomForestClassifier(
            4, monotonic_cst=[1, 0, -1, 0, 1, 0, 0, 0], interaction_cst=[(0, 1, 2), {2, 4}], max_leaf_nodes=15, random_state=23
        ),
        array=True,
    ),
    "forest of many classes, few columns a path": Case(
        "multiclass",
        RandomForestClassifier(4, interaction_cst=[["wide", "count"], ["word", "rounded"]], categorical_features=None, random_state=24),
    ),
    "extra trees in order": Case(
        "regression",
        ExtraTreesRegressor(
            4, monotonic_cst={"wide": 1, "count": 1}, interaction_cst="pairwise", categorical_features=None, random_state=25
        ),
    ),
    "forest of medians in order": Case(
        "regression",
        RandomForestRegressor(
            3, criterion="absolute_error", monotonic_cst={"wide": 1, "count": -1}, max_depth=5, max_features=0.5, random_state=26
        ),
    ),
    "boosting in order": Case(
        "regression",
        regressor(
            n_estimators=5,
            monotonic_cst={"wide": 1, "count": -1, "skewed": 1},
            interaction_cst=[("wide", "count", "flag")],
            categorical_features=None,
            subsample=0.7,
            max_features=0.6,
            random_state=27,
        ),
        evaluated=True,
    ),
    "boosting of classes in order, best first": Case(
        "binary",
        classifier(n_estimators=5, monotonic_cst=[-1, 1, 1, 0, 0, 0, 0, 0], interaction_cst="pairwise", max_leaf_nodes=9, random_state=28),
        array=True,
    ),
    "boosting of medians in order": Case(
        "regression", regressor(loss="absolute_error", n_estimators=4, monotonic_cst={"wide": -1, "count": 1}, max_depth=4, random_state=29)
    ),
    "boosting in order that goes on": Case(
        "regression",
        regressor(n_estimators=4, monotonic_cst={"wide": 1, "count": -1}, interaction_cst="no_interactions", max_depth=4, random_state=30),
        before={"n_estimators": 2},
    ),
    "boosting that goes on": Case(
        "regression", regressor(n_estimators=4, subsample=0.7, max_features=1, max_depth=4, random_state=9), before={"n_estimators": 2}
    ),
}
#: Cases with kernels of their own, which take long to compile.
SLOW = {
    "tree of absolute error",
    "tree by entropy",
    "forest of absolute error",
    "forest by Poisson deviance",
    "boosting with an L1 penalty",
    "forest of many classes, few columns a path",
    "extra tree",
    "extra trees of classes",
    "tree in order",
    "forest in order",
    "forest of classes in order, best first",
    "extra trees in order",
    "forest by quantile, in order",
    "boosting of medians in order",
    "boosting in order that goes on",
    "forest of medians in order",
    "forest of several targets",
    "extra trees of several targets",
    "forest of several targets of classes",
    "forest of several targets by sets",
    "extra trees of several targets of classes by sets",
    "tree of medians of several targets",
}


def _kind(name: str) -> tuple[Any, ...]:
    """Return everything that decides how trees of a case are grown: criterion, loss, whether there are several targets."""
    case = CASES[name]
    estimator = case.make()
    loss = getattr(estimator, "loss", "")
    has_penalty = getattr(estimator, "reg_alpha", 0.0) > 0.0
    return case.boosts, estimator.criterion, callable(loss) or loss, has_penalty, case.task.startswith("several")


#: The first case of each kind.
FIRST_OF_KIND = {*{_kind(name): name for name in reversed(CASES)}.values()}


#: Sparse tables with several targets have kernels of their own (one of each kind is in test_targets_of_trees.py).
RARE_IN_SPARSE = {"extra trees of several targets", "tree of medians of several targets"}

#: Shares of the rows in each partition, by the number of partitions; some are empty.
_SHARES = {1: [1.0], 3: [0.2, 0.1, 0.7], 7: [0.0, 0.1, 0.5, 0.0, 0.1, 0.1, 0.2]}


def _spread(data: Any, n_parts: int) -> Any:
    """Return a Dask collection; the chunks of an array have three columns."""
    lengths = [round(share * len(data)) for share in _SHARES[n_parts]]
    if isinstance(data, np.ndarray):
        rows = tuple(length for length in lengths if length)
        return da.from_array(data, chunks=(rows, 3)[: data.ndim])
    return in_partitions(data, lengths)


def fit(case: Case, n_parts: int | None = None, n_jobs: int | None = None, sparse: bool = False, of: Any = None, **more: Any) -> Any:
    """Fit in this process, or from Dask collections of ``n_parts`` partitions, or from a sparse table or sparse blocks.

    ``of`` is an estimator that replaces the case's own; other arguments are its parameters, or options of ``fit``.
    """

    def give(X: pd.DataFrame, *more: pd.Series | pd.DataFrame | None) -> list[Any]:
        if sparse and n_parts is None:
            return [csr_array(numbers(X)), *more]
        data = [numbers(X) if case.array else X, *(item.to_numpy() if case.array and item is not None else item for item in more)]
        if n_parts is None:
            return data
        lazy = [None if item is None else _spread(item, n_parts) for item in data]
        return [lazy[0].map_blocks(csr_array), *lazy[1:]] if sparse else lazy

    model = case.make() if of is None else of
    known = model.get_params()
    model.set_params(**{name: value for name, value in {"n_jobs": n_jobs, **more}.items() if name in known})
    options: dict[str, Any] = {name: value for name, value in more.items() if name not in known}
    if case.evaluated:
        y = HELD_OUT_TARGETS[case.task]
        options["eval_set"] = {"plain": tuple(give(HELD_OUT, y)), "weighted": tuple(give(HELD_OUT, y, HELD_OUT_WEIGHTS))}
    if case.scored:
        options["base_margin"] = give(TRAIN, pd.Series(np.sin(np.arange(N_ROWS)), TRAIN.index))[1]
    if case.callbacks:
        options.setdefault("callbacks", list(case.callbacks))
    data = give(TRAIN, TARGETS[case.task], WEIGHTS if case.weighted else None)
    if case.before:
        n_estimators = model.n_estimators
        model.set_params(warm_start=True, **case.before).fit(*data, **options).set_params(n_estimators=n_estimators)
    model.fit(*data, **options)
    return model.set_params(n_jobs=None) if "n_jobs" in known else model


#: Results of a fit besides the trees.
_OUTCOMES: Sequence[str] = (
    "oob_score_", "oob_scores_", "oob_improvement_", "oob_prediction_", "oob_decision_function_", "train_score_", "validation_score_",
    "best_iteration_", "best_score_", "n_estimators_", "feature_importances_",
)  # fmt: skip


def found(model: Any) -> dict[str, bytes]:
    """Return all results of a fit as bytes: the saved model, scores, scores on evaluation sets."""
    assert any(tree.node_count > 1 for group in model._trees.groups for tree in group)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.dtrees"
        save(model, file)
        outcome = {"model": file.read_bytes()}
    outcome |= {name: np.asarray(getattr(model, name)).tobytes() for name in _OUTCOMES if hasattr(model, name)}
    for given, metrics in getattr(model, "evals_result_", {}).items():
        outcome |= {f"{given} {metric}": np.asarray(values).tobytes() for metric, values in metrics.items()}
    return outcome


@functools.cache
def wanted(name: str) -> dict[str, bytes]:
    """Return the results of a case with one thread."""
    return found(fit(CASES[name], n_jobs=1))


def check(model: Any, name: str) -> None:
    """Compare the results of a fit with those of the case with one thread."""
    ours, theirs = found(model), wanted(name)
    assert ours.keys() == theirs.keys()
    assert [key for key in theirs if ours[key] != theirs[key]] == []
