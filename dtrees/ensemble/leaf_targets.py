"""The targets of the rows in the leaves of a forest, and their quantiles: quantile regression forests (Meinshausen, 2006).

A row falls into a leaf of each tree. The training rows in that leaf have a total weight of 1, divided in proportion to the number of times
that the tree drew them, or to their weights. The mean of these weights over trees is the weight of each training row for the predicted row.
The weights define the conditional distribution of the target: its mean is the prediction of a forest with squared error, and a quantile is
the smallest target up to which at least this share of the weight lies, as by ``numpy.quantile(y, q, weights=w, method="inverted_cdf")``.

Weights are integers, so that their sums are the same in any order. Rounded weights, such as a third, may lack some of the last bits, so a
share counts as reached if at most a 2**40th of it is missing.

>>> leaves = np.array([[1, 1, 2, 2]], np.int32)  # of one tree: two rows in each of two leaves
>>> stored = LeafTargets(np.array([[5.0], [7.0], [1.0], [9.0]]), leaves, np.ones((1, 4)))
>>> stored.quantiles(np.array([[1], [2]]), (0.5, 0.9), 1).tolist()
[[[5.0, 7.0]], [[1.0, 9.0]]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, vstack

from dtrees.engine.threads import Threads, effective_n_jobs
from dtrees.ensemble.prediction import FindLeaves, Step
from dtrees.tree.tree import Tree

#: The total of the weights of rows.
_WHOLE = 2**62
#: Fewer rows are not divided among threads.
_FEWEST_ROWS = 256


@dataclass(frozen=True, eq=False)
class LeafTargets:
    """The stored data about the training rows of a forest.

    Attributes
    ----------
    target : ndarray of float64, shape (n, n_targets)
        Targets of the rows with a positive weight.
    leaves : ndarray of int32, shape (n_trees, n)
        The leaf of each row in each tree.
    weight : ndarray, shape (n_trees, n) or (1, n)
        The number of times that each tree drew each row, as integers; or the row weights for all trees.
    """

    target: NDArray[np.float64]
    leaves: NDArray[np.int32]
    weight: NDArray[Any]

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self.__dataclass_fields__}

    @property
    def nbytes(self) -> int:
        """Number of stored bytes."""
        return self.target.nbytes + self.leaves.nbytes + self.weight.nbytes

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]], trees: Sequence[Tree], n_targets: int) -> Self:
        """Return leaf targets from a file, checked against the trees to prevent reads out of bounds; raises ValueError."""
        stored = cls(**{name: arrays[name] for name in cls.__dataclass_fields__})
        shape, (target, weight) = (len(trees), len(stored.target)), (stored.target, stored.weight)
        dtypes = target.dtype == np.float64 and stored.leaves.dtype == np.int32
        if not dtypes or target.shape[1:] != (n_targets,) or stored.leaves.shape != shape:
            raise ValueError("the model's targets of leaves are not those of its trees")
        if weight.dtype.kind not in "uf" or weight.shape not in (shape, (1, shape[1])) or not np.all((weight >= 0) & np.isfinite(weight)):
            raise ValueError("the model's weights of targets are not those of its trees")
        if not np.isfinite(target).all() or stored.leaves.min(initial=0) < 0:
            raise ValueError("the model's targets of leaves are not finite, or belong to no leaf")
        for tree, leaves, own in zip(trees, stored.leaves, np.broadcast_to(weight, shape), strict=True):
            known = leaves.max(initial=0) < tree.node_count
            if not known or not np.array_equal(np.bincount(leaves[own > 0], minlength=tree.node_count) > 0, tree.feature < 0):
                raise ValueError("the model's leaves are not those that have targets")
        return stored

    @cached_property
    def scores(self) -> dict[float, NDArray[np.float64]]:
        """Cached conformity scores of out-of-bag rows, by coverage."""
        return {}

    def of_trees(self, trees: Sequence[int]) -> Self:
        """Return the data for some of the trees."""
        some = list(trees)
        return type(self)(self.target, self.leaves[some], self.weight if len(self.weight) == 1 else self.weight[some])

    @cached_property
    def _first_nodes(self) -> NDArray[np.int64]:
        """The number of the first node of each tree in a consecutive numbering, and the total."""
        return np.append(0, np.cumsum(self.leaves.max(axis=1).astype(np.int64) + 1))

    @cached_property
    def _weights(self) -> list[tuple[NDArray[Any], ...]]:
        """For each target: the bounds of each node's values, the ranks of values, their weights, and the distinct values."""
        return [self._weights_of(*np.unique(one, return_inverse=True)) for one in self.target.T]

    def _weights_of(self, values: NDArray[np.float64], number: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        of_trees, each = [], np.broadcast_to(self.weight, self.leaves.shape)
        for leaves, weight, n_nodes in zip(self.leaves, each, np.diff(self._first_nodes), strict=True):
            drawn = np.flatnonzero(weight)
            leaf, own = leaves[drawn], weight[drawn].astype(np.float64)
            share = own / np.bincount(leaf, own)[leaf]
            fixed = np.maximum(np.rint(share * (_WHOLE // len(each))), 1.0).astype(np.int64)
            of_trees.append(coo_array((fixed, (leaf, number[drawn].astype(np.int32))), (n_nodes, len(values))).tocsr())
        whole = vstack(of_trees, format="csr")
        return whole.indptr.astype(np.int64), whole.indices.astype(np.int32), whole.data, values

    def quantiles(
        self, leaves: NDArray[np.integer], q: Sequence[float], n_threads: int, among: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Return quantiles of the training targets that share leaves with given rows.

        Parameters
        ----------
        leaves : ndarray of int, shape (n, n_trees)
            The leaves of the given rows.
        q : sequence of float
            In [0, 1].
        n_threads : int
        among : ndarray of bool, shape (n, n_trees), or None
            The trees used for each row; None for all.

        Returns
        -------
        ndarray of float64, shape (n, n_targets, len(q))
            NaN if no tree is used.
        """
        from dtrees.tree.leaf_quantiles import leaf_quantiles  # imports Numba

        order = np.argsort(q)
        found = np.empty((self.target.shape[1], len(leaves), len(q)))
        _ = self._weights  # computed before threads use it

        def find(some: slice) -> None:
            nodes = leaves[some] + self._first_nodes[:-1]
            if among is not None:
                nodes[~among[some]] = -1
            for weights, out in zip(self._weights, found, strict=True):
                leaf_quantiles(nodes, *weights, np.asarray(q, np.float64)[order], some.start, out)

        with Threads(n_threads) as threads:
            threads.map_ranges(find, len(leaves), _FEWEST_ROWS)
        return np.moveaxis(found, 0, 1)[..., np.argsort(order)]

    def out_of_bag_quantiles(self, q: Sequence[float], n_threads: int) -> NDArray[np.float64]:
        """Return quantiles for the training rows by the trees that did not draw them; see :meth:`quantiles`."""
        return self.quantiles(self.leaves.T, q, n_threads, np.broadcast_to(self.weight, self.leaves.shape).T == 0)


@dataclass(frozen=True)
class PredictQuantiles:
    """Maps a block of rows to quantiles of its targets.

    Attributes
    ----------
    find : FindLeaves
    targets : LeafTargets
    q : tuple of float
    shape : tuple of int
        The shape of the result for one row.
    steps : tuple of callable
        Applied to the result in sequence.
    """

    find: FindLeaves
    targets: LeafTargets
    q: tuple[float, ...]
    shape: tuple[int, ...]
    steps: tuple[Step, ...] = ()

    @property
    def trees(self) -> Any:
        """The trees."""
        return self.find.trees

    @property
    def nbytes(self) -> int:
        """Number of bytes besides those of the trees."""
        return self.targets.nbytes

    def __call__(self, X: Any) -> NDArray[np.float64]:
        """Predict a block of rows."""
        found = self.targets.quantiles(self.find(X), self.q, effective_n_jobs(self.find.n_jobs))
        return reduce(lambda values, step: step(values), self.steps, found.reshape(len(found), *self.shape))
