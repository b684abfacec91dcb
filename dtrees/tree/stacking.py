"""Trees of a model as a few arrays, for files: small, and checked when they are read.

There are two layouts. Small models concatenate the arrays of their trees. Larger ones store only the compact form
(:mod:`dtrees.tree.compact`), a third of the bytes; files of earlier versions always have the first layout. Names begin with ``trees.``,
and ``trees.node_counts`` gives the number of nodes of each tree.

Files may be damaged or malicious, so everything that kernels rely on is checked here: kernels do not check bounds.

>>> import numpy as np
>>> stump = Tree.from_arrays(
...     children_left=[1, -1, -1], children_right=[2, -1, -1], feature=[0, -2, -2], threshold=[0.5, -2.0, -2.0],
...     missing_go_to_left=[True, False, False], impurity=[0.25, 0.0, 0.0], gain=[1.0, 0.0, 0.0],
...     n_node_samples=[4, 2, 2], weighted_n_node_samples=[4.0, 2.0, 2.0], value=[[0.5], [0.0], [1.0]])
>>> for n_trees in (2, 2000):
...     arrays = stacked([[stump] * n_trees])
...     groups = unstacked(arrays, n_groups=1, n_values=1, n_features=1)
...     arrays["trees.threshold"].shape, len(groups[0]), groups[0][-1].equals(stump)
((6,), 2, True)
((2000,), 2000, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtrees.tree.category_sets import NO_SETS, CategorySets
from dtrees.tree.tree import LARGE, Tree

if TYPE_CHECKING:
    from dtrees.tree.compact import Arrays, CompactTree

#: The possible dtypes of the arrays of the compact layout, and their lengths: one entry for each node, each inner node, or each leaf.
_KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "feature": (("int8", "int16", "int32"), "node"),
    "threshold": (("float64",), "inner node"),
    "gain": (("float64",), "inner node"),
    "missing_go_to_left": (("bool",), "inner node"),
    "impurity": (("float64",), "node"),
    "n_node_samples": (("uint8", "uint16", "uint32", "int64"), "leaf"),
    "weighted_n_node_samples": (("uint8", "uint16", "uint32", "float64"), "leaf"),
    "value": (("float64",), "node"),
}


def stacked(groups: Sequence[Sequence[Tree]], *, whole: bool = False) -> Arrays:
    """Return groups of equally many trees as named arrays; ``whole`` selects the first layout for any number of nodes."""
    trees = [tree for group in groups for tree in group]
    small = None if whole else _compact(trees)
    if small is None:
        arrays = {name: np.concatenate([getattr(tree, name) for tree in trees]) for name in Tree.ARRAYS}
    else:
        arrays = {name: np.concatenate([getattr(tree, name) for tree in small]) for name in _KINDS}
        if not all(len(tree.impurity) < len(tree.feature) for tree in small):
            arrays["impurity"] = np.concatenate([tree.impurity for tree in trees])
    if any(tree.categories.node.shape[0] for tree in trees):
        arrays |= _sets_stacked([tree.categories for tree in trees])
    arrays["node_counts"] = np.array([[tree.node_count for tree in group] for group in groups], dtype=np.int64)
    return {f"trees.{name}": array for name, array in arrays.items()}


def unstacked(arrays: Arrays, n_groups: int, n_values: int, n_features: int) -> list[list[Tree]]:
    """Return the input of :func:`stacked`.

    Raises
    ------
    ValueError
        If they are not trees with ``n_values`` values and ``n_features`` features that prediction can use.
    KeyError
        If an array is missing.
    """
    counts = arrays["trees.node_counts"]
    if counts.dtype != np.int64 or counts.ndim != 2 or counts.shape[0] != n_groups or counts.shape[1] == 0 or counts.min() < 1:
        raise ValueError(
            f"the model's node counts have dtype {counts.dtype} and shape {counts.shape}; wants {n_groups} rows of int64 above 0"
        )
    n_nodes = sum(counts.ravel().tolist())  # Python integers do not overflow
    if n_nodes != len(arrays["trees.feature"]):
        raise ValueError(f"the model's trees have {n_nodes} nodes, but the array 'feature' has {len(arrays['trees.feature'])}")
    groups = restacked(arrays)
    for group in groups:
        for tree in group:
            tree.validate(n_features, n_values)
    return groups


def restacked(arrays: Arrays) -> list[list[Tree]]:
    """Return the input of :func:`stacked` without checking nodes, for trees that do not come from a file.

    Raises
    ------
    ValueError
        If arrays do not match each other.
    KeyError
        If an array is missing.
    """
    counts = arrays["trees.node_counts"]
    is_compact = "trees.children_left" not in arrays
    found = {name: np.asarray(arrays[f"trees.{name}"]) for name in (_KINDS if is_compact else Tree.ARRAYS)}
    n_groups, per_group = counts.shape
    sets = _sets_unstacked(arrays, counts.size) if "trees.set_counts" in arrays else [NO_SETS] * counts.size
    ends = np.cumsum(counts.ravel())
    trees = _expanded(found, ends, sets) if is_compact else _cut(found, ends, sets)
    return [trees[group * per_group : (group + 1) * per_group] for group in range(n_groups)]


def _sets_stacked(sets: Sequence[CategorySets]) -> Arrays:
    """Return the sets of categories of trees as named arrays: number of sets of each tree, their nodes, numbers of words, and words."""
    return {
        "set_counts": np.array([len(of_tree.node) for of_tree in sets], np.int64),
        "set_nodes": np.concatenate([of_tree.node for of_tree in sets]),
        "set_sizes": np.concatenate([np.diff(of_tree.offset) for of_tree in sets]),
        "set_words": np.concatenate([of_tree.words for of_tree in sets]),
    }


def _sets_unstacked(arrays: Arrays, n_trees: int) -> list[CategorySets]:
    """Return the input of :func:`_sets_stacked`.

    Raises
    ------
    ValueError
        If the arrays do not match each other; the trees check whether the sets are theirs.
    KeyError
        If an array is missing.
    """
    counts, nodes, sizes, words = (arrays[f"trees.{name}"] for name in ("set_counts", "set_nodes", "set_sizes", "set_words"))
    for name, array, dtype in (
        ("set_counts", counts, np.int64), ("set_nodes", nodes, np.int32), ("set_sizes", sizes, np.int64), ("set_words", words, np.uint32),
    ):  # fmt: skip
        if array.dtype != dtype or array.ndim != 1 or (dtype == np.int64 and array.size and (array.min() < 0 or array.max() > 2**48)):
            raise ValueError(f"tree array {name!r} has dtype {array.dtype} and shape {array.shape}, or numbers out of range")
    if len(counts) != n_trees or sum(counts.tolist()) != len(nodes) or len(sizes) != len(nodes) or sum(sizes.tolist()) != len(words):
        raise ValueError("the model's sets of categories do not belong to its trees")
    ends, offsets = [0, *np.cumsum(counts).tolist()], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return [
        CategorySets(nodes[first:last], offsets[first : last + 1] - offsets[first], words[offsets[first] : offsets[last]])
        for first, last in pairwise(ends)
    ]


def _cut(found: Arrays, ends: NDArray[np.int64], sets: Sequence[CategorySets]) -> list[Tree]:
    """Return trees from concatenated arrays, given the end of each tree's nodes."""
    lengths = {name: len(array) for name, array in found.items()}
    if set(lengths.values()) != {ends[-1]}:
        raise ValueError(f"the model's arrays have lengths {lengths}, but its trees have {ends[-1]} nodes")
    trees = []
    for start, end, mine in zip([0, *ends.tolist()], ends.tolist(), sets, strict=False):
        own: dict[str, Any] = {name: found[name][start:end] for name in Tree.ARRAYS}
        trees.append(Tree(**own, categories=mine))
    return trees


def _compact(trees: Sequence[Tree]) -> list[CompactTree] | None:
    """Return the compact forms of trees; None if there are too few nodes, or a tree has no compact form."""
    if sum(tree.node_count for tree in trees) < LARGE:
        return None
    small = [made for tree in trees if (made := tree.compact()) is not None]
    return small if len(small) == len(trees) else None


def _expanded(found: Arrays, ends: NDArray[np.int64], sets: Sequence[CategorySets]) -> list[Tree]:
    """Return trees from the compact layout, given the end of each tree's nodes.

    Raises
    ------
    ValueError
        If arrays have a wrong dtype or length, or their nodes are not trees in preorder.
    """
    for name, (dtypes, _) in _KINDS.items():
        array = found[name]
        if array.dtype.name not in dtypes or array.ndim != (2 if name == "value" else 1):
            raise ValueError(
                f"tree array {name!r} has dtype {array.dtype} and shape {array.shape}; wants {' or '.join(dtypes)} in "
                f"{'two dimensions' if name == 'value' else 'one'}"
            )
    _check_preorder(found["feature"] >= 0, ends)
    of_node = ends.tolist()
    of_inner = [(end - i) // 2 for i, end in enumerate(of_node, 1)]  # a tree has one more leaf than inner nodes
    last = {"node": of_node, "inner node": of_inner, "leaf": [end - inner for end, inner in zip(of_node, of_inner, strict=True)]}
    entries = {name: each for name, (_, each) in _KINDS.items()}
    if len(found["impurity"]) != of_node[-1]:  # omitted for leaves, where it is 0
        entries["impurity"] = "inner node"
    for name, each in entries.items():
        if len(found[name]) != last[each][-1]:
            raise ValueError(f"tree array {name!r} has {len(found[name])} entries; wants {last[each][-1]}, one for each {each}")
    chunks = {name: [found[name][start:end] for start, end in pairwise([0, *last[each]])] for name, each in entries.items()}
    return [Tree.from_compact(mine, *(chunks[name][i] for name in _KINDS)) for i, mine in enumerate(sets)]


def _check_preorder(inner: NDArray[np.bool_], ends: NDArray[np.int64]) -> None:
    """Raise unless the nodes are complete trees in preorder with the given ends.

    Each node fills one open place, and each inner node opens two: in a tree there is always an open place until its last node, and none
    after it. Open places are counted across trees.
    """
    open_places = np.cumsum(np.where(inner, 1, -1)) + np.repeat(np.arange(1, len(ends) + 1), np.diff(ends, prepend=0))
    is_last = np.zeros(len(inner), np.bool_)
    is_last[ends - 1] = True
    if not np.array_equal(open_places <= 0, is_last) or np.any(open_places[is_last]):
        raise ValueError("tree nodes do not form whole trees in preorder")
