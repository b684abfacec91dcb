"""The oracle of DART (Rashmi and Gilad-Bachrach, 2015, with XGBoost's weights): predictions are summed from scratch in each round."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.numbers import hashing


def dropped_rounds(seed: int, n: int, rate: float, skip: float = 0.0) -> list[int]:
    """Return which of the first ``n`` rounds the next one drops."""
    key = np.uint64(hashing.stream_key(hashing.as_seed(seed), hashing.STREAM_DROPOUT, n))
    draws = [hashing.uniform(np.uint64(hashing.draw(key, i))) for i in range(n + 1)]
    return [] if draws[n] < skip else [i for i in range(n) if draws[i] < rate]


def dart(
    step: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    start: NDArray[np.float64],
    dropped: Sequence[Sequence[int]],
    learning_rate: float,
    normalization: str,
) -> tuple[list[float], list[NDArray[np.float64]]]:
    """Return the weights of rounds, and the predictions of rows after each.

    Parameters
    ----------
    step : callable
        Returns the contribution of a round to predictions, including the learning rate.
    start : ndarray of float64, shape (n_rows,)
        The predictions before the first round.
    dropped : sequence of sequence of int
        For each round, the earlier ones that it drops.
    """
    steps: list[Any] = []
    weights: list[float] = []
    predictions = []

    def total(without: Sequence[int]) -> NDArray[np.float64]:
        return start + np.sum([weights[i] * steps[i] for i in range(len(steps)) if i not in without] + [np.zeros_like(start)], axis=0)

    for some in dropped:
        steps.append(step(total(some)))
        k = len(some)
        if k == 0:
            weights.append(1.0)
        elif normalization == "tree":
            weights.append(1 / (k + learning_rate))
            for i in some:
                weights[i] *= k / (k + learning_rate)
        else:
            weights.append(1 / (1 + learning_rate))
            for i in some:
                weights[i] *= 1 / (1 + learning_rate)
        predictions.append(total([]))
    return weights, predictions
