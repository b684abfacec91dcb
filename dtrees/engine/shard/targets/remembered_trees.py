"""The node numbers of rows in the finished trees of boosting with dropout (DART).

With these, a round can be dropped and added again with another weight without sending rows through its trees. The number of a node takes a
byte in a tree of up to 256 nodes, two bytes in a tree of up to 65,536.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.dropout import RoundWeights
from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import add_by_number
from dtrees.split.policy import ADDITION_ROWS

#: Adds values of the nodes, or leaves, of a tree to a total of each row.
Put = Callable[[NDArray[np.float64], NDArray[np.float64]], None]


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
