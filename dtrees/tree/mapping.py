"""Packed trees as plain arrays in a model file, so that prediction can use the mapped file itself.

Kernels that predict do not check bounds, so arrays from a file are compared with those that the trees would be packed to. They are not
replaced by these, so all processes that map a file share its pages.

>>> import numpy as np
>>> from dtrees.tree.predict import packed_for, sum_values
>>> stump = Tree.from_arrays(
...     children_left=[1, -1, -1], children_right=[2, -1, -1], feature=[0, -2, -2], threshold=[0.5, -2.0, -2.0],
...     missing_go_to_left=[True, False, False], impurity=[0.25, 0.0, 0.0], gain=[1.0, 0.0, 0.0],
...     n_node_samples=[4, 2, 2], weighted_n_node_samples=[4.0, 2.0, 2.0], value=[[0.5], [0.0], [1.0]])
>>> arrays = packed_arrays(packed_for([stump], np.float64))
>>> arrays["nodes"].dtype, arrays["nodes"].shape
(dtype('uint64'), (3, 2))
>>> sum_values(packed_of([stump], arrays), np.array([[0.2], [0.8]]), 1)
array([[0.],
       [1.]])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.tree.packing import Packed
from dtrees.tree.predict import packed_for
from dtrees.tree.predict_sets import PackedWithSets
from dtrees.tree.tree import Tree

#: Fields of packed trees with sets of categories in files of an earlier version; they are packed again.
_FIELDS_BEFORE = {*PackedWithSets._fields, "first_code"} - {"n_words", "n_codes", "stride", "table_of", "first_entry"}


def packed_arrays(packed: Packed | PackedWithSets) -> dict[str, NDArray[Any]]:
    """Return trees packed for float64 as numeric arrays, by field; records become rows of words."""
    return {name: _plain(array) for name, array in packed._asdict().items()}


def packed_of(trees: Sequence[Tree], arrays: Mapping[str, NDArray[Any]]) -> Packed | PackedWithSets:
    """Return the input of :func:`packed_arrays`, using these very arrays, unless they are of an earlier version.

    Raises
    ------
    ValueError
        If they differ from the packed trees.
    """
    made = packed_for(trees, np.float64)
    if isinstance(made, PackedWithSets) and arrays.keys() == _FIELDS_BEFORE:
        return made
    if arrays.keys() != set(made._fields):
        raise ValueError("the model does not hold its trees as prediction wants them")
    if not all(_same(arrays[name], array) for name, array in made._asdict().items()):
        raise ValueError("the model holds its trees twice, as such and as prediction wants them, and these differ")
    return type(made)(**{name: _like(arrays[name], array) for name, array in made._asdict().items()})


def _plain(array: Any) -> NDArray[Any]:
    """Return a numeric array for an array of records, each a row of words with 0 as padding, or for a number; others are unchanged."""
    array = np.atleast_1d(array)
    if array.dtype.names is None:
        return array
    clean = np.zeros(array.shape, array.dtype)
    for name in array.dtype.names:
        clean[name] = array[name]
    return clean.view(np.uint64).reshape(len(array), array.dtype.itemsize // 8)


def _like(plain: NDArray[Any], array: Any) -> Any:
    """Return the input of :func:`_plain`, without a copy, given an array of the same kind."""
    if np.ndim(array) == 0:
        return plain[0]
    return plain if array.dtype.names is None else plain.reshape(-1).view(array.dtype)


def _same(plain: NDArray[Any], array: Any) -> bool:
    """Return whether :func:`_plain` converts ``array`` to ``plain`` exactly, so that the conversion can be reversed."""
    wanted = _plain(array)
    alike = plain.dtype == wanted.dtype and plain.shape == wanted.shape
    return bool(alike and np.array_equal(plain.reshape(-1).view(np.uint8), wanted.reshape(-1).view(np.uint8)))
