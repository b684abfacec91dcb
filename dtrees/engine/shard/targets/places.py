"""Places of stretches of the row partition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def places_of(first: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of stretches, one stretch after the other.

    Examples
    --------
    >>> places_of(np.array([7, 2]), np.array([2, 3]))
    array([7, 8, 2, 3, 4])
    """
    offsets = np.cumsum(sizes) - sizes
    return np.repeat(first - offsets, sizes) + np.arange(int(sizes.sum()))
