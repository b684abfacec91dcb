"""The grower alone: no shards, no rows, only decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtrees.engine.coordinator.grower import Grower, merge
from dtrees.engine.protocol.messages import Divided, Root
from dtrees.engine.protocol.splits import Splits
from dtrees.split.grow.best_first import prune
from dtrees.split.node.candidate import CONSTANT, NO_SPLIT, SPLIT, Candidates, empty_candidates
from dtrees.split.node.records import Nodes, empty_nodes
from tests.engine.shards import rules

N = 1000


def make(n_columns: int = 1, subtree_rows: int = 0, **changes: Any) -> Grower:
    """A grower of a tree with 1000 rows, 100 of them out of sample."""
    some = rules("squared_error", n_columns, **changes)
    return Grower(some, 0, n_columns, Root(N - 100, N, np.array([0, N - 100]), (0, 0), 0, None), subtree_rows)


def found(*splits: tuple[int, float, int, int] | None) -> Candidates:
    """Candidates (column, gain, rows left, rows of the node), None for no split."""
    out = empty_candidates(len(splits), 2)
    for i, split in enumerate(splits):
        out.records["status"][i] = NO_SPLIT
        if split is not None:
            column, gain, n_left, _ = split
            out.records["status"][i], out.records["column"][i], out.records["gain"][i] = SPLIT, column, gain
            out.records["threshold"][i], out.records["n_left"][i] = gain + 0.5, n_left
            out.left[i] = 7, n_left
    return out


def divided(grower: Grower, splits: Splits, starts: dict[int, tuple[int, int, int]]) -> None:
    """Say where rows lie: nobody out of sample goes left; keeps ``starts`` (start, in_stop, stop of each node)."""
    in_stops, stops = [], []
    for node, left, n_left in zip(splits.node.tolist(), splits.left.tolist(), splits.n_left.tolist(), strict=True):
        start, in_stop, stop = starts[node]
        in_stops.append(start + n_left)
        stops.append(start + n_left)
        starts[left] = (start, start + n_left, start + n_left)
        starts[left + 1] = (start + n_left, in_stop, stop)
    grower.divide(splits, Divided(np.array(in_stops), np.array(stops), None))


def shape(nodes: Nodes) -> list[tuple[int, int, int]]:
    return nodes.records[["left", "right", "column"]].tolist()


def places(nodes: Nodes) -> list[tuple[int, int, int]]:
    return nodes.records[["start", "in_stop", "stop"]].tolist()


def test_level_by_level() -> None:
    grower, starts = make(), {0: (0, 900, 1000)}
    assert grower.to_search.tolist() == [0]
    assert grower.accept(grower.to_search, found((3, 9.0, 600, 900))).shape == (0,)
    splits = grower.choose()
    assert (splits.node.tolist(), splits.left.tolist(), splits.column.tolist(), splits.n_left.tolist()) == ([0], [1], [3], [600])
    assert grower.to_search.tolist() == [1, 2]
    divided(grower, splits, starts)
    # The smaller gain is split just as well, both at once.
    grower.accept(grower.to_search, found((1, 0.5, 1, 600), (2, 4.0, 100, 300)))
    splits = grower.choose()
    assert (splits.node.tolist(), splits.left.tolist(), splits.left_sums.tolist()) == ([1, 2], [3, 5], [[7, 1], [7, 100]])
    assert grower.to_search.tolist() == [4, 5, 6]  # node 3 has one row
    divided(grower, splits, starts)
    grower.accept(grower.to_search, found(None, None, None))
    assert grower.choose() is None
    nodes = grower.arrange()
    assert shape(nodes) == [(1, 4, 3), (2, 3, 1), (-1, -1, -1), (-1, -1, -1), (5, 6, 2), (-1, -1, -1), (-1, -1, -1)]
    assert places(nodes) == [(0, 900, 1000), (0, 600, 600), (0, 1, 1), (1, 600, 600), (600, 900, 1000), (600, 700, 700), (700, 900, 1000)]
    assert nodes.sums.tolist() == [[0, 900], [7, 600], [7, 1], [0, 599], [-7, 300], [7, 100], [-14, 200]]
    assert nodes.records["gain"].tolist() == [9.0, 0.5, 0.0, 0.0, 4.0, 0.0, 0.0]
    assert nodes.records["threshold"][[0, 1, 4]].tolist() == [9.5, 1.0, 4.5]


def test_best_first_leaves_out_what_cannot_be_among_the_largest() -> None:
    """Of the gains 5, 2, 2, 1, 8 (below the first 2), 1 and 1 of nodes that have a split, four can be split: those of 2 at least."""
    grower, starts = make(max_leaf_nodes=5), {0: (0, 900, 1000)}
    script = {0: (0, 5.0, 400, 900), 1: (1, 2.0, 100, 400), 2: (2, 2.0, 200, 500), 3: (3, 1.0, 50, 100), 4: (4, 8.0, 50, 300)}
    script |= {5: (5, 1.0, 50, 200), 6: (6, 1.0, 50, 300)}
    order = []
    while True:
        grower.accept(grower.to_search, found(*(script.get(node) for node in grower.to_search.tolist())))
        splits = grower.choose()
        if splits is None:
            break
        order.append(splits.node.tolist())
        divided(grower, splits, starts)
    assert order == [[0], [1, 2], [4]]
    pruned, merged = prune(grower.arrange(), 5)
    assert pruned.records["column"].tolist() == [0, 1, -1, 4, -1, -1, 2, -1, -1]
    assert merged.start.shape == (0,)


def test_best_first_goes_on_below_nodes_that_are_grown_elsewhere() -> None:
    grower, starts = make(max_leaf_nodes=3, subtree_rows=500), {0: (0, 900, 1000)}
    grower.accept(grower.to_search, found((0, 5.0, 400, 900)))
    divided(grower, grower.choose(), starts)
    nodes, first = np.array(grower.to_grow), grower.first_splits()
    origin = grower.origin_of(nodes)
    assert (nodes.tolist(), origin.tolist(), first.tolist()) == ([1, 2], [(0, 0, 0.0), (0, 1, 0.0)], [(0, 5.0, -1, 0, 0.0, -np.inf)])


@pytest.mark.parametrize("changes", [{"max_depth": 0}, {"min_samples_split": 901}, {"min_samples_leaf": 451}, {"min_child_weight": 451.0}])
def test_a_root_that_may_not_be_split(changes: dict[str, Any]) -> None:
    grower = make(**changes)
    assert grower.to_search.shape == (0,)
    assert grower.choose() is None
    assert shape(grower.arrange()) == [(-1, -1, -1)]
    assert places(grower.arrange()) == [(0, 900, 1000)]


def test_depth_is_limited_in_all_parts() -> None:
    grower, starts = make(max_depth=2), {0: (0, 900, 1000)}
    for n_nodes in (1, 2):
        assert grower.to_search.shape == (n_nodes,)
        grower.accept(grower.to_search, found(*[(0, 1.0, 300 // n_nodes, 0)] * n_nodes))
        divided(grower, grower.choose(), starts)
    assert grower.to_search.shape == (0,)


def test_constant_nodes_ask_for_their_remaining_columns() -> None:
    grower = make(n_columns=5, max_features=2)
    candidates = empty_candidates(1, 2)
    assert candidates.records["status"].tolist() == [CONSTANT]
    assert (grower.n_drawn, grower.accept(grower.to_search, candidates).tolist()) == (2, [0])
    assert grower.accept(grower.to_search, found(None)).tolist() == []
    assert make(n_columns=5).accept(np.zeros(1, int), candidates).tolist() == []


def leaf_pair(start: int, middle: int, stop: int) -> Nodes:
    """A subtree of one split."""
    nodes = empty_nodes(3, 2)
    nodes.records["left"], nodes.records["right"], nodes.records["column"] = [1, -1, -1], [2, -1, -1], [8, -1, -1]
    nodes.records["start"], nodes.records["in_stop"] = [start, start, middle], [stop, middle, stop]
    nodes.records["stop"] = nodes.records["in_stop"]
    nodes.sums[:] = 1
    return nodes


def test_small_nodes_are_grown_elsewhere() -> None:
    grower, starts = make(subtree_rows=300), {0: (0, 900, 1000)}
    grower.accept(grower.to_search, found((3, 9.0, 600, 900)))
    splits = grower.choose()
    assert (grower.to_search.tolist(), grower.to_grow) == ([1], [2])
    divided(grower, splits, starts)
    grower.accept(grower.to_search, found((1, 1.0, 200, 600)))
    divided(grower, grower.choose(), starts)
    assert (grower.to_search.tolist(), grower.to_grow) == ([4], [2, 3])
    grower.accept(grower.to_search, found(None))
    assert grower.choose() is None
    grower.attach([2, 3], [leaf_pair(600, 650, 900), leaf_pair(0, 10, 200)])
    nodes = grower.arrange()
    assert nodes.records["column"].tolist() == [3, 1, 8, -1, -1, -1, 8, -1, -1]
    assert shape(nodes)[0] == (1, 6, 3)
    assert places(nodes)[2:5] == [(0, 200, 200), (0, 10, 10), (10, 200, 200)]
    assert places(nodes)[6] == (600, 900, 900)


def test_a_whole_tree_grown_elsewhere() -> None:
    grower = make(subtree_rows=N)
    assert (grower.to_search.tolist(), grower.to_grow) == ([], [0])
    assert grower.choose() is None
    grower.attach([0], [leaf_pair(0, 10, 900)])
    assert shape(grower.arrange()) == [(1, 2, 8), (-1, -1, -1), (-1, -1, -1)]
    assert make(subtree_rows=N, max_leaf_nodes=3).to_grow == [0]


def test_many_nodes() -> None:
    """The room for nodes grows."""
    grower, starts = make(), {0: (0, 900, 1000)}
    for _ in range(200):  # one row less at a time
        searched = grower.to_search
        grower.accept(searched, found(*[(0, 1.0, 1, 0)] * searched.shape[0]))
        divided(grower, grower.choose(), starts)
    nodes = grower.arrange()
    assert nodes.records["left"].tolist() == [k for i in range(200) for k in (2 * i + 1, -1)] + [-1]
    assert nodes.records["right"].tolist() == [k for i in range(200) for k in (2 * i + 2, -1)] + [-1]
    assert nodes.sums[:, 1].tolist() == [k for i in range(200) for k in (900 - i, 1)] + [700]


def test_merge() -> None:
    """The best of all shards; where columns are searched one after the other, the earliest that varies."""

    def candidates(*rows: tuple[int, int, float]) -> Candidates:
        out = empty_candidates(len(rows), 2)
        for i, (status, column, score) in enumerate(rows):
            out.records["status"][i], out.records["column"][i], out.records["score"][i] = status, column, score
        return out

    one = candidates((SPLIT, 4, 2.0), (SPLIT, 4, 2.0), (CONSTANT, -1, 0.0), (NO_SPLIT, 1, 0.0), (SPLIT, 0, 9.0))
    two = candidates((SPLIT, 3, 2.0), (SPLIT, 5, 2.5), (SPLIT, 2, 0.0), (CONSTANT, -1, 0.0), (SPLIT, 1, 1.0))
    together = [np.zeros(5, int)] * 2
    for pair in ([one, two], [two, one]):
        assert merge(pair, together).records["column"].tolist() == [3, 5, 2, 1, 0]
        assert merge(pair, together).records["status"].tolist() == [SPLIT, SPLIT, SPLIT, NO_SPLIT, SPLIT]
    late = [np.array([2, 3, 9, 2, 5]), np.array([3, 2, 4, 9, 4])]
    assert merge([one, two], late).records["column"].tolist() == [4, 5, 2, 1, 1]
    assert merge([one], together[:1]) is one
