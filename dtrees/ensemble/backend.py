"""The interface between estimators and backends: tables, loading options, placements, and the form of predictions.

Terms
-----
backend
    performs the four operations of an estimator on data: load a table, grow a forest, boost, predict
    (:class:`~dtrees.ensemble.in_process.Backend`).
table
    a loaded training set: its properties as plain values, its content as handles that only the backend opens (:class:`Table`).
collection
    the user's ``X`` or ``y``: an array or a frame in memory, or a lazy collection.

Use
---
An estimator calls :func:`~dtrees.ensemble.in_process.backend_for`. The local backend takes every collection that no other backend claims;
other backends are imported when one of their collections is passed.

A fit is ``table = backend.load(X, y, weight, ...)``, then ``backend.grow_forest(table, plan, ...)`` or ``backend.boost(table, plan, ...)``.
A prediction is ``backend.predict(X, function, output)``: ``function`` maps a block of rows (a NumPy array or frame) to an array of
``output``'s shape and dtype; it is picklable and contains the model. With ``beside``, its second argument has the values of the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dtrees.engine.plan.plans import Callback
from dtrees.engine.plan.wants import Want
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.target import TargetSummary

if TYPE_CHECKING:
    from dtrees.ensemble.evaluation_sets import EvalSet


@dataclass(frozen=True)
class Placement:
    """The placement of a training set during the growth of trees.

    Attributes
    ----------
    kind : {"local", "one-worker", "replicated", "sharded", "rows"}
        In the process of the fit; all columns on one worker of a cluster, on each worker, or some on each; or rows on each worker.
    reason : str
        The reason for the choice.
    workers : tuple of str
        The addresses of the workers with columns or rows; empty if local.
    predicted : mapping from str to float
        Predicted seconds of a tree for each kind that was considered, if "auto" chose for boosting on several workers. Meant for
        comparisons between kinds.
    storage : {"memory", "disk"}
        Where workers store cells; on disk only with placement by rows.

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
        """Return a description."""
        n = len(self.workers)
        where = f" on {n} worker{'s' * (n > 1)}" if self.kind in ("replicated", "sharded", "rows") else ""
        return f"{self.kind}{where}{', with cells on disk' * (self.storage == 'disk')}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class Table(TargetSummary):
    """A loaded training set: the summary of its targets, and its parts.

    Attributes
    ----------
    schema : Schema
        How columns are converted to numbers.
    columns, target, weight : object
        The backend's handles: arrays in memory, or remote objects.
    placement : Placement
        Their placement.
    n_jobs : int or None
        The estimator's ``n_jobs``; backends with workers may ignore it.
    evaluation : object
        The backend's handle of evaluation sets and their metrics; None without.
    base_margin : object
        The ``base_margin`` of the options, in memory.
    X : array or frame or None
        The original rows, in memory, if the options ask for them.
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
        """Return the table of a schema, a merged and checked summary, and the backend's handles and other fields, by name.

        Warns of text columns that are probably not categories.
        """
        schema.warn_of_text(summary.n_rows)
        return cls(**vars(summary), schema=schema, **handles)

    def rows_that_count(self, factors: tuple[Any, ...] | None) -> int:
        """Return the number of rows with a positive weight, after class factors are applied (not for multi-output targets)."""
        if factors is None or self.n_targets > 1:
            return self.n_weighted
        return int(self.by_target[0].counts[np.asarray(factors) > 0].sum())

    @property
    def targets(self) -> tuple[int, ...]:
        """See :class:`~dtrees.engine.plan.plans.ForestPlan`."""
        if self.n_targets == 1:
            return ()
        return tuple(len(target.labels) for target in self.by_target) or (1,) * self.n_targets


@dataclass(frozen=True)
class LoadOptions:
    """The purpose for which a table is loaded: it determines how y is read, and what is loaded with the table.

    Attributes
    ----------
    classify : bool
        Whether y has labels instead of numbers.
    estimator_name : str
        For error messages.
    n_jobs : int or None
        The estimator's ``n_jobs``, for loading and growing. Workers use their own number of threads.
    n_trees : int or None
        Number of independent trees to grow; None for boosting.
    out_of_bag : bool
        Whether out-of-bag predictions are to be summed.
    sets : sequence of EvalSet
        Evaluation sets to be loaded as well.
    base_margin : array-like, lazy or not, or None
        Raw scores of the rows, of shape (n,) or (n, k), or one number; loaded into this process.
    fetch_X : bool
        Whether the rows themselves are loaded into this process, too.
    single_use : bool
        Whether trees are grown only once from the table, so that its columns need not stay in memory afterwards.
    categories : tuple of int
        Columns whose values are categories, even if they are numbers.
    multi_output : bool or str
        Whether y may have several columns, each a target, or the meaning of its two columns; see
        :func:`~dtrees.ensemble.input.target.check_target`.
    bag : bool
        Whether each of the ``n_trees`` is a separate booster on rows that it draws.
    n_outputs : int
        Number of raw predictions of a row for one numeric target: one for each quantile.
    target : bool
        Whether there is a y; otherwise a number that depends on its position replaces the target of each row.
    remembered : int
        Number of boosted trees, for each output, whose node numbers are stored for all rows, a byte each.
    wants : tuple of Want
        Requirements on the placement of the table.
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
    wants: tuple[Want, ...] = ()


@dataclass(frozen=True)
class Output:
    """The form of a prediction for a block of n rows.

    Attributes
    ----------
    dtype : numpy.dtype
    width : int or None
        None for an array of shape (n,), otherwise the second dimension of (n, width).
    name : str
        The name of the values, such as ``"predict"``, for a series or for tasks.
    labels : tuple or None
        Labels of the ``width`` columns, if they have any (the classes).
    further : tuple of int
        Dimensions after the second one. Frames cannot have these.
    dtypes : tuple of numpy.dtype or None
        The dtype of each of the ``width`` columns, if ``dtype`` is object.
    """

    dtype: np.dtype[Any]
    width: int | None = None
    name: str = "predict"
    labels: tuple[Any, ...] | None = None
    further: tuple[int, ...] = ()
    dtypes: tuple[np.dtype[Any], ...] | None = None


#: Grows one of several independent objects from a table in memory, given its number; a callback may end the growth early.
GrowOne = Callable[[Table, int, Callback | None], Any]
