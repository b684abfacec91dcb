"""The oracle for several targets: functions of :mod:`tests.naive`, as sums of the formulas of one target."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dtrees.split.numbers import elementary

#: Replaces a number of classes for the sums of several targets, and the weight.
SEVERAL = -1


def log(x: float) -> float:
    """The logarithm of the package, the same on every processor; its own tests compare it with exact values."""
    return float(elementary.log(x))


def log2(x: float) -> float:
    """The same to base 2."""
    return float(elementary.log2(x))


def xlog2(x: float, total: float) -> float:
    """A term of an entropy."""
    return x * log2(x / total) if x > 0.0 else 0.0


class SeveralTargets(NamedTuple):
    """The contributions of rows to the sums of several targets.

    ``rows[i]`` are amounts, or numbers of classes in a common numbering over targets, of which there are ``classes`` each (1 for
    amounts).
    """

    criterion: str
    rows: Sequence[Sequence[int]]
    classes: Sequence[int]
    by_class: bool

    def sums(self, rows: Sequence[int], b: Sequence[int] | None) -> tuple[int, ...]:
        """The sums of some rows, target by target, and their weight."""
        total = [0] * sum(self.classes)
        for i in rows:
            for t, amount in enumerate(self.rows[i]):
                total[amount if self.by_class else t] += (1 if b is None else b[i]) if self.by_class else amount
        return (*total, len(rows) if b is None else sum(b[i] for i in rows))

    def _by_target(self, sums: Sequence[int]) -> list[Sequence[int]]:
        ends = [sum(self.classes[: t + 1]) for t in range(len(self.classes))]
        return [sums[end - n : end] for end, n in zip(ends, self.classes, strict=True)]

    def is_defined(self, left: Sequence[int], total: Sequence[int]) -> bool:
        """Whether means are positive on both sides, as Poisson deviance requires for all targets."""
        return self.criterion != "poisson" or all(0 < x < all_ for x, all_ in zip(left[:-1], total[:-1], strict=True))

    def score(self, left: Sequence[int], total: Sequence[int]) -> float:
        """The sum of the scores, in float64, in the order of targets."""
        right = [t - x for t, x in zip(total, left, strict=True)]
        a, b = float(left[-1]), float(right[-1])
        if self.criterion == "poisson":
            score = 0.0
            for x, y in zip(left[:-1], right[:-1], strict=True):
                mean = (float(x) + float(y)) / (a + b)
                score += max(float(x) * log(float(x) / a / mean) + float(y) * log(float(y) / b / mean), 0.0)
            return score
        if self.criterion == "entropy":
            score = 0.0
            for mine, other in zip(self._by_target(left), self._by_target(right), strict=True):
                terms = 0.0
                for x, y in zip(mine, other, strict=True):
                    terms += xlog2(float(x), a) + xlog2(float(y), b)
                score += terms + float(total[-1]) * log2(len(mine))
            return score
        terms = 0.0
        for x, y in zip(left[:-1], right[:-1], strict=True):
            d = float(x) * b - float(y) * a
            terms += d * d
        return terms / (a * b)

    def gain(self, score: float, total: Sequence[int]) -> float:
        """The mean of the gains, in float64, from the score."""
        n, w = len(self.classes), float(total[-1])
        if self.criterion == "poisson":
            return score / n
        if self.criterion != "entropy":
            return score / w / n
        gains = []
        for t, mine in enumerate(self._by_target(total)):
            own = 0.0
            for x in mine:
                own += xlog2(float(x), w)
            gains.append((score if t == 0 else 0.0) - (own + w * log2(len(mine))))
        return _sum_over(gains) / n

    def orders(self, groups: Sequence[Sequence[int]], total: Sequence[int], smooth: float) -> list[list[float]]:
        """Return the keys of categories for each order, given their sums.

        There is one order for each number, for the second of two classes, and for each of more; and one for numbers and pairs of classes
        together, by the first principal component of their means.
        """
        first = [sum(self.classes[:t]) for t in range(len(self.classes))]
        numbers = [k + (n == 2) for k, n in zip(first, self.classes, strict=True) if n == 2 or not self.by_class]
        more = [k + i for k, n in zip(first, self.classes, strict=True) if n > 2 for i in range(n)]

        def distances(k: int) -> list[float]:
            mean = float(total[k]) / float(total[-1])
            return [(float(one[k]) - mean * float(one[-1])) / (float(one[-1]) + smooth) for one in groups]

        alone = {k: distances(k) for k in sorted([*numbers, *more])}
        if len(numbers) < 2:
            return list(alone.values())
        weights = [float(one[-1]) for one in groups]
        spreads = {k: _sum_over(w * (d * d) for w, d in zip(weights, alone[k], strict=True)) for k in numbers}
        direction = {k: float(k == max(numbers, key=spreads.__getitem__)) for k in numbers}

        def along() -> list[float]:
            return [_sum_over(direction[k] * alone[k][i] for k in numbers if direction[k] != 0.0) for i in range(len(groups))]

        for _ in range(8):
            keys = along()
            product = {k: _sum_over(w * key * d for w, key, d in zip(weights, keys, alone[k], strict=True)) for k in numbers}
            largest = max(map(abs, product.values()))
            if not 0.0 < largest < 1e300:
                break
            direction = {k: product[k] / largest for k in numbers}
        return [*alone.values(), along()]


def _sum_over(numbers: Any) -> float:
    total = 0.0
    for number in numbers:
        total += number
    return total
