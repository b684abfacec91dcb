"""What is done with all rows at once: the shard that has looked at all targets puts raw predictions together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import Loss, Scoring
from dtrees.engine.rows.exchange import Arrays


class AllRows:
    """Targets and weights of all rows, or of some, and how predictions of shards are put together.

    Parameters
    ----------
    target, weight : ndarray
        Of all rows, targets as losses take them; ``weight`` may be None.
    rows : sequence of ndarray of int64
        The rows of each shard.
    some : ndarray of bool, shape (n_rows,), optional
        Which rows it is about; by default all.
    """

    def __init__(
        self,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        rows: Sequence[NDArray[np.int64]],
        some: NDArray[np.bool_] | None = None,
    ) -> None:
        self._target, self._weight, self._places = target, weight, list(rows)
        if some is not None:
            self._target, self._weight = target[..., some], None if weight is None else weight[some]
            place = np.cumsum(some) - 1
            self._places = [place[mine[some[mine]]] for mine in rows]

    def _together(self, sent: Sequence[Arrays]) -> NDArray[np.float64]:
        """Return raw predictions, of which each shard has sent those of its rows, shape (K, n)."""
        raw = np.empty((sent[0][0].shape[0], self._target.shape[-1]))
        for places, (own,) in zip(self._places, sent, strict=True):
            raw[:, places] = own
        return raw

    def score(self, scoring: Scoring, sent: Sequence[Arrays]) -> float:
        """Return the score of raw predictions of shards."""
        return scoring.score(self._target, self._together(sent), self._weight)

    def losses_of_round(self, loss: Loss, sent: Sequence[Arrays]) -> list[Loss]:
        """Return, for the rows of each shard, a loss that takes all rows, in the round that starts from raw predictions of shards."""
        of_round = loss.for_round(self._target, self._together(sent), self._weight)
        return [of_round.of_rows(places) for places in self._places]
