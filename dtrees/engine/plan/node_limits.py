"""Limits on the nodes of a tree: the rules of a plan in the units of the tree's sums, and how nodes are searched depending on their size.

The coordinator and all shards compute them alike.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan, Rules
from dtrees.split.criteria.constraints import Clipped, Constraints, InOrder, make_constraints, root_words
from dtrees.split.criteria.criterion import Criterion, criterion_named
from dtrees.split.criteria.several import value_for_targets
from dtrees.split.node.limits import NO_CATEGORIES, BestThreshold, Categories, NodeLimits, RandomThreshold, SplitLimits
from dtrees.split.numbers.fixed_point import add_up_squares
from dtrees.split.numbers.hashing import LEFT, RIGHT
from dtrees.split.policy import BLOCK_ROWS, BOUNDED_ROWS, MAX_ZONES, SLOTS_BYTES_PER_ROW, SLOTS_MIN_BYTES, SUMMED_SHARE, WHOLE_BLOCK_CELLS

_NO_LIMIT = 2**31
_MOST_WEIGHT = 2**62
_EPSILON = float(np.finfo(np.float64).eps)


def scaled(x: Any, exponent: int) -> Any:
    """Return ``x * 2**exponent``, infinite or zero where that is out of range, as gains of targets near the limits of float64 can be."""
    if exponent == 0:
        return np.array(x)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(x, exponent)


def _scaled_number(x: float, exponent: int) -> float:
    """Return ``x * 2**exponent`` of a single number, infinite if it is out of range; ten times as fast as for an array."""
    try:
        return math.ldexp(x, exponent)
    except OverflowError:
        return math.copysign(math.inf, x)


def categories_of(rules: Rules, ids: NDArray[np.int32], smooth: float) -> Categories:
    """Return which columns are categorical and how their categories are ordered; ``smooth`` is in units of the tree's weights."""
    of_column = {column: place for place, column in enumerate(rules.categorical)}
    places = np.array([of_column.get(column, -1) for column in ids.tolist()], np.int64)
    least, most = (np.array([*limits, 0], np.int64)[places] for limits in (rules.min_samples_category, rules.max_cat_threshold))
    return Categories(True, places >= 0, smooth, least, most)


def limits_leaves(rules: Rules, n_rows: int) -> bool:
    """Return whether the number of leaves, or the depth, keeps a tree of ``n_rows`` rows from being fully grown."""
    return rules.max_leaf_nodes is not None or (rules.max_depth is not None and 2.0**rules.max_depth < n_rows)


def limited_splits(rules: Rules, n_rows: int) -> int:
    """Return how many splits a tree of ``n_rows`` rows in sample may have, 0 if only its rows limit it."""
    return 0 if rules.max_leaf_nodes is None or rules.max_leaf_nodes >= n_rows else rules.max_leaf_nodes - 1


def constraints_of(rules: Rules) -> Constraints | None:
    """Return the constraints of the trees, None if there are none."""
    if not (rules.monotonic or rules.interactions or rules.most_columns):
        return None
    return _make_constraints(rules.monotonic, rules.interactions, rules.most_columns)


def criterion_of(rules: Rules) -> Criterion:
    """Return the criterion of the trees."""
    return criterion_named(rules.criterion).at(rules.alpha)


_make_constraints = lru_cache(maxsize=8)(make_constraints)


def _constrained(rules: Rules, criterion: Any) -> Any:
    constraints = constraints_of(rules)
    if constraints is None:
        return criterion
    kind = Clipped if criterion_named(rules.criterion).task == "boosting" else InOrder
    return kind(criterion, constraints)


def squares_of(rules: Rules, a: NDArray[np.int64]) -> int:
    """Return the sum of squares of the targets of the rows in sample (:func:`~dtrees.split.numbers.fixed_point.add_up_squares`).

    It is 0 where :func:`noise_of` does not need it: if noise is ignored, or if rows carry classes, whose fractions are sufficient.
    """
    return int(add_up_squares(a)) if uses_noise(rules) and criterion_of(rules).row_statistic != "class" else 0


def noise_of(rules: Rules, n_rows: int, sums: NDArray[np.int64], squares: int) -> float:
    """Return the expected gain of a split on pure noise, in a tree whose root has these sums; 0 if the rules ignore noise.

    ``squares`` is the sum of squares of its rows (:func:`squares_of`).
    """
    return criterion_of(rules).chance(n_rows, sums, squares * 2.0**60) if uses_noise(rules) else 0.0


def uses_noise(rules: Rules) -> bool:
    """Return whether gains are compared with, or reduced by, the expected gain of a split on pure noise."""
    return rules.chance > 0.0 or rules.split_shrinkage > 0.0


def n_sums_of(plan: ForestPlan | BoostingPlan) -> int:
    """Return the number of sums of a node, without the words of constraints."""
    by_order = isinstance(plan, ForestPlan) and plan.targets and not criterion_named(plan.rules.criterion).by_sums
    return 2 if by_order else StoredSums.of(plan).n_sums


class StoredSums(NamedTuple):
    """Which sums a node has if its rows are spread over shards, besides the words of constraints; by default moments.

    Attributes
    ----------
    n_classes : int
        The number of classes, over all targets, whose weights are summed; 0 if none are, as for two classes of one target.
    targets : tuple of int
        See :class:`~dtrees.engine.plan.plans.ForestPlan`.

    Examples
    --------
    >>> one, classes, numbers = StoredSums(), StoredSums(3), StoredSums(targets=(1, 1, 1))
    >>> [stored.n_numbers for stored in (one, classes, numbers)]
    [0, 3, 3]
    >>> [(stored.n_sums, stored.width(True), stored.width_picked(True)) for stored in (one, classes, numbers)]
    [(2, 3, 3), (3, 4, 4), (4, 8, 5)]
    """

    n_classes: int = 0
    targets: tuple[int, ...] = ()

    @classmethod
    def of(cls, plan: ForestPlan | BoostingPlan) -> StoredSums:
        """Return the sums that a plan needs."""
        if isinstance(plan, BoostingPlan):
            return cls()
        return cls(plan.n_classes if plan.targets or plan.n_classes > 2 else 0, plan.targets)

    @property
    def n_numbers(self) -> int:
        """The number of weights of classes, or of sums of targets, that are stored side by side; 0 for moments."""
        return self.n_classes or len(self.targets)

    @property
    def n_sums(self) -> int:
        """The number of sums of a node."""
        return self.n_numbers + 1 if self.targets else self.n_classes or 2

    def width(self, weighted: bool) -> int:
        """Return the number of values of an element of a zone (:mod:`dtrees.split.zones.over_shards.node_sums`)."""
        return 2 * self.n_numbers + 2 if self.targets and not self.n_classes else self.width_picked(weighted)

    def width_picked(self, weighted: bool) -> int:
        """Return the number of values of an element of a distinct value."""
        return self.n_numbers + 2 if self.targets and not self.n_classes else (self.n_classes or 2) + weighted

    def cells_sent(self, rules: Rules) -> int:
        """Return how many numbers are sent for a row to the shard that grows its node: its cells, and its targets if multi-output."""
        return max(1, rules.columns_per_tree) + len(self.targets)

    @property
    def per_category(self) -> int:
        """The largest number of elements of a category in lists of sums."""
        return max(1, self.n_numbers)


class LimitsOfFit:
    """The limits on splits and the stopping rules of the trees of a fit; the parts that all trees share are computed once.

    Parameters
    ----------
    rules : Rules
    stored : StoredSums
        The sums of the nodes.
    ids : ndarray of int32, optional
        The numbers of the columns to be searched. Callers that search no columns omit them.

    Attributes
    ----------
    stored : StoredSums
    criterion : Criterion
    root_words : ndarray of int64
        The words of constraints that follow the sums of a root; empty if there are no constraints.
    """

    def __init__(self, rules: Rules, stored: StoredSums, ids: NDArray[np.int32] | None = None) -> None:
        self._rules, self.stored, self._ids = rules, stored, ids if rules.categorical else None
        self.criterion, constraints = criterion_of(rules), constraints_of(rules)
        self.root_words = np.empty(0, np.int64) if constraints is None else root_words(constraints)
        self._thresholds = RandomThreshold() if rules.random_splits else BestThreshold()
        # As in scikit-learn, a gain that is below the minimum only by a rounding error counts.
        self._min_decrease = rules.min_impurity_decrease - _EPSILON
        self._stops = NodeLimits(
            _NO_LIMIT if rules.max_depth is None else rules.max_depth,
            max(rules.min_samples_split, 2 * rules.min_samples_leaf, 2),
            0,
            rules.max_features,
            LEFT if rules.by_level else RIGHT,
            self.criterion.task != "boosting",
            not self.criterion.measured,
        )
        self._exponents: tuple[int, int] | None = None
        self._uses_noise = uses_noise(rules)

    def noise(self, sums: NDArray[np.int64], a: NDArray[np.int64]) -> float:
        """Return :func:`noise_of` for a root with these sums, given the targets of all of its rows."""
        return noise_of(self._rules, a.shape[0], sums, squares_of(self._rules, a)) if self._uses_noise else 0.0

    def _scale(self, exponents: tuple[int, int]) -> None:
        """Convert the limits that all trees with these exponents share into the units of sums."""
        rules, criterion, exponent = self._rules, self.criterion, exponents[1]
        self._exponents, self._gain_exponent = exponents, criterion.gain_exponent(exponents)
        value = criterion.for_kernels(self.stored.n_classes, math.ldexp(rules.reg_lambda, exponent))
        if rules.reg_alpha:
            value = value._replace(l1=_scaled_number(rules.reg_alpha, exponents[0]))
        self._value = _constrained(rules, value)
        self._least = math.ceil(min(_scaled_number(rules.min_child_weight, exponent), float(_MOST_WEIGHT)))
        smooth = _scaled_number(rules.cat_smooth, exponent)
        self._categories = NO_CATEGORIES if self._ids is None else categories_of(rules, self._ids, smooth)

    def of_tree(
        self,
        sums: NDArray[np.int64],
        exponents: tuple[int, int],
        slope: float = 0.0,
        noise: float = 0.0,
        rows: NDArray[np.int64] | None = None,
    ) -> tuple[SplitLimits, NodeLimits]:
        """Return the limits and the rules of a tree whose root has these sums, with or without the words of constraints.

        Parameters
        ----------
        sums : ndarray of int64
        exponents : tuple of int
        slope : float
            The largest abs(a) / b of its rows.
        noise : float
            The result of :func:`noise_of`.
        rows : ndarray of int64, shape (n_rows, n_targets), optional
            Multi-output targets (:func:`~dtrees.split.criteria.several.value_for_targets`), for callers that read rows.
        """
        rules, (n_classes, targets) = self._rules, self.stored
        if exponents != self._exponents:
            self._scale(exponents)
        if targets and self.criterion.by_sums:
            root_weight = int(sums[n_classes or len(targets)])
        else:
            root_weight = int(sums[:n_classes].sum()) if n_classes > 2 else int(sums[1])
        min_weight = self._least
        if rules.min_weight_fraction_leaf:
            min_weight = min(max(min_weight, math.ceil(rules.min_weight_fraction_leaf * root_weight)), _MOST_WEIGHT)
        min_gain = self._min_decrease * math.ldexp(root_weight, -exponents[1])
        if rules.min_split_gain:
            min_gain = max(min_gain, rules.min_split_gain)
        value, noise = self._value, rules.chance * noise
        if targets:  # for which noise is not estimated
            rows = np.empty((0, len(targets)), np.int64) if rows is None else rows
            value, slope, noise = _constrained(rules, value_for_targets(self.criterion, targets, rows)), 0.0, 0.0
        limits = SplitLimits(
            self._thresholds,
            slope,
            rules.min_samples_leaf,
            min_weight,
            _scaled_number(min_gain, self._gain_exponent),
            self._categories,
            value,
            noise,
        )
        of_both = min(2 * min_weight, _MOST_WEIGHT)
        if self._stops.min_weight != of_both:
            self._stops = self._stops._replace(min_weight=of_both)
        return limits, self._stops


def inherits_sums(plan: ForestPlan | BoostingPlan) -> bool:
    """Return whether nodes are searched exactly, by two sums, in all columns of the tree or in enough of them for zone sums to pay."""
    rules = plan.rules
    two, share = (True, SUMMED_SHARE) if isinstance(plan, BoostingPlan) else (plan.n_classes <= 2 and not plan.targets, 1.0)
    enough = rules.max_features >= share * rules.columns_per_tree
    return two and criterion_named(rules.criterion).by_sums and not rules.random_splits and enough


def subtree_rows(plan: ForestPlan | BoostingPlan, n_rows: int, n_columns: int, n_threads: int) -> int:
    """Return the most rows of a node that is grown to its end by one call on the shard that has all columns."""
    if n_threads == 1:
        return n_rows
    if not inherits_sums(plan):
        return max(1024, n_rows // (8 * n_threads))
    slot = n_columns * MAX_ZONES * 24
    n_bytes = max(SLOTS_MIN_BYTES, SLOTS_BYTES_PER_ROW * n_rows)
    if 4 * n_threads * slot <= n_bytes:
        return n_rows
    # A very wide table is grown by levels; their nodes must be few enough to have slots.
    return min(n_rows, 2 * slot * n_rows // n_bytes)


def rows_in_block(rules: Rules, n_rows: int, n_columns: int) -> int:
    """Return the most rows of a node that is finished in a block, instead of by zone sums, in a subtree of ``n_rows`` rows."""
    if n_rows <= BLOCK_ROWS and n_rows * n_columns <= WHOLE_BLOCK_CELLS:
        return n_rows
    # Copying and sorting a block pays if several levels follow.
    levels_above = math.log2(max(1.0, n_rows / BLOCK_ROWS))
    depth = math.inf if rules.max_depth is None else rules.max_depth
    if rules.max_leaf_nodes is not None:
        depth = min(depth, rules.max_leaf_nodes.bit_length() + 1)
    return BLOCK_ROWS if depth >= levels_above + 6 else BOUNDED_ROWS
