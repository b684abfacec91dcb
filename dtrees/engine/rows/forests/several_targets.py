"""The several targets of the rows of one shard, which each tree of a forest learns together; see :class:`ForestRows`.

What rows add to the sums is what :mod:`dtrees.engine.shard.targets.several_targets` says. Which rows agree in all targets is found out by
the shard that looks at all rows: it numbers the different ones, and tells each shard the numbers of its rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import SumsKept
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.rows.forests.forest_rows import ForestRows
from dtrees.engine.rows.forests.messages import Drawn, ForestScales
from dtrees.engine.shard.sample_sums import sums_of_targets
from dtrees.engine.shard.targets.several_targets import first_classes, joint_factors
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import RowPartition
from dtrees.split.numbers.fixed_point import scale_into

_NONE = np.empty(0, np.int64)


class ForestRowsOfTargets(ForestRows):
    """The targets of a shard's rows; other parameters are those of :class:`ForestRows`.

    Parameters
    ----------
    target : ndarray, shape (n, n_targets)
    numbers : ndarray of uint32, shape (n,)
        The same for rows that agree in all targets, and others for others, over all shards.

    Attributes
    ----------
    target : ndarray of float64, shape (n,)
        These numbers: nodes in which they are constant are leaves.
    by_target : ndarray of float64, shape (n, n_targets)
    added : ndarray of int64, shape (n, n_targets)
        What rows add to the sums in the tree under way: their amounts, times weights, or the numbers of their classes.
    """

    def __init__(
        self,
        plan: ForestPlan,
        scales: ForestScales,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        stretches: NDArray[np.int64],
        before: NDArray[np.int64],
        threads: Threads,
        numbers: NDArray[np.uint32],
    ) -> None:
        super().__init__(plan, scales, target, weight, stretches, before, threads)
        self.by_target, self.target = self.target, numbers.astype(np.float64)
        if plan.n_classes:
            self.added = np.ascontiguousarray(target + first_classes(plan.targets), np.int64)

    @property
    def measured(self) -> NDArray[np.float64]:
        """What leaves are measured on, row by row."""
        return self.by_target

    def count_classes(self, tree: int) -> NDArray[np.int64]:
        """Draw the rows of a tree; return how many draws are of each class of each target."""
        self._draw(tree)
        counts = np.repeat(self._counts, self.added.shape[1])
        return np.bincount(self.added.ravel(), counts, self._plan.n_classes).astype(np.int64)

    def draw(self, tree: int, factor: NDArray[np.float64] | None = None) -> Drawn:
        """Draw the rows of a tree; return what is said of them. Of numbers, the size is that of the target whose sizes add up to most."""
        self._draw(tree)
        n_in = self.target.shape[0] if self.in_sample is None else int(np.count_nonzero(self.in_sample))
        if factor is not None:
            by_tree = self._by_tree = self._counts * joint_factors(self.added, self._plan.targets, factor)
            sums, largest = (0.0, float(by_tree.sum())), (1.0, float(by_tree.max(initial=0.0)))
            return Drawn(sums, largest, n_in, bool((by_tree == np.rint(by_tree)).all()))
        if self._plan.n_classes:
            return Drawn((0.0,), (), n_in)
        weight = self._counts if self._draws is not None else self._weight
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = np.abs(self._centered())
            size = sizes.sum(axis=0) if weight is None else weight @ sizes
        return Drawn((float(size.max()),), (), n_in)

    def _centered(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.by_target - self._scales.center
        return found

    def fix(self, exponents: tuple[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Put amounts, times weights, in fixed point; return the numbers of rows among the shard's, in new memory, and their weights."""
        h, weight = _NONE, self._weight if self._by_tree is None else self._by_tree
        if self._draws is not None and self._by_tree is None:
            h = self._counts
        elif weight is not None:
            h = np.empty(weight.shape[0], np.int64)
            scale_into(weight, exponents[1], h)
        if self._plan.n_classes:
            return np.arange(self.target.shape[0]), h
        centered = self._centered()
        if self._draws is None and self._weight is not None:
            centered *= self._weight[:, None]
        self.added = np.empty(centered.shape, np.int64)
        scale_into(np.ascontiguousarray(centered).reshape(-1), exponents[0], self.added.reshape(-1))
        if self._draws is not None:
            self.added *= self._counts[:, None]
        return np.arange(self.target.shape[0]), h

    def many_sums(self, rows: RowPartition) -> NDArray[np.int64]:
        """Return what some rows add up to: the sum of each target, or of each class of each target, and their weight."""
        n = rows.rows.shape[0]
        weight = int(rows.h.sum()) if rows.h.shape[0] else n
        return sums_of_targets(rows, n, self.added, bool(self._plan.n_classes), SumsKept.of(self._plan).n_sums, weight)
