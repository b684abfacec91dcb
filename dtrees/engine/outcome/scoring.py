"""The mean losses of boosting, of the rows trained on and of those held out.

Losses are added up within *blocks* of rows, and then over blocks. So the sums are the same, to the last bit, whoever adds up which blocks.
Every shard has the predictions of all rows, and adds up a share of the blocks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Losses, Scores
from dtrees.split.numbers.fixed_point import absolute_sum, add_up_blocks

#: Rows of a block.
BLOCK_ROWS = 8192


class Parts(NamedTuple):
    """Rows that count, trained on and held out (None: all): bool, shape (n_rows,). ``weights``, shape (2,), is what they weigh."""

    train: NDArray[np.bool_] | None
    held_out: NDArray[np.bool_] | None
    weights: NDArray[np.float64]

    @classmethod
    def of(
        cls, n_rows: int, weight: NDArray[np.float64] | None, train: NDArray[np.bool_] | None, held_out: NDArray[np.bool_] | None
    ) -> Parts:
        """Return the parts of a table; without rows held out there is none."""
        train_weight = weight_of(n_rows, weight, train)
        return cls(train, held_out, np.array([train_weight, 0.0 if held_out is None else weight_of(n_rows, weight, held_out)]))

    @property
    def scored(self) -> NDArray[np.bool_] | slice:
        """The rows that decide about early stopping: those held out or, without such, those trained on."""
        part = self.train if self.held_out is None else self.held_out
        return slice(None) if part is None else part

    def share(self, first: int, last: int) -> Parts:
        """Return the parts of some rows; the weights are still those of all."""
        if self.train is None and self.held_out is None:
            return self
        train, held_out = (None if part is None else part[first:last] for part in (self.train, self.held_out))
        return Parts(train, held_out, self.weights)


def weight_of(n_rows: int, weight: NDArray[np.float64] | None, part: NDArray[np.bool_] | None) -> float:
    """Return what the rows of a part weigh."""
    if weight is None:
        return float(n_rows if part is None else np.count_nonzero(part))
    return float(absolute_sum(weight if part is None else weight[part]))


def add_up_losses(losses: NDArray[np.float64], weight: NDArray[np.float64] | None, parts: Parts) -> Losses:
    """Return losses added up by blocks.

    Parameters
    ----------
    losses : ndarray of float64, shape (n,)
        Of rows of which the first begins a block (:func:`shares_of`). They are multiplied by the weights where they are.
    weight : ndarray of float64, shape (n,), or None
    parts : Parts
        Of these rows.
    """
    if weight is not None:
        # A mean that is not finite ends the fit. Rows that do not count, of weight 0, may have any loss.
        with np.errstate(over="ignore", invalid="ignore"):
            losses *= weight
    sums = np.zeros((_n_blocks(losses.shape[0]), 2))
    _add_up(losses, parts.train, sums, 0)
    if parts.held_out is not None:
        _add_up(losses, parts.held_out, sums, 1)
    return Losses(sums, parts.weights)


def sums_by_block(losses: NDArray[np.float64], part: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """Return the sums of the losses of a part of the rows, shape (n_blocks,)."""
    sums = np.empty((_n_blocks(losses.shape[0]), 1))
    _add_up(losses, part, sums, 0)
    return sums[:, 0]


def _add_up(losses: NDArray[np.float64], part: NDArray[np.bool_] | None, sums: NDArray[np.float64], column: int) -> None:
    add_up_blocks(losses if part is None else np.where(part, losses, 0.0), BLOCK_ROWS, sums, column)


def _n_blocks(n_rows: int) -> int:
    return -(-n_rows // BLOCK_ROWS)


def with_part(found: Losses, sums: NDArray[np.float64], weight: float) -> Losses:
    """Return losses with those of one more part."""
    return found._replace(sums=np.column_stack([found.sums, sums]), weights=np.append(found.weights, weight))


def scores_of(losses: Sequence[Losses]) -> Scores:
    """Return the mean losses, by those of all rows, in their order."""
    totals, *blocks = [block for share in losses for block in share.sums.tolist()]
    for sums in blocks:
        totals = [total + more for total, more in zip(totals, sums, strict=True)]
    scores = Scores(*[total / weight if weight > 0 else math.nan for total, weight in zip(totals, losses[0].weights.tolist(), strict=True)])
    return scores if losses[-1].score is None else scores._replace(validation=losses[-1].score)


def shares_of(n_rows: int, n_shares: int) -> list[tuple[int, int]]:
    """Divide rows into shares of whole blocks: the first row of each, and the one after its last.

    Examples
    --------
    >>> shares_of(20_000, 2)
    [(0, 8192), (8192, 20000)]
    """
    n_blocks = _n_blocks(n_rows)
    bounds = [min(n_blocks * k // n_shares * BLOCK_ROWS, n_rows) for k in range(n_shares + 1)]
    return list(itertools.pairwise(bounds))
