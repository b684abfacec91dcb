"""Numbers of less precision that stand for others in comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def rounded_down(values: NDArray[np.float64], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return the largest numbers of a dtype that are not above values: numbers of that dtype compare with both alike. +inf stays.

    Examples
    --------
    >>> rounded_down(np.array([0.5, 0.1])).astype(float) <= np.array([0.5, 0.1])
    array([ True,  True])
    """
    dtype = np.dtype(dtype)
    if dtype == np.float64:
        return values
    with np.errstate(over="ignore"):
        rounded = values.astype(dtype)
        return np.where(rounded > values, np.nextafter(rounded, -np.inf, dtype=dtype), rounded)
