"""Dropout of boosting rounds (DART): which rounds are dropped while a round grows, and the weights of all rounds afterwards.

Rashmi and Gilad-Bachrach, 2015, "DART: Dropouts meet multiple additive regression trees"; the weights are XGBoost's (``booster="dart"``).
Both follow from the plan and the number of the round, so that shards and the coordinator compute them without a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dtrees.engine.plan.plans import BoostingPlan
from dtrees.split.numbers import hashing
from dtrees.tree.tree import Tree


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
