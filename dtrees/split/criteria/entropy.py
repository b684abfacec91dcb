"""Entropy of classes: the weighted mean information, in bits, of the class of a row (Quinlan 1986).

The score is the decrease of the entropy plus a constant of the node that makes it non-negative: for each side ``weight * (2 - entropy)``
with two classes, and ``weight * (log2(n_classes) - entropy)`` with more.

The bound over a zone holds because the terms x log(x / a) are jointly convex: within a zone, the rows of class 1 come first, last, or in
between, so the corners are both ends and these two extremes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inner_kernel
from dtrees.split.compile.specialised import always
from dtrees.split.criteria import parts
from dtrees.split.criteria.squares import Gini
from dtrees.split.criteria.statistics import G0, G1, H0, H1
from dtrees.split.numbers.elementary import binary_logarithm, binary_logarithm_of_normal, log2

#: Far above the relative error of a few roundings of float64.
_ROUNDING = 2.0**-44


class Entropy(Gini):
    """Entropy of classes; leaf values are the fractions of classes, computed from the sums."""

    name = "entropy"

    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value."""
        return EntropyOfClasses() if n_classes > 2 else EntropyOfTwo()

    def for_targets(self) -> Any:
        """Return the kernel value for any number of classes."""
        return EntropyOfClasses()

    def chance(self, n_rows: int, sums: NDArray[np.int64], squares: float) -> float:
        """Return half a nat of the mean weight, in bits (Wilks 1938: twice the gain in nats has the mean 1 for each degree of freedom)."""
        return float(sums[1] if sums.shape[0] == 2 else sums.sum()) / n_rows / (2.0 * math.log(2.0))

    def impurity(self, fractions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the negative sum of fractions times their logarithms."""
        terms = fractions * log2(np.where(fractions > 0, fractions, 1.0))
        return np.asarray(-terms.sum(axis=1))


class EntropyOfTwo(NamedTuple):
    """The kernel value for two classes: ``g`` is the weight of the second."""


class EntropyOfClasses(NamedTuple):
    """The kernel value for three or more classes."""


@inner_kernel
def _xlog2(x, total):
    """Return ``x * log2(x / total)``, or 0 for x = 0."""
    return x * binary_logarithm_of_normal(x / total) if x > 0.0 else 0.0


@inner_kernel
def _negative_entropy(one, total):
    """Return ``total * (2 - entropy)`` for two classes, which is never negative."""
    return (_xlog2(total - one, total) + _xlog2(one, total)) + 2.0 * total


parts.node_statistic.of(EntropyOfTwo)(parts.moments_of)
parts.node_statistic.of(EntropyOfClasses)(parts.classes_of)


@parts.score.of(EntropyOfTwo)
def _(criterion, g, h, other_g, other_h):
    if h <= 0.0 or other_h <= 0.0:
        return -1.0
    return _negative_entropy(g, h) + _negative_entropy(other_g, other_h)


@parts.gain.of(EntropyOfTwo)
def _(criterion, score, node):
    return score - _negative_entropy(float(node.g), float(node.h))


@parts.class_term.of(EntropyOfClasses)
def _(criterion, left, right, h, other_h):
    return _xlog2(float(left), h) + _xlog2(float(right), other_h)


@parts.score_of_terms.of(EntropyOfClasses)
def _(criterion, terms, h, other_h, h_all, n_classes):
    return terms + h_all * binary_logarithm(n_classes)


parts.has_convex_terms.of(EntropyOfClasses)(always)


@parts.gain.of(EntropyOfClasses)
def _(criterion, score, node):
    weight = float(node.h)
    own = 0.0
    for k in range(node.sums.shape[0]):
        own += _xlog2(float(node.sums[k]), weight)
    return score - (own + weight * binary_logarithm(node.sums.shape[0]))


@parts.flag_zones_by_bound.of(EntropyOfTwo)
def _(criterion, sums, add, node, bar, order, slope, slack, total, flags):
    """Flag the zones one of whose four corners may exceed the bar."""
    g0, h0, g1, h1 = sums[G0], sums[H0], sums[G1], sums[H1]
    (g_add, h_add, _), (g_all, h_all, _) = add, node
    for z in range(flags.shape[0]):
        start, light = float(g0[z]) + g_add, float(h0[z]) + h_add
        end, heavy = float(g1[z]) + g_add, float(h1[z]) + h_add
        for corner in range(4):
            if corner == 0:
                s, h = start, light
            elif corner == 1:
                s, h = end, light + (end - start)
            elif corner == 2:
                s, h = end, heavy
            else:
                s, h = start, heavy - (end - start)
            if 0.0 < h < h_all and parts.score(criterion, s, h, g_all - s, h_all - h) + _ROUNDING * h_all > bar:
                flags[z] = 1
