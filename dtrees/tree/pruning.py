"""Cost-complexity pruning, which removes splits that do not pay for their leaves (Breiman, Friedman, Olshen and Stone, 1984, ch. 3).

The cost of a tree is the sum of the impurities of its leaves, weighted by their shares of the weight, plus ``alpha`` for each leaf. As
``alpha`` grows from 0, the split node whose subtree costs least to remove, for each leaf removed (the *weakest link*), becomes a leaf,
then the next. Among equals, the first in preorder is pruned.

Everything is computed in the same order as in scikit-learn, so that both prune the same tree exactly alike. Unlike there, the weakest
link is found without a pass over all nodes: a change affects the ancestors only.

>>> import numpy as np
>>> from dtrees.tree.predict import stump
>>> tree = stump()
>>> tree.impurity[:] = [0.5, 0.25, 0.0]
>>> pruning_path(tree)
(array([0.   , 0.375]), array([0.125, 0.5  ]))
>>> pruned(tree, kept_nodes(tree.children_left, tree.children_right, cost(tree), alpha=0.4)).node_count
1
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inner_kernel, kernel, plain
from dtrees.tree.tree import Tree

#: The values of a new leaf in the arrays of a tree; in other arrays it has those of the node.
_OF_LEAVES: dict[str, Any] = {
    "children_left": -1, "children_right": -1, "feature": -2, "threshold": -2.0, "missing_go_to_left": False, "gain": 0.0,
}  # fmt: skip


def cost(tree: Tree) -> NDArray[np.float64]:
    """Return the impurity of each node times its share of the weight, shape (node_count,)."""
    weight = tree.weighted_n_node_samples
    return weight * tree.impurity / weight[0]


def pruning_path(tree: Tree) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values of ``alpha`` at which splits are removed, with 0 in front, and the cost of all leaves after each."""
    _, alphas, costs = _prune(plain(tree.children_left), plain(tree.children_right), cost(tree), np.inf)
    return alphas, costs


def kept_nodes(left: NDArray[np.int32], right: NDArray[np.int32], costs: NDArray[np.float64], alpha: float) -> NDArray[np.bool_]:
    """Return which nodes, in preorder, remain after pruning with ``alpha``, shape (node_count,)."""
    kept: NDArray[np.bool_] = _prune(plain(left), plain(right), costs, alpha)[0]
    return kept


def pruned(tree: Tree, kept: NDArray[np.bool_]) -> Tree:
    """Return the tree of the kept nodes, whose children are kept in pairs; new leaves have the values of the nodes."""
    if kept.all():
        return tree
    number = np.cumsum(kept, dtype=np.int32) - np.int32(1)
    left = tree.children_left[kept]
    inner = (left >= 0) & kept[left]
    arrays = {}
    for name in Tree.ARRAYS:
        array = getattr(tree, name)[kept]
        if name in ("children_left", "children_right"):
            array[inner] = number[array[inner]]
        if name in _OF_LEAVES:
            array[~inner] = _OF_LEAVES[name]
        arrays[name] = array
    return Tree(**arrays, categories=tree.categories.take(np.where(inner, np.flatnonzero(kept), -1)))


def nodes_above(kept: NDArray[np.bool_], leaves: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for leaves of a tree, the nodes that replace them when only some nodes are kept.

    In preorder that is the last kept node up to the leaf: the nodes between were its descendants.
    """
    return np.maximum.accumulate(np.where(kept, np.arange(kept.shape[0]), -1))[leaves]


@kernel
def _prune(left, right, costs, alpha):  # type: ignore[no-untyped-def]
    """Return which nodes are kept, the alphas at which splits are removed, up to the given one, and the cost of all leaves at each."""
    n = left.shape[0]
    parent, n_leaves, below = _add_up_leaves(left, right, costs)
    links, size = _make_links(left, costs, below, n_leaves)
    kept = np.ones(n, np.bool_)
    stack = np.empty(n, np.int64)
    alphas, totals = np.empty(n // 2 + 1), np.empty(n // 2 + 1)
    alphas[0], totals[0] = 0.0, below[0]
    n_pruned = 0
    while n_leaves[0] > 1:
        node = _weakest(links, size)
        effective = links[size + node]
        if alpha < effective or effective == np.inf:
            break
        _take_away_below(left, right, node, kept, links, size, stack)
        n_gone = n_leaves[node] - 1
        n_leaves[node] = 0
        change = costs[node] - below[node]
        below[node] = costs[node]
        at = parent[node]
        while at >= 0:
            n_leaves[at] -= n_gone
            below[at] += change
            _set_link(links, size, at, _link(costs[at], below[at], n_leaves[at]))
            at = parent[at]
        n_pruned += 1
        alphas[n_pruned], totals[n_pruned] = effective, below[0]
    return kept, alphas[: n_pruned + 1], totals[: n_pruned + 1]


@inner_kernel
def _add_up_leaves(left, right, costs):  # type: ignore[no-untyped-def]
    """Return the parent of each node, the number of leaves below it, 0 for a leaf, and their cost."""
    n = left.shape[0]
    parent = np.full(n, -1, np.int64)
    n_leaves = np.zeros(n, np.int64)
    below = np.zeros(n)
    for i in range(n):
        if left[i] >= 0:
            parent[left[i]] = parent[right[i]] = i
    for i in range(n):
        if left[i] < 0:
            below[i] = costs[i]
            at = parent[i]
            while at >= 0:
                below[at] += costs[i]
                n_leaves[at] += 1
                at = parent[at]
    return parent, n_leaves, below


@inner_kernel
def _take_away_below(left, right, node, kept, links, size, stack):  # type: ignore[no-untyped-def]
    """Make a node a leaf: its descendants are removed, and none of these nodes is a link any more."""
    _set_link(links, size, node, np.inf)
    stack[0], stack[1] = left[node], right[node]
    n_stack = 2
    while n_stack > 0:
        n_stack -= 1
        i = stack[n_stack]
        if kept[i]:
            kept[i] = False
            if left[i] >= 0:
                _set_link(links, size, i, np.inf)
                stack[n_stack], stack[n_stack + 1] = left[i], right[i]
                n_stack += 2


@inner_kernel
def _link(cost, below, n_leaves):  # type: ignore[no-untyped-def]
    """Return the cost of removing a subtree, for each leaf removed; infinite if costs are NaN."""
    link = (cost - below) / (n_leaves - 1)
    return link if link == link else np.inf


@inner_kernel
def _make_links(left, costs, below, n_leaves):  # type: ignore[no-untyped-def]
    """Return the links of all splits as the last level of a binary tree of minima, and the size of that level."""
    n = left.shape[0]
    size = 1
    while size < n:
        size *= 2
    links = np.full(2 * size, np.inf)
    for i in range(n):
        if left[i] >= 0:
            links[size + i] = _link(costs[i], below[i], n_leaves[i])
    for i in range(size - 1, 0, -1):
        links[i] = min(links[2 * i], links[2 * i + 1])
    return links, size


@inner_kernel
def _set_link(links, size, node, value):  # type: ignore[no-untyped-def]
    i = size + node
    links[i] = value
    while i > 1:
        i //= 2
        links[i] = min(links[2 * i], links[2 * i + 1])


@inner_kernel
def _weakest(links, size):  # type: ignore[no-untyped-def]
    """Return the first node with the least link."""
    i = 1
    while i < size:
        i *= 2
        if links[i] > links[i + 1]:
            i += 1
    return i - size
