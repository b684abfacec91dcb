"""Best-first growth: which nodes are left out while a tree is grown, and which are taken away in the end."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.split.grow.best_first import in_preorder, is_hopeless, make_budget, may_be_chosen, merge_rows, prune
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import Nodes, empty_nodes
from tests.examples import examples


def wild_tree(n_splits: int, seed: int, n_gains: int) -> Nodes:
    """A tree in preorder, of stretches of 3 rows in sample and 2 out of sample a leaf; gains of few kinds, so that many tie."""
    rng = np.random.default_rng(seed)
    children: dict[int, tuple[int, int]] = {}
    leaves = [0]
    for _ in range(n_splits):
        node = leaves.pop(rng.integers(len(leaves)))
        children[node] = 2 * len(children) + 1, 2 * len(children) + 2
        leaves += children[node]
    n = 2 * n_splits + 1
    nodes = empty_nodes(n, 1)
    records = nodes.records
    records[:] = np.zeros(1, records.dtype)
    for name in ("left", "right", "column"):
        records[name] = -1
    for node, (left, right) in children.items():
        records[node]["left"], records[node]["right"], records[node]["column"] = left, right, node % 7
        records[node]["gain"], records[node]["threshold"] = rng.integers(n_gains), 0.5
    nodes.sums[:, 0] = np.arange(n)
    nodes = in_preorder(nodes)
    place = 0
    for node in range(n):
        if nodes.records[node]["column"] < 0:
            nodes.records[node]["start"], nodes.records[node]["in_stop"], nodes.records[node]["stop"] = place, place + 3, place + 5
            place += 5
    for node in range(n - 1, -1, -1):
        record = nodes.records[node]
        if record["column"] >= 0:
            left, right = nodes.records[record["left"]], nodes.records[record["right"]]
            record["start"], record["stop"] = left["start"], right["stop"]
            record["in_stop"] = record["start"] + (left["in_stop"] - left["start"]) + (right["in_stop"] - right["start"])
    return nodes


def chosen(nodes: Nodes, max_leaves: int) -> set[int]:
    """The nodes that best-first growth splits: one after the other, the older among equals first."""
    records, split = nodes.records, set()
    waiting = [(-records[0]["gain"], 0, 0)] if records[0]["column"] >= 0 else []
    n_known = 1
    while waiting and len(split) + 1 < max_leaves:
        _, _, node = heapq.heappop(waiting)
        split.add(node)
        for child in (int(records[node]["left"]), int(records[node]["right"])):
            if records[child]["column"] >= 0:
                heapq.heappush(waiting, (-records[child]["gain"], n_known, child))
            n_known += 1
    return split


@given(st.integers(0, 60), st.integers(0, 10**6), st.sampled_from([2, 5, 10**6]), st.integers(2, 70))
@examples(60)
def test_prune_repeats_the_choice_of_nodes(n_splits: int, seed: int, n_gains: int, max_leaves: int) -> None:
    nodes = wild_tree(n_splits, seed, n_gains)
    split = chosen(nodes, max_leaves)
    pruned, merged = prune(nodes, max_leaves)
    kept = [0]
    for node in range(nodes.records.shape[0]):
        if node in split:
            kept += [int(nodes.records[node]["left"]), int(nodes.records[node]["right"])]
    kept.sort()
    records = pruned.records
    assert pruned.sums[:, 0].tolist() == nodes.sums[kept, 0].tolist()
    for name in ("start", "in_stop", "stop"):
        assert records[name].tolist() == nodes.records[name][kept].tolist()
    leaves = []
    for i, node in enumerate(kept):
        if node in split:
            assert [kept[records[i][side]] for side in ("left", "right")] == [nodes.records[node][side] for side in ("left", "right")]
            assert [records[i][name] == nodes.records[node][name] for name in ("column", "gain", "threshold")]
        else:
            assert records[i].tolist()[:5] == (0.0, 0.0, -1, -1, -1)
            if nodes.records[node]["column"] >= 0:
                leaves.append(node)
    assert merged.first.shape[0] == len(leaves) + 1
    for leaf, first, last in zip(leaves, merged.first[:-1], merged.first[1:], strict=True):
        assert merged.start[first] == nodes.records[leaf]["start"]
        assert merged.stop[last - 1] == nodes.records[leaf]["stop"]
        assert merged.stop[first : last - 1].tolist() == merged.start[first + 1 : last].tolist()
        assert (merged.in_stop - merged.start)[first:last].tolist() == [3] * (last - first)


def test_preorder() -> None:
    """What nobody leads to is left out."""
    nodes = empty_nodes(6, 1)
    nodes.records["left"], nodes.records["right"] = [4, -1, -1, -1, 3, -1], [2, -1, -1, -1, 1, -1]
    nodes.records["column"] = [9, -1, -1, -1, 8, -1]
    nodes.sums[:, 0] = np.arange(6)
    ordered = in_preorder(nodes)
    assert ordered.sums[:, 0].tolist() == [0, 4, 3, 1, 2]
    assert ordered.records["left"].tolist() == [1, 2, -1, -1, -1]
    assert ordered.records["right"].tolist() == [4, 3, -1, -1, -1]


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_merged_leaves_lie_as_if_these_had_not_been_split(weighted: bool) -> None:
    rows = np.array([99, 5, 8, 2, 1, 3, 9, 4, 0, 77, 30, 31, 20], np.uint32)
    a, inside = np.arange(13) + 50, [0, 1, 2, 3, 4, 5, 6, 9, 10, 11]
    b = np.arange(13) * 10 if weighted else np.empty(0, np.int64)
    # One leaf at the places 1 to 8, of three stretches, the second without rows out of sample; and one of two at 10 to 12.
    start, in_stop, stop = np.array([1, 4, 6, 10, 12]), np.array([3, 6, 8, 11, 13]), np.array([4, 6, 9, 12, 13])
    merge_rows(RowPartition(rows, a, b), np.array([0, 3, 5]), start, in_stop, stop)
    assert rows.tolist() == [99, 1, 3, 4, 5, 8, 9, 0, 2, 77, 20, 30, 31]
    assert a[inside].tolist() == [50, 54, 55, 57, 51, 52, 56, 59, 62, 60]
    if weighted:
        assert b[inside].tolist() == [0, 40, 50, 70, 10, 20, 60, 90, 120, 100]


@kernel
def note_all(budget, priorities, may, hopeless):  # type: ignore[no-untyped-def]
    for i in range(priorities.shape[0]):
        hopeless[i] = is_hopeless(budget, priorities[i])
        may[i] = may_be_chosen(budget, priorities[i])


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(0, 8), st.lists(st.integers(0, 20), max_size=8))
@examples(60)
def test_nodes_below_the_largest_priorities_are_left_out(priorities: list[int], most: int, known: list[int]) -> None:
    known = known[:most]
    budget = make_budget(most, np.array(known, float))
    may, hopeless = np.zeros(len(priorities), bool), np.zeros(len(priorities), bool)
    note_all(budget, np.array(priorities, float), may, hopeless)
    seen: list[int] = list(known)
    for i, priority in enumerate(priorities):
        largest = sorted(seen)[-most:] if most else []
        expected = most == 0 or len(largest) < most or priority >= largest[0]
        assert (may[i], hopeless[i]) == (expected, not expected)
        seen.append(priority)


def test_a_budget_without_limit() -> None:
    budget = make_budget(0)
    may: NDArray[np.bool_] = np.zeros(2, bool)
    note_all(budget, np.array([-np.inf, 3.0]), may, np.zeros(2, bool))
    assert may.all()
