"""The immutable descriptions of fits that estimators hand to the engine.

A *plan* has everything about a fit that is not data. It is small, picklable and hashable by value, so the same plan drives a fit in this
process and one on a cluster.

Terms
-----
rules
    when and how one node may be split (:class:`Rules`).
forest plan
    independent trees, each on its own draw of the rows (:class:`ForestPlan`). A single tree is a forest of one.
boosting plan
    rounds of trees, each fitted to the gradients of a loss at the predictions so far (:class:`BoostingPlan`).
loss
    the objective of boosting; the engine only needs the protocol (:class:`Loss`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.tree.tree import Tree

#: The weight of each row, shape (n_rows,); None if all are 1.
Weights = NDArray[np.float64] | None
#: The rules that are constraints on columns.
CONSTRAINTS = ("monotonic", "interactions", "most_columns")


@dataclass(frozen=True)
class Rules:
    """When and how a node may be split.

    Attributes
    ----------
    criterion : str
        The impurity measure that splits improve: the name of a registered criterion (:mod:`dtrees.split.criteria`).
    alpha : float
        The quantile of the criterion ``quantile``; 0 for other criteria.
    max_features : int
        Number of columns drawn for each node.
    columns_per_tree : int
        Number of columns drawn once for each tree; nodes draw from these.
    random_splits : bool
        One random threshold per column (Extra-Trees) rather than the best of all.
    max_depth : int or None
        Depth at which every node is a leaf.
    min_samples_split, min_samples_leaf : int
        Smallest number of rows of a node that is split, and of a child.
    min_weight_fraction_leaf : float
        Smallest weight of a child, as a fraction of the root's.
    min_child_weight : float
        Smallest weight of a child (in boosting its sum of hessians), absolute.
    max_leaf_nodes : int or None
        Grow best-first until there are this many leaves.
    min_impurity_decrease : float
        Smallest gain per unit of the root's weight.
    min_split_gain : float
        Smallest gain, absolute.
    reg_lambda, reg_alpha : float
        L2 and L1 penalty on leaf values (boosting only; zero elsewhere). ``reg_alpha`` requires the criterion ``newton_l1``.
    ccp_alpha : float
        The cost of a leaf when the finished tree is pruned (:mod:`dtrees.tree.pruning`).
    by_level : bool
        Whether columns are drawn for each level of a tree, and are the same for all nodes of the level.
    categorical : tuple of int
        The categorical columns, whose values are the numbers 0, 1 and so on; ascending.
    cat_smooth : float
        The weight by which means of categories are shrunk towards the mean of their node.
    min_samples_category, max_cat_threshold : tuple of int
        For each column of ``categorical``: categories with fewer in-sample rows in a node are pooled; and the largest number of categories
        on the side of a split that has fewer of them.
    chance : float
        The share of the gain that sets of categories are expected to have by chance that is subtracted from their gains.
    split_shrinkage : float
        The multiple of the gain by chance by which the effect of a split is reduced (:func:`~dtrees.engine.outcome.values.shrink_splits`).
    monotonic : tuple of int
        1, -1 or 0 for each column of the table: values must not decrease with the column, must not increase, or are not constrained. Empty
        if no column is constrained.
    interactions : tuple of tuple of int
        The sets of columns that may occur together on a path; each column is in at least one. Empty if there is no such constraint.
    most_columns : int
        Largest number of columns on a path, 0 for no limit.
    """

    criterion: str
    max_features: int
    columns_per_tree: int
    random_splits: bool = False
    max_depth: int | None = None
    min_samples_split: int = 2
    min_samples_leaf: int = 1
    min_weight_fraction_leaf: float = 0.0
    min_child_weight: float = 0.0
    max_leaf_nodes: int | None = None
    min_impurity_decrease: float = 0.0
    reg_lambda: float = 0.0
    reg_alpha: float = 0.0
    min_split_gain: float = 0.0
    ccp_alpha: float = 0.0
    by_level: bool = False
    categorical: tuple[int, ...] = ()
    cat_smooth: float = 0.0
    min_samples_category: tuple[int, ...] = ()
    max_cat_threshold: tuple[int, ...] = ()
    chance: float = 0.0
    split_shrinkage: float = 0.0
    monotonic: tuple[int, ...] = ()
    interactions: tuple[tuple[int, ...], ...] = ()
    most_columns: int = 0
    alpha: float = 0.0

    def described(self) -> dict[str, Any]:
        """Return the rules by name; constraints, quantile and noise only if set, so that files of fits without them stay the same."""
        seldom = *CONSTRAINTS, "alpha", "chance", "split_shrinkage"
        return {name: value for name, value in vars(self).items() if value or name not in seldom}


class Checkpoint(Protocol):
    """Storage for the finished trees of a fit, from which an interrupted fit continues.

    Picklable, as a fit on a cluster saves from the worker of its coordinator.
    """

    @property
    def interval(self) -> float:
        """Seconds from one checkpoint to the next."""

    def read(self) -> Any:
        """Return the result (:class:`ForestResult` or :class:`BoostingResult`) so far, None if nothing is stored for this fit."""

    def write(self, result: Any) -> None:
        """Store a result in place of the previous one."""


@dataclass(frozen=True)
class ForestPlan:
    """Independent trees.

    Attributes
    ----------
    rules : Rules
    seed : int
        Each draw is a function of the seed and the identity of the drawn object.
    n_classes : int
        0 for regression; for multi-output targets, the classes of all targets together.
    n_draws : int or None
        Rows drawn with replacement for each tree, with probability proportional to the weights; None takes every row once,
        with its weight.
    class_weight : tuple of float, tuple of such tuples or None
        Multiplies the weights of the rows of each class; for multi-output targets, there is a tuple for each target.
    distinct_draws : bool
        Draw each row at most once, among those with a positive weight. ``n_draws`` does not exceed the number of these rows.
    balanced_draws : bool
        Draw from each class the number of rows that the smallest class has, with probability proportional to the weights within the class.
        Rows of weight 0 do not count. ``n_draws`` is then the upper limit of the total.
    balanced_subsample : bool
        Weigh the classes of each tree's own rows by n / (n_classes * count).
    out_of_bag : bool
        Whether to sum, for each row, the predictions of the trees that did not draw it.
    checkpoint : Checkpoint or None
        Where finished trees are stored.
    targets : tuple of int
        For multi-output targets, which each tree learns together: the number of classes of each target, 1 for a numeric one. Empty for one
        target.
    """

    rules: Rules
    seed: int
    n_classes: int = 0
    n_draws: int | None = None
    distinct_draws: bool = False
    class_weight: tuple[float, ...] | tuple[tuple[float, ...], ...] | None = None
    balanced_draws: bool = False
    balanced_subsample: bool = False
    out_of_bag: bool = False
    checkpoint: Checkpoint | None = None
    targets: tuple[int, ...] = ()

    @property
    def n_values(self) -> int:
        """The number of values of a leaf: one for each numeric target, and one for each class of the others."""
        return self.n_classes or max(1, len(self.targets))


class Loss(Protocol):
    """The objective of boosting: ``K`` raw predictions for each row, stored as an array of shape (K, n).

    ``target`` has the shape (n,), or (K, n) for multi-output targets.
    """

    @property
    def n_outputs(self) -> int:
        """K, the number of trees a round."""

    @property
    def constant_hessian(self) -> bool:
        """Whether the second derivative is 1 everywhere, or is treated as such."""

    @property
    def measures_leaves(self) -> bool:
        """Whether leaf values are measured on the rows of the leaves, instead of being Newton steps."""

    @property
    def takes_all_rows(self) -> bool:
        """Whether :meth:`for_round` computes the derivatives from all rows at once, with the weights included."""

    @property
    def residual_quantiles(self) -> tuple[float, ...] | None:
        """For each output, the quantile of the residuals of its rows that a leaf holds; None if leaves are not quantiles."""

    @property
    def cut_quantile(self) -> float | None:
        """The quantile of the absolute residuals of all rows at which a round clips residuals (:meth:`cut_at`); None if it does not.

        Leaf values are then quantiles plus the mean clipped deviation from them.
        """

    def cut_at(self, sizes: tuple[float, ...]) -> Loss:
        """Return the loss of a round that clips residuals at these absolute values, one for each output."""

    def check(self, target: NDArray) -> None:
        """Raise a ValueError if the loss is not defined for these targets."""

    def initial(self, target: NDArray, weight: Weights) -> NDArray[np.float64]:
        """Return the best constant raw prediction, shape (K,)."""

    def for_round(self, target: NDArray, raw: NDArray[np.float64], weight: Any) -> Loss:
        """Return the loss for a round that starts from these raw predictions, shape (K, n).

        ``weight`` is in fixed point, 0 for rows that are not trained on, and empty if all rows count the same. A loss that takes all rows
        receives floats, 0 for held-out rows, or None. If a shard is replaced within a round, the new one calls this again with the array
        that :meth:`open_round` wrote: for a loss of several outputs that changes with the rounds, that array is a copy of ``raw``.
        """

    def of_rows(self, rows: NDArray[np.int64]) -> Loss:
        """Restrict the loss of a round, which :meth:`for_round` computed from all rows, to some of the rows."""

    def open_round(self, raw: NDArray[np.float64], opened: NDArray[np.float64]) -> None:
        """Write the array that determines the gradients of a round's trees into ``opened``, shape (K, n).

        If a round has one tree, the array is ``raw`` itself and need not be copied.
        """

    def gradients(self, target: NDArray, opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]) -> None:
        """Write first and second derivatives by ``raw[output]`` into ``g`` and ``h``, shape (n,), unweighted.

        If the second derivative is known to be 1, ``h`` may have shape (0,) and is not written.
        """

    def limit_steps(self, values: NDArray[np.float64], learning_rate: float) -> None:
        """Shorten, in place, the Newton steps of a tree, times the learning rate, that overshoot the smallest loss of their leaves."""

    def pointwise(self, target: NDArray, raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's loss into ``out``, shape (n,)."""

    def negligible(self, initial: NDArray[np.float64]) -> float:
        """Return a mean loss that may remain from rounding alone if the target is constant, given the initial raw prediction."""

    def measure_leaves(
        self,
        target: NDArray,
        raw: NDArray[np.float64],
        output: int,
        weight: NDArray[np.int64],
        rows: NDArray[np.uint32],
        start: NDArray[np.int64],
        stop: NDArray[np.int64],
        out: NDArray[np.float64],
    ) -> None:
        """Write the best steps of leaves, before shrinkage; leaf i has the rows ``rows[start[i]:stop[i]]``.

        ``raw`` has the raw predictions of ``output`` at the beginning of the round, shape (n,); ``weight`` is as for :meth:`for_round`.
        """


@dataclass(frozen=True)
class Stopping:
    """Early stopping when a metric of an evaluation set has not improved for some rounds.

    Attributes
    ----------
    rounds : int
        Number of rounds without an improvement after which the fit ends.
    set, metric : int
        Positions of the evaluation set and metric that decide.
    tol : float
        A smaller change is no improvement.
    greater_is_better : bool

    Examples
    --------
    >>> rule = Stopping(rounds=2)
    >>> rule.best([0.5, 0.4, 0.4, 0.6]), rule.ends([0.5, 0.4, 0.4]), rule.ends([0.5, 0.4, 0.4, 0.6])
    (1, False, True)
    """

    rounds: int
    set: int = 0
    metric: int = 0
    tol: float = 0.0
    greater_is_better: bool = False

    def scores(self, evaluated: NDArray[np.float64]) -> list[float]:
        """Return the deciding scores, given all scores, shape (n_rounds, n_sets, n_metrics)."""
        return [float(score) for score in evaluated[:, self.set, self.metric]]

    def best(self, scores: Sequence[float]) -> int:
        """Return the first round (from 0) that no later one improves on; 0 if all scores are NaN."""
        best = 0
        for i, score in enumerate(scores):
            gain = score - scores[best] if self.greater_is_better else scores[best] - score
            if gain > self.tol or (scores[best] != scores[best] and score == score):
                best = i
        return best

    def ends(self, scores: Sequence[float]) -> bool:
        """Return whether the fit ends after the last of these rounds."""
        return len(scores) - 1 - self.best(scores) >= self.rounds


class Stalling(Stopping):
    """Early stopping by scikit-learn's rule (:func:`has_stalled`), as with held-out rows; all rounds remain in the model.

    Examples
    --------
    >>> rule = Stalling(rounds=2)
    >>> rule.ends([0.5, 0.4, 0.6]), rule.ends([0.5, 0.4, 0.6, 0.6]), rule.best([0.5, 0.4, 0.6, 0.6])
    (False, True, 3)
    """

    def best(self, scores: Sequence[float]) -> int:
        """Return the last round."""
        return len(scores) - 1

    def ends(self, scores: Sequence[float]) -> bool:
        """Return whether the fit ends after the last of these rounds."""
        return has_stalled([-score for score in scores] if self.greater_is_better else scores, self.rounds, self.tol)


def has_stalled(scores: Sequence[float], patience: int, tol: float) -> bool:
    """Return whether none of the last ``patience`` losses improves on all earlier ones by more than ``tol``, as in scikit-learn.

    NaN is larger than all numbers.

    Examples
    --------
    >>> has_stalled([3.0, 2.0, 1.0], 2, 0.0), has_stalled([1.0, math.nan, math.nan], 2, 0.0), has_stalled([math.nan] * 3, 2, 0.0)
    (False, True, True)
    """
    if len(scores) <= patience:
        return False
    losses = [math.inf if math.isnan(score) else score for score in scores]
    latest = min(losses[-patience:])
    return latest == math.inf or latest > min(losses[:-patience]) - tol


class Scoring(Protocol):
    """A score of held-out rows that replaces the loss in early stopping. Greater is better."""

    def score(self, target: NDArray, raw: NDArray[np.float64], weight: Weights) -> float:
        """Return the score of raw predictions, shape (K, n)."""


@dataclass(frozen=True)
class Dropout:
    """Which earlier rounds are dropped while a round grows; see :mod:`dtrees.engine.shard.targets.dropout`.

    Attributes
    ----------
    rate : float
        The probability of each round to be dropped.
    skip : float
        The probability that no round is dropped.
    normalization : {"tree", "forest"}
        Whether the new round has the weight of each dropped round, or of all of them together.
    """

    rate: float
    skip: float = 0.0
    normalization: str = "tree"


@dataclass(frozen=True)
class BoostingPlan:
    """Rounds of trees on the gradients of a loss.

    Attributes
    ----------
    rules : Rules
    seed : int
    loss : Loss
    n_classes : int
        The number of classes, each of which has its share of the held-out rows; 0 for regression and for multi-output targets.
    n_rounds : int
        Total number of rounds, including those of ``trees`` from a warm start.
    learning_rate : float
        Shrinkage of a round: leaf values are multiplied by it, and divided by the number of trees that a round has for each output.
    n_parallel_trees : int
        Number of trees of a round for each output. All use the gradients at the beginning of the round; each draws its own rows and
        columns.
    subsample : float
        Share of the rows drawn, without replacement, for each round, or for each of its parallel trees.
    subsample_by : {"uniform", "gradient"}
        Whether all rows are equally likely to be drawn, or rows with large gradients more likely
        (:mod:`dtrees.split.numbers.gradient_draws`).
    validation_fraction : float or None
        Share of the rows that is held out if ``n_iter_no_change`` is set; None holds out none, and the training rows decide.
    n_iter_no_change : int or None
        Stop when the held-out loss, or score, has not improved by ``tol`` in this many rounds.
    tol : float
    scoring : Scoring or None
        The score of held-out rows; None is the loss.
    scores_before : tuple of float
        Losses or scores of the same rows after the rounds of the earlier fit that this one continues.
    first_order : bool
        Whether splits are found by gradients alone, with a hessian of 1 for each row. Leaves are still Newton steps, or measured.
    class_weight : tuple of float, tuple of such tuples or None
        Factors for the weights of rows by class; for multi-output targets, a tuple for each target.
    dropout : Dropout or None
        Which earlier rounds are dropped while a round grows.
    stopping : Stopping or None
        Early stopping by the scores of an evaluation set.
    checkpoint : Checkpoint or None
        Where finished rounds are stored.
    """

    rules: Rules
    seed: int
    loss: Loss
    n_rounds: int
    n_classes: int = 0
    learning_rate: float = 0.1
    n_parallel_trees: int = 1
    subsample: float = 1.0
    subsample_by: str = "uniform"
    validation_fraction: float | None = 0.1
    n_iter_no_change: int | None = None
    tol: float = 1e-4
    scoring: Scoring | None = None
    scores_before: tuple[float, ...] = ()
    first_order: bool = False
    class_weight: tuple[float, ...] | tuple[tuple[float, ...], ...] | None = None
    dropout: Dropout | None = None
    stopping: Stopping | None = None
    checkpoint: Checkpoint | None = None

    @property
    def trees_per_round(self) -> int:
        """The number of trees of a round. The order is one tree for each output, then the next parallel tree of each output, and so on."""
        return self.loss.n_outputs * self.n_parallel_trees

    @property
    def shrinkage(self) -> float:
        """The factor of leaf values."""
        return self.learning_rate / self.n_parallel_trees

    @property
    def scores_undrawn(self) -> bool:
        """Whether the rows that a round does not draw are scored: not if they are drawn by gradient, as these losses would be biased."""
        return self.subsample < 1.0 and self.n_parallel_trees == 1 and not self.draws_by_gradient

    @property
    def holds_out(self) -> bool:
        """Whether some rows are held out for validation."""
        return self.n_iter_no_change is not None and self.validation_fraction is not None

    @property
    def draws_by_gradient(self) -> bool:
        """Whether rows with large gradients are more likely to be drawn for a round."""
        return self.subsample < 1.0 and self.subsample_by == "gradient"

    @property
    def separate_steps(self) -> bool:
        """Whether leaves hold Newton steps that do not follow from the sums of the tree, as its splits use gradients alone."""
        return self.first_order and not self.loss.constant_hessian

    @property
    def measures_leaves(self) -> bool:
        """Whether leaf values are measured on the rows of the leaves."""
        return self.loss.measures_leaves or self.separate_steps


@dataclass(frozen=True)
class Progress:
    """Progress of a fit after a tree of a forest or a round of boosting, as passed to callbacks.

    Attributes
    ----------
    done, total : int
        Finished and planned trees or rounds.
    seconds : float
        Seconds since the fit began.
    train_score, validation_score : float or None
        Mean loss after this round of boosting. The validation score exists only with ``n_iter_no_change``, and is that of ``scoring`` if
        set.
    evaluation : mapping from str to mapping from str to float
        Metrics after this round by the names of evaluation set and metric (boosting with ``eval_set``).
    tree_seconds : float or None
        Seconds that this round took (boosting).
    by_scorer : bool
        Whether ``validation_score`` is the score of a scorer, for which greater is better, instead of a loss.

    Examples
    --------
    >>> from dtrees import GradientBoostingRegressor
    >>> rounds = []
    >>> model = GradientBoostingRegressor(n_estimators=3).fit([[0.0], [1.0]], [0.0, 1.0], callbacks=[rounds.append])
    >>> [(progress.done, progress.total) for progress in rounds]
    [(1, 3), (2, 3), (3, 3)]
    """

    done: int
    total: int
    seconds: float
    train_score: float | None = None
    validation_score: float | None = None
    evaluation: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tree_seconds: float | None = None
    by_scorer: bool = False


class FitInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a fit.

    Attributes
    ----------
    result : ForestResult, BoostingResult or list
        The finished trees, up to the first unfinished one; for a forest, without out-of-bag sums. For a bag, the result of each booster.
    """

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    @property
    def origin(self) -> BaseException:
        """The user's original KeyboardInterrupt, with its arguments."""
        error: BaseException = self
        while isinstance(error, FitInterrupted) and error.__cause__ is not None:
            error = error.__cause__
        return error


#: Called after each tree or round; returning True ends the fit there.
Callback = Callable[[Progress], bool | None]


def watch(callback: Callback | None, result: Callable[[], Any]) -> None:
    """Pass the callback, if it has a method ``watch``, a function that returns the current result."""
    if callback is not None and hasattr(callback, "watch"):
        callback.watch(result)


@dataclass(frozen=True)
class ForestResult:
    """Trees in order, and the out-of-bag sums.

    ``oob_sum`` has sums of predictions in fixed point (times ``2**oob_exponent``), shape (n, n_values), so that batches of trees add up to
    the same in any order; ``oob_count`` is the number of trees summed, shape (n,).
    """

    trees: list[Tree]
    oob_sum: NDArray[np.int64] | None = None
    oob_count: NDArray[np.int64] | None = None
    oob_exponent: int = 0

    def followed_by(self, other: ForestResult) -> ForestResult:
        """Return both results combined, sums in the coarser of their scales; without sums if one has none."""
        trees = self.trees + other.trees
        if self.oob_sum is None or other.oob_sum is None or self.oob_count is None or other.oob_count is None:
            return replace(other, trees=trees)
        exponent = min(self.oob_exponent, other.oob_exponent)
        total = (self.oob_sum >> (self.oob_exponent - exponent)) + (other.oob_sum >> (other.oob_exponent - exponent))
        return ForestResult(trees, total, self.oob_count + other.oob_count, exponent)


@dataclass(frozen=True)
class BoostingResult:
    """Rounds of :attr:`BoostingPlan.trees_per_round` trees each (leaf values already shrunk), and scores.

    Attributes
    ----------
    rounds : list of list of Tree
    initial : ndarray of float64, shape (K,)
        The raw prediction before the first round.
    train_score, validation_score : ndarray of float64
        Mean loss after each round of this fit, on the training rows and on the held-out rows (empty if there are none; by ``scoring`` if
        set).
    out_of_bag : ndarray of float64, shape (n_rounds, 2)
        If rounds draw rows: the mean loss, after a round, of the rows that it did not draw, and, for the first round, also their loss
        before it (0 for other rounds). Otherwise empty.
    evaluation : ndarray of float64, shape (n_rounds, n_sets, n_metrics)
        Scores of the evaluation sets after every round, including the rounds of earlier fits.
    """

    rounds: list[list[Tree]]
    initial: NDArray[np.float64]
    train_score: NDArray[np.float64]
    validation_score: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    out_of_bag: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 2)))
    evaluation: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0, 0)))
