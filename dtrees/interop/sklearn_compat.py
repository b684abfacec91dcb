"""The parts of scikit-learn's trees that are not public: their arrays, and what estimators hold them.

A tree is made, as unpickling makes it, by ``Tree.__setstate__`` from an array of nodes, whose fields are compared with those that are known
here. An estimator is fitted to a row a class first, so that it has all that its own version wants of a fitted one, and then given trees.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from dtrees.ensemble.compat import SKLEARN_VERSION, check_parameters
from dtrees.tree.tree import Tree

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
