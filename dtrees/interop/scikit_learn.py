"""Convert models of dtrees to estimators of scikit-learn, and the other way.

Tools that explain, draw or convert trees of scikit-learn accept the converted estimators. Models from scikit-learn can be saved without
pickle, explained and exported like other models of dtrees.

The arrays of scikit-learn's trees and the attributes of its estimators are not public. A tree is created as unpickling does, by
``Tree.__setstate__`` from an array of nodes, whose fields are compared with those that are known here. An estimator is first fitted to
one row for each class, so that it has all attributes that its version expects, and then receives the trees.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_is_fitted

import dtrees
from dtrees.ensemble.bagging import Bagging
from dtrees.ensemble.compat import SKLEARN_VERSION, check_parameters
from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.input.by_size import resolved
from dtrees.ensemble.input.column import NUMERIC, Column
from dtrees.ensemble.input.plain_data import plain
from dtrees.ensemble.input.schema import Schema
from dtrees.interop.description import PlainModel, describe, refuse_sets
from dtrees.interop.rounding import last_rounded_below, thresholds_for
from dtrees.split.numbers.elementary import log
from dtrees.tree.stacking import stacked
from dtrees.tree.tree import Tree

_TARGET = "scikit-learn"
_OTHERS = "dtrees.to_onnx, dtrees.to_xgboost, dtrees.to_treelite or dtrees.to_jax"
#: Losses that scikit-learn's gradient boosting also has.
_LOSSES = ("squared_error", "absolute_error", "huber", "quantile", "log_loss", "exponential")
#: Parameters that concern a fit only.
_LEAVE_OUT = frozenset({"init", "warm_start", "n_estimators"})
#: Fields of scikit-learn's nodes, and the arrays of dtrees with the same data.
_SAME = ("feature", "threshold", "impurity", "n_node_samples", "weighted_n_node_samples", "missing_go_to_left")
_FIELDS = {"left_child": "children_left", "right_child": "children_right"} | {name: name for name in _SAME}

#: Limit to which boosting clips the shares of classes for its initial value.
LEAST_SHARE = float(np.finfo(np.float64 if SKLEARN_VERSION >= (1, 8) else np.float32).eps)
_KINDS = ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees", "GradientBoosting")
_NAMES = frozenset(f"{kind}{task}" for kind in _KINDS for task in ("Regressor", "Classifier"))


def to_sklearn(model: Any, X: Any = None) -> Any:
    """Return the scikit-learn estimator of the same name, with the trees of a model.

    The result is an estimator of scikit-learn, so shap, skl2onnx, treelite, dtreeviz and scikit-learn's own functions accept it.
    Predictions of trees and forests equal those of the model to the last bit; those of boosting, and of bags of it, up to rounding in
    float64.

    scikit-learn casts tables to float32. Values that are not float32 may be rounded across a threshold very close to them. If you pass rows
    as ``X``, thresholds are moved so that this cannot happen to these rows.

    Parameters
    ----------
    model : estimator
        A fitted estimator of dtrees.
    X : array-like or frame of shape (n, n_features_in_) or None, default=None
        Rows whose predictions must not change by rounding to float32.

    Returns
    -------
    estimator
        A fitted estimator of :mod:`sklearn.tree` or :mod:`sklearn.ensemble`. It takes categories as numbers (:func:`to_numbers`). Trees
        and forests take missing values; gradient boosting of scikit-learn refuses them.

    Raises
    ------
    TypeError
        If ``model`` is not an estimator of dtrees.
    ValueError
        If scikit-learn cannot represent the model: splits by subsets of categories, losses that it does not have, multi-output
        boosting or classifiers, or boosting with splits by whether a value is missing; or if different values of X are equal as float32.

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
    source = describe(model, _TARGET)
    refuse_sets(source, _TARGET, _OTHERS)
    rate = 1.0
    if source.loss is not None:
        _check_boosting(source)
        rate = float(resolved(model)["learning_rate"]) or 1.0  # scikit-learn's trees hold steps before shrinkage
    thresholds = thresholds_for(source, model, X, _TARGET)
    estimator = _fitted_template(source, type(model).__name__)

    def made(template: Any, tree: Tree) -> Any:
        value = tree.value[:, :, np.newaxis] if source.classes is None else tree.value[:, np.newaxis]
        return _with_nodes(template, tree, thresholds(tree), value / rate)

    if not hasattr(estimator, "estimators_"):
        estimator.tree_ = made(estimator.tree_, source.groups[0][0])
        estimator.max_features_ = model.max_features_
        return estimator
    template = np.ravel(estimator.estimators_)[0]
    members = []
    for tree in (tree for group in source.groups for tree in group):
        members.append(copy.copy(template))
        members[-1].tree_ = made(template.tree_, tree)
    if source.loss is None:
        estimator.estimators_ = members
        return estimator.set_params(n_estimators=len(members))
    estimator.estimators_ = np.array(members, dtype=object).reshape(len(source.groups), -1).T
    for name in ("init_", "max_features_"):
        if hasattr(model, name):
            setattr(estimator, name, getattr(model, name))
    estimator.n_estimators_ = n_rounds = len(estimator.estimators_)  # a tree of each output in each round
    estimator.train_score_ = np.repeat(model.train_score_, model._trees.n_parallel)
    return estimator.set_params(learning_rate=rate, n_estimators=n_rounds)


def from_sklearn(estimator: Any) -> Any:
    """Return the dtrees estimator of the same name, with the trees of a fitted scikit-learn estimator.

    Predictions of trees and forests equal those of scikit-learn to the last bit; those of boosting, up to rounding in float64. This
    includes values that scikit-learn rounds to float32: thresholds are moved to reproduce the rounding.

    Parameters
    ----------
    estimator : estimator
        A fitted tree, forest, extra-trees or gradient boosting of :mod:`sklearn.tree` or :mod:`sklearn.ensemble`. A classifier must have
        one target.

    Returns
    -------
    estimator
        An estimator of dtrees, with the parameters that both libraries have. It can be saved, explained and exported, but a fit with
        ``warm_start`` cannot continue it.

    Raises
    ------
    TypeError
        If ``estimator`` is not one of these.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    ValueError
        If a classifier is multi-output, or boosting starts from an estimator that uses X.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from dtrees import from_sklearn
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> theirs = RandomForestRegressor(10, random_state=0).fit(X, X[:, 0])
    >>> forest = from_sklearn(theirs)
    >>> type(forest).__module__.partition(".")[0], bool(np.array_equal(forest.predict(X), theirs.predict(X)))
    ('dtrees', True)
    """
    name = _name_of(estimator)
    check_is_fitted(estimator)
    n_targets = int(getattr(estimator, "n_outputs_", 1))
    if n_targets > 1 and is_classifier(estimator):
        raise ValueError(f"this {name} has {n_targets} targets with classes of their own, which are not carried; fit one for each target")
    boosting = name.startswith("GradientBoosting")
    names = getattr(estimator, "feature_names_in_", None)
    columns = [None] * estimator.n_features_in_ if names is None else [str(one) for one in names]
    model = getattr(dtrees, name)(**({"reg_lambda": 0.0} if boosting else {}))  # scikit-learn's trees have no penalty
    _take_parameters(estimator.get_params(deep=False), model, frozenset({"init", "warm_start"}))
    metadata: dict[str, Any] = {
        "parameters": {key: plain(value) for key, value in model.get_params(deep=False).items()},
        "schema": Schema(tuple(Column(one, NUMERIC) for one in columns)).to_json(),
        "named": names is not None,
        "attributes": {},
        **({"targets": n_targets} if n_targets > 1 else {}),
    }
    if is_classifier(estimator):
        metadata["classes"] = {"dtype": estimator.classes_.dtype.str, "values": estimator.classes_.tolist()}
    members = estimator.estimators_ if hasattr(estimator, "estimators_") else [estimator]
    if boosting:
        groups = [[_tree(member.tree_, estimator.learning_rate) for member in group] for group in estimator.estimators_.T]
        start = _start(estimator)
        metadata["starts"] = "loss" if start is not None else "zero"
        metadata["attributes"]["n_estimators_"] = len(groups[0])
        arrays = {
            "initial": np.zeros(len(groups)) if start is None else start,
            "train_score_": np.asarray(estimator.train_score_, np.float64),
        }
    else:
        groups, arrays = [[_tree(member.tree_) for member in members]], {}
    metadata["attributes"]["max_features_"] = int(getattr(np.ravel(members)[0], "max_features_", estimator.n_features_in_))
    return type(model)._from_state(metadata, {**stacked(groups), **arrays})


def _bag(model: Bagging, X: Any) -> Any:
    """Return scikit-learn's bag of boosters for a bag of dtrees."""
    check_is_fitted(model)
    boosters = [to_sklearn(booster, X) for booster in model.estimators_]
    bag = _sklearn_class(type(model).__name__)(clone(boosters[0]), n_estimators=1, bootstrap=False)
    classes = getattr(model, "classes_", None)
    target = np.ones(2) if classes is None else classes
    bag.fit(np.zeros((len(target), model.n_features_in_)), target)
    wanted = {name: value for name, value in model.get_params(deep=False).items() if name not in ("estimator", "n_estimators")}
    _take_parameters(wanted, bag, frozenset())
    bag.set_params(n_estimators=len(boosters))
    bag.estimators_, bag.estimators_features_ = boosters, [np.arange(model.n_features_in_)] * len(boosters)
    if hasattr(model, "feature_names_in_"):
        bag.feature_names_in_ = model.feature_names_in_
    return bag


def _check_boosting(source: PlainModel) -> None:
    """Raise for boosting that scikit-learn does not support."""
    if source.loss not in _LOSSES:
        raise ValueError(
            f"loss={source.loss!r} does not exist in scikit-learn's gradient boosting, which has {', '.join(_LOSSES)}; use {_OTHERS}"
        )
    if source.link == "identity" and source.n_outputs > 1:
        raise ValueError(f"the model has {source.n_outputs} targets, and scikit-learn's gradient boosting one; use {_OTHERS}")
    for _, tree in source.trees():
        by_missing = np.flatnonzero(np.isposinf(tree.threshold))
        if by_missing.size:
            column = source.column(int(tree.feature[by_missing[0]]))
            raise ValueError(
                f"{column} is split by whether its value is missing, and scikit-learn's gradient boosting takes no missing values; "
                f"use {_OTHERS}"
            )


def _fitted_template(source: PlainModel, kind: str) -> Any:
    """Return scikit-learn's estimator, fitted to one row for each class, with the parameters that both libraries have."""
    estimator = _sklearn_class(kind)()
    model = source.estimator
    given = resolved(model)
    if source.loss is not None:
        given["loss"] = source.loss
    _take_parameters(given, estimator, _LEAVE_OUT)
    wanted = estimator.get_params(deep=False)
    quiet = {
        "n_estimators": 1, "oob_score": False, "n_iter_no_change": None, "monotonic_cst": None, "class_weight": None, "subsample": 1.0,
        "max_samples": None, "n_jobs": None, "verbose": 0, "min_samples_split": 2, "min_samples_leaf": 1, "bootstrap": False,
    }  # fmt: skip
    estimator.set_params(**{name: value for name, value in quiet.items() if name in wanted})
    several = source.loss is None and source.n_outputs > 1
    target = source.classes if source.classes is not None else np.ones((2, source.n_outputs) if several else 2)
    estimator.fit(np.zeros((len(target), source.n_features)), target)
    wanted.pop("n_estimators", None)
    estimator.set_params(**wanted)
    for member in np.ravel(getattr(estimator, "estimators_", [])):
        _take_parameters(wanted, member, frozenset({"criterion", "random_state"} if source.loss is not None else {"random_state"}))
    if hasattr(model, "feature_names_in_"):
        estimator.feature_names_in_ = model.feature_names_in_
    return estimator


def _sklearn_class(name: str) -> Any:
    """Return scikit-learn's estimator with this name."""
    import sklearn.ensemble
    import sklearn.tree

    return getattr(sklearn.tree, name, None) or getattr(sklearn.ensemble, name)


def _nodes_of(tree: Any) -> NDArray[Any]:
    """Return the nodes of scikit-learn's tree.

    Raises
    ------
    RuntimeError
        If they do not have the known layout.
    """
    nodes = tree.__getstate__()["nodes"]
    if set(nodes.dtype.names or ()) != set(_FIELDS):
        raise RuntimeError(
            f"scikit-learn {sklearn.__version__} has trees of nodes with the fields {', '.join(nodes.dtype.names or ())}; this dtrees "
            f"knows {', '.join(_FIELDS)}; install a version of scikit-learn that dtrees names in its requirements"
        )
    return nodes


def _with_nodes(template: Any, tree: Tree, threshold: NDArray[np.float64], value: NDArray[np.float64]) -> Any:
    """Return a scikit-learn tree with the nodes of a dtrees tree and given thresholds, for the columns and classes of a template.

    ``value`` has the shape (n, n_targets, n_classes).
    """
    nodes = np.zeros(tree.node_count, _nodes_of(template).dtype)
    for theirs, ours in _FIELDS.items():
        nodes[theirs] = getattr(tree, ours)
    nodes["threshold"] = threshold
    cls, arguments, state = template.__reduce__()
    made = cls(*arguments)
    made.__setstate__({**state, "max_depth": tree.max_depth, "node_count": tree.node_count, "nodes": nodes, "values": value})
    return made


def _take_parameters(given: dict[str, Any], estimator: Any, leave_out: frozenset[str]) -> None:
    """Set the parameters of an estimator that are also given, except for values that it does not allow."""
    for name, value in estimator.get_params(deep=False).items():
        if name in given and name not in leave_out:
            estimator.set_params(**{name: given[name]})
            try:
                check_parameters(estimator)
            except ValueError:
                estimator.set_params(**{name: value})


def _name_of(estimator: Any) -> str:
    """Return the name of an estimator that dtrees also has."""
    name, module = type(estimator).__name__, type(estimator).__module__
    if isinstance(estimator, TreeEstimator):
        raise TypeError(f"estimator is a {name} of dtrees already; wants one of scikit-learn's")
    if module.startswith("sklearn.") and name.startswith("HistGradientBoosting"):
        raise TypeError(
            f"estimator is a {name}, which keeps its trees in private attributes, laid out differently from release to release; wants one "
            f"of {', '.join(_KINDS)} with Regressor or Classifier"
        )
    if not module.startswith("sklearn.") or name not in _NAMES:
        raise TypeError(
            f"estimator is of type {module}.{name}; wants a fitted one of scikit-learn's: {', '.join(_KINDS)} with Regressor or Classifier "
            "(of a pipeline, its last step)"
        )
    return name


def _tree(theirs: Any, scale: float = 1.0) -> Tree:
    """Return a dtrees tree from a scikit-learn tree; values are multiplied by ``scale``."""
    nodes = _nodes_of(theirs)
    order = _preorder(nodes["left_child"], nodes["right_child"])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    nodes, value = nodes[order], theirs.value[order] * scale
    leaf = nodes["left_child"] < 0
    left, right = (np.where(leaf, -1, place[nodes[side]]) for side in ("left_child", "right_child"))
    loss = nodes["weighted_n_node_samples"] * nodes["impurity"]
    with np.errstate(invalid="ignore"):
        threshold = np.where(leaf, -2.0, last_rounded_below(nodes["threshold"]))
    return Tree.from_arrays(
        children_left=left,
        children_right=right,
        feature=np.where(leaf, -2, nodes["feature"]),
        threshold=threshold,
        missing_go_to_left=nodes["missing_go_to_left"].astype(bool) & ~leaf,
        impurity=nodes["impurity"],
        gain=np.where(leaf, 0.0, np.maximum(loss - loss[left] - loss[right], 0.0)),
        n_node_samples=nodes["n_node_samples"],
        weighted_n_node_samples=nodes["weighted_n_node_samples"],
        value=value.reshape(len(value), -1),  # for several targets, or for the classes of one
    )


def _preorder(left: NDArray[np.integer], right: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the nodes in preorder. Trees with limited leaves are grown, and numbered, best node first."""
    inner = np.flatnonzero(left >= 0)
    if np.array_equal(left[inner], inner + 1):
        return np.arange(len(left))
    order, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if left[node] >= 0:
            waiting += [int(right[node]), int(left[node])]
    return np.array(order)


def _start(estimator: Any) -> NDArray[np.float64] | None:
    """Return the initial raw predictions of boosting, shape (n_outputs,), or None for zero."""
    from sklearn.dummy import DummyClassifier, DummyRegressor

    init = estimator.init_
    if isinstance(init, str):
        return None
    if not isinstance(init, DummyRegressor | DummyClassifier) or getattr(init, "strategy", "") == "stratified":
        raise ValueError(
            f"this {type(estimator).__name__} starts from init={type(init).__name__}, whose predictions differ from row to row, and which "
            "no model file can hold; fit it with init=None or 'zero'"
        )
    row = np.zeros((1, estimator.n_features_in_))
    if not is_classifier(estimator):
        return np.asarray(init.predict(row), np.float64)
    shares = np.clip(init.predict_proba(row)[0], LEAST_SHARE, 1.0 - LEAST_SHARE)
    if len(shares) == 2:
        return np.array([log(shares[1] / shares[0]) * (0.5 if estimator.loss == "exponential" else 1.0)])
    logarithms = log(shares)
    return np.asarray(logarithms - logarithms.mean())
