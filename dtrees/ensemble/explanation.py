"""Explaining predictions: from a block of rows to Shapley values.

:class:`Explain` is a function of a block of rows, with all it needs inside, as :class:`dtrees.ensemble.prediction.Predict` is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.threads import effective_n_jobs
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.prediction import AdditiveTrees


@dataclass(frozen=True)
class Explain:
    """A block of rows to Shapley values.

    Attributes
    ----------
    schema : Schema
    trees : AdditiveTrees
    scale : float
        What sums over trees are divided by.
    n_jobs : int or None
        As the estimator's; resolved where the function runs.
    background : ndarray or SparseRows or None
        Rows that stand for what is unknown; without, the weights of nodes do.
    interactions : bool
        Whether values are of pairs of columns.
    """

    schema: Schema
    trees: AdditiveTrees
    scale: float
    n_jobs: int | None
    background: Any = None
    interactions: bool = False

    def __call__(self, X: Any) -> NDArray[np.float64]:
        """Explain a block of rows: shape (n, n_features, n_outputs), without the last axis where there is one output.

        Of pairs, shape (n, n_features, n_features, n_outputs).
        """
        from dtrees.tree.shapley.values import add_interaction_values, add_interventional_values, add_values

        rows, n_threads, n_columns = self.schema.matrix(X), effective_n_jobs(self.n_jobs), len(self.schema)
        packs = self.trees.paths()
        axes = (n_columns, n_columns) if self.interactions else (n_columns,)
        out = np.zeros((rows.shape[0], *axes, sum(paths.value.shape[1] for paths in packs)))
        first = 0
        for paths in packs:
            mine = out[..., first : first + paths.value.shape[1]]
            if self.interactions:
                add_interaction_values(paths, rows, n_threads, mine)
            elif self.background is None:
                add_values(paths, rows, n_threads, mine)
            else:
                add_interventional_values(paths, rows, self.background, n_threads, mine)
            first += paths.value.shape[1]
        if self.scale != 1.0:
            out /= self.scale
        return out[..., 0] if out.shape[-1] == 1 else out

    def expected(self) -> NDArray[np.float64]:
        """Return what values are added to, shape (n_outputs,): the mean over the background, or that of the leaves by weight."""
        if self.background is not None:
            raw = self.trees.raw(self.background, self.n_jobs)
            return np.asarray(raw.mean(axis=0) / self.scale)
        mean = np.concatenate([paths.mean.sum(axis=0) for paths in self.trees.paths()])
        return (mean if self.trees.initial is None else mean + self.trees.initial) / self.scale
