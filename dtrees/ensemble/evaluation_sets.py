"""Evaluation sets: rows outside of the training set that are predicted during the fit.

They are separate from the table on which trees are grown, so that the trees do not depend on them; and their raw predictions are summed
tree by tree, as in prediction, so that a metric equals that of the fitted model's staged predictions. A round costs one message with its
trees to each worker with rows, and one reply with sums.

Terms
-----
block
    consecutive rows of one set (:class:`~dtrees.ensemble.metrics.Block`): a set in this process is one block, a Dask collection has one
    block for each partition.
scorer
    stores the raw predictions of some blocks (:class:`Scorer`): one in this process, or one on each worker.

A scorer evaluates each of its blocks, and :class:`Evaluation` combines the partial results in row order. The metrics
(:mod:`~dtrees.ensemble.metrics`) ensure that the result does not depend on the number of scorers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.target import check_lengths, check_target, check_weights, encode_target, labels_of
from dtrees.ensemble.metrics import Block, Metric
from dtrees.ensemble.objective.loss import naming_target
from dtrees.ensemble.prediction import AdditiveTrees, by_target
from dtrees.tree.tree import Tree

Rounds = Sequence[Sequence[Tree]]
#: Maps rows of X, and ``base_margin`` if given, to initial raw scores, shape (n, K).
Start = Callable[[Any, Any], NDArray[np.float64]]

#: Targets and weights of all rows of a set.
Rows = tuple[NDArray[Any], NDArray[np.float64] | None]


@dataclass(frozen=True)
class EvalSet:
    """An evaluation set as passed by the user, its initial raw scores if they differ by row, and the meaning of y's columns."""

    name: str
    X: Any
    y: Any
    weight: Any = None
    base_margin: Any = None
    start: Start | None = field(default=None, repr=False)
    columns: str = field(default="", repr=False)


def named_sets(
    eval_set: Any,
    X_val: Any = None,
    y_val: Any = None,
    sample_weight_val: Any = None,
    join: Callable[[Any, Any], Any] | None = None,
) -> list[EvalSet]:
    """Return evaluation sets with their names; sets in a list are called ``validation_0`` and so on, as in XGBoost.

    Parameters
    ----------
    eval_set : sequence or mapping of (X, y), (X, y, weight) or (X, y, weight, base_margin), or None
    X_val, y_val, sample_weight_val : object
        A set in scikit-learn's form, called ``X_val``, or None.
    join : callable, optional
        Combines y and queries, the additional third element, into one collection.

    Raises
    ------
    ValueError
        If a part of a set is missing, or sets are passed in both forms.
    TypeError
        If they are not tuples in a list or a dict.

    Examples
    --------
    >>> [given.name for given in named_sets([("X", "y"), ("X", "y", "weight")])]
    ['validation_0', 'validation_1']
    >>> named_sets({"later": ("X", "y")})
    [EvalSet(name='later', X='X', y='y', weight=None, base_margin=None)]
    """
    if X_val is not None or y_val is not None or sample_weight_val is not None:
        for name, part in (("X_val", X_val), ("y_val", y_val)):
            if part is None:
                raise ValueError(f"{name} is None, but another of X_val, y_val and sample_weight_val is given; wants both X_val and y_val")
        if eval_set is not None:
            raise ValueError("X_val and eval_set are given; wants one: X_val is the set that decides when to stop, eval_set may be many")
        return [EvalSet("X_val", X_val, y_val, sample_weight_val)]
    if eval_set is None:
        return []
    first = "(X, y" if join is None else "(X, y, qid"
    form = f"wants a list of tuples {first}), {first}, weight) or {first}, weight, base_margin), or a dict from names to such tuples"
    if isinstance(eval_set, Mapping):
        given = dict(eval_set)
    elif isinstance(eval_set, list) or (isinstance(eval_set, tuple) and all(isinstance(one, tuple | list) for one in eval_set)):
        given = {f"validation_{i}": one for i, one in enumerate(eval_set)}
    else:
        raise TypeError(f"eval_set is of type {type(eval_set).__name__}; {form}")
    for name, one in given.items():
        if not isinstance(name, str) or not isinstance(one, tuple | list) or len(one) - first.count(",") not in (1, 2, 3):
            raise ValueError(f"eval_set has {name!r}: {type(one).__name__}; {form}")
    if join is not None:
        given = {name: (one[0], join(one[1], one[2]), *one[3:]) for name, one in given.items()}
    return [EvalSet(name, *one) for name, one in given.items()]


def has_weight(block: Block) -> bool:
    """Return whether a row of a block has a weight above zero."""
    return bool(len(block.y) if block.weight is None else block.weight.any())


def check_set(name: str, n_rows: int, is_weighted: bool) -> None:
    """Raise ValueError if a set has no rows, or none with a weight above zero."""
    if n_rows == 0:
        raise ValueError(f"eval_set {name!r} has no rows; wants at least one")
    if not is_weighted:
        raise ValueError(f"eval_set {name!r} has no weight above zero; wants at least one")


def make_block(
    X: Any, y: Any, weight: Any, base_margin: Any = None, *, of: EvalSet, schema: Schema, classes: Any, n_targets: int = 1
) -> Block:
    """Encode rows of an evaluation set (``of``, whose own rows are not used).

    Raises
    ------
    ValueError
        If they are invalid. The message names the set.
    """
    try:
        matrix = schema.matrix(X)
        y, weight = encoded_rows(y, weight, matrix.shape[0], classes, n_targets, of.columns)
        margin = None if of.start is None else np.ascontiguousarray(of.start(X, base_margin).T)
    except ValueError as error:
        raise ValueError(f"eval_set {of.name!r}: {error}") from error
    return Block(matrix, y, weight, margin)


def encoded_rows(
    y: Any, weight: Any, n_rows: int | None, classes: NDArray[Any] | list[NDArray[Any]] | None, n_targets: int, columns: str = ""
) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Return targets (class numbers for labels) and weights of rows, checked against the fit and, if known, the number of rows of X.

    Raises
    ------
    ValueError
        If they do not match.
    """
    y = check_target(y, classify=classes is not None, name="fit", multi_output=columns or n_targets > 1)
    if n_targets > 1 and y.shape[1:] != (n_targets,):
        raise ValueError(f"y has the shape {y.shape}; wants (n, {n_targets}), as the y that is fitted has {n_targets} targets")
    if n_rows is not None:
        check_lengths(n_rows, y)
    weight = check_weights(weight, len(y))
    if classes is not None:
        _check_known(y, classes)
        y = encode_target(y, classes)
    return y, weight


def _check_known(y: NDArray[Any], classes: NDArray[Any] | list[NDArray[Any]]) -> None:
    """Raise ValueError for a label that is not among the classes of its target."""
    each = by_target(classes)
    for k, labels in enumerate(each):
        with naming_target(k, len(each)):
            mine = labels_of(y, k)
            unknown = mine[~np.isin(mine, labels)]
            if len(unknown):
                raise ValueError(
                    f"y has the label {unknown[:1].tolist()[0]!r}, which the y of fit does not have; wants labels among {labels.tolist()}"
                )


class Scorer:
    """Stores the raw predictions of blocks after the rounds received so far.

    Parameters
    ----------
    blocks : sequence of Block
    metrics : sequence of Metric
    n_threads : int
    """

    def __init__(self, blocks: Sequence[Block], metrics: Sequence[Metric], n_threads: int) -> None:
        self._blocks = blocks
        self._metrics = metrics
        self._n_threads = n_threads
        self._sums: list[NDArray[np.float64]] = []

    def score(self, rounds: Rounds, initial: NDArray[np.float64], quiet: int, afresh: bool) -> list[list[list[Any]]]:
        """Add rounds, and return partial metrics after each round except the first ``quiet``: by round, block and metric.

        With ``afresh``, these are the first rounds of a fit.
        """
        if afresh:
            self._initial = initial
            self._sums = [
                np.zeros((initial.shape[0], len(block.y))) if block.margin is None else block.margin.copy() for block in self._blocks
            ]
        said = []
        for i, trees in enumerate(rounds):
            self._add(trees)
            if i >= quiet:
                said.append([self._measure(*known) for known in zip(self._blocks, self._sums, strict=True)])
        return said

    def _measure(self, block: Block, sums: NDArray[np.float64]) -> list[Any]:
        raw = sums + self._initial[:, np.newaxis]
        return [metric.partial(block, raw) for metric in self._metrics]

    def _add(self, trees: Sequence[Tree]) -> None:
        n_outputs = len(self._initial)
        for first in range(0, len(trees), n_outputs):  # in the order of prediction
            steps = AdditiveTrees([[tree] for tree in trees[first : first + n_outputs]])
            for block, sums in zip(self._blocks, self._sums, strict=True):
                sums += steps.raw(block.X, self._n_threads).T


@dataclass(frozen=True)
class LocalSets:
    """Evaluation sets and their metrics.

    Attributes
    ----------
    names : tuple of str
    set_of_block : tuple of int
        The position of each block's set, ascending.
    blocks : tuple of Block
    metrics : tuple of Metric
    """

    names: tuple[str, ...]
    set_of_block: tuple[int, ...]
    blocks: tuple[Block, ...]
    metrics: tuple[Metric, ...]


class Evaluation(ABC):
    """Evaluation sets in the form that the engine requires; see :class:`dtrees.engine.run.boosting_rounds.Evaluation`.

    Parameters
    ----------
    about : LocalSets
        The description of the sets; subclasses have the blocks.
    """

    def __init__(self, about: LocalSets) -> None:
        self.sets = about.names
        self.metrics = tuple(metric.name for metric in about.metrics)
        self._measured = about.metrics
        self._blocks_of_sets = [np.flatnonzero(np.equal(about.set_of_block, j)).tolist() for j in range(len(about.names))]

    @abstractmethod
    def _ask(self, rounds: Rounds, initial: NDArray[np.float64], first: int) -> list[list[list[Any]]]:
        """Return the partial metrics of scorers after each round from ``first`` on: by round, block and metric."""

    @abstractmethod
    def _targets(self) -> list[Rows]:
        """Return targets and weights of each block."""

    def score(self, rounds: Rounds, initial: NDArray[np.float64], first: int) -> NDArray[np.float64]:
        """Return the metrics after each round from ``first`` on, shape (n_rounds - first, n_sets, n_metrics)."""
        said = self._ask(rounds, initial, first)
        scores = np.empty((len(said), len(self.sets), len(self.metrics)))
        for i, j, k in np.ndindex(scores.shape):
            partials = [said[i][block][k] for block in self._blocks_of_sets[j]]
            scores[i, j, k] = self._measured[k].value(partials, lambda j=j: self._rows[j])
        return scores

    @cached_property
    def _rows(self) -> list[Rows]:
        """The targets and weights of each set, fetched when a metric first asks for them."""
        rows, joined = self._targets(), []
        for blocks in self._blocks_of_sets:
            targets, weights = zip(*(rows[block] for block in blocks), strict=True)
            joined.append((np.concatenate(targets), None if weights[0] is None else np.concatenate(weights)))
        return joined


class LocalEvaluation(Evaluation):
    """Evaluation sets in this process.

    Parameters
    ----------
    sets : LocalSets
    n_threads : int
    """

    def __init__(self, sets: LocalSets, n_threads: int) -> None:
        super().__init__(sets)
        self._blocks = sets.blocks
        self._scorer = Scorer(sets.blocks, sets.metrics, n_threads)

    def _ask(self, rounds: Rounds, initial: NDArray[np.float64], first: int) -> list[list[list[Any]]]:
        return self._scorer.score(rounds[first:], initial, 0, first == 0)

    def _targets(self) -> list[Rows]:
        return [(block.y, block.weight) for block in self._blocks]
