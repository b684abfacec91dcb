"""The mean losses of boosting, of the rows trained on and of those held out.

Losses are added up in *blocks* of rows, and then block by block: the same numbers, to the last bit, whoever adds up which blocks. Over
shards, all of which have the predictions of all rows, each adds up a share of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.messages import Losses, Scores
from dtrees.engine.plans import Loss
from dtrees.engine.threads import Threads
from dtrees.split.fixed_point import absolute_sum

#: Rows of a block: what takes 64 kB or less on the way comes from memory that the process has already. (Dask has its workers give larger
#: pieces back to the system, which takes four times as long.)
_BLOCK_ROWS = 8192


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

        def weigh(part: NDArray[np.bool_] | None) -> float:
            if weight is None:
                return float(n_rows if part is None else np.count_nonzero(part))
            return float(absolute_sum(weight if part is None else weight[part]))

        return cls(train, held_out, np.array([weigh(train), 0.0 if held_out is None else weigh(held_out)]))


def add_up_losses(
    loss: Loss,
    target: NDArray[Any],
    raw: NDArray[np.float64],
    weight: NDArray[np.float64] | None,
    parts: Parts,
    share: tuple[int, int],
    threads: Threads,
    least: int,
) -> Losses:
    """Return the losses of some rows, added up by blocks.

    Parameters
    ----------
    loss : Loss
    target : ndarray, shape (n_rows,)
    raw : ndarray of float64, shape (K, n_rows)
    weight : ndarray of float64, shape (n_rows,), or None
    parts : Parts
    share : tuple of int
        The first row, which begins a block, and the one after the last (:func:`shares_of`).
    threads : Threads
    least : int
        Rows that are worth a thread.
    """
    first, last = share
    sums = np.zeros((-(-(last - first) // _BLOCK_ROWS), 2))
    kinds = [parts.train] if parts.held_out is None else [parts.train, parts.held_out]

    def add_up(blocks: range) -> None:
        for block in blocks:
            rows = slice(first + block * _BLOCK_ROWS, min(first + (block + 1) * _BLOCK_ROWS, last))
            losses = loss.pointwise(target[rows], raw[:, rows])
            if weight is not None:
                losses = losses * weight[rows]
            for k, part in enumerate(kinds):
                sums[block, k] = np.add.reduce(losses if part is None else losses[part[rows]])

    n_pieces = min(threads.n_threads, 1 + (last - first) // least)
    if n_pieces == 1:
        add_up(range(sums.shape[0]))
        return Losses(sums, parts.weights)
    bounds = [sums.shape[0] * k // n_pieces for k in range(n_pieces + 1)]
    threads.map(lambda k: add_up(range(bounds[k], bounds[k + 1])), range(n_pieces))
    return Losses(sums, parts.weights)


def scores_of(losses: Sequence[Losses]) -> Scores:
    """Return the mean losses, by those of all rows, in their order."""
    sums = losses[0].sums if len(losses) == 1 else np.concatenate([share.sums for share in losses])
    train, held_out = np.add.reduce(sums, axis=0).tolist()
    weight, weight_out = losses[0].weights.tolist()
    return Scores(train / weight if weight > 0 else math.nan, held_out / weight_out if weight_out > 0 else math.nan)


def shares_of(n_rows: int, n_shares: int) -> list[tuple[int, int]]:
    """Divide rows into shares of whole blocks: the first row of each, and the one after its last.

    Examples
    --------
    >>> shares_of(20_000, 2)
    [(0, 8192), (8192, 20000)]
    """
    n_blocks = -(-n_rows // _BLOCK_ROWS)
    bounds = [min(n_blocks * k // n_shares * _BLOCK_ROWS, n_rows) for k in range(n_shares + 1)]
    return list(itertools.pairwise(bounds))
