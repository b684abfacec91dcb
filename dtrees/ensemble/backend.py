"""What estimators and backends say to each other: tables, what they are loaded for, where they are, and what predictions look like.

Terms
-----
backend
    carries out the four things an estimator needs done with data: load a table, grow a forest, boost, predict
    (:class:`~dtrees.ensemble.in_process.Backend`).
table
    a loaded training set: facts about it as plain values, its contents as handles that only the backend opens (:class:`Table`).
collection
    whatever the user passes as ``X`` or ``y``: an array or a frame here, a lazy collection elsewhere.

Use
---
An estimator asks :func:`~dtrees.ensemble.in_process.backend_for`. The one of this process takes all that no other claims; others are not
imported until one of their collections turns up.

A fit is ``table = backend.load(X, y, weight, ...)``, then ``backend.grow_forest(table, plan, ...)`` or ``backend.boost(table, plan, ...)``.
A prediction is ``backend.predict(X, function, output)``: ``function`` maps a block of rows (a NumPy array or frame) to an array of
``output``'s shape and dtype; it is picklable and holds the model. With ``beside``, it is given the values of the same rows as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dtrees.engine.plan.plans import Callback
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.target import TargetSummary

if TYPE_CHECKING:
    from dtrees.ensemble.evaluation_sets import EvalSet


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
        workers. They are for comparing kinds with one another.
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


@dataclass(frozen=True, kw_only=True)
class Table(TargetSummary):
    """A loaded training set: what there is to know of its targets, and its parts.

    Attributes
    ----------
    schema : Schema
        How the columns became numbers.
    columns, target, weight : object
        The backend's own handles: arrays here, something remote elsewhere.
    placement : Placement
        Where they are.
    n_jobs : int or None
        Threads to grow with, as the estimator was given it; backends with workers of their own may have no use for it.
    evaluation : object
        The backend's handle of evaluation sets and what is measured on them; None without.
    base_margin : object
        The ``base_margin`` of the options, in this process.
    X : array or frame or None
        The rows as they came, in this process, where the options ask for them.
    """

    schema: Schema
    columns: Any
    target: Any
    weight: Any
    placement: Placement
    n_jobs: int | None = None
    evaluation: Any = None
    base_margin: Any = None
    X: Any = None

    @classmethod
    def load(cls, schema: Schema, summary: TargetSummary, **handles: Any) -> Table:
        """Return the table of a schema, a (merged, checked) summary, and the backend's handles and other fields, by name.

        Columns of text that were hardly meant to be categories are warned of.
        """
        schema.warn_of_text(summary.n_rows)
        return cls(**vars(summary), schema=schema, **handles)

    def rows_that_count(self, factors: tuple[Any, ...] | None) -> int:
        """Return how many rows have a weight above 0, given a factor for the weights of each class; of several targets without these."""
        if factors is None or self.n_targets > 1:
            return self.n_weighted
        return int(self.by_target[0].counts[np.asarray(factors) > 0].sum())

    @property
    def targets(self) -> tuple[int, ...]:
        """As of :class:`~dtrees.engine.plan.plans.ForestPlan`."""
        if self.n_targets == 1:
            return ()
        return tuple(len(target.labels) for target in self.by_target) or (1,) * self.n_targets


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
        Whether trees are grown once from the table, so that its columns need not stay in memory when these are grown.
    categories : tuple of int
        Columns whose values are categories, also where they are numbers.
    multi_output : bool or str
        Whether y may have several columns, each a target, or what its two columns are; see
        :func:`~dtrees.ensemble.input.target.check_target`.
    bag : bool
        Whether each of ``n_trees`` is a booster of its own, on rows that it draws.
    n_outputs : int
        Raw predictions of a row for one target that is a number: one for each quantile.
    target : bool
        Whether there is a y; without, every row has a number of its own for it, which follows from its place.
    remembered : int
        Trees of boosting, for each output, of which each row has the number of a node, a byte each.
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
    multi_output: bool | str = False
    bag: bool = False
    n_outputs: int = 1
    target: bool = True
    remembered: int = 0
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
