"""Rows drawn by the sizes of their gradients: minimal variance sampling (Ibragimov and Gusev 2019), with their lambda at 0.

The size s of a row is the sum of its absolute gradients over all outputs. A row is drawn with the probability ``p = min(1, s / mu)``,
and then has the weight ``1 / p``: the expected sums are those of all rows, and no other probabilities give sums of gradients a smaller
variance for the same number of rows. The number mu is set such that the expected number of rows is the wanted one.

Sizes are rounded down to one of eight values for each power of two. mu depends only on the number of rows with each of these values, so
shards of rows add integers, and the probabilities are the same for any partition of the rows. Whether a row is drawn follows from the
seed, the round and the number of the row (:mod:`dtrees.split.numbers.hashing`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.split.numbers import hashing

#: A bin is the exponent and the first three bits of the mantissa of a size: there are 2**14.
_SHIFT = 49
_LARGEST = (2047 << 3) - 1  # of finite numbers
#: The bin of rows that may not be drawn.
_NEVER = 2**14 - 1
#: Sizes below 2**-50 of the largest are raised to that: a hash has too few bits for smaller probabilities.
_RANGE = 50 << 3


@kernel
def count_sizes(sizes, eligible, bins):
    """Write the bin of each size, and return the number of rows in each bin; ``eligible`` is empty if all rows may be drawn."""
    counts = np.zeros(_NEVER + 1, np.int64)
    for i in range(sizes.shape[0]):
        place: Any = min(np.float64(abs(sizes[i])).view(np.int64) >> _SHIFT, _LARGEST)
        if eligible.shape[0] and not eligible[i]:
            place = _NEVER
        bins[i] = place
        counts[place] += 1
    return counts


def in_bins(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bins of rows that may be drawn, and their numbers of rows, shape (2, n_bins)."""
    bins = np.flatnonzero(counts[:_NEVER])
    return np.stack([bins, counts[bins]])


def probabilities(found: NDArray[np.int64], share: float) -> NDArray[np.float64]:
    """Return the probability for each bin, such that a share of the rows is expected to be drawn, and at least one row.

    ``found`` holds bins and their numbers of rows, as returned by :func:`in_bins`; results of several shards are concatenated.

    Examples
    --------
    >>> bins = np.empty(4, np.uint16)
    >>> counts = count_sizes(np.array([1.0, 1.0, 2.0, 8.0]), np.empty(0, np.bool_), bins)
    >>> probabilities(in_bins(counts), 0.75)[bins].tolist()
    [0.5, 0.5, 1.0, 1.0]
    """
    counts, of_bins = np.zeros(_NEVER, np.int64), np.zeros(_NEVER + 1)
    np.add.at(counts, *found)
    bins, n = in_bins(counts)
    if not bins.shape[0]:
        return of_bins
    largest = int(bins[-1])
    # Only ratios of sizes matter: the largest gets the exponent 0, so that sums do not overflow.
    size = ((np.maximum(bins, largest - _RANGE) + ((1023 - (largest >> 3)) << 3)) << _SHIFT).view(np.float64)
    left = max(1.0, share * float(n.sum())) - (n.sum() - np.cumsum(n))  # rows to draw from this bin and those below, if all above are drawn
    below = np.cumsum(n * size)
    last = np.flatnonzero(size * left <= below)[-1]  # the largest bin that is not certain to be drawn, or just certain
    of_bins[bins] = np.minimum(1.0, size * (left[last] / below[last]))
    return of_bins


@kernel
def draw_by_size(key, first, bins, probability, factors):
    """Write the weight of each row, 0 if it is not drawn; ``first`` is the number of the first row."""
    for i in range(bins.shape[0]):
        p = probability[bins[i]]
        factors[i] = 1.0 / p if hashing.uniform(hashing.draw(key, first + i)) < p else 0.0
