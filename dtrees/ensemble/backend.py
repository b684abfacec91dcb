"""Backends: where a table lives and where trees grow. Estimators know only this interface.

Terms
-----
backend
    carries out the four things an estimator needs done with data: load a table, grow a forest, boost, predict (:class:`Backend`).
table
    a loaded training set: facts about it as plain values, its contents as handles that only the backend opens (:class:`Table`).
collection
    whatever the user passes as ``X`` or ``y``: an array or a frame here, a lazy collection elsewhere.

Use
---
An estimator asks :func:`~dtrees.ensemble.in_process.backend_for`. The local backend takes all that no other claims; others are not imported
until one of their collections turns up.

A fit is ``table = backend.load(X, y, weight, ...)``, then ``backend.grow_forest(table, plan, ...)`` or ``backend.boost(table, plan, ...)``.
A prediction is ``backend.predict(X, function, output)``: ``function`` maps a block of rows (a NumPy array or frame) to an array of
``output``'s shape and dtype; it is picklable and holds the model. With ``beside``, it is given the values of the same rows as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, Callback, ForestPlan, ForestResult
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.target import TargetSummary
from dtrees.tree.tree import Tree

if TYPE_CHECKING:
    from dtrees.ensemble.evaluation.evaluation_sets import EvalSet
    from dtrees.ensemble.evaluation.metrics import Metric


@dataclass(frozen=True)
class Placement:
    """Where the columns of a training set were, and its trees grew.

    Attributes
    ----------
    kind : {"local", "one-worker", "replicated", "sharded", "rows"}
        In the process that fitted; on one worker of a cluster; each worker had all; each worker had some; each worker had its rows of all.
    reason : str
        Why it was chosen.
    workers : tuple of str
        The addresses of the workers that had columns; none where it is local.
    predicted : mapping from str to float
        Seconds that a tree was predicted to take, for each kind that was weighed: where "auto" was to choose for boosting on several
        workers, or for a forest that fits none. They are for comparing kinds with one another.
    storage : {"memory", "disk"}
        Where workers have cells; on their disks only where rows stay.

    Examples
    --------
    >>> print(Placement("sharded", "the table fits no single worker", ("tcp://10.0.0.5:1234", "tcp://10.0.0.6:1234")))
    sharded on 2 workers: the table fits no single worker
    """

    kind: str
    reason: str
    workers: tuple[str, ...] = ()
    predicted: Mapping[str, float] = field(default_factory=dict, hash=False, compare=False)
    storage: str = "memory"

    def __str__(self) -> str:
        """Return it in words."""
        n = len(self.workers)
        where = f" on {n} worker{'s' * (n > 1)}" if self.kind in ("replicated", "sharded", "rows") else ""
        return f"{self.kind}{where}{', with cells on disk' * (self.storage == 'disk')}: {self.reason}"


@dataclass(frozen=True)
class Table:
    """A loaded training set.

    Attributes
    ----------
    schema : Schema
        How the columns became numbers.
    n_rows : int
    total_weight : float
        Exact sum of the sample weights, rounded once; the number of rows without weights.
    classes : ndarray of shape (n_classes,), list of such arrays or None
        Sorted distinct labels, of several targets those of each; None for regression.
    class_counts : ndarray of int64 of shape (n_classes,), list of such arrays or None
        Rows of a weight above 0 of each class.
    class_weights : ndarray of float64 of shape (n_classes,), list of such arrays or None
        Sum of the sample weights of each class; equal to the counts without weights.
    columns, target, weight : object
        The backend's own handles: arrays here, something remote elsewhere.
    placement : Placement
        Where they are.
    n_jobs : int or None
        Threads to grow with, as the estimator was given it; backends with workers of their own may have no use for it.
    evaluation : object
        The backend's handle of evaluation sets and what is measured on them; None without.
    n_targets : int
        Columns of y.
    n_weighted : int
        Rows of a weight above 0.
    base_margin : object
        The ``base_margin`` of the options, in this process.
    X : array or frame or None
        The rows as they came, in this process, where the options ask for them.
    """

    schema: Schema
    n_rows: int
    total_weight: float
    classes: Any
    class_counts: NDArray[np.int64] | list[NDArray[np.int64]] | None
    class_weights: NDArray[np.float64] | list[NDArray[np.float64]] | None
    columns: Any
    target: Any
    weight: Any
    placement: Placement
    n_jobs: int | None = None
    evaluation: Any = None
    n_targets: int = 1
    n_weighted: int = 0
    base_margin: Any = None
    X: Any = None

    @classmethod
    def of(cls, schema: Schema, summary: TargetSummary, **handles: Any) -> Table:
        """Return the table of a schema, a (merged, checked) summary, and the backend's handles and other fields, by name.

        Columns of text that were hardly meant to be categories are warned of.
        """
        schema.warn_of_text(summary.n_rows)
        counts: Any = summary.class_counts
        weights: Any = _as_floats(summary.class_weights)
        if summary.targets:
            counts, weights = ([one.class_counts for one in summary.targets], [_as_floats(one.class_weights) for one in summary.targets])
        return cls(
            schema=schema,
            n_rows=summary.n_rows,
            total_weight=float(summary.total_weight),
            classes=summary.labels,
            class_counts=counts,
            class_weights=weights,
            n_targets=summary.n_targets,
            n_weighted=summary.n_weighted,
            **handles,
        )

    @property
    def n_classes(self) -> int:
        """Number of classes, of several targets in all; 0 for regression."""
        return 0 if self.classes is None else sum(map(len, self.classes)) if isinstance(self.classes, list) else len(self.classes)

    def rows_that_count(self, factors: tuple[Any, ...] | None) -> int:
        """Return how many rows have a weight above 0, given a factor for the weights of each class; of several targets without these."""
        if factors is None or not isinstance(self.class_counts, np.ndarray):
            return self.n_weighted
        return int(self.class_counts[np.asarray(factors) > 0].sum())

    @property
    def targets(self) -> tuple[int, ...]:
        """As of :class:`~dtrees.engine.plan.plans.ForestPlan`."""
        if self.n_targets == 1:
            return ()
        return tuple(map(len, self.classes)) if isinstance(self.classes, list) else (1,) * self.n_targets


def _as_floats(sums: Sequence[Fraction] | None) -> NDArray[np.float64] | None:
    return None if sums is None else np.array([float(value) for value in sums])


@dataclass(frozen=True)
class LoadOptions:
    """What a table is loaded for, which decides how y is read, and what must be in memory with the table.

    Attributes
    ----------
    classify : bool
        Whether y holds labels rather than numbers.
    estimator_name : str
        For messages.
    n_jobs : int or None
        Threads to load and grow with, as the estimator was given it. Workers use the threads they have.
    n_trees : int or None
        Trees to grow that do not depend on each other; None is for boosting.
    out_of_bag : bool
        Whether predictions for rows out of bag are to be summed.
    sets : sequence of EvalSet
        Evaluation sets that are to be loaded as well.
    base_margin : array-like, lazy or not, or None
        Raw scores of the rows, of shape (n,) or (n, k), or one number; they are brought to this process.
    fetch_X : bool
        Whether the rows themselves are brought to this process, too.
    single_use : bool
        Whether trees are grown once from the table, so that its columns need not be kept when these are.
    categories : tuple of int
        Columns whose values are categories, also where they are numbers.
    several : bool
        Whether y may have several columns, each a target.
    bag : bool
        Whether each of ``n_trees`` is a booster of its own, on rows that it draws.
    rows_refusal : str or None
        Why trees cannot be grown where rows stay where they are, if that is known without the table.
    """

    classify: bool
    estimator_name: str
    n_jobs: int | None = None
    n_trees: int | None = None
    out_of_bag: bool = False
    sets: Sequence[EvalSet] = ()
    base_margin: Any = None
    fetch_X: bool = False
    single_use: bool = False
    categories: tuple[int, ...] = ()
    several: bool = False
    bag: bool = False
    rows_refusal: str | None = None


@dataclass(frozen=True)
class Output:
    """What a prediction function returns for a block of n rows.

    Attributes
    ----------
    dtype : numpy.dtype
    width : int or None
        None for an array of shape (n,), otherwise the second dimension of (n, width).
    name : str
        What the values are, such as ``"predict"``: a good name for a series or for tasks.
    labels : tuple or None
        Of the ``width`` columns, where they have labels (the classes).
    further : tuple of int
        Dimensions after the second one. There are no frames of such.
    dtypes : tuple of numpy.dtype or None
        Of each of the ``width`` columns, where ``dtype`` is that of objects.
    """

    dtype: np.dtype[Any]
    width: int | None = None
    name: str = "predict"
    labels: tuple[Any, ...] | None = None
    further: tuple[int, ...] = ()
    dtypes: tuple[np.dtype[Any], ...] | None = None


#: Makes one of several things that do not depend on each other, from a table in memory, by its number; a callback may end it early.
GrowOne = Callable[[Table, int, Callback | None], Any]


class Backend(Protocol):
    """Where a table lives and where trees grow."""

    def fit(
        self, estimator: Any, X: Any, y: Any, sample_weight: Any, options: dict[str, Any], client: Any = None, placement: str | None = None
    ) -> Any:
        """Fit a copy of the estimator where the data is, and return it; None if this is the place, and ``estimator.fit`` should go on.

        ``client`` and ``placement`` are what the user says of where that is to be.
        """

    def load(self, X: Any, y: Any, sample_weight: Any, options: LoadOptions) -> Table:
        """Check, encode and presort a training set.

        Raises ValueError for all input that cannot be learnt from; messages name the argument, what came and what is wanted.
        """

    def load_evaluation(self, table: Table, sets: Sequence[EvalSet], metrics: Sequence[Metric]) -> Table:
        """Check and encode evaluation sets as the table was; return the table with them.

        Raises ValueError, naming the set, for what cannot be predicted or measured.
        """

    def fingerprint(self, table: Table) -> str:
        """Return a digest of the whole training set, however it is cut into partitions."""

    def grow_forest(self, table: Table, plan: ForestPlan, first: int, last: int, callback: Callback | None) -> ForestResult:
        """Grow the trees ``first`` to ``last - 1``."""

    def boost(
        self,
        table: Table,
        plan: BoostingPlan,
        previous: Sequence[Sequence[Tree]],
        initial: NDArray[np.float64] | None,
        callback: Callback | None,
    ) -> BoostingResult:
        """Boost up to ``plan.n_rounds`` rounds, the ``previous`` ones included.

        ``initial`` is the raw prediction to start from, shape (K,), or that of each row, shape (K, n_rows); None lets the loss choose.
        Evaluation sets of the table are scored after every round.
        """

    def grow_bag(self, table: Table, grow: GrowOne, n: int, callback: Callback | None) -> list[Any]:
        """Return what ``grow(table, number, None)`` returns for the numbers below ``n``, where the table is in memory.

        ``grow`` is picklable. The callback is called after each, in order; where it ends the fit, later ones are left out.
        """

    def target(self, table: Table) -> NDArray[Any]:
        """Fetch the encoded target (float64 values or class codes) of shape (n,) into this process, for out-of-bag scores."""

    def weight(self, table: Table) -> NDArray[np.float64] | None:
        """Fetch the weights, of shape (n,), into this process; None without."""

    def header(self, X: Any) -> Any:
        """Return a local frame or array with the columns of ``X``, with or without its rows, to check names and number of columns."""

    def predict(self, X: Any, function: Callable[..., NDArray[Any]], output: Output, beside: Any = None) -> Any:
        """Apply ``function`` to the blocks of ``X``; lazy where ``X`` is. Blocks may be empty.

        ``beside`` is values of the same rows, or one number for all, to pass as the second argument; None passes none.
        """

    def gather(self, *collections: Any) -> list[Any]:
        """Return collections (or None) as local arrays, to score with."""

    def draw_rows(self, n: int | None, seed: int, X: Any, *others: Any) -> tuple[int, list[Any]]:
        """Return how many rows X has, and at most ``n`` of them, drawn at random and in order, of each collection (or None).

        None brings all rows. Raises ValueError for others that have not as many rows as X.
        """
