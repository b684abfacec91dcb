"""Numbers that compare like others: integers in the same order, and numbers of lower precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def key_of_float32(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the bits of numbers as integers in the order of the numbers, with -0.0 equal to 0.0.

    Examples
    --------
    >>> key_of_float32(np.array([-0.0, 0.0, 1e-45], np.float32)) - 2**31
    array([0, 0, 1])
    """
    bits = (values + np.float32(0.0)).view(np.uint32)
    return (bits ^ ((bits.view(np.int32) >> 31).view(np.uint32) | np.uint32(0x80000000))).astype(np.int64)


def float32_of_key(keys: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Return the numbers with these keys (:func:`key_of_float32`)."""
    sign = np.uint32(0x80000000)
    return np.where(keys & sign, keys ^ sign, ~keys).view(np.float32)


def rounded_down(values: NDArray[np.float64], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return the largest numbers of a dtype that are not above ``values``: numbers of that dtype compare alike with both. +inf stays.

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
