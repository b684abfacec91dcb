"""Convert a model to a JAX function: all rows of a block walk down one tree after the other, at the same time.

The first levels of a tree are stored as a complete tree, all of whose nodes are evaluated, by vector instructions and without look-ups.
Below them, rows look up node after node. The nodes of all trees are in shared arrays, in preorder, so that a left child is the next
node. A leaf sends every row to itself: rows that have arrived stay until all have. In deep trees they stay until most have, and the
other rows continue separately.

Terms
-----
slot
    a column as nodes read it: with missing values, which no threshold is above, or with -inf in their place, which goes left.
end
    a node that the first levels of a tree lead to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.interop.description import PlainModel, describe
from dtrees.interop.rounding import thresholds_for
from dtrees.split.numbers.ordered import rounded_down
from dtrees.tree.packing import node_record, pack_nodes
from dtrees.tree.tree import Tree
from dtrees.version import needed

#: Rows of a block, and complete levels. Seconds of CPU for 100,000 rows and 100 trees of depth 6, which dtrees' own kernels predict in
#: 0.05: 0.16 without complete levels, 0.12 with 3, 0.10 with 4, and 0.15 with blocks of 4,096.
_BLOCK, _TOP = 1024, 4
#: In trees of at least this depth all rows of a block walk until only a share of them has not arrived; these continue in blocks of that
#: share. Seconds on one core for 100,000 rows and 20 trees of 25,000 nodes, with leaves at depths of up to 51, which dtrees' own kernels
#: predict in 0.13: 0.38 if all rows walk until the last has arrived, 0.34 with a share of an eighth, 0.33 with a fourth, 0.37 to 0.39
#: with blocks of 2,048 or 8,192.
_DEEP, _DEEP_BLOCK, _DEEP_SHARE = 12, 4096, 4
_BITS = 32


class _Nodes(NamedTuple):
    """The arrays of a model for a JAX function, as NumPy arrays.

    ``column`` and ``missing_left`` have an entry for each slot; ``slot``, ``threshold``, ``right``, ``value`` and ``first_word`` (-1
    without a set; None if there are no sets) for each node; ``top_slot``, ``top_threshold``, ``end``, ``output`` and ``depth`` for each
    tree; ``n_categories`` (0 for numeric columns) for each column.
    """

    column: Any
    missing_left: Any
    slot: Any
    threshold: Any
    right: Any
    value: Any
    first_word: Any
    words: Any
    top_slot: Any
    top_threshold: Any
    end: Any
    output: Any
    depth: Any
    initial: Any
    n_categories: Any


def to_jax(model: Any, *, X: Any = None) -> Callable[[Any], Any]:
    """Return a pure JAX function with the predictions of a model.

    It takes the table as numbers (:func:`to_numbers`), in which NaN is a missing value, of shape (n, n_features_in_), or a single row. It
    returns values of shape (n,), or (n, n_outputs_) for multi-output models; for a classifier, probabilities of shape (n, n_classes_). It
    can be compiled (``jax.jit``), mapped (``jax.vmap``), and used inside larger functions.

    After ``jax.config.update("jax_enable_x64", True)``, JAX computes in float64, and the results equal ``predict`` and ``predict_proba`` to
    the last digit or the one before. Otherwise JAX casts all values to float32: results are exact to about six digits, and values may be
    rounded across a threshold very close to them. If you pass rows as ``X``, thresholds are moved so that this cannot happen to these rows.

    Parameters
    ----------
    model : estimator
        A fitted estimator of dtrees.
    X : array-like or frame of shape (n, n_features_in_) or None, default=None
        Rows whose predictions must not change by rounding to float32.

    Returns
    -------
    callable
        ``function(table) -> array``.

    Raises
    ------
    TypeError
        If ``model`` is not an estimator of dtrees.
    ValueError
        If the model starts from an estimator or from ``base_margin``, or different values of X are equal as float32.
    ImportError
        If JAX is not installed.

    Examples
    --------
    >>> from dtrees import DecisionTreeRegressor, to_jax
    >>> tree = DecisionTreeRegressor().fit([[1.0], [2.0]], [5.0, 9.0])
    >>> to_jax(tree)([[1.2], [1.7]])  # doctest: +SKIP
    Array([5., 9.], dtype=float32)
    """
    plain = describe(model, "JAX")
    jax = needed("jax", "jax")
    thresholds = thresholds_for(plain, model, X, "float32")
    wide = _arrays(plain, [tree.threshold for _, tree in plain.trees()])
    moved = wide if X is None else _arrays(plain, [thresholds(tree) for _, tree in plain.trees()])
    narrow = wide._replace(threshold=rounded_down(moved.threshold), top_threshold=rounded_down(moved.top_threshold))
    link = _link(plain)
    walk = jax.jit(_walk, static_argnames="deep")
    deep = max(tree.max_depth for _, tree in plain.trees()) > _DEEP

    def predict(table: Any) -> Any:
        rows = jax.numpy.asarray(table)
        if rows.ndim not in (1, 2) or rows.shape[-1] != plain.n_features:
            raise ValueError(f"the table has the shape {rows.shape}; wants (n, {plain.n_features}), or ({plain.n_features},) for a row")
        if rows.dtype != np.float32:
            rows = rows.astype(np.float64 if jax.config.jax_enable_x64 else np.float32)
        raw = walk(narrow if rows.dtype == np.float32 else wide, rows.reshape(-1, plain.n_features), deep=deep)
        predicted = link(raw / plain.divisor if plain.divisor > 1 else raw)
        return predicted if rows.ndim == 2 else predicted[0]

    return predict


def _arrays(plain: PlainModel, thresholds: list[NDArray[np.float64]]) -> _Nodes:
    """Return the arrays of a model, given the thresholds of each tree."""
    outputs, trees = zip(*plain.trees(), strict=True)
    roots, nodes, words = pack_nodes(trees, node_record())
    if roots[-1] >= 2**31:
        raise ValueError(f"the model has {roots[-1]} nodes; JAX counts with 32 bits, so wants fewer than 2**31")
    leaf, right = nodes["feature"] < 0, nodes["right"] + np.repeat(roots[:-1], np.diff(roots))
    used, slot = np.unique(np.where(leaf, 0, 2 * nodes["feature"] + nodes["missing_left"]), return_inverse=True)
    slot = slot.astype(np.int32)
    threshold = np.where(leaf, np.nan, np.concatenate(thresholds))  # nothing goes left at a leaf
    n_categories = np.array([max(1, len(column.categories)) if column.kind == CATEGORICAL else 0 for column in plain.schema.columns])
    first_word, words = _sets(nodes, words, n_categories)
    n_top = 0 if first_word is not None else _TOP
    top, end = _first_levels(roots[:-1], leaf, right, n_top)
    return _Nodes(
        column=used // 2,
        missing_left=used % 2 == 1,
        slot=slot,
        threshold=threshold,
        right=np.where(leaf, np.arange(len(leaf)), right).astype(np.int32),
        value=np.concatenate([tree.value for tree in trees]),
        first_word=first_word,
        words=words,
        top_slot=slot[top],
        top_threshold=np.where(leaf[top], np.inf, threshold[top]),
        end=end.astype(np.int32),
        output=np.array(outputs, np.int32) if plain.by_groups else np.zeros(len(trees), np.int32),
        depth=np.array([max(0, _common_depth(tree) - n_top) for tree in trees], np.int32),
        initial=plain.initial,
        n_categories=n_categories if first_word is not None else None,
    )


def _common_depth(tree: Tree) -> int:
    """Return the depth of a tree or, if it is very deep, the depth of the leaves of nearly all its training rows."""
    if tree.max_depth <= _DEEP:
        return tree.max_depth
    leaf = tree.feature < 0
    rows = np.cumsum(np.bincount(tree.node_depth[leaf], weights=tree.weighted_n_node_samples[leaf]))
    return int(np.searchsorted(rows, (1 - 1 / _DEEP_SHARE) * rows[-1]))


def _first_levels(
    root: NDArray[np.int64], leaf: NDArray[np.bool_], right: NDArray[np.int64], n_levels: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the nodes of the first levels of trees, level by level, and their ends; below a leaf, the leaf is repeated."""
    level = root[:, np.newaxis]
    above = [np.empty((len(root), 0), np.int64)]
    for _ in range(n_levels):
        above.append(level)
        low, high = np.where(leaf[level], level, level + 1), np.where(leaf[level], level, right[level])
        level = np.stack([low, high], axis=2).reshape(len(root), -1)
    return np.concatenate(above, axis=1), level


def _sets(nodes: NDArray[Any], words: NDArray[np.uint32], n_categories: NDArray[np.int64]) -> tuple[Any, NDArray[np.uint32]]:
    """Return the start of each node's set, and the words of all sets: as many for each set as its column has categories."""
    found = np.flatnonzero(nodes["first_word"] >= 0)
    if not found.size:
        return None, words
    sizes = -(-n_categories[nodes["feature"][found]] // _BITS)
    starts = np.cumsum(sizes) - sizes
    first_word, padded = np.full(len(nodes), -1, np.int32), np.zeros(sizes.sum(), np.uint32)
    first_word[found] = starts
    padded[np.repeat(starts - nodes["first_word"][found], nodes["n_words"][found]) + np.arange(len(words))] = words
    return first_word, padded


def _walk(nodes: _Nodes, rows: Any, *, deep: bool) -> Any:
    """Return raw predictions, shape (n, n_outputs), of rows of shape (n, n_features)."""
    from jax import lax
    from jax import numpy as jnp

    n, n_features = rows.shape
    n_values = nodes.value.shape[1]
    n_groups = nodes.initial.shape[0] // n_values
    n_ends = nodes.end.shape[1]
    block = max(1, min(n, _DEEP_BLOCK if deep else _BLOCK))
    few = max(1, block // _DEEP_SHARE)

    def take(array: Any, place: Any) -> Any:
        return array.at[place].get(mode="promise_in_bounds", wrap_negative_indices=False)

    def of_block(some: Any) -> Any:
        if nodes.n_categories is not None:
            # Values that are not categories go where missing values go.
            foreign = (nodes.n_categories > 0) & ~((some >= 0) & (some < nodes.n_categories))
            some = jnp.where(foreign, jnp.nan, some)
        slots = some.T[nodes.column]
        slots = jnp.where(nodes.missing_left[:, None] & jnp.isnan(slots), -jnp.inf, slots)
        flat, base = slots.ravel(), jnp.arange(block, dtype=jnp.int32)

        def goes_left(at: Any, row: Any) -> Any:
            x = take(flat, take(nodes.slot, at) * block + row)
            left = x <= take(nodes.threshold, at)
            if nodes.first_word is None:
                return left
            first = take(nodes.first_word, at)
            number = jnp.where((first >= 0) & (x >= 0), x, 0.0).astype(jnp.int32)
            word = take(nodes.words, jnp.maximum(first, 0) + number // _BITS)
            in_set = (word >> (number % _BITS).astype(jnp.uint32)) & 1 == 1
            return jnp.where(first >= 0, ((x >= 0) & in_set) | (x == -jnp.inf), left)

        def step(at: Any, row: Any = base) -> Any:
            return jnp.where(goes_left(at, row), at + 1, take(nodes.right, at))

        def walk_on(state: Any) -> Any:
            """Move some of the rows that have not reached their leaves."""
            at, walking = state
            row = jnp.nonzero(walking, size=few, fill_value=block)[0].astype(jnp.int32)
            there = jnp.minimum(row, block - 1)  # beyond the last of them, any row will do
            way = lax.while_loop(lambda way: way[1], lambda way: _moved(way[0], step(way[0], there)), (take(at, there), True))[0]
            return at.at[row].set(way, mode="drop"), walking.at[row].set(False, mode="drop")

        def ends(top_slot: Any, top_threshold: Any) -> Any:
            def below(node: int) -> Any:
                """Return the end that rows reach from a node of the first levels."""
                if node >= n_ends - 1:
                    return jnp.int32(node - (n_ends - 1))
                x = lax.dynamic_index_in_dim(slots, top_slot[node], 0, keepdims=False)
                return jnp.where(x <= top_threshold[node], below(2 * node + 1), below(2 * node + 2))

            return jnp.broadcast_to(below(0), (block,))

        def turn(total: Any, tree: Any) -> Any:
            top_slot, top_threshold, end, output, depth = tree
            at = take(end, ends(top_slot, top_threshold))
            at = lax.fori_loop(0, depth, lambda _, at: step(at), at)
            if deep:
                at = lax.while_loop(lambda state: state[1].any(), walk_on, (at, take(nodes.right, at) != at))[0]
            return total.at[output].add(take(nodes.value, at)), None

        trees = (nodes.top_slot, nodes.top_threshold, nodes.end, nodes.output, nodes.depth)
        return lax.scan(turn, jnp.zeros((n_groups, block, n_values), nodes.value.dtype), trees)[0]

    padded = jnp.pad(rows, ((0, -n % block), (0, 0))).reshape(-(-n // block), block, n_features)
    total = jnp.moveaxis(lax.map(of_block, padded), 1, 2)  # blocks, rows, groups, values
    return total.reshape(-1, n_groups * n_values)[:n] + nodes.initial


def _moved(before: Any, after: Any) -> Any:
    """Return the new positions of rows, and whether any has moved."""
    return after, (after != before).any()


def _link(plain: PlainModel) -> Callable[[Any], Any]:
    """Return the function from raw predictions, shape (n, n_outputs), to predictions."""
    from jax import nn
    from jax import numpy as jnp

    def of_values(raw: Any) -> Any:
        values = jnp.exp(raw) if plain.link == "exponential" else raw
        return values if plain.n_outputs > 1 else values[:, 0]

    def of_shares(raw: Any) -> Any:
        if plain.link == "logistic":
            odds = plain.slope * raw[:, 0]
            return jnp.stack([nn.sigmoid(-odds), nn.sigmoid(odds)], axis=1)
        return nn.softmax(raw, axis=1) if plain.link == "softmax" else raw

    return of_values if plain.classes is None else of_shares
