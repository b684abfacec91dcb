"""Keys: the code of a row's value and the row's place in one 64-bit number, so that sorting by it sorts by value, then by place."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import inlined_kernel

#: The bits of a key that hold the place; the code is in the upper half.
PLACE = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
#: In place of a code, where the number of a column's values is not at hand: the value is missing. No column has so many values.
MISSING = np.uint32(0xFFFFFFFF)


@inlined_kernel
def key_of(code, place):
    """Return the key of a code and a place."""
    return np.uint64(code) << _HALF | np.uint64(place)


@inlined_kernel
def code_in(key):
    """Return the code of a key, as it is in the key: unsigned."""
    return key >> _HALF


@inlined_kernel
def code_of(key):
    """Return the code of a key as a signed number."""
    return np.int64(key >> _HALF)


@inlined_kernel
def place_in(key):
    """Return the place of a key, unsigned, as indices are best."""
    return key & PLACE


@inlined_kernel
def first_key(code):
    """Return the lowest key of a code."""
    return np.uint64(code) << _HALF
