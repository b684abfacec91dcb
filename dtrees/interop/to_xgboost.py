"""Convert models to XGBoost, as the JSON that XGBoost itself writes.

XGBoost sends ``x < condition`` left, in float32, so ``x <= t`` becomes ``x < c``, where c is the next float32 after t. Its sets contain
the categories that go right, so the sides of such a node are swapped. The initial value becomes ``base_score``, which passes through a
link in float32; the rounding error is added to the leaves of the first round.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.files import atomic_file
from dtrees.interop.description import PlainModel, describe
from dtrees.interop.rounding import thresholds_for
from dtrees.split.numbers.elementary import exp, log
from dtrees.split.numbers.ordered import rounded_down
from dtrees.tree.tree import Tree
from dtrees.version import needed

_TARGET = "XGBoost"
#: The first version with a base score for each output.
_VERSION = [3, 1, 0]
#: The parent of a root.
_NO_NODE = 2**31 - 1

_SCALE = {"reg_loss_param": {"scale_pos_weight": "1"}}
#: XGBoost's objective for a loss of one target, and its parameters; for other losses the link decides.
_OBJECTIVES: dict[str | None, tuple[str, dict[str, Any]]] = {
    "squared_error": ("reg:squarederror", _SCALE),
    "absolute_error": ("reg:absoluteerror", {}),
    "huber": ("reg:pseudohubererror", {"pseudo_huber_param": {"huber_slope": "1"}}),
    "poisson": ("count:poisson", {"poisson_regression_param": {"max_delta_step": "0.7"}}),
    "gamma": ("reg:gamma", _SCALE),
}


def to_xgboost(model: Any, path: str | os.PathLike[str] | None = None, *, X: Any = None) -> Any:
    """Return an XGBoost booster with the predictions of a model, or write it to a file.

    The booster takes ``xgboost.DMatrix(dtrees.to_numbers(model, X), feature_names=booster.feature_names,
    feature_types=booster.feature_types, enable_categorical=True)``. It computes in float32, so its predictions equal those of dtrees to
    about six digits. Values that are not float32 may be rounded across a threshold very close to them. If you pass rows as ``X``,
    thresholds are moved so that this cannot happen to these rows.

    Boosting gets XGBoost's objective for its loss: the pseudo-Huber objective for ``huber``, the log loss with doubled leaves for
    ``exponential``, and an objective with the same link for a function as loss. A forest becomes one round of parallel trees, whose leaves
    are divided by the number of trees. For two classes it predicts the probability of the second; for more, a probability for each.

    Parameters
    ----------
    model : estimator
        A fitted estimator of dtrees. If it was fitted with ``base_margin``, pass the scores of the rows to ``DMatrix``.
    path : str, path-like or None, default=None
        File for the model as JSON, which ``xgboost.Booster(model_file=path)`` reads. Writing it does not need XGBoost.
    X : array-like or frame of shape (n, n_features_in_) or None, default=None
        Rows whose predictions must not change by rounding to float32.

    Returns
    -------
    xgboost.Booster or None
        None if ``path`` is given.

    Raises
    ------
    TypeError
        If ``model`` is not an estimator of dtrees.
    ValueError
        If the model starts from an estimator, or different values of X are equal as float32.
    ImportError
        If XGBoost is not installed and ``path`` is None.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> from dtrees import GradientBoostingRegressor, to_xgboost
    >>> model = GradientBoostingRegressor(loss="poisson", n_estimators=3).fit([[1.0], [2.0]] * 20, [1.0, 5.0] * 20)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.json"
    >>> to_xgboost(model, path)
    >>> json.loads(path.read_text())["learner"]["objective"]["name"]
    'count:poisson'
    """
    plain = describe(model, _TARGET, holds={"margins"})
    thresholds = thresholds_for(plain, model, X, _TARGET)
    if path is None:
        xgboost = needed("xgboost", "xgboost")
        booster = xgboost.Booster()
        booster.load_model(bytearray(_document(plain, thresholds)))
        return booster
    with atomic_file(path) as file:
        file.write(_document(plain, thresholds))
    return None


def _document(plain: PlainModel, thresholds: Callable[[Tree], NDArray[np.float64]]) -> bytes:
    """Return the model as JSON in XGBoost's format."""
    objective, parameters = _objective(plain)
    base, left_over = _base(plain)
    parts: list[tuple[int, Tree, NDArray[np.float64]]] = []
    two_shares = plain.link == "shares" and plain.n_outputs == 2
    for number, (output, tree) in enumerate(plain.trees()):
        first = left_over[output] if plain.by_groups and number < len(plain.groups) else 0.0
        for k in [1] if two_shares else range(tree.value.shape[1]):
            parts.append((0 if two_shares else output + k, tree, (tree.value[:, k] * plain.slope + first) / plain.divisor))
    if not plain.by_groups:
        parts.sort(key=lambda part: part[0])
    n_outputs = 1 if two_shares else plain.n_outputs
    categorical = np.zeros(plain.n_features, bool)
    for _, tree in plain.trees():
        categorical[tree.feature[tree.categories.node]] = True
    is_multiclass = plain.link == "softmax"
    n_trees = len(parts)
    score = ",".join(f"{one:.9g}" for one in base[:n_outputs])
    trees = [_tree(number, tree, value, plain.n_features, thresholds(tree)) for number, (_, tree, value) in enumerate(parts)]
    document = {
        "learner": {
            "attributes": {},
            "feature_names": _names(plain),
            "feature_types": ["c" if of_sets else "q" for of_sets in categorical.tolist()],
            "gradient_booster": {
                "name": "gbtree",
                "model": {
                    "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
                    "gbtree_model_param": {
                        "num_parallel_tree": str(1 if plain.by_groups else n_trees // n_outputs),
                        "num_trees": str(n_trees),
                    },
                    "iteration_indptr": list(range(0, n_trees + 1, n_outputs if plain.by_groups else n_trees)),
                    "tree_info": [output for output, _, _ in parts],
                    "trees": trees,
                },
            },
            "learner_model_param": {
                "base_score": score if n_outputs == 1 else f"[{score}]",
                "boost_from_average": "0",
                "num_class": str(n_outputs) if is_multiclass else "0",
                "num_feature": str(plain.n_features),
                "num_target": "1" if is_multiclass else str(n_outputs),
            },
            "objective": {"name": objective, **parameters},
        },
        "version": _VERSION,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _names(plain: PlainModel) -> list[str]:
    """Return the names of columns, or none if XGBoost does not allow them."""
    names = plain.names or []
    return [] if any(sign in name for name in names for sign in "[]<") else names


def _objective(plain: PlainModel) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters of the objective."""
    if plain.link == "logistic":
        return "binary:logistic", _SCALE
    if plain.link == "softmax":
        return "multi:softprob", {"softmax_multiclass_param": {"num_class": str(plain.n_outputs)}}
    loss = plain.loss if plain.n_outputs == 1 else None
    if loss == "quantile":
        return "reg:quantileerror", {"quantile_loss_param": {"quantile_alpha": f"[{plain.estimator.alpha}]"}}
    if loss == "tweedie":
        return "reg:tweedie", {"tweedie_regression_param": {"tweedie_variance_power": str(plain.estimator.tweedie_variance_power)}}
    return _OBJECTIVES.get(loss) or _OBJECTIVES["poisson" if plain.link == "exponential" else "squared_error"]


def _base(plain: PlainModel) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return the base score of each output, and its difference to the initial raw prediction."""
    raw = plain.initial * plain.slope
    if plain.link == "logistic":
        base = np.clip(1.0 / (1.0 + exp(-raw)), 1e-7, 1.0 - 1e-7).astype(np.float32)
        return base, raw - log(base.astype(np.float64) / (1.0 - base.astype(np.float64)))
    if plain.link == "exponential":
        base = np.clip(exp(raw), 1e-16, 1e16).astype(np.float32)
        return base, raw - log(base.astype(np.float64))
    base = raw.astype(np.float32)
    return base, raw - base


def _tree(number: int, tree: Tree, value: NDArray[np.float64], n_features: int, threshold: NDArray[np.float64]) -> dict[str, Any]:
    """Return a tree in XGBoost's JSON format."""
    sets = {node: tree.categories.of_node(node).tolist() for node in tree.categories.node.tolist()}
    by_set = np.isnan(tree.threshold)
    empty = [node for node, some in sets.items() if not some]  # only missing values go left; XGBoost has no empty sets
    by_set[empty], threshold = False, np.where(by_set, -1.0, threshold)
    left = np.where(by_set, tree.children_right, tree.children_left)
    right = np.where(by_set, tree.children_left, tree.children_right)
    order = _by_levels(left, right)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    leaf = (left < 0)[order]
    left, right = (np.where(leaf, -1, place[side[order]]) for side in (left, right))
    inner = np.flatnonzero(~leaf)
    parents = np.full(len(order), _NO_NODE, np.int64)
    parents[left[inner]] = parents[right[inner]] = inner
    condition = np.nextafter(rounded_down(np.where(tree.feature < 0, 0.0, threshold)), np.float32(np.inf))
    # No number is above the largest: all values that are not missing go left.
    condition = np.minimum(condition, np.finfo(np.float32).max)[order]
    single = value.astype(np.float32)[order]
    node_sets = sorted((int(place[node]), some) for node, some in sets.items() if some)
    sizes = [len(some) for _, some in node_sets]
    return {
        "base_weights": single.tolist(),
        "categories": [category for _, some in node_sets for category in some],
        "categories_nodes": [node for node, _ in node_sets],
        "categories_segments": np.cumsum([0, *sizes])[:-1].tolist() if sizes else [],
        "categories_sizes": sizes,
        "default_left": (~leaf & (tree.missing_go_to_left != by_set)[order]).astype(int).tolist(),
        "id": number,
        "left_children": left.tolist(),
        "loss_changes": tree.gain.astype(np.float32)[order].tolist(),
        "parents": parents.tolist(),
        "right_children": right.tolist(),
        "split_conditions": np.where(leaf, single, condition).tolist(),
        "split_indices": np.maximum(tree.feature, 0)[order].tolist(),
        "split_type": by_set[order].astype(int).tolist(),
        "sum_hessian": tree.weighted_n_node_samples.astype(np.float32)[order].tolist(),
        "tree_param": {"num_deleted": "0", "num_feature": str(n_features), "num_nodes": str(len(order)), "size_leaf_vector": "1"},
    }


def _by_levels(left: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the nodes level by level, children side by side: XGBoost expects the right child after the left one."""
    levels = [np.zeros(1, np.int64)]
    while levels[-1].size:
        inner = levels[-1][left[levels[-1]] >= 0]
        levels.append(np.stack([left[inner], right[inner]], axis=1).ravel().astype(np.int64))
    return np.concatenate(levels)
