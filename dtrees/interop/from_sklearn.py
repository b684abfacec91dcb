"""Models of dtrees from scikit-learn's estimators: they can be saved without pickle, explained and exported as others of dtrees."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from dtrees import ensemble
from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.input.column import NUMERIC, Column
from dtrees.ensemble.input.plain_data import plain
from dtrees.ensemble.input.schema import Schema
from dtrees.interop.float32 import last_rounded_below
from dtrees.interop.to_sklearn import LEAST_SHARE, nodes_of, take_parameters
from dtrees.split.numbers.elementary import log
from dtrees.tree.stacking import stacked
from dtrees.tree.tree import Tree

_KINDS = ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees", "GradientBoosting")
_NAMES = frozenset(f"{kind}{task}" for kind in _KINDS for task in ("Regressor", "Classifier"))


def from_sklearn(estimator: Any) -> Any:
    """Return the estimator of dtrees of the same name, with the trees of a fitted one of scikit-learn's.

    It predicts what scikit-learn's does, also of values that scikit-learn rounds to float32: thresholds are moved to where rounding sends
    values the other way. Predictions of trees and forests are equal to the last bit, those of boosting but for rounding in float64.

    Parameters
    ----------
    estimator : estimator
        A fitted tree, forest, extra-trees or gradient boosting of :mod:`sklearn.tree` or :mod:`sklearn.ensemble`; if a classifier, of one
        target.

    Returns
    -------
    estimator
        One of dtrees, with the parameters that both have. It can be saved, explained and exported; a fit by ``warm_start`` cannot go on
        from it.

    Raises
    ------
    TypeError
        If ``estimator`` is none of these.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    ValueError
        If a classifier has several targets, or boosting starts from an estimator that looks at X.

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
    model = getattr(ensemble, name)(**({"reg_lambda": 0.0} if boosting else {}))  # scikit-learn's trees know no penalty
    take_parameters(estimator.get_params(deep=False), model, frozenset({"init", "warm_start"}))
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


def _name_of(estimator: Any) -> str:
    """Return the name of an estimator that dtrees has, too."""
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
    """Return a tree of dtrees from one of scikit-learn's; values are multiplied by ``scale``."""
    nodes = nodes_of(theirs)
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
        value=value.reshape(len(value), -1),  # of several targets, or of the classes of one
    )


def _preorder(left: NDArray[np.integer], right: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the nodes in preorder. Trees whose leaves are limited are grown, and numbered, best node first."""
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
    """Return the raw predictions that boosting starts from, shape (n_outputs,), None for zero."""
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
