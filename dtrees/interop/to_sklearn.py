"""scikit-learn's estimators from models of dtrees: what explains, draws or converts scikit-learn's trees takes these.

Of scikit-learn's trees, arrays are not public, nor what estimators hold them. A tree is made, as unpickling makes it, by
``Tree.__setstate__`` from an array of nodes, whose fields are compared with those that are known here. An estimator is fitted to a row a
class first, so that it has all that its own version wants of a fitted one, and then given trees.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from dtrees.ensemble.bagging import Bagging
from dtrees.ensemble.compat import SKLEARN_VERSION, check_parameters
from dtrees.ensemble.input.by_size import resolved
from dtrees.interop.description import PlainModel, describe, refuse_sets, to_numbers
from dtrees.interop.float32 import Float32Table
from dtrees.tree.tree import Tree

_TARGET = "scikit-learn"
_OTHERS = "dtrees.to_onnx, dtrees.to_xgboost, dtrees.to_treelite or dtrees.to_jax"
#: Losses that scikit-learn's gradient boosting has, too.
_LOSSES = ("squared_error", "absolute_error", "huber", "quantile", "log_loss", "exponential")
#: What belongs to a fit.
_LEAVE_OUT = frozenset({"init", "warm_start", "n_estimators"})


def to_sklearn(model: Any, X: Any = None) -> Any:
    """Return scikit-learn's estimator of the same name, with the trees of a model.

    It is a real one: shap, skl2onnx, treelite, dtreeviz and scikit-learn's own functions take it. It predicts what the model does, to the
    last bit for trees and forests, and but for rounding in float64 for boosting, and bags of it.

    scikit-learn casts tables to float32. Values that are float32 are sent the same way; others may be rounded past a threshold very near to
    them. Pass the rows as ``X``, and thresholds are put where that cannot happen to these.

    Parameters
    ----------
    model : estimator
        One of dtrees, fitted.
    X : array-like or frame of shape (n, n_features_in_) or None, default=None
        Rows that are to be predicted as the model does, though they are rounded.

    Returns
    -------
    estimator
        A fitted one of :mod:`sklearn.tree` or :mod:`sklearn.ensemble`. Columns of categories, where there are any, hold numbers
        (:func:`to_numbers`). Trees and forests take missing values; gradient boosting of scikit-learn refuses them.

    Raises
    ------
    TypeError
        If ``model`` is no estimator of dtrees.
    ValueError
        If scikit-learn's trees cannot be the same: splits by sets of categories, losses that it has not, several targets of
        boosting or of classifiers, boosting with splits by whether a value is missing, or values of X that become one as float32.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import RandomForestRegressor, to_sklearn
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> forest = RandomForestRegressor(10, random_state=0).fit(X, X[:, 0])
    >>> theirs = to_sklearn(forest, X)
    >>> theirs.__module__, bool(np.array_equal(theirs.predict(X), forest.predict(X)))
    ('sklearn.ensemble._forest', True)
    """
    if isinstance(model, Bagging):
        return _bag(model, X)
    plain = describe(model, _TARGET)
    refuse_sets(plain, _TARGET, _OTHERS)
    if plain.loss is not None:
        _check_boosting(plain)
    table = None if X is None else Float32Table(plain, to_numbers(model, X), _TARGET)
    kind = type(model).__name__
    estimator = _fitted_template(plain, kind)
    if plain.loss is not None:
        return _boosting(plain, estimator, table)

    def tree_for(template: Any, tree: Tree) -> Any:
        value = tree.value[:, :, np.newaxis] if plain.classes is None else tree.value[:, np.newaxis]
        return with_nodes(template, tree, tree.threshold if table is None else table.thresholds(tree), value)

    if not hasattr(estimator, "estimators_"):
        estimator.tree_ = tree_for(estimator.tree_, plain.groups[0][0])
        estimator.max_features_ = model.max_features_
        return estimator
    template = estimator.estimators_[0]
    estimator.estimators_ = [single(template, tree_for(template.tree_, tree)) for tree in plain.groups[0]]
    estimator.set_params(n_estimators=len(estimator.estimators_))
    return estimator


def _bag(model: Bagging, X: Any) -> Any:
    """Return scikit-learn's bag of the boosters of one of dtrees."""
    check_is_fitted(model)
    boosters = [to_sklearn(booster, X) for booster in model.estimators_]
    bag = sklearn_class(type(model).__name__)(clone(boosters[0]), n_estimators=1, bootstrap=False)
    classes = getattr(model, "classes_", None)
    target = np.ones(2) if classes is None else classes
    bag.fit(np.zeros((len(target), model.n_features_in_)), target)
    wanted = {name: value for name, value in model.get_params(deep=False).items() if name not in ("estimator", "n_estimators")}
    take_parameters(wanted, bag, frozenset())
    bag.set_params(n_estimators=len(boosters))
    bag.estimators_, bag.estimators_features_ = boosters, [np.arange(model.n_features_in_)] * len(boosters)
    if hasattr(model, "feature_names_in_"):
        bag.feature_names_in_ = model.feature_names_in_
    return bag


def _check_boosting(plain: PlainModel) -> None:
    """Raise for boosting that scikit-learn has not."""
    if plain.loss not in _LOSSES:
        raise ValueError(f"loss={plain.loss!r} is none of scikit-learn's gradient boosting, which has {', '.join(_LOSSES)}; use {_OTHERS}")
    if plain.link == "identity" and plain.n_outputs > 1:
        raise ValueError(f"the model has {plain.n_outputs} targets, and scikit-learn's gradient boosting one; use {_OTHERS}")
    for _, tree in plain.trees():
        by_missing = np.flatnonzero(np.isposinf(tree.threshold))
        if by_missing.size:
            column = plain.column(int(tree.feature[by_missing[0]]))
            raise ValueError(
                f"{column} is split by whether its value is missing, and scikit-learn's gradient boosting takes no missing values; "
                f"use {_OTHERS}"
            )


def _fitted_template(plain: PlainModel, kind: str) -> Any:
    """Return scikit-learn's estimator, fitted to a row for each class, with the parameters of the model that it has, too."""
    estimator = sklearn_class(kind)()
    model = plain.estimator
    given = resolved(model)
    if plain.loss is not None:
        given["loss"] = plain.loss
    take_parameters(given, estimator, _LEAVE_OUT)
    wanted = estimator.get_params(deep=False)
    quiet = {
        "n_estimators": 1, "oob_score": False, "n_iter_no_change": None, "monotonic_cst": None, "class_weight": None, "subsample": 1.0,
        "max_samples": None, "n_jobs": None, "verbose": 0, "min_samples_split": 2, "min_samples_leaf": 1, "bootstrap": False,
    }  # fmt: skip
    estimator.set_params(**{name: value for name, value in quiet.items() if name in wanted})
    several = plain.loss is None and plain.n_outputs > 1
    target = plain.classes if plain.classes is not None else np.ones((2, plain.n_outputs) if several else 2)
    estimator.fit(np.zeros((len(target), plain.n_features)), target)
    wanted.pop("n_estimators", None)
    estimator.set_params(**wanted)
    for member in np.ravel(getattr(estimator, "estimators_", [])):
        take_parameters(wanted, member, frozenset({"criterion", "random_state"} if plain.loss is not None else {"random_state"}))
    if hasattr(model, "feature_names_in_"):
        estimator.feature_names_in_ = model.feature_names_in_
    return estimator


def _boosting(plain: PlainModel, estimator: Any, table: Float32Table | None) -> Any:
    """Return gradient boosting with the trees of a model, whose steps are before shrinkage."""
    model: Any = plain.estimator
    rate = float(resolved(model)["learning_rate"]) or 1.0
    estimator.set_params(learning_rate=rate, n_estimators=model.n_estimators_)
    template = estimator.estimators_[0, 0]
    trees = np.empty((len(plain.groups[0]), len(plain.groups)), dtype=object)
    for output, group in enumerate(plain.groups):
        for round_, tree in enumerate(group):
            threshold = tree.threshold if table is None else table.thresholds(tree)
            trees[round_, output] = single(template, with_nodes(template.tree_, tree, threshold, tree.value[:, np.newaxis] / rate))
    estimator.estimators_ = trees
    estimator.init_ = model.init_
    for name in ("n_estimators_", "train_score_", "max_features_"):
        if hasattr(model, name):
            setattr(estimator, name, getattr(model, name))
    return estimator


#: Fields of scikit-learn's nodes, and the arrays of dtrees that hold the same.
_FIELDS = {
    "left_child": "children_left",
    "right_child": "children_right",
    "feature": "feature",
    "threshold": "threshold",
    "impurity": "impurity",
    "n_node_samples": "n_node_samples",
    "weighted_n_node_samples": "weighted_n_node_samples",
    "missing_go_to_left": "missing_go_to_left",
}

#: What boosting clips shares of classes to, before it starts from them.
LEAST_SHARE = float(np.finfo(np.float64 if SKLEARN_VERSION >= (1, 8) else np.float32).eps)


def sklearn_class(name: str) -> Any:
    """Return scikit-learn's estimator of a name."""
    import sklearn.ensemble
    import sklearn.tree

    return getattr(sklearn.tree, name, None) or getattr(sklearn.ensemble, name)


def nodes_of(tree: Any) -> NDArray[Any]:
    """Return the nodes of scikit-learn's tree.

    Raises
    ------
    RuntimeError
        If they are not laid out as is known here.
    """
    nodes = tree.__getstate__()["nodes"]
    if set(nodes.dtype.names or ()) != set(_FIELDS):
        raise RuntimeError(
            f"scikit-learn {sklearn.__version__} has trees of nodes with the fields {', '.join(nodes.dtype.names or ())}; this dtrees "
            f"knows {', '.join(_FIELDS)}; install a version of scikit-learn that dtrees names in its requirements"
        )
    return nodes


def with_nodes(template: Any, tree: Tree, threshold: NDArray[np.float64], value: NDArray[np.float64]) -> Any:
    """Return a tree of scikit-learn's, for as many columns and classes as a template, with nodes of dtrees, given thresholds, and values.

    These have the shape (n, n_targets, n_classes).
    """
    nodes = np.zeros(tree.node_count, nodes_of(template).dtype)
    for theirs, ours in _FIELDS.items():
        nodes[theirs] = getattr(tree, ours)
    nodes["threshold"] = threshold
    cls, arguments, state = template.__reduce__()
    made = cls(*arguments)
    made.__setstate__({**state, "max_depth": tree.max_depth, "node_count": tree.node_count, "nodes": nodes, "values": value})
    return made


def single(template: Any, tree: Any) -> Any:
    """Return an estimator of a single tree, otherwise as a template."""
    made = copy.copy(template)
    made.tree_ = tree
    return made


def take_parameters(given: dict[str, Any], estimator: Any, leave_out: frozenset[str]) -> None:
    """Set the parameters of an estimator that it shares with given ones, and may have those values."""
    for name, value in estimator.get_params(deep=False).items():
        if name in given and name not in leave_out:
            estimator.set_params(**{name: given[name]})
            try:
                check_parameters(estimator)
            except ValueError:
                estimator.set_params(**{name: value})
