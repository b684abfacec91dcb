"""What is to be grown: the immutable descriptions that estimators hand to the engine.

A *plan* says everything about a fit that is not data: it is small, picklable and hashable by value, so the same
plan drives a fit in this process and one on a cluster.

Terms
-----
rules
    when and how one node may be split (:class:`Rules`).
forest plan
    independent trees, each on its own draw of the rows (:class:`ForestPlan`). A single tree is a forest of one.
boosting plan
    rounds of trees, each fitted to the gradients of a loss at the predictions so far (:class:`BoostingPlan`).
loss
    what boosting descends; the engine only needs the protocol (:class:`Loss`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.tree.tree import Tree

#: The rules that are constraints on columns.
CONSTRAINTS = ("monotonic", "interactions", "most_columns")


@dataclass(frozen=True)
class Rules:
    """When and how a node may be split.

    Attributes
    ----------
    criterion : str
        What a split is to improve: the name of a registered criterion (:mod:`dtrees.split.criteria`).
    alpha : float
        Which quantile (the criterion ``quantile`` only; zero elsewhere).
    max_features : int
        Columns drawn for each node.
    columns_per_tree : int
        Columns drawn once for each tree; nodes draw from these.
    random_splits : bool
        One random threshold per column (Extra-Trees) rather than the best of all.
    max_depth : int or None
        Depth at which every node is a leaf.
    min_samples_split, min_samples_leaf : int
        Fewest rows of a node to be split, and of a child.
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
        L2 and L1 penalty on leaf values (boosting only; zero elsewhere). The latter is for the criterion ``newton_l1`` alone.
    ccp_alpha : float
        What a leaf costs when the finished tree is pruned (:mod:`dtrees.tree.pruning`).
    by_level : bool
        Columns are drawn for each level of a tree, and are the same for all of its nodes.
    categorical : tuple of int
        The columns that hold categories, as their numbers 0, 1 and so on; ascending.
    cat_smooth : float
        The weight by which means of categories are moved towards that of their node.
    min_samples_category, max_cat_threshold : tuple of int
        For each column of ``categorical``: categories of fewer in-sample rows in a node are taken together, and the side of a split that
        has fewer categories has at most so many.
    chance : float
        Which share of what sets of categories are expected to gain by chance is taken from their gains.
    split_shrinkage : float
        How many times what a split gains by chance is taken from its effect (:func:`~dtrees.engine.outcome.values.shrink_splits`).
    monotonic : tuple of int
        1, -1 or 0 for each column of the table: values must not fall, must not rise, or may do both where the column is higher. Empty if
        they may in all.
    interactions : tuple of tuple of int
        The sets of columns that may stand together on a path; each column is in one at least. Empty if any may.
    most_columns : int
        Most columns on a path, 0 if as many as there are.
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
        """Return the rules by name, but constraints, a quantile and noise only where there are any: other files stay as they were."""
        seldom = *CONSTRAINTS, "alpha", "chance", "split_shrinkage"
        return {name: value for name, value in vars(self).items() if value or name not in seldom}


class Checkpoint(Protocol):
    """Where the finished trees of a fit are kept, so that it can go on after everything else is gone.

    Picklable: a fit on a cluster saves from where it is coordinated.
    """

    @property
    def interval(self) -> float:
        """Seconds from one checkpoint to the next."""

    def read(self) -> Any:
        """Return the result (:class:`ForestResult` or :class:`BoostingResult`) so far, None if there is none of this fit."""

    def write(self, result: Any) -> None:
        """Keep a result in place of the one before."""


@dataclass(frozen=True)
class ForestPlan:
    """Independent trees.

    Attributes
    ----------
    rules : Rules
    seed : int
        Every draw is a function of it and of the identity of what is drawn.
    n_classes : int
        0 for regression; of several targets, the classes of all of them together.
    n_draws : int or None
        Rows drawn with replacement for each tree, with probability proportional to the weights; None takes every row once,
        with its weight.
    class_weight : tuple of float, tuple of such tuples or None
        Multiplies the weights of the rows of each class; of several targets, there is a tuple for each.
    distinct_draws : bool
        Draw each row at most once instead, of a weight above 0. ``n_draws`` are then no more than there are.
    balanced_draws : bool
        Draw as many rows of each class as the smallest one has, with probability proportional to the weights within the class. Rows of
        weight 0 do not count. ``n_draws`` is then the most that this may come to.
    balanced_subsample : bool
        Weigh the classes of each tree's own rows by n / (n_classes * count).
    out_of_bag : bool
        Also sum, for each row, the predictions of the trees that did not draw it.
    checkpoint : Checkpoint or None
        Where to keep finished trees.
    targets : tuple of int
        Of several targets, which each tree learns together, the number of classes of each, 1 for each number; empty for one target.
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
        """Numbers that a leaf says: one for each target that is a number, and for each class of others."""
        return self.n_classes or max(1, len(self.targets))


class Loss(Protocol):
    """What boosting descends: ``K`` raw predictions a row, held as an array of shape (K, n).

    ``target`` has the shape (n,), or, where there are several targets, (K, n).
    """

    @property
    def n_outputs(self) -> int:
        """K, the number of trees a round."""

    @property
    def constant_hessian(self) -> bool:
        """Whether the second derivative is 1 everywhere, or is taken to be."""

    @property
    def measures_leaves(self) -> bool:
        """Whether the values of leaves are measured on their rows, rather than Newton steps."""

    @property
    def takes_all_rows(self) -> bool:
        """Whether derivatives are made of all rows at once, by :meth:`for_round`, and have the weights in them."""

    @property
    def residual_quantiles(self) -> tuple[float, ...] | None:
        """Which quantile of its rows' residuals each leaf holds, of each output, where leaves are measured; None if something else."""

    @property
    def cut_quantile(self) -> float | None:
        """Which quantile of the sizes of all rows' residuals a round's loss cuts residuals off at (:meth:`cut_at`); None if it does not.

        What leaves hold are quantiles then plus the mean deviations from them, cut off, too.
        """

    def cut_at(self, sizes: tuple[float, ...]) -> Loss:
        """Return the loss of a round that cuts off residuals at these sizes, one for each output."""

    def check(self, target: NDArray) -> None:
        """Raise a ValueError if the loss is not defined for these targets."""

    def initial(self, target: NDArray, weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the best constant raw prediction, shape (K,)."""

    def for_round(self, target: NDArray, raw: NDArray[np.float64], weight: Any) -> Loss:
        """Return the loss to be used in a round that starts from these raw predictions, shape (K, n).

        ``weight`` are in fixed point, 0 for rows that are not trained on, and empty where all rows count the same. A loss that takes all
        rows is given floats, 0 for rows held out, or None. Within a round, it is asked again of a shard that takes another's place, by what
        :meth:`open_round` wrote: so a loss of several outputs that changes with the rounds has that copy ``raw``.
        """

    def of_rows(self, rows: NDArray[np.int64]) -> Loss:
        """Return the loss of a round, which was found by all rows (:meth:`for_round`), for some of them."""

    def open_round(self, raw: NDArray[np.float64], opened: NDArray[np.float64]) -> None:
        """Write into ``opened``, shape (K, n), what the gradients of a round's trees follow from.

        Where a round has one tree this is ``raw``, and need not be copied.
        """

    def gradients(self, target: NDArray, opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]) -> None:
        """Write first and second derivatives by ``raw[output]`` into ``g`` and ``h``, shape (n,), unweighted.

        Where it is known that the second derivative is 1, ``h`` may be of shape (0,): it is not looked at.
        """

    def limit_steps(self, values: NDArray[np.float64], learning_rate: float) -> None:
        """Shorten, in place, the Newton steps of a tree, times the learning rate, that lead past the smallest loss of their leaves."""

    def pointwise(self, target: NDArray, raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's loss into ``out``, shape (n,)."""

    def negligible(self, initial: NDArray[np.float64]) -> float:
        """Return a mean loss that rounding alone may leave where the target does not vary, given the raw prediction to start from."""

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
        """Write the best steps of leaves, before shrinkage: leaf i has the rows ``rows[start[i]:stop[i]]``.

        ``raw`` are those of ``output`` at the beginning of the round, shape (n,); ``weight`` is as of :meth:`for_round`.
        """


@dataclass(frozen=True)
class Stopping:
    """Stop when a metric of an evaluation set has not improved for some rounds.

    Attributes
    ----------
    rounds : int
        How many rounds without an improvement end the fit.
    set, metric : int
        Positions of what decides.
    tol : float
        An improvement is more than this.
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
        """Return those that decide of scores of shape (n_rounds, n_sets, n_metrics)."""
        return [float(score) for score in evaluated[:, self.set, self.metric]]

    def best(self, scores: Sequence[float]) -> int:
        """Return the first round (from 0) that no later one improves on; 0 if there is no score but NaN."""
        best = 0
        for i, score in enumerate(scores):
            gain = score - scores[best] if self.greater_is_better else scores[best] - score
            if gain > self.tol or (scores[best] != scores[best] and score == score):
                best = i
        return best

    def ends(self, scores: Sequence[float]) -> bool:
        """Tell whether the fit ends here."""
        return len(scores) - 1 - self.best(scores) >= self.rounds


class Stalling(Stopping):
    """Stop by scikit-learn's rule (:func:`has_stalled`), as rows held out do; no round is left out.

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
        """Tell whether the fit ends here."""
        return has_stalled([-score for score in scores] if self.greater_is_better else scores, self.rounds, self.tol)


def has_stalled(scores: Sequence[float], patience: int, tol: float) -> bool:
    """Tell whether none of the last ``patience`` losses is below all those before by more than ``tol``, scikit-learn's rule.

    NaN is above all numbers.

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
    """What the rows held out are scored by, where it is not the loss. More is better."""

    def score(self, target: NDArray, raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Return the score of raw predictions, shape (K, n)."""


@dataclass(frozen=True)
class Dropout:
    """Which of the earlier rounds a round is grown without; see :mod:`dtrees.engine.plan.dropout`.

    Attributes
    ----------
    rate : float
        The probability of each of them to be dropped.
    skip : float
        The probability of a round that drops none.
    normalization : {"tree", "forest"}
        Whether the new round weighs as much as each of those dropped, or as much as all of them together.
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
        Of which each has its share of the rows held out; 0 for regression, and for several targets.
    n_rounds : int
        Rounds in all, those of ``trees`` that a warm start brings included.
    learning_rate : float
        Shrinkage of a round: leaf values are multiplied by it, and divided by the number of trees that a round has for each output.
    n_parallel_trees : int
        How many trees a round has for each output, all on the gradients at its beginning, each on rows and columns of its own drawing.
    subsample : float
        Share of the rows drawn, without replacement, for each round, or for each of its parallel trees.
    subsample_by : {"uniform", "gradient"}
        Whether all rows are as likely to be drawn, or those with large gradients more so
        (:mod:`dtrees.split.numbers.gradient_draws`).
    validation_fraction : float or None
        Share of the rows held out when ``n_iter_no_change`` is set; None holds out none, and the rows trained on decide.
    n_iter_no_change : int or None
        Stop when the held-out loss, or score, has not improved by ``tol`` in this many rounds.
    tol : float
    scoring : Scoring or None
        What the rows held out are scored by; None is the loss.
    scores_before : tuple of float
        Losses, or scores, of the same rows after the rounds of an earlier fit that this one continues.
    first_order : bool
        Whether splits are found by gradients alone, each row with a hessian of 1. Leaves still hold Newton steps, or what is measured.
    class_weight : tuple of float, tuple of such tuples or None
        Factors for the weights of rows by class, of several targets for each.
    dropout : Dropout or None
        Which of the earlier rounds a round is grown without.
    stopping : Stopping or None
        Stop by the scores of an evaluation set.
    checkpoint : Checkpoint or None
        Where to keep finished rounds.
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
        """The trees of a round: one for each output, after them the next parallel tree of each, and so on."""
        return self.loss.n_outputs * self.n_parallel_trees

    @property
    def shrinkage(self) -> float:
        """What leaf values are multiplied by."""
        return self.learning_rate / self.n_parallel_trees

    @property
    def tells_out_of_bag(self) -> bool:
        """Whether the rows that a round does not draw are scored: where only those with small gradients are left, these say nothing."""
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
    def steps_apart(self) -> bool:
        """Whether leaves hold Newton steps that the sums of a tree do not tell, as splits are found by others."""
        return self.first_order and not self.loss.constant_hessian

    @property
    def measures_leaves(self) -> bool:
        """Whether the values of leaves are measured on their rows."""
        return self.loss.measures_leaves or self.steps_apart


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
        The trees that were finished, up to the first that was not; of a forest without its out-of-bag sums. Of a
        bag, what was made of each booster.
    """

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    @property
    def origin(self) -> BaseException:
        """The KeyboardInterrupt that this stands for: the user's, with its arguments."""
        error: BaseException = self
        while isinstance(error, FitInterrupted) and error.__cause__ is not None:
            error = error.__cause__
        return error


#: Called after each tree or round; returning True ends the fit there.
Callback = Callable[[Progress], bool | None]


def watch(callback: Callback | None, result: Callable[[], Any]) -> None:
    """Tell a callback that wants to know it (by a method ``watch``) what returns the result so far, whenever it is called."""
    if callback is not None and hasattr(callback, "watch"):
        callback.watch(result)


@dataclass(frozen=True)
class ForestResult:
    """Trees in order, and the out-of-bag sums.

    ``oob_sum`` holds sums of predictions in fixed point (times ``2**oob_exponent``), shape (n, n_values), so that batches
    of trees add up to the same in any order; ``oob_count`` the number of trees summed, shape (n,).
    """

    trees: list[Tree]
    oob_sum: NDArray[np.int64] | None = None
    oob_count: NDArray[np.int64] | None = None
    oob_exponent: int = 0

    def followed_by(self, other: ForestResult) -> ForestResult:
        """Return both together, sums in the coarser of their fixed points; none where the other has none."""
        trees = self.trees + other.trees
        if self.oob_sum is None or other.oob_sum is None or self.oob_count is None or other.oob_count is None:
            return replace(other, trees=trees)
        exponent = min(self.oob_exponent, other.oob_exponent)
        total = (self.oob_sum >> (self.oob_exponent - exponent)) + (other.oob_sum >> (other.oob_exponent - exponent))
        return ForestResult(trees, total, self.oob_count + other.oob_count, exponent)


@dataclass(frozen=True)
class BoostingResult:
    """Rounds of as many trees each as :attr:`BoostingPlan.trees_per_round` says (leaf values already shrunk), and scores.

    Attributes
    ----------
    rounds : list of list of Tree
    initial : ndarray of float64, shape (K,)
        The raw prediction that they start from.
    train_score, validation_score : ndarray of float64
        Mean loss after each round of this fit, on the rows trained on and on those held out (empty if none are; by ``scoring`` where there
        is any).
    out_of_bag : ndarray of float64, shape (n_rounds, 2)
        Where rounds draw rows: the mean loss of those not drawn for a round, after it, and, for the very first round, also before it
        (0 for others). Otherwise empty.
    evaluation : ndarray of float64, shape (n_rounds, n_sets, n_metrics)
        Of the evaluation sets, after every round, those of earlier fits included.
    """

    rounds: list[list[Tree]]
    initial: NDArray[np.float64]
    train_score: NDArray[np.float64]
    validation_score: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    out_of_bag: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 2)))
    evaluation: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0, 0)))
