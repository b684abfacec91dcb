"""Rules in the units of one tree's sums: computed alike by the coordinator and by every shard."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plans import Criterion, Rules
from dtrees.split.subtree import Stops
from dtrees.split.sweep import Limits

_NO_LIMIT = 2**31
_MOST_WEIGHT = 2**62
#: To look up a member of an enumeration takes longer than to compare with it.
_NEWTON, _SQUARED_ERROR, _ABSOLUTE_ERROR = Criterion.NEWTON, Criterion.SQUARED_ERROR, Criterion.ABSOLUTE_ERROR
_EPSILON = float(np.finfo(np.float64).eps)


def gain_exponent(criterion: Criterion, exponents: tuple[int, int]) -> int:
    """Return the power of two that gains are multiplied by, given those of the sums."""
    a, b = exponents
    if criterion in (_NEWTON, _SQUARED_ERROR):
        return 2 * a - b
    return a + b if criterion == _ABSOLUTE_ERROR else b


def scaled(x: Any, exponent: int) -> Any:
    """Return ``x * 2**exponent``, infinite or zero where that is out of range (gains of targets near the limits of float64 are)."""
    if exponent == 0:
        return np.array(x)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(x, exponent)


def _scaled_number(x: float, exponent: int) -> float:
    """Do the same for one number, in a tenth of the time."""
    try:
        return math.ldexp(x, exponent)
    except OverflowError:
        return math.copysign(math.inf, x)


def make_limits(
    rules: Rules, n_classes: int, sums: NDArray[np.int64], exponents: tuple[int, int], slope: float = 0.0
) -> tuple[Limits, Stops]:
    """Return the limits on splits and the stopping rules of a tree whose root has these sums.

    ``slope`` is the largest abs(a) / b of its rows.
    """
    in_classes = n_classes > 2
    root_weight = int(sums.sum()) if in_classes else int(sums[1])
    weight_exponent = exponents[1]
    min_weight = math.ceil(math.ldexp(rules.min_child_weight, weight_exponent)) if rules.min_child_weight else 0
    if rules.min_weight_fraction_leaf:
        min_weight = max(min_weight, math.ceil(rules.min_weight_fraction_leaf * root_weight))
    min_weight = min(min_weight, _MOST_WEIGHT)
    # As in scikit-learn, a gain that misses the minimum by a rounding error counts.
    min_gain = (rules.min_impurity_decrease - _EPSILON) * math.ldexp(root_weight, -weight_exponent)
    limits = Limits(
        int(rules.criterion),
        n_classes if in_classes else 0,
        rules.random_splits,
        math.ldexp(rules.reg_lambda, weight_exponent),
        slope,
        rules.min_samples_leaf,
        min_weight,
        _scaled_number(min_gain, gain_exponent(rules.criterion, exponents)),
    )
    stops = Stops(
        _NO_LIMIT if rules.max_depth is None else rules.max_depth,
        max(rules.min_samples_split, 2 * rules.min_samples_leaf, 2),
        min(2 * min_weight, _MOST_WEIGHT),
        rules.max_features,
    )
    return limits, stops
