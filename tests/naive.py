"""Slow, simple oracles: the best split of a node by trying every one, and a tree grown with it.

Everything works on the raw values of the columns (no codes), on Python integers and on lists. There are two answers for a node:

best_split
    the first split in the order of splits, by the formulas of ``dtrees.split.criteria`` in float64, to be compared bit for bit. Splits
    of a node are compared by their *score*, which is the gain up to a factor and a constant of the node.
exact_gain
    the gain as a fraction (for entropy with 50 digits), from the textbook formula: the best split must have the largest, up to rounding.

Of the package only ``Rules``, the logarithms, the random draws of ``hashing``, and the parts of criteria that are not built in are used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import Rules
from dtrees.split.criteria import parts
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.criteria.statistics import Moments
from dtrees.split.numbers import hashing
from tests.naive_constraints import Constraints
from tests.naive_targets import SEVERAL, SeveralTargets, log, xlog2

CONSTANT, NO_SPLIT, SPLIT = 0, 1, 2
SQUARED_ERROR, ABSOLUTE_ERROR, POISSON, NEWTON, GINI, ENTROPY = "squared_error", "absolute_error", "poisson", "newton", "gini", "entropy"
NEWTON_L1, QUANTILE = "newton_l1", "quantile"
#: The criteria that follow from the order of targets.
BY_ORDER = (ABSOLUTE_ERROR, QUANTILE)
#: The criteria with formulas here. Others are scored by their own parts: the oracle then shows that the search finds the best split.
BUILT_IN = (SQUARED_ERROR, ABSOLUTE_ERROR, QUANTILE, POISSON, NEWTON, GINI, ENTROPY)


#: Numbers of rows.
Rows = Sequence[int]


class SplitLimits(NamedTuple):
    """Limits on splits, in units of the sums; ``n_classes`` is 0 for sums (G, H), ``min_weight`` may be fractional.

    ``levels`` maps the ranks ``a`` of absolute error and quantiles to targets, ``alpha`` is the quantile; ``l1`` is the penalty on the
    size of values; ``categorical`` are the columns of categories, and ``smooth``, ``least`` and ``most`` their smoothing, the fewest
    rows of a category, and the most categories on the smaller side; ``chance`` is subtracted from the gain of a set for each nat of
    choice. For ``several`` targets, these are ``a``, and ``n_classes`` is SEVERAL, except for absolute error.
    """

    criterion: str
    n_classes: int = 0
    random: bool = False
    penalty: float = 0.0
    min_samples: int = 1
    min_weight: float = 0
    min_gain: float = -math.inf
    levels: Sequence[int] = ()
    alpha: Fraction = Fraction(1, 2)
    categorical: Sequence[int] = ()
    smooth: float = 0.0
    least: Sequence[int] = ()
    most: Sequence[int] = ()
    l1: float = 0.0
    constraints: Constraints | None = None
    several: SeveralTargets | None = None
    chance: float = 0.0


class Split(NamedTuple):
    """A split: values up to ``value`` go left (all values and no missing one if ``threshold`` is inf), or those in ``categories``."""

    column: int
    value: float
    threshold: float
    missing_left: bool
    n_left: int
    left: tuple[int, ...]
    score: float = 0.0
    gain: float = 0.0
    categories: frozenset[int] | None = None
    lost: float = 0.0

    def sends_left(self, x: float) -> bool:
        if math.isnan(x):
            return self.missing_left
        return x <= self.threshold if self.categories is None else int(x) in self.categories


def node_sums(rows: Sequence[int], a: Any, b: Sequence[int] | None, n_classes: int) -> tuple[int, ...]:
    """Return (G, H) of some rows, or for ``n_classes`` > 0 the weight of each class; ``a`` may be several targets."""
    if isinstance(a, SeveralTargets):
        return a.sums(rows, b) if n_classes == SEVERAL else node_sums(rows, range(len(a.rows)), b, 0)
    if n_classes:
        return tuple(sum(1 if b is None else b[i] for i in rows if a[i] == k) for k in range(n_classes))
    return sum(a[i] for i in rows), len(rows) if b is None else sum(b[i] for i in rows)


def weight_of(sums: Sequence[int], n_classes: int) -> int:
    return sums[-1] if n_classes == SEVERAL else sum(sums) if n_classes else sums[1]


def subtract(total: Sequence[int], left: Sequence[int]) -> tuple[int, ...]:
    return tuple(t - x for t, x in zip(total, left, strict=True))


# --- gains ---


def kernel_value(limits: SplitLimits) -> Any:
    value = criterion_named(limits.criterion).at(float(limits.alpha)).for_kernels(limits.n_classes, limits.penalty)
    return value._replace(l1=limits.l1) if limits.criterion == NEWTON_L1 else value


def deviation(rows: Sequence[int], a: Sequence[int], b: Sequence[int] | None, limits: SplitLimits) -> int:
    """Return the sum of weighted deviations from the weighted quantile, with the factors of ``alpha`` above and below."""
    levels, (above, both) = limits.levels, limits.alpha.as_integer_ratio()
    pairs = sorted((levels[a[i]], 1 if b is None else b[i]) for i in rows)
    upto = itertools.accumulate(w for _, w in pairs)
    share = limits.alpha * sum(w for _, w in pairs)
    quantile = next((level for (level, _), below in zip(pairs, upto, strict=True) if below >= share), 0)
    return sum(w * max(above * (level - quantile), (both - above) * (quantile - level)) for level, w in pairs)


def deviation_gain(left: Sequence[int], rows: Sequence[int], a: Any, b: Sequence[int] | None, limits: SplitLimits) -> int:
    """The decrease of the sum of deviations by a split."""
    if isinstance(a, SeveralTargets):
        return sum(deviation_gain(left, rows, [row[t] for row in a.rows], b, limits) for t in range(len(a.classes)))
    right = sorted(set(rows) - set(left))
    return deviation(rows, a, b, limits) - deviation(left, a, b, limits) - deviation(right, a, b, limits)


def _one_target(limits: SplitLimits) -> SeveralTargets:
    """A single target of classes."""
    return SeveralTargets(limits.criterion, (), (limits.n_classes,), True)


def _negative_entropy(one: float, total: float) -> float:
    return (xlog2(total - one, total) + xlog2(one, total)) + 2.0 * total


def float_score(left: Sequence[int], total: Sequence[int], limits: SplitLimits) -> float:
    """The part of the gain that differs between splits of a node, in float64."""
    right = subtract(total, left)
    if limits.several is not None:
        return limits.several.score(left, total)
    if limits.criterion not in BUILT_IN:
        return float(parts.score(kernel_value(limits), float(left[0]), float(left[1]), float(right[0]), float(right[1])))
    if limits.n_classes:
        return _one_target(limits).score((*left, sum(left)), (*total, sum(total)))
    (x, h_left), (y, h_right) = left, right
    a, b = float(h_left) + limits.penalty, float(h_right) + limits.penalty
    if limits.criterion == ENTROPY:
        return _negative_entropy(float(x), a) + _negative_entropy(float(y), b)
    if limits.criterion == POISSON:
        if x <= 0 or y <= 0:
            return -1.0
        mean = (float(x) + float(y)) / (a + b)
        return max(float(x) * log(float(x) / a / mean) + float(y) * log(float(y) / b / mean), 0.0)
    d = float(x) * b - float(y) * a
    return d * d / (a * b)


def float_gain(score: float, total: Sequence[int], limits: SplitLimits) -> float:
    """The gain in float64, from the score."""
    if limits.several is not None:
        return limits.several.gain(score, total)
    if limits.criterion not in BUILT_IN:
        return float(parts.gain(kernel_value(limits), score, Moments(total[0], total[1], 0)))
    if limits.n_classes:
        return _one_target(limits).gain(score, (*total, sum(total)))
    g, h = float(total[0]), float(total[1])
    if limits.criterion == ENTROPY:
        return score - _negative_entropy(g, h)
    if limits.criterion == POISSON:
        return score
    gain = score / (h + 2.0 * limits.penalty)
    if limits.criterion == GINI:
        return 2.0 * gain
    if limits.penalty > 0.0:
        gain += g * g / (h + 2.0 * limits.penalty) - g * g / (h + limits.penalty)
    return gain


def _by_class(sums: Sequence[int], limits: SplitLimits) -> Sequence[int]:
    return sums if limits.n_classes else (sums[1] - sums[0], sums[0])


def _exact_entropy(weights: Sequence[int]) -> Decimal:
    """Weight times entropy in bits."""
    total = Decimal(sum(weights))
    return -sum((Decimal(w) * (Decimal(w) / total).ln() for w in weights if w), Decimal(0)) / Decimal(2).ln()


def exact_gain(left: Sequence[int], total: Sequence[int], limits: SplitLimits) -> Fraction | Decimal:
    """Return the decrease of the weighted impurity (of the loss, for Newton), exactly."""
    sides = [total, left, subtract(total, left)]
    if limits.criterion == ENTROPY:
        with localcontext(prec=50):
            own, *children = [_exact_entropy(_by_class(s, limits)) for s in sides]
            return own - sum(children)
    if limits.criterion == POISSON:
        with localcontext(prec=50):
            own, *children = [Decimal(g) * (Decimal(g) / Decimal(h)).ln() for g, h in sides]
            return sum(children, -own)
    if limits.criterion == GINI:  # W (1 - sum p^2) = W - sum w^2 / W
        own, *children = [sum((Fraction(w * w, sum(c)) for w in c), Fraction(0)) for c in (_by_class(s, limits) for s in sides)]
    else:  # weighted sum of squares, or of the loss: constant - T(G)^2 / (H + penalty)
        beyond = [(max(abs(Fraction(g)) - Fraction(limits.l1), Fraction(0)), h) for g, h in sides]
        own, *children = [g * g / (h + Fraction(limits.penalty)) for g, h in beyond]
    return sum(children, -own)


# --- one node ---


def midpoint(low: float, high: float) -> float:
    t = low / 2.0 + high / 2.0
    return t if low <= t < high else low


def every_split(x: Sequence[float], column: int, rows: Sequence[int], a: Any, b: Any, limits: SplitLimits) -> Iterator[Split]:
    """Every allowed split of a node on one column; lower thresholds first, then missing left before right."""
    total = node_sums(rows, a, b, limits.n_classes)
    missing = [i for i in rows if math.isnan(x[i])]
    present = sorted({x[i] + 0.0 for i in rows if not math.isnan(x[i])})
    for k, value in enumerate(present):
        is_last = k + 1 == len(present)
        if is_last and not missing:
            return
        below = [i for i in rows if x[i] <= value]
        for missing_left in (True, False):
            if missing_left and (is_last or not missing):
                continue
            left_rows = below + missing if missing_left else below
            left = node_sums(left_rows, a, b, limits.n_classes)
            if _is_allowed(column, left_rows, left, rows, total, a, b, limits):
                threshold = math.inf if is_last else midpoint(value, present[k + 1])
                split = Split(column, value, threshold, missing_left, len(left_rows), left)
                yield _scored(split, left_rows, rows, a, b, total, limits)


def random_split(x: Sequence[float], column: int, rows: Sequence[int], a: Any, b: Any, limits: SplitLimits, u: float) -> Iterator[Split]:
    """Return the allowed splits at the threshold for a draw ``u`` from [0, 1)."""
    total = node_sums(rows, a, b, limits.n_classes)
    missing = [i for i in rows if math.isnan(x[i])]
    present = sorted({x[i] + 0.0 for i in rows if not math.isnan(x[i])})
    low, high = present[0], present[-1]
    threshold = math.inf
    if low < high:
        threshold = low * (1.0 - u) + high * u
        threshold = threshold if low <= threshold < high else low
    below = [i for i in rows if x[i] <= threshold]
    for missing_left in (True, False):
        if missing_left and (low == high or not missing):
            continue
        left_rows = below + missing if missing_left else below
        left = node_sums(left_rows, a, b, limits.n_classes)
        if _is_allowed(column, left_rows, left, rows, total, a, b, limits):
            split = Split(column, max(x[i] for i in below), threshold, missing_left, len(left_rows), left)
            yield _scored(split, left_rows, rows, a, b, total, limits)


def every_set(x: Sequence[float], column: int, rows: Sequence[int], a: Any, b: Any, limits: SplitLimits, bits: int) -> Iterator[Split]:
    """Return the allowed splits of a node on a column of categories, between neighbours in their order; with ``bits``, a random one."""
    least, most = (limit[limits.categorical.index(column)] for limit in (limits.least, limits.most))
    members: dict[Any, list[int]] = {}
    for i in rows:
        members.setdefault("missing" if math.isnan(x[i]) else int(x[i]), []).append(i)
    rare = [i for some in members.values() if len(some) < least for i in some]
    groups: list[tuple[Any, list[int]]] = sorted((c, some) for c, some in members.items() if c != "missing" and len(some) >= least)
    if len(members.get("missing", [])) >= least:
        groups.append(("missing", members["missing"]))
    if rare:
        groups.append(("rare", rare))
    total = node_sums(rows, a, b, limits.n_classes)
    sums = {name: node_sums(some, a, b, limits.n_classes) for name, some in groups}
    of_group = dict(groups)
    orders: Sequence[Any] = range(limits.n_classes or 1)
    if limits.several is not None:
        orders = limits.several.orders([sums[name] for name, _ in groups], total, limits.smooth)
    for which in orders:
        if limits.random:
            numbers = {"missing": -1, "rare": -2}
            stream = np.uint64(hashing.mix(np.uint64(bits)))
            keys = {name: hashing.uniform(np.uint64(hashing.draw(stream, np.int64(numbers.get(name, name))))) for name, _ in groups}
        elif limits.several is not None:
            keys = dict(zip(of_group, which, strict=True))
        else:
            keys = {name: _distance(sums[name], total, which, limits) for name, _ in groups}
        order = sorted((name for name, _ in groups), key=keys.__getitem__)  # stable: groups are in order
        cuts = range(1, len(order))
        if limits.random and len(order) > 1:
            cuts = [1 + int(hashing.below(np.uint64(hashing.mix(np.uint64(bits) + np.uint64(1))), len(order) - 1))]
        for cut in (cut for cut in cuts if min(cut, len(order) - cut) <= most):
            lower, upper = order[:cut], order[cut:]
            n_lower = sum(len(of_group[name]) for name in lower)
            turned = "rare" in lower if rare else 2 * n_lower > len(rows)
            listed = upper if turned else lower
            left_rows = [i for name in listed for i in of_group[name]]
            left = node_sums(left_rows, a, b, limits.n_classes)
            if _is_allowed(column, left_rows, left, rows, total, a, b, limits):
                categories = frozenset(name for name in listed if name != "missing")
                split = Split(column, math.nan, math.nan, "missing" in listed, len(left_rows), left, categories=categories)
                chosen = _nats(len(order)) - _nats(cut) - _nats(len(order) - cut)
                yield _scored(split, left_rows, rows, a, b, total, limits, limits.chance * _per_gain(total, limits) * chosen)


def _nats(n: int) -> float:
    return float(n) * float(log(float(n)))


def _per_gain(total: Sequence[int], limits: SplitLimits) -> float:
    """Return the ratio of scores to gains."""
    of_squares = limits.criterion in (SQUARED_ERROR, NEWTON, GINI)
    return float(weight_of(total, limits.n_classes)) + 2.0 * limits.penalty if of_squares else 1.0


def _distance(sums: Sequence[int], total: Sequence[int], which: int, limits: SplitLimits) -> float:
    """Return the difference of a category's mean to the node's."""
    g, h = (sums[which], sum(sums)) if limits.n_classes else sums
    all_g, all_h = (total[which], sum(total)) if limits.n_classes else total
    mean = float(all_g) / float(all_h) if all_h > 0 else 0.0
    rest = float(h) + limits.smooth
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.float64(float(g) - mean * float(h)) / np.float64(rest))


def _is_allowed(
    column: int,
    left_rows: Sequence[int],
    left: Sequence[int],
    rows: Sequence[int],
    total: Sequence[int],
    a: Any,
    b: Any,
    limits: SplitLimits,
) -> bool:
    h_left = weight_of(left, limits.n_classes)
    h_right = weight_of(total, limits.n_classes) - h_left
    return (
        min(len(left_rows), len(rows) - len(left_rows)) >= limits.min_samples
        and min(h_left, h_right) >= limits.min_weight
        and min(h_left, h_right) + limits.penalty > 0
        and (limits.criterion != POISSON or limits.several is not None or 0 < left[0] < total[0])
        and (limits.several is None or limits.several.is_defined(left, total))
        and _is_in_order(column, left_rows, left, rows, total, a, b, limits)
    )


def _is_in_order(
    column: int,
    left_rows: Sequence[int],
    left: Sequence[int],
    rows: Sequence[int],
    total: Sequence[int],
    a: Any,
    b: Any,
    limits: SplitLimits,
) -> bool:
    """Whether constraints, if there are any, allow a split."""
    around = limits.constraints
    if around is None or limits.n_classes:
        return True
    if limits.criterion in BY_ORDER:
        right_rows = sorted(set(rows) - set(left_rows))
        return around.are_in_order(column, *(quantile_level(side, a, b, limits) for side in (left_rows, right_rows)))
    return around.allows(column, left, subtract(total, left), limits.penalty)


def quantile_level(rows: Sequence[int], a: Sequence[int], b: Sequence[int] | None, limits: SplitLimits) -> float:
    """Return the weighted quantile of levels, the midpoint if two qualify."""
    pairs = sorted((limits.levels[a[i]], 1 if b is None else b[i]) for i in rows)
    share = limits.alpha * sum(w for _, w in pairs)
    upto = list(itertools.accumulate(w for _, w in pairs))
    one = next(level for (level, _), below in zip(pairs, upto, strict=True) if below >= share)
    other = next((level for (level, _), below in zip(pairs, upto, strict=True) if below > share), one)
    return float(one) if one == other else one / 2 + other / 2


def _scored(
    split: Split,
    left_rows: Sequence[int],
    rows: Sequence[int],
    a: Any,
    b: Any,
    total: Sequence[int],
    limits: SplitLimits,
    lost: float = 0.0,
) -> Split:
    if limits.criterion in BY_ORDER:
        gain = deviation_gain(left_rows, rows, a, b, limits)
        rounded = float(gain >> 22) * 2.0**22 + float(gain & (2**22 - 1))
        unit = limits.alpha.denominator if limits.criterion == QUANTILE else 1
        return split._replace(score=rounded, gain=rounded / unit / (len(a.classes) if isinstance(a, SeveralTargets) else 1))
    score, around = float_score(split.left, total, limits), limits.constraints
    if around is not None and not limits.n_classes:
        score = around.score(score, split.left, subtract(total, split.left), limits.penalty)
    return split._replace(score=score - lost, gain=_gain(score - lost, total, limits), lost=lost)


def _gain(score: float, total: Sequence[int], limits: SplitLimits) -> float:
    gain, around = float_gain(score, total, limits), limits.constraints
    return gain if around is None or limits.n_classes else around.gain(score, gain, total, limits.penalty)


def is_constant(x: Sequence[float], rows: Sequence[int]) -> bool:
    return len({None if math.isnan(x[i]) else x[i] for i in rows}) <= 1


def best_of_column(
    x: Sequence[float], column: int, rows: Sequence[int], a: Any, b: Any, limits: SplitLimits, bits: int = 0
) -> Split | None:
    """Return the best split on one column: the largest score, the first of equals."""
    if column in limits.categorical:
        splits = every_set(x, column, rows, a, b, limits, bits)
    elif limits.random:
        splits = random_split(x, column, rows, a, b, limits, hashing.uniform(np.uint64(bits)))
    else:
        splits = every_split(x, column, rows, a, b, limits)
    best = max(splits, key=lambda split: split.score, default=None)  # max returns the first of equals
    if best is None or best.gain < limits.min_gain or (limits.criterion in (NEWTON, NEWTON_L1) and best.gain <= 0.0):
        return None
    if best.lost:
        best = best._replace(gain=_gain(best.score + best.lost, node_sums(rows, a, b, limits.n_classes), limits))
    if best.categories is None and not any(math.isnan(x[i]) for i in rows):  # missing values in other rows go with the majority
        best = best._replace(missing_left=2 * best.n_left > len(rows))
    return best


def best_split(
    columns: Sequence[Sequence[float]],
    drawn: Sequence[int],
    rows: Sequence[int],
    a: Any,
    b: Any,
    limits: SplitLimits,
    draws: Sequence[int] | None = None,
) -> tuple[int, Split | None]:
    """Return the best split over the columns drawn: larger score, then lower column; and the expected status of the search."""
    around = limits.constraints
    varying = [j for j in sorted(drawn) if not is_constant(columns[j], rows) and (around is None or around.may_use(j))]
    if not varying:
        return CONSTANT, None
    found = [best_of_column(columns[j], j, rows, a, b, limits, draws[j] if draws else 0) for j in varying]
    best = max((split for split in found if split is not None), key=lambda split: split.score, default=None)
    return (NO_SPLIT, None) if best is None else (SPLIT, best)


def full_scan(x: NDArray[Any], column: int, a: NDArray[np.int64], b: NDArray[np.int64], limits: SplitLimits) -> tuple[int, Split | None]:
    """The best split on one column of a node of many rows (sums G, H): a sort, running sums, and the score at every cut."""
    g_all, h_all, n = int(a.sum()), int(b.sum()), x.shape[0]
    missing = np.isnan(x)
    n_missing = int(missing.sum())
    order = np.argsort(x, kind="stable")[: n - n_missing]
    values = x[order].astype(np.float64)
    ends = np.append(np.flatnonzero(np.diff(values)), values.shape[0] - 1)  # the last place of each value
    if n_missing == n or (ends.shape[0] == 1 and n_missing == 0):
        return CONSTANT, None
    # One row for each cut, with columns for missing left and missing right.
    g = np.cumsum(a[order])[ends][:, None] + np.array([int(a[missing].sum()), 0])
    h = np.cumsum(b[order])[ends][:, None] + np.array([int(b[missing].sum()), 0])
    count = ends[:, None] + 1 + np.array([n_missing, 0])
    allowed = np.minimum(count, n - count) >= limits.min_samples
    allowed &= (np.minimum(h, h_all - h) >= limits.min_weight) & (np.minimum(h, h_all - h) + limits.penalty > 0)
    allowed[-1, 0] = False
    if limits.criterion == POISSON:
        allowed &= (g > 0) & (g < g_all)
    if n_missing == 0:
        allowed[:, 0] = allowed[-1, 1] = False
    if not allowed.any():
        return NO_SPLIT, None
    scores = np.full(g.shape, -1.0)
    if limits.criterion not in (SQUARED_ERROR, NEWTON, GINI):
        sums = zip(g[allowed].tolist(), h[allowed].tolist(), strict=True)
        scores[allowed] = [float_score(left, (g_all, h_all), limits) for left in sums]
    else:
        left_h, right_h = h[allowed].astype(np.float64) + limits.penalty, (h_all - h[allowed]).astype(np.float64) + limits.penalty
        d = g[allowed].astype(np.float64) * right_h - (g_all - g[allowed]).astype(np.float64) * left_h
        scores[allowed] = d * d / (left_h * right_h)
    if limits.constraints is not None:
        _constrain(scores, g, h, column, (g_all, h_all), limits)
    cut, side = np.unravel_index(np.argmax(scores), scores.shape)  # the first of equals
    if scores[cut, side] < 0.0:
        return NO_SPLIT, None
    gain = float_gain(float(scores[cut, side]), (g_all, h_all), limits)
    if limits.constraints is not None:
        gain = limits.constraints.gain(float(scores[cut, side]), gain, (g_all, h_all), limits.penalty)
    if gain < limits.min_gain or (limits.criterion in (NEWTON, NEWTON_L1) and gain <= 0.0):
        return NO_SPLIT, None
    low, n_left = float(values[ends[cut]]), int(count[cut, side])
    threshold = math.inf if cut + 1 == ends.shape[0] else midpoint(low, float(values[ends[cut + 1]]))
    missing_left = bool(side == 0) if n_missing else 2 * n_left > n
    left = int(g[cut, side]), int(h[cut, side])
    return SPLIT, Split(column, low, threshold, missing_left, n_left, left, float(scores[cut, side]), gain)


def _constrain(scores: NDArray[Any], g: Any, h: Any, column: int, total: tuple[int, int], limits: SplitLimits) -> None:
    """Change the scores of cuts according to constraints; forbidden ones become -1."""
    around = limits.constraints
    assert around is not None
    for place in zip(*np.nonzero(scores >= 0.0), strict=True):
        left = int(g[place]), int(h[place])
        sides = left, subtract(total, left)
        may = around.may_use(column) and around.allows(column, *sides, limits.penalty)
        scores[place] = around.score(float(scores[place]), *sides, limits.penalty) if may else -1.0


def below(around: Constraints, split: Split, rows: tuple[NDArray[Any], NDArray[Any]], limits: SplitLimits, is_left: bool) -> Constraints:
    """Return the constraints of a child of a node with these rows."""
    total = int(rows[0].sum()), int(rows[1].sum())
    one, other = (around.value(sums, limits.penalty) for sums in (split.left, subtract(total, split.left)))
    return around.child(split.column, one, other, is_left)


# --- a whole tree ---


@dataclass
class Node:
    rows: list[int]  # in sample
    sums: tuple[int, ...]
    depth: int
    path: int
    constraints: Constraints | None = None
    split: Split | None = None
    children: list[Node] = field(default_factory=list)

    def preorder(self) -> list[Node]:
        return [self, *(node for child in self.children for node in child.preorder())]


class Sample(NamedTuple):
    """The data of a tree: two integers a row and their powers of two, the rows in sample, and the targets that define pure nodes."""

    g: list[int]
    h: list[int] | None
    exponents: tuple[int, int]
    rows: list[int]
    pure_by: list[Any] | None
    levels: list[int]
    several: SeveralTargets | None = None

    @property
    def a(self) -> Any:
        """The first number of each row."""
        return self.several or self.g


def probabilities_by_gradient(sizes: Sequence[float], share: float) -> list[Fraction]:
    """Return the probabilities min(1, size / mu) of rows, with sizes rounded down to one of eight values for each power of two."""
    powers = [math.frexp(size) for size in sizes]
    rounded = [Fraction(math.floor(16 * m), 16) * Fraction(2) ** e for m, e in powers]
    largest = max(rounded)
    if not largest:
        rounded = [Fraction(1)] * len(sizes)
    rounded = [max(size, largest / 2**50) for size in rounded]
    certain, rest, wanted = 0, sum(rounded), max(Fraction(1), Fraction(share) * len(sizes))
    for size in sorted(rounded, reverse=True):
        if size * (wanted - certain) <= rest:
            break
        certain, rest = certain + 1, rest - size
    mu = rest / (wanted - certain)
    return [min(Fraction(1), size / mu) for size in rounded]


def limits_of(rules: Rules, n_classes: int, sums: Sequence[int], exponents: tuple[int, int]) -> SplitLimits:
    """Return the limits on splits in units of the sums; weights stay floats (a child's integer weight is compared with them)."""
    in_classes = n_classes if n_classes > 2 or n_classes == SEVERAL else 0
    root = weight_of(sums, in_classes)
    _, b = exponents
    unit = 2.0 ** criterion_named(rules.criterion).gain_exponent(exponents)
    return SplitLimits(
        criterion=rules.criterion,
        n_classes=in_classes,
        random=rules.random_splits,
        penalty=rules.reg_lambda * 2.0**b,
        min_samples=rules.min_samples_leaf,
        min_weight=max(rules.min_child_weight * 2.0**b, rules.min_weight_fraction_leaf * root),
        min_gain=max((rules.min_impurity_decrease - np.finfo(float).eps) * (root * 2.0**-b), rules.min_split_gain or -math.inf) * unit,
        l1=rules.reg_alpha * 2.0 ** exponents[0],
        alpha=Fraction(rules.alpha).limit_denominator(10_000) if rules.alpha else Fraction(1, 2),
        categorical=rules.categorical,
        smooth=rules.cat_smooth * 2.0**b,
        least=rules.min_samples_category,
        most=rules.max_cat_threshold,
    )


def shrunk(root: Node, values: Sequence[float], noise: float) -> list[float]:
    """Return the values of nodes in preorder after ``noise`` is subtracted from the gain of each split, in units of gains."""
    number = {id(node): i for i, node in enumerate(root.preorder())}
    result = list(values)
    for i, node in enumerate(root.preorder()):
        for child in map(id, node.children):
            share = 1.0 - noise / node.split.gain if node.split is not None and node.split.gain > noise else 0.0
            result[number[child]] = result[i] + share * (values[number[child]] - values[i])
    return result


def chance_of(rules: Rules, in_classes: int, sample: Sample, sums: Sequence[int]) -> float:
    """Return the amount subtracted from gains of sets of categories for each nat of choice, in units of scores."""
    if not rules.chance or in_classes == SEVERAL:
        return 0.0
    if rules.criterion in (GINI, ENTROPY):
        weights = np.array(sums if in_classes else [sums[1] - sums[0], sums[0]], float)
        total = float(weights.sum())
        if rules.criterion == ENTROPY:
            return rules.chance * (total / len(sample.rows) / (2.0 * math.log(2.0)))
        shares = weights / total
        return rules.chance * (float((shares * (1.0 - shares)).mean() * total) / len(sample.rows) * (2.0 if in_classes else 1.0))
    if rules.criterion not in (NEWTON, NEWTON_L1):
        return 0.0
    squares = sum(round(float(sample.g[i]) * float(sample.g[i]) * 2.0**-60) for i in sample.rows)
    g, h = float(sums[0]), float(sums[1])
    return rules.chance * (max(0.0, squares * 2.0**60 - g * g / len(sample.rows)) / h if h > 0.0 else 0.0)


def _values(node: Node, goes_left: dict[int, bool], split: Split, sample: Sample, limits: SplitLimits) -> list[float]:
    """The values of both sides of a split, for constraints."""
    assert node.constraints is not None
    if limits.n_classes:
        return [0.0, 0.0]
    if limits.criterion in BY_ORDER:
        sides = [[i for i in node.rows if goes_left[i] == side] for side in (True, False)]
        return [quantile_level(side, sample.g, sample.h, limits) for side in sides]
    return [node.constraints.value(sums, limits.penalty) for sums in (split.left, subtract(node.sums, split.left))]


def grow(columns: Sequence[Sequence[float]], sample: Sample, rules: Rules, n_classes: int, seed: int, tree: int) -> Node:
    """Grow a tree."""
    seed = hashing.as_seed(seed)
    pool = hashing.tree_columns(seed, tree, len(columns), rules.columns_per_tree)
    node_key = np.uint64(hashing.stream_key(seed, hashing.STREAM_NODE, tree))
    threshold_key = np.uint64(hashing.stream_key(seed, hashing.STREAM_THRESHOLD, tree))
    in_classes = n_classes if n_classes > 2 or n_classes == SEVERAL else 0
    root = Node(sample.rows, node_sums(sample.rows, sample.a, sample.h, in_classes), 0, hashing.ROOT)
    limits = limits_of(rules, n_classes, root.sums, sample.exponents)._replace(levels=sample.levels)
    limits = limits._replace(chance=chance_of(rules, in_classes, sample, root.sums))
    if rules.monotonic or rules.interactions or rules.most_columns:
        root.constraints = Constraints(rules, l1=limits.l1)
    if in_classes == SEVERAL:
        limits = limits._replace(several=sample.several)

    def find(node: Node) -> Split | None:
        n, path, own = len(node.rows), np.uint64(node.path), limits._replace(constraints=node.constraints)
        if rules.max_depth is not None and node.depth >= rules.max_depth:
            return None
        if n < max(2, rules.min_samples_split, 2 * limits.min_samples) or weight_of(node.sums, in_classes) < 2 * math.ceil(
            limits.min_weight
        ):
            return None
        if sample.pure_by is not None and len({sample.pure_by[i] for i in node.rows}) == 1:
            return None
        order = pool.copy()
        if rules.max_features < len(pool):
            hashing.draw_columns(node_key, path, order, 0, len(pool))
        draws = [int(hashing.draw(threshold_key ^ path, j)) for j in range(len(columns))]
        first, rest = order[: rules.max_features].tolist(), order[rules.max_features :].tolist()
        # Drawing continues, one column at a time, while all columns drawn are constant in the node.
        for drawn in [first, *([j] for j in rest)]:
            status, split = best_split(columns, drawn, node.rows, sample.a, sample.h, own, draws)
            if status != CONSTANT:
                return split
        return None

    waiting = [(root, find(root))]  # in the order of their creation
    n_leaves = 1
    while rules.max_leaf_nodes is None or n_leaves < rules.max_leaf_nodes:
        node, split = max(waiting, key=lambda pair: -math.inf if pair[1] is None else pair[1].gain, default=(root, None))
        if split is None:
            break
        waiting = [pair for pair in waiting if pair[0] is not node]
        node.split = split
        x = columns[split.column]
        goes_left = {i: split.sends_left(x[i]) for i in node.rows}
        for left, side in ((True, hashing.LEFT), (False, hashing.LEFT if rules.by_level else hashing.RIGHT)):
            rows = [i for i in node.rows if goes_left[i] == left]
            path = hashing.child_path(np.uint64(node.path), side)
            child = Node(rows, node_sums(rows, sample.a, sample.h, in_classes), node.depth + 1, path)
            if node.constraints is not None:
                one, other = _values(node, goes_left, split, sample, limits)
                child.constraints = node.constraints.child(split.column, one, other, left)
            node.children.append(child)
            waiting.append((child, find(child)))
        assert node.children[0].sums == split.left
        n_leaves += 1
    return root
