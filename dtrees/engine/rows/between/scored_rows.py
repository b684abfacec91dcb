"""Rows that a scorer is to look at together: the shard that has looked at all targets puts their predictions together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import Scoring
from dtrees.engine.rows.exchange import Arrays


class ScoredRows:
    """The rows that a scorer scores (held out, or trained on), of all shards.

    Parameters
    ----------
    scoring : Scoring
    target, weight : ndarray
        Of all rows, targets as losses take them; ``weight`` may be None.
    scored : ndarray of bool, shape (n_rows,)
    rows : sequence of ndarray of int64
        The rows of each shard.
    """

    def __init__(
        self,
        scoring: Scoring,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        scored: NDArray[np.bool_],
        rows: Sequence[NDArray[np.int64]],
    ) -> None:
        self._scoring, self._target, self._weight = scoring, target[..., scored], None if weight is None else weight[scored]
        place = np.cumsum(scored) - 1
        self._places = [place[some[scored[some]]] for some in rows]

    def score(self, sent: Sequence[Arrays]) -> float:
        """Return the score of raw predictions, of which each shard has sent those of its rows, shape (K, n)."""
        raw = np.empty((sent[0][0].shape[0], self._target.shape[-1]))
        for places, (own,) in zip(self._places, sent, strict=True):
            raw[:, places] = own
        return self._scoring.score(self._target, raw, self._weight)
