"""Gini impurity: the weighted probability that two rows of a node are of different classes (Breiman et al. 1984).

Of two classes the gain is twice that of squared error with the class as the target, so two classes have the moments' statistic. Of more,
the score is that of squared error added over classes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.criteria.criterion import Criterion
from dtrees.split.criteria.parts import (
    class_term,
    classes_of,
    gain,
    has_convex_terms,
    is_arithmetic,
    most_in_box,
    node_statistic,
    score_of_terms,
)
from dtrees.split.criteria.squares import Squares

#: Far more than the error of a sum of amounts as a float: these add up to less than 2**62.
_ERROR_OF_SUMS = 2.0**17
#: Above one by far more than the relative error of a score.
_UPWARD = 1.0 + 2.0**-40


class Gini(Criterion):
    """Gini impurity; values are the fractions of classes, computed from the sums."""

    name = "gini"
    task = "classification"
    row_statistic = "class"
    measured = ""

    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value."""
        return GiniOfClasses() if n_classes > 2 else Squares(penalty=0.0, factor=2.0, only_gains=False, centred=False)

    def for_targets(self) -> Any:
        """Return that of any number of classes."""
        return GiniOfClasses()

    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return that of the weights."""
        return exponents[1]

    def impurity(self, fractions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one minus the sum of squared fractions."""
        result: NDArray[np.float64] = 1.0 - (fractions * fractions).sum(axis=1)
        return result


class GiniOfClasses(NamedTuple):
    """The kernel value for three classes and more."""


node_statistic.of(GiniOfClasses)(classes_of)


@class_term.of(GiniOfClasses)
def _(criterion, left, right, h, other_h):
    d = left * other_h - right * h
    return d * d


@score_of_terms.of(GiniOfClasses)
def _(criterion, terms, h, other_h, h_all, n_classes):
    return terms / (h * other_h)


@gain.of(GiniOfClasses)
def _(criterion, score, node):
    return score / node.h


@has_convex_terms.of(GiniOfClasses)
@is_arithmetic.of(GiniOfClasses)
def _(criterion):
    return True


@most_in_box.of(GiniOfClasses)
def _(criterion, low, high, whole, weights):
    most = 0.0
    for end in range(2):
        h, other_h = (weights[0], weights[1]) if end == 0 else (weights[2], weights[3])
        if h <= 0.0 or other_h <= 0.0:
            return math.inf
        d = max(abs(low * other_h - (whole - low) * h), abs(high * other_h - (whole - high) * h)) + _ERROR_OF_SUMS * (h + other_h)
        most = max(most, d * d / (h * other_h))
    return _UPWARD * most
