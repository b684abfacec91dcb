"""The finished tree, a structure of arrays.

Nodes are numbered in preorder: the root is 0, a node's left subtree comes before its right one. Fields have scikit-learn's names if they
have the same meaning. Two trees are equal if and only if all their arrays are equal.

>>> import numpy as np
>>> from dtrees.tree.tree import Tree
>>> stump = Tree.from_arrays(
...     children_left=[1, -1, -1], children_right=[2, -1, -1], feature=[0, -2, -2], threshold=[0.5, -2.0, -2.0],
...     missing_go_to_left=[True, False, False], impurity=[0.25, 0.0, 0.0], gain=[1.0, 0.0, 0.0],
...     n_node_samples=[4, 2, 2], weighted_n_node_samples=[4.0, 2.0, 2.0], value=[[0.5], [0.0], [1.0]])
>>> stump.node_count, stump.n_leaves, stump.max_depth
(3, 2, 1)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtrees.tree.category_sets import NO_SETS, CategorySets

if TYPE_CHECKING:
    from dtrees.tree.compact import CompactTree

#: Trees of fewer nodes are pickled and saved in full, which takes less time than compacting them.
LARGE = 1024

#: The attribute for the compact form of an unpickled tree, until its arrays are needed.
_COMPACT = "_compact"


@dataclass(frozen=True, eq=False)
class Tree:
    """A decision tree.

    Attributes
    ----------
    children_left, children_right : ndarray of int32, shape (node_count,)
        Node numbers; -1 at leaves.
    feature : ndarray of int32, shape (node_count,)
        The column a node splits on; -2 at leaves.
    threshold : ndarray of float64, shape (node_count,)
        Rows with ``x <= threshold`` go left; +inf sends every value left and missing ones right. -2 at leaves. NaN where a node splits on
        categories.
    missing_go_to_left : ndarray of bool, shape (node_count,)
        Whether missing values go left.
    impurity : ndarray of float64, shape (node_count,)
        Impurity of the node's rows by the criterion; for boosted trees the mean of the loss's second-order model that a leaf value
        would remove, ``G^2 / (H + reg_lambda) / H``.
    gain : ndarray of float64, shape (node_count,)
        Decrease of impurity times weight by the split; 0 at leaves.
    n_node_samples : ndarray of int64, shape (node_count,)
        Number of training rows.
    weighted_n_node_samples : ndarray of float64, shape (node_count,)
        Weight of the training rows (boosted trees: their sum of hessians).
    value : ndarray of float64, shape (node_count, n_values)
        Prediction of the node: mean target, fraction of each class, or the step of a boosted tree.
    categories : CategorySets
        Categories that go left, for nodes that split on a column of categories.
    """

    children_left: NDArray[np.int32]
    children_right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    missing_go_to_left: NDArray[np.bool_]
    impurity: NDArray[np.float64]
    gain: NDArray[np.float64]
    n_node_samples: NDArray[np.int64]
    weighted_n_node_samples: NDArray[np.float64]
    value: NDArray[np.float64]
    categories: CategorySets = NO_SETS

    #: The arrays of all trees and their dtypes, in order.
    ARRAYS: ClassVar[dict[str, Any]] = {
        "children_left": np.int32,
        "children_right": np.int32,
        "feature": np.int32,
        "threshold": np.float64,
        "missing_go_to_left": np.bool_,
        "impurity": np.float64,
        "gain": np.float64,
        "n_node_samples": np.int64,
        "weighted_n_node_samples": np.float64,
        "value": np.float64,
    }

    @classmethod
    def from_arrays(cls, **arrays: ArrayLike) -> Tree:
        """Return a tree from array-likes, converted to the right dtypes; no node splits on categories."""
        given: dict[str, Any] = {name: np.ascontiguousarray(arrays[name], dtype) for name, dtype in cls.ARRAYS.items()}
        return cls(**given)

    def with_categories(self, sets: CategorySets) -> Tree:
        """Return the tree with sets of categories, which replace the thresholds of their nodes."""
        threshold = self.threshold.copy()
        threshold[sets.node] = np.nan
        return replace(self, threshold=threshold, categories=sets)

    def __reduce__(self) -> Any:
        small = self.compact() if self.node_count >= LARGE else None
        if small is None:
            return Tree, (*(getattr(self, name) for name in self.ARRAYS), self.categories)
        return Tree.from_compact, (self.categories, *small)

    @classmethod
    def from_compact(cls, categories: CategorySets, *small: NDArray[Any]) -> Tree:
        """Return the tree of a :class:`~dtrees.tree.compact.CompactTree`; its arrays are computed when they are first needed."""
        from dtrees.tree.compact import CompactTree

        tree = cls.__new__(cls)
        vars(tree)[_COMPACT], vars(tree)["categories"] = CompactTree(*small), categories
        return tree

    def compact(self) -> CompactTree | None:
        """Return the compact form (:mod:`dtrees.tree.compact`); None if it does not reproduce the arrays exactly."""
        from dtrees.tree.compact import compact  # compiles kernels

        return vars(self).get(_COMPACT) or compact({name: getattr(self, name) for name in self.ARRAYS})

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Compute the arrays of a compact tree when one is first needed: many trees are only passed on."""
            state = vars(self)
            small = state.get(_COMPACT)
            if small is not None and name in self.ARRAYS:
                from dtrees.tree.compact import expanded

                state.update(expanded(small))
                state.pop(_COMPACT, None)
            if name in state:  # another thread may have computed it meanwhile
                return state[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    @property
    def node_count(self) -> int:
        """Number of nodes, including leaves."""
        return int(vars(self).get(_COMPACT, self).feature.shape[0])

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int(np.count_nonzero(self.children_left < 0))

    @cached_property
    def node_depth(self) -> NDArray[np.int64]:
        """Depth of every node, shape (node_count,); the root's is 0."""
        depth = np.zeros(self.node_count, np.int64)
        level = np.zeros(1, np.int64)
        while level.size:
            level = level[self.children_left[level] >= 0]
            children = np.concatenate([self.children_left[level], self.children_right[level]]).astype(np.int64)
            depth[children] = np.tile(depth[level] + 1, 2)
            level = children
        return depth

    @property
    def max_depth(self) -> int:
        """Depth of the deepest leaf."""
        return int(self.node_depth.max())

    def make_read_only(self) -> None:
        """Make the arrays read-only."""
        for array in [getattr(self, name) for name in self.ARRAYS]:
            array.flags.writeable = False

    def equals(self, other: Tree) -> bool:
        """Return whether both trees are equal, byte for byte."""
        same = all(getattr(self, name).tobytes() == getattr(other, name).tobytes() for name in self.ARRAYS)
        return same and self.categories.equals(other.categories)

    def validate(self, n_features: int, n_values: int | None = None) -> None:
        """Check that prediction can neither read outside the arrays nor run forever.

        Raises
        ------
        ValueError
            If arrays differ in length, a child or feature is out of range, nodes are not in preorder, or a number is not finite.
        """
        n = self.node_count
        for name, dtype in self.ARRAYS.items():
            array = getattr(self, name)
            shape = (n, n_values or array.shape[-1]) if name == "value" else (n,)
            if array.dtype != dtype or array.shape != shape:
                raise ValueError(f"tree array {name!r} has dtype {array.dtype} and shape {array.shape}, not {np.dtype(dtype)} and {shape}")
        if n == 0:
            raise ValueError("tree has no nodes")
        leaf = self.children_left == -1
        if not np.array_equal(leaf, self.children_right == -1) or not np.array_equal(leaf, self.feature == -2):
            raise ValueError("tree arrays disagree about which nodes are leaves")
        inner = np.flatnonzero(~leaf)
        left, right = self.children_left[inner], self.children_right[inner]
        # In preorder the left child is the next node, and the right child comes later, so there are no cycles.
        if not np.array_equal(left, inner + 1) or np.any(right <= left) or np.any(right >= n):
            raise ValueError("tree nodes are not in preorder")
        if inner.size != n // 2 or np.unique(np.concatenate([left, right])).size != n - 1:
            raise ValueError("tree nodes do not form one tree")
        if np.any(self.feature[inner] < 0) or np.any(self.feature[inner] >= n_features):
            raise ValueError(f"tree splits on a feature that is not in 0..{n_features - 1}")
        self.categories.validate(~leaf)
        none = np.isnan(self.threshold)
        if not np.array_equal(np.flatnonzero(none), self.categories.node):
            raise ValueError("tree nodes have neither a threshold nor a set of categories, or both")
        if np.any(np.isneginf(self.threshold)) or not np.all(np.isfinite(self.value)):
            raise ValueError("tree has thresholds or values that are not numbers")
        if np.any(self.n_node_samples < 0) or not all(
            np.isfinite(a).all() for a in (self.impurity, self.gain, self.weighted_n_node_samples)
        ):
            raise ValueError("tree has impurities, gains or weights that are not finite, or numbers of rows below 0")
