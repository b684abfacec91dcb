"""Prediction with fitted trees: from a block of rows to the result of a method.

Terms
-----
additive trees
    trees whose values add up to *raw* predictions, one column per output (:class:`AdditiveTrees`). A forest's trees have a value per class
    and form one group; boosting has a group of trees for each output.
step
    a function from raw predictions to the next form: mean, probabilities, labels.

:class:`Predict`, :class:`FindLeaves` and :class:`Explain` (Shapley values) are functions of a block of rows (array or frame) that a backend
maps over a collection. They are picklable, and contain the trees but no training data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.threads import effective_n_jobs
from dtrees.ensemble.input.schema import Schema
from dtrees.tree.stacking import restacked, stacked
from dtrees.tree.tree import Tree

if TYPE_CHECKING:
    from dtrees.tree.packing import Packed
    from dtrees.tree.predict_sets import PackedWithSets
    from dtrees.tree.shapley import Paths

Step = Callable[[NDArray[Any]], NDArray[Any]]


class AdditiveTrees:
    """Trees whose values add up to raw predictions.

    Trees are packed for prediction when first needed; the packed form is cached, but neither pickled nor copied.

    Parameters
    ----------
    groups : sequence of sequence of Tree
        Per group, trees in the order in which they are added. Groups are side by side in the raw predictions.
    initial : ndarray of float64 of shape (n_outputs,), default=None
        The initial sums; zero by default.
    n_parallel : int, default=1
        Number of trees of each group in a round.
    """

    def __init__(self, groups: Sequence[Sequence[Tree]], initial: NDArray[np.float64] | None = None, n_parallel: int = 1) -> None:
        self.groups = tuple(tuple(group) for group in groups)
        self.initial, self.n_parallel = initial, n_parallel
        self._packs: dict[np.dtype[Any], tuple[Packed | PackedWithSets, ...]] = {}
        self._paths: tuple[Paths, ...] | None = None

    def __reduce__(self) -> Any:
        # A few arrays for all trees, since mapping a pickle into memory (joblib) opens a file for each array.
        return _unpickled, (stacked(self.groups) if self.n_rounds else None, len(self.groups), self.initial, self.n_parallel)

    @classmethod
    def of_rounds(cls, rounds: Sequence[Sequence[Tree]], initial: NDArray[np.float64]) -> Self:
        """Return the trees of rounds in boosting order: one for each output, then the next parallel tree of each, and so on."""
        n = len(initial)
        groups = [[tree for trees in rounds for tree in trees[output::n]] for output in range(n)]
        return cls(groups, initial, len(rounds[0]) // n if rounds else 1)

    @property
    def n_rounds(self) -> int:
        """The number of rounds, or of trees of a forest."""
        return len(self.groups[0]) // self.n_parallel

    @property
    def rounds(self) -> list[list[Tree]]:
        """The trees of each round, in the order of :meth:`of_rounds`."""
        in_order, n = [tree for trees in zip(*self.groups, strict=True) for tree in trees], len(self.groups) * self.n_parallel
        return [in_order[first : first + n] for first in range(0, len(in_order), n)]

    def take(self, rounds: Iterable[int]) -> AdditiveTrees:
        """Return some of the rounds."""
        n = self.n_parallel
        return AdditiveTrees([[tree for i in rounds for tree in group[i * n : (i + 1) * n]] for group in self.groups], self.initial, n)

    def packs(self, dtype: np.dtype[Any]) -> tuple[Packed | PackedWithSets, ...]:
        """Return the groups, packed for rows of a dtype."""
        packs = self._packs.get(dtype)
        if packs is None:
            from dtrees.tree.predict import packed_for

            self._packs[dtype] = packs = tuple(packed_for(group, dtype) for group in self.groups)
        return packs

    def packed_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the groups, packed for float64, as named arrays, for a file that is mapped into memory."""
        from dtrees.tree.mapping import packed_arrays

        packs = [packed_arrays(pack) for pack in self.packs(np.dtype(np.float64))]
        return {f"{g}.{name}": array for g, arrays in enumerate(packs) for name, array in arrays.items()}

    def take_packed(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Predict with arrays from :meth:`packed_arrays`, also for rows of float32, and make the trees read-only.

        Raises
        ------
        ValueError
            If they differ from the packed form of these trees.
        """
        from dtrees.tree.mapping import packed_of

        starts = [f"{g}." for g in range(len(self.groups))]
        own = [{name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)} for start in starts]
        packs = tuple(packed_of(group, mine) for group, mine in zip(self.groups, own, strict=True))
        self._packs = {np.dtype(np.float32): packs, np.dtype(np.float64): packs}
        for group in self.groups:
            for tree in group:
                tree.make_read_only()

    def paths(self) -> tuple[Paths, ...]:
        """Return the groups, packed for Shapley values."""
        if self._paths is None:
            from dtrees.tree.shapley import pack_paths

            self._paths = tuple(pack_paths(group) for group in self.groups)
        return self._paths

    def _threads(self, n_rows: int, n_trees: int, n_jobs: int | None) -> int:
        """Return the number of threads to use; counting cores takes longer than predicting a few rows."""
        from dtrees.tree.predict import SERIAL_WORK

        return 1 if n_rows * n_trees <= SERIAL_WORK and n_jobs != 0 else effective_n_jobs(n_jobs)

    def raw(self, X: NDArray[Any], n_jobs: int | None, n_rounds: int | None = None) -> NDArray[np.float64]:
        """Return raw predictions, shape (n, n_outputs), of the first ``n_rounds`` rounds (default: all)."""
        from dtrees.tree.predict import sum_values

        n_trees = len(self.groups[0]) if n_rounds is None else n_rounds * self.n_parallel
        n_threads = self._threads(X.shape[0], n_trees, n_jobs)
        sums = [sum_values(pack, X, n_threads, 0, n_trees) for pack in self.packs(X.dtype)]
        raw = sums[0] if len(sums) == 1 else np.hstack(sums)
        return raw if self.initial is None else raw + self.initial

    def staged_raw(self, X: NDArray[Any], n_jobs: int | None) -> Iterator[NDArray[np.float64]]:
        """Yield raw predictions after each round, equal to those of :meth:`raw` for the same number of rounds."""
        from dtrees.tree.predict import add_tree

        n_threads = self._threads(X.shape[0], 1, n_jobs)
        sums = [np.zeros((X.shape[0], pack.value.shape[1])) for pack in self.packs(X.dtype)]
        for round_ in range(self.n_rounds):
            for pack, total in zip(self.packs(X.dtype), sums, strict=True):
                for number in range(round_ * self.n_parallel, (round_ + 1) * self.n_parallel):
                    add_tree(pack, X, number, total, n_threads)
            raw = np.hstack(sums)
            yield raw if self.initial is None else raw + self.initial

    def leaves(self, X: NDArray[Any], n_jobs: int | None) -> NDArray[np.int32]:
        """Return leaf numbers, shape (n, n_trees), in the order of :attr:`rounds`."""
        from dtrees.tree.predict import apply

        n_threads = self._threads(X.shape[0], len(self.groups[0]), n_jobs)
        found = [apply(pack, X, n_threads) for pack in self.packs(X.dtype)]
        return found[0] if len(found) == 1 else np.stack(found, axis=2).reshape(X.shape[0], len(found) * found[0].shape[1])


def _unpickled(
    arrays: dict[str, NDArray[Any]] | None, n_groups: int, initial: NDArray[np.float64] | None, n_parallel: int = 1
) -> AdditiveTrees:
    """Restore pickled trees."""
    return AdditiveTrees([()] * n_groups if arrays is None else restacked(arrays), initial, n_parallel)


@dataclass(frozen=True)
class Predict:
    """Maps a block of rows to predictions.

    Attributes
    ----------
    schema : Schema
    trees : AdditiveTrees
    steps : tuple of callable
        Applied to the raw predictions in sequence.
    n_jobs : int or None
        As in the estimator; resolved where the function runs.
    n_rounds : int or None
        Number of rounds to use, from the first one.
    start : callable or None
        Maps a block of rows, and the values passed with them (``base_margin``), to the initial raw predictions, of shape (n, n_outputs).
    """

    schema: Schema
    trees: AdditiveTrees
    steps: tuple[Step, ...]
    n_jobs: int | None
    n_rounds: int | None = None
    start: Callable[[Any, Any], NDArray[np.float64]] | None = None

    def __call__(self, X: Any, base_margin: Any = None) -> NDArray[Any]:
        """Predict a block of rows."""
        raw = self.trees.raw(self.schema.matrix(X), self.n_jobs, self.n_rounds)
        return self.finish(raw if self.start is None else raw + self.start(X, base_margin))

    def staged(self, X: Any, base_margin: Any = None) -> Iterator[NDArray[Any]]:
        """Yield predictions after each round."""
        start = None if self.start is None else self.start(X, base_margin)
        for raw in self.trees.staged_raw(self.schema.matrix(X), self.n_jobs):
            yield self.finish(raw if start is None else raw + start)

    def finish(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Apply the steps."""
        for step in self.steps:
            raw = step(raw)
        return raw


@dataclass(frozen=True)
class FindLeaves:
    """Maps a block of rows to leaf numbers."""

    schema: Schema
    trees: AdditiveTrees
    n_jobs: int | None

    def __call__(self, X: Any) -> NDArray[np.int32]:
        """Find the leaves of a block of rows."""
        return self.trees.leaves(self.schema.matrix(X), self.n_jobs)


@dataclass(frozen=True)
class Explain:
    """Maps a block of rows to Shapley values.

    Attributes
    ----------
    schema : Schema
    trees : AdditiveTrees
    scale : float
        The divisor of sums over trees.
    n_jobs : int or None
        As in the estimator; resolved where the function runs.
    background : ndarray or sparse table or None
        Rows that represent unknown values; by default, node weights are used.
    interactions : bool
        Whether values are computed for pairs of columns.
    """

    schema: Schema
    trees: AdditiveTrees
    scale: float
    n_jobs: int | None
    background: Any = None
    interactions: bool = False

    def __call__(self, X: Any) -> NDArray[np.float64]:
        """Explain a block of rows: shape (n, n_features, n_outputs), without the last axis for a single output.

        For interactions, shape (n, n_features, n_features, n_outputs).
        """
        from dtrees.tree.shapley import add_interventional_values, add_values

        rows, n_threads, n_columns = self.schema.matrix(X), effective_n_jobs(self.n_jobs), len(self.schema)
        packs = self.trees.paths()
        axes = (n_columns, n_columns) if self.interactions else (n_columns,)
        out = np.zeros((rows.shape[0], *axes, sum(paths.value.shape[1] for paths in packs)))
        first = 0
        for paths in packs:
            mine = out[..., first : first + paths.value.shape[1]]
            if self.interactions or self.background is None:
                add_values(paths, rows, n_threads, mine)
            else:
                add_interventional_values(paths, rows, self.background, n_threads, mine)
            first += paths.value.shape[1]
        if self.scale != 1.0:
            out /= self.scale
        return out[..., 0] if out.shape[-1] == 1 else out

    def expected(self) -> NDArray[np.float64]:
        """Return the base of the values, shape (n_outputs,): the mean over the background, or the weighted mean of the leaves."""
        if self.background is not None:
            raw = self.trees.raw(self.background, self.n_jobs)
            return np.asarray(raw.mean(axis=0) / self.scale)
        mean = np.concatenate([paths.mean.sum(axis=0) for paths in self.trees.paths()])
        return (mean if self.trees.initial is None else mean + self.trees.initial) / self.scale


def mean_of(n_trees: int, raw: NDArray[Any]) -> NDArray[Any]:
    """Step: sums over trees to their mean."""
    return raw / n_trees


def most_probable(classes: Any, probabilities: NDArray[Any]) -> NDArray[Any]:
    """Step: class probabilities to the number of the largest, or the first of equals, for each target, shape (n,) or (n, n_targets)."""
    if not isinstance(classes, list):
        return probabilities.argmax(axis=1)
    return np.stack([mine.argmax(axis=1) for mine in split_targets(probabilities, classes)], axis=1)


def by_target(classes: Any) -> list[NDArray[Any]]:
    """Return the classes of each target as a list, from an array for one target or a list for several; empty for regression."""
    return [] if classes is None else classes if isinstance(classes, list) else [classes]


def split_targets(values: NDArray[Any], classes: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the columns of values that belong to each target, given the classes of all targets."""
    return np.split(values, np.cumsum([len(labels) for labels in classes])[:-1], axis=1)


def columns_of_targets(values: Any, classes: Sequence[NDArray[Any]]) -> list[Any]:
    """Return the result of :func:`split_targets` for a lazy collection; columns of frames are named by classes."""
    ends = np.cumsum([len(labels) for labels in classes]).tolist()
    parts = []
    for labels, end in zip(classes, ends, strict=True):
        places = range(end - len(labels), end)
        if hasattr(values, "columns"):
            parts.append(values[list(places)].rename(columns=dict(zip(places, labels.tolist(), strict=True))))
        else:
            parts.append(values[:, places.start : places.stop])
    return parts


def first_column(raw: NDArray[Any]) -> NDArray[Any]:
    """Step: shape (n, 1) to (n,)."""
    return raw[:, 0]


def logarithm(probabilities: NDArray[Any]) -> NDArray[Any]:
    """Step: probabilities to their logarithms, -inf for 0."""
    from dtrees.split.numbers.elementary import log  # imports Numba

    return log(probabilities)
