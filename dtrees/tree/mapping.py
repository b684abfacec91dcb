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

from dtrees.tree.packing import Packed, columns_of, pack
from dtrees.tree.predict_sets import PackedWithSets, pack_with_sets
from dtrees.tree.tree import Tree

#: Fields of packed trees with sets of categories in files of an earlier version; they are packed again.
_FIELDS_BEFORE = {*PackedWithSets._fields, "first_code"} - {"n_words", "n_codes", "stride", "table_of", "first_entry"}
#: Fields with an entry for each tree.
_OF_TREES = ("top_slot", "top_threshold", "top_end", "shallow")


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
    with_sets = any(tree.categories.node.shape[0] for tree in trees)
    kind: type[Packed | PackedWithSets] = PackedWithSets if with_sets else Packed
    if with_sets and arrays.keys() == _FIELDS_BEFORE:
        return pack_with_sets(trees)
    if arrays.keys() != set(kind._fields):
        raise ValueError("the model does not hold its trees as prediction wants them")
    if with_sets:
        made: Packed | PackedWithSets = pack_with_sets(trees)
        same = all(_same(arrays[name], array) for name, array in made._asdict().items())
    else:
        made = pack(trees[:1])
        same = _are_packed(trees, arrays)
    if not same:
        raise ValueError("the model holds its trees twice, as such and as prediction wants them, and these differ")
    return kind(**{name: _like(arrays[name], array) for name, array in made._asdict().items()})


def _are_packed(trees: Sequence[Tree], arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether arrays equal the packed trees exactly; at most one tree at a time is packed for comparison."""
    used = columns_of(trees)
    sizes = np.array([tree.node_count for tree in trees])
    roots, leaves = (np.concatenate([[0], np.cumsum(counts)]).astype(np.int64) for counts in (sizes, (sizes + 1) // 2))
    lengths = {"nodes": roots[-1], "value": leaves[-1], "number": leaves[-1], **dict.fromkeys(_OF_TREES, len(trees))}
    if any(arrays[name].shape[:1] != (length,) for name, length in lengths.items()):
        return False
    if not _same(arrays["roots"], roots) or not _same(arrays["leaves"], leaves):
        return False
    for t, tree in enumerate(trees):
        one = pack([tree], used=used)
        node, leaf = slice(roots[t], roots[t + 1]), slice(leaves[t], leaves[t + 1])
        chunks = {"nodes": node, "value": leaf, "number": leaf, **dict.fromkeys(_OF_TREES, slice(t, t + 1))}
        chunks |= {"feature": slice(None), "bits": slice(None)}
        for name, chunk in chunks.items():
            if not _same(arrays[name][chunk], getattr(one, name)):
                return False
    return True


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
    return bool(plain.dtype == wanted.dtype and plain.shape == wanted.shape and plain.tobytes() == wanted.tobytes())
