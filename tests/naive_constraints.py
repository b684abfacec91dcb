"""Simple constraints, for the oracles of ``naive``: bounds of nodes, order of values, and gains of clipped values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dtrees.engine.plan.plans import Rules


@dataclass(frozen=True)
class Constraints:
    """The constraints of a node: its bounds, and the columns on the path to it; ``l1`` is the L1 penalty in units of sums."""

    rules: Rules
    low: float = -math.inf
    high: float = math.inf
    used: frozenset[int] = frozenset()
    l1: float = 0.0

    @property
    def boosts(self) -> bool:
        return self.rules.criterion in ("newton", "newton_l1")

    def may_use(self, column: int) -> bool:
        """Whether the node may be split on a column."""
        path = self.used | {column}
        if self.rules.most_columns:
            return len(path) <= self.rules.most_columns
        return not self.rules.interactions or any(path <= set(columns) for columns in self.rules.interactions)

    def sign(self, column: int) -> int:
        return self.rules.monotonic[column] if self.rules.monotonic else 0

    def _most_lowered(self, sums: Sequence[int], penalty: float) -> float:
        """The reduction of the loss by a leaf without bounds, times two."""
        x = max(abs(float(sums[0])) - self.l1, 0.0)
        return x * x / (float(sums[1]) + penalty)

    def clip(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def value(self, sums: Sequence[int], penalty: float) -> float:
        """The value of some rows: their mean, or their Newton step within the bounds."""
        g, h = sums
        return self.clip(self._step(sums, penalty)) if self.boosts else float(g) / float(h)

    def _step(self, sums: Sequence[int], penalty: float, n_leaves: int = 1) -> float:
        g, l1 = float(sums[0]), n_leaves * self.l1
        return -(g - l1 if g > l1 else g + l1 if g < -l1 else 0.0) / (float(sums[1]) + penalty)

    def _lowered(self, value: float, sums: Sequence[int], penalty: float, n_leaves: int = 1) -> float:
        """The reduction of the loss by leaves of this value, times two."""
        return -value * (2.0 * sums[0] + (sums[1] + penalty) * value) - 2.0 * n_leaves * self.l1 * abs(value)

    def are_in_order(self, column: int, one: float, other: float) -> bool:
        """Whether the values of both sides of a split on a column, of trees and forests, have the required order."""
        sign = self.sign(column)
        return not sign or (sign * (one - other) <= 0 and self.low <= min(one, other) and max(one, other) <= self.high)

    def allows(self, column: int, left: Sequence[int], right: Sequence[int], penalty: float) -> bool:
        """Whether the values of both sides, computed from sums, are allowed for a split on a column."""
        sign = self.sign(column)
        if self.boosts:
            one, other = self.value(left, penalty), self.value(right, penalty)
            if one == other and not all(self._is_within(sums, penalty) for sums in (left, right)):
                return False  # the split is not defined
            return sign * (one - other) <= 0
        return self.are_in_order(column, self.value(left, penalty), self.value(right, penalty))

    def _is_within(self, sums: Sequence[int], penalty: float) -> bool:
        return self.low <= self._step(sums, penalty) <= self.high

    def score(self, score: float, left: Sequence[int], right: Sequence[int], penalty: float) -> float:
        """The score of a split in float64, given its score without constraints."""
        if not self.boosts:
            return score
        if self.l1:
            total = [x + y for x, y in zip(left, right, strict=True)]
            if not all(self._is_within(sums, penalty) for sums in (left, right)):
                score = sum(self._lowered(self.value(sums, penalty), sums, penalty) for sums in (left, right))
            return max(score + self._lift(total, penalty), 0.0)
        a, b = float(left[1]) + penalty, float(right[1]) + penalty
        d, other_d = self._outside(-float(left[0]) / a), self._outside(-float(right[0]) / b)
        both = float(left[1] + right[1]) + 2.0 * penalty
        own = self._outside(-float(left[0] + right[0]) / both)
        return max(score - (a + b) * (a * (d * d) + b * (other_d * other_d)) + both * both * (own * own), 0.0)

    def gain(self, score: float, gain: float, total: Sequence[int], penalty: float) -> float:
        """The gain of a split in float64, given the gain of its score without constraints."""
        if not (self.boosts and self.l1):
            return gain + self.more_gain(total, penalty)
        found = score - self._most_lowered(total, penalty) + self.more_gain(total, penalty)
        return found if found > 2.0**-44 * score else 0.0

    def more_gain(self, total: Sequence[int], penalty: float) -> float:
        """The difference between the gain of a split in float64 and that of its score."""
        if not self.boosts:
            return 0.0
        if self.l1:
            free = self._step(total, penalty)
            value = self.clip(free)
            lost = self._most_lowered(total, penalty) - self._lowered(value, total, penalty) if value != free else 0.0
            return lost - self._lift(total, penalty)
        g, h = float(total[0]), float(total[1])
        own, at_both = self._outside(-g / (h + penalty)), self._outside(-g / (h + 2.0 * penalty))
        return -(h + 2.0 * penalty) * (at_both * at_both) + (h + penalty) * (own * own)

    def _lift(self, total: Sequence[int], penalty: float) -> float:
        """The term that keeps scores with an L1 penalty non-negative: both sides could have the value that is best for both."""
        value = self.clip(self._step(total, 2.0 * penalty, 2))
        return max(0.0, -self._lowered(value, total, 2.0 * penalty, 2))

    def _outside(self, value: float) -> float:
        return max(self.low - value, 0.0) + max(value - self.high, 0.0)

    def exact_gain(self, left: Sequence[int], right: Sequence[int], penalty: float) -> Fraction:
        """The decrease of the second-order loss by a split, times two, with all values clipped."""
        total = [x + y for x, y in zip(left, right, strict=True)]
        return self._loss(total, penalty) - self._loss(left, penalty) - self._loss(right, penalty)

    def _loss(self, sums: Sequence[int], penalty: float) -> Fraction:
        weight = sums[1] + Fraction(penalty)
        l1 = Fraction(self.l1)
        step = -max(abs(sums[0]) - l1, 0) * (1 if sums[0] > 0 else -1) / weight
        if not math.isinf(self.low):
            step = max(step, Fraction(self.low))
        if not math.isinf(self.high):
            step = min(step, Fraction(self.high))
        return 2 * sums[0] * step + weight * step * step + 2 * Fraction(self.l1) * abs(step)

    def child(self, column: int, one: float, other: float, is_left: bool) -> Constraints:
        """The constraints of a child of a split whose sides have these values."""
        low, high, sign = self.low, self.high, self.sign(column)
        if sign:
            middle = (one + other) / 2.0
            low, high = (low, middle) if (sign > 0) == is_left else (middle, high)
        return Constraints(self.rules, low, high, self.used | {column}, self.l1)
