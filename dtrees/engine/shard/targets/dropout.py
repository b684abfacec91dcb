"""Dropout of boosting rounds (DART): which are dropped while a round grows, the weights of all afterwards, and their predictions.

Rashmi and Gilad-Bachrach, 2015, "DART: Dropouts meet multiple additive regression trees"; the weights are XGBoost's (``booster="dart"``).
Both follow from the plan and the number of the round, so that shards and the coordinator compute them without a message.

The node numbers of rows in finished trees are stored. With these, a round can be dropped and added again with another weight without
sending rows through its trees. The number of a node takes a byte in a tree of up to 256 nodes, two bytes in a tree of up to 65,536.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import add_by_number
from dtrees.split.numbers import hashing
from dtrees.split.policy import ADDITION_ROWS
from dtrees.tree.tree import Tree

#: Adds values of the nodes, or leaves, of a tree to a total of each row.
Put = Callable[[NDArray[np.float64], NDArray[np.float64]], None]


class RoundWeights:
    """The weights of the rounds so far, which multiply the values of their trees.

    Parameters
    ----------
    plan : BoostingPlan
        A plan with dropout.

    Attributes
    ----------
    weights : list of float
        The weight of each round.
    dropped : list of int
        The rounds that are dropped while the next one grows.

    Examples
    --------
    >>> from dtrees.engine.plan.plans import Dropout, Rules
    >>> rounds = RoundWeights(BoostingPlan(Rules("newton", 1, 1), 0, None, 3, learning_rate=0.5, dropout=Dropout(1.0)))
    >>> rounds.add(), rounds.weights, rounds.dropped
    (None, [1.0], [0])
    >>> rounds.add(), [round(weight, 3) for weight in rounds.weights], rounds.dropped
    (None, [0.667, 0.667], [0, 1])
    """

    def __init__(self, plan: BoostingPlan) -> None:
        assert plan.dropout is not None
        self._dropout, self._rate, self._seed = plan.dropout, plan.learning_rate, hashing.as_seed(plan.seed)
        self.weights: list[float] = []
        self.dropped: list[int] = []

    @classmethod
    def after(cls, plan: BoostingPlan, n_rounds: int) -> RoundWeights:
        """Return the weights after ``n_rounds`` rounds."""
        rounds = cls(plan)
        for _ in range(n_rounds):
            rounds.add()
        return rounds

    def add(self) -> None:
        """Add the next round to the weights, and draw the rounds that are dropped after it."""
        share = len(self.dropped) if self._dropout.normalization == "tree" else 1
        total = share + self._rate if self.dropped else 1.0
        for round_ in self.dropped:
            self.weights[round_] *= share / total
        self.weights.append(1.0 / total)
        n = len(self.weights)
        key = np.uint64(hashing.stream_key(self._seed, hashing.STREAM_DROPOUT, n))
        draws = (hashing.mix_each(key ^ hashing.mix_each(np.arange(n + 1))) >> np.uint64(11)) * 2.0**-53
        skips = draws[n] < self._dropout.skip
        self.dropped = [] if skips else np.flatnonzero(draws[:n] < self._dropout.rate).tolist()


def weighted(trees: Sequence[Tree], weight: float) -> list[Tree]:
    """Return trees whose values are multiplied by a weight."""
    return [replace(tree, value=weight * tree.value) for tree in trees]


class RememberedTrees:
    """Adds trees to raw predictions, and subtracts those of dropped rounds while a round grows.

    Parameters
    ----------
    plan : BoostingPlan
        A plan with dropout.
    raw : ndarray of float64, shape (K, n_rows)
        The raw predictions; written.
    threads : Threads
    """

    def __init__(self, plan: BoostingPlan, raw: NDArray[np.float64], threads: Threads) -> None:
        self._raw, self._threads, self._per_round, self._rounds = raw, threads, plan.trees_per_round, RoundWeights(plan)
        self._trees: list[tuple[NDArray[Any], NDArray[np.float64]]] = []  # the node of each row, and the values of nodes
        self._dropped: list[int] | None = None  # in the current round

    def drop(self) -> None:
        """Begin a round, unless it has begun: subtract the dropped trees from the predictions."""
        if self._dropped is None:
            self._dropped = self._rounds.dropped
            self._add_rounds(self._dropped, -1.0)
            self._rounds.add()

    def add(self, value: NDArray[np.float64], put: Put) -> None:
        """Store the next tree; after the last tree of a round, add the round and the dropped rounds to the predictions."""
        node_of = np.zeros(self._raw.shape[1])
        put(np.arange(value.size, dtype=np.float64).reshape(value.shape), node_of)
        self._trees.append((node_of.astype(np.min_scalar_type(value.size - 1)), value.ravel()))
        if self._dropped is not None and len(self._trees) % self._per_round == 0:
            self._add_rounds([*self._dropped, len(self._rounds.weights) - 1], 1.0)
            self._dropped = None

    def _add_rounds(self, rounds: Sequence[int], sign: float) -> None:
        """Add the trees of some rounds to the predictions, each times its weight and a sign."""
        n, n_outputs = self._per_round, self._raw.shape[0]
        for output, raw in enumerate(self._raw if rounds else ()):
            nodes, values = [], []
            for round_ in rounds:
                for node_of, value in self._trees[round_ * n + output : (round_ + 1) * n : n_outputs]:
                    nodes.append(node_of)
                    values.append(sign * self._rounds.weights[round_] * value)

            def add(total: NDArray[np.float64], *nodes: NDArray[Any], values: list[NDArray[np.float64]] = values) -> None:
                for node_of, value in zip(nodes, values, strict=True):
                    add_by_number(total, node_of, value)

            self._threads.over_rows(add, (raw, *nodes), ADDITION_ROWS)
