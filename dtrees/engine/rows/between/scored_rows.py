"""Rows held out, where a scorer is to look at all of them: the shard that has looked at all targets puts their predictions together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import Scoring
from dtrees.engine.rows.exchange import Arrays


class ScoredRows:
    """The rows held out, of all shards.

    Parameters
    ----------
    scoring : Scoring
    target, weight : ndarray
        Of all rows, targets as losses take them; ``weight`` may be None.
    held_out : ndarray of bool, shape (n_rows,)
    rows : sequence of ndarray of int64
        The rows of each shard.
    """

    def __init__(
        self,
        scoring: Scoring,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        held_out: NDArray[np.bool_],
        rows: Sequence[NDArray[np.int64]],
    ) -> None:
        self._scoring, self._target, self._weight = scoring, target[..., held_out], None if weight is None else weight[held_out]
        place = np.cumsum(held_out) - 1
        self._places = [place[some[held_out[some]]] for some in rows]

    def score(self, sent: Sequence[Arrays]) -> float:
        """Return the score of raw predictions, of which each shard has sent those of its rows, shape (K, n)."""
        raw = np.empty((sent[0][0].shape[0], self._target.shape[-1]))
        for places, (own,) in zip(self._places, sent, strict=True):
            raw[:, places] = own
        return self._scoring.score(self._target, raw, self._weight)
