"""Subtrees are the same after they were packed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dtrees.engine.protocol.packed_nodes import PackedNodes
from dtrees.split.node.records import Nodes, empty_nodes


def random_subtree(rng: np.random.Generator, n_sums: int, start: int, outside: bool) -> Nodes:
    """Nodes in preorder, each known by its own rows."""
    rows: list[tuple[int, int, int, bool, float, float, int, int, int]] = []
    sums: list[list[int]] = []

    def grow(start: int, depth: int) -> tuple[int, int, int]:
        node = len(rows)
        rows.append((0.0, 0.0, -1, -1, -1, 0, 0, 0, False))
        sums.append([])
        if depth == 0 or rng.random() < 0.3:
            n_in, n_out = int(rng.integers(1, 9)), int(rng.integers(0, 4)) if outside else 0
            rows[node] = (0.0, 0.0, -1, -1, -1, start, start + n_in, start + n_in + n_out, False)
            sums[node] = rng.integers(-(2**60), 2**60, n_sums).tolist()
            return node, n_in, start + n_in + n_out
        left, left_in, middle = grow(start, depth - 1)
        right, right_in, stop = grow(middle, depth - 1)
        column, missing_left = int(rng.integers(0, 100)), bool(rng.random() < 0.5)
        places = start, start + left_in + right_in, stop
        rows[node] = (float(rng.normal()), float(rng.random()), left, right, column, *places, missing_left)
        sums[node] = [int(a) + int(b) for a, b in zip(sums[left], sums[right], strict=True)]
        return node, left_in + right_in, stop

    grow(start, 6)
    nodes = empty_nodes(len(rows), n_sums)
    nodes.records[:] = np.array(rows, nodes.records.dtype)
    nodes.sums[:] = np.array(sums, dtype=object).astype(np.int64)
    return nodes


def subtrees() -> Iterator[Nodes]:
    rng = np.random.default_rng(0)
    for k in range(60):
        yield random_subtree(rng, n_sums=2 + k % 3, start=1000 * (k % 2), outside=k % 4 < 2)


def test_nodes_are_the_same() -> None:
    sizes = set()
    for nodes in subtrees():
        found = PackedNodes.of(nodes).unpacked()
        sizes.add(nodes.records.shape[0])
        for name in nodes.records.dtype.names or ():
            np.testing.assert_array_equal(found.records[name], nodes.records[name], err_msg=name)
        np.testing.assert_array_equal(found.sums, nodes.sums)
    assert 1 in sizes
    assert max(sizes) > 20


@pytest.mark.parametrize("outside", [False, True])
def test_two_fifths_of_the_bytes(outside: bool) -> None:
    nodes = random_subtree(np.random.default_rng(0), 2, 0, outside)
    packed = PackedNodes.of(nodes)
    size = sum(field.nbytes for field in packed if isinstance(field, np.ndarray))
    assert size < (nodes.records.nbytes + nodes.sums.nbytes) * 0.44
