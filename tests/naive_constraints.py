"""Constraints by the book, for the oracles of ``naive``: bounds of nodes, order of values, and what clipped values gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dtrees.engine.plan.plans import Rules


@dataclass(frozen=True)
class Constraints:
    """What constraints say of a node: its bounds, and the columns on the path to it."""

    rules: Rules
    low: float = -math.inf
    high: float = math.inf
    used: frozenset[int] = frozenset()

    @property
    def boosts(self) -> bool:
        return self.rules.criterion == "newton"

    def may_use(self, column: int) -> bool:
        """Whether the node may be split on a column."""
        path = self.used | {column}
        if self.rules.most_columns:
            return len(path) <= self.rules.most_columns
        return not self.rules.interactions or any(path <= set(columns) for columns in self.rules.interactions)

    def sign(self, column: int) -> int:
        return self.rules.monotonic[column] if self.rules.monotonic else 0

    def clip(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def value(self, sums: Sequence[int], penalty: float) -> float:
        """The value of some rows: their mean, or their Newton step within the bounds."""
        g, h = sums
        return self.clip(-float(g) / (float(h) + penalty)) if self.boosts else float(g) / float(h)

    def are_in_order(self, column: int, one: float, other: float) -> bool:
        """Whether these values of both sides of a split on a column, of trees and forests, are as the column wants them."""
        sign = self.sign(column)
        return not sign or (sign * (one - other) <= 0 and self.low <= min(one, other) and max(one, other) <= self.high)

    def allows(self, column: int, left: Sequence[int], right: Sequence[int], penalty: float) -> bool:
        """Whether the values of both sides, which follow from sums, are as a split on a column wants them."""
        sign = self.sign(column)
        if self.boosts:
            one, other = self.value(left, penalty), self.value(right, penalty)
            if one == other and not all(self._is_within(sums, penalty) for sums in (left, right)):
                return False  # nothing is left of the split
            return sign * (one - other) <= 0
        return self.are_in_order(column, self.value(left, penalty), self.value(right, penalty))

    def _is_within(self, sums: Sequence[int], penalty: float) -> bool:
        return self.low <= -float(sums[0]) / (float(sums[1]) + penalty) <= self.high

    def score(self, score: float, left: Sequence[int], right: Sequence[int], penalty: float) -> float:
        """The score of a split in float64, from the one that it would have without constraints."""
        if not self.boosts:
            return score
        a, b = float(left[1]) + penalty, float(right[1]) + penalty
        d, other_d = self._outside(-float(left[0]) / a), self._outside(-float(right[0]) / b)
        both = float(left[1] + right[1]) + 2.0 * penalty
        own = self._outside(-float(left[0] + right[0]) / both)
        return max(score - (a + b) * (a * (d * d) + b * (other_d * other_d)) + both * both * (own * own), 0.0)

    def more_gain(self, total: Sequence[int], penalty: float) -> float:
        """What the gain of a split in float64 is more than its score says."""
        if not self.boosts:
            return 0.0
        g, h = float(total[0]), float(total[1])
        own, at_both = self._outside(-g / (h + penalty)), self._outside(-g / (h + 2.0 * penalty))
        return -(h + 2.0 * penalty) * (at_both * at_both) + (h + penalty) * (own * own)

    def _outside(self, value: float) -> float:
        return max(self.low - value, 0.0) + max(value - self.high, 0.0)

    def exact_gain(self, left: Sequence[int], right: Sequence[int], penalty: float) -> Fraction:
        """The decrease of the second-order loss by a split, times two, when all values are clipped."""
        total = [x + y for x, y in zip(left, right, strict=True)]
        return self._loss(total, penalty) - self._loss(left, penalty) - self._loss(right, penalty)

    def _loss(self, sums: Sequence[int], penalty: float) -> Fraction:
        weight = sums[1] + Fraction(penalty)
        step = -sums[0] / weight
        if not math.isinf(self.low):
            step = max(step, Fraction(self.low))
        if not math.isinf(self.high):
            step = min(step, Fraction(self.high))
        return 2 * sums[0] * step + weight * step * step

    def child(self, column: int, one: float, other: float, is_left: bool) -> Constraints:
        """What constraints say of a child of a split, whose sides have these values."""
        low, high, sign = self.low, self.high, self.sign(column)
        if sign:
            middle = (one + other) / 2.0
            low, high = (low, middle) if (sign > 0) == is_left else (middle, high)
        return Constraints(self.rules, low, high, self.used | {column})
