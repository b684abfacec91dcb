"""Best-first growth: nodes that are skipped while a tree is grown, and nodes that are removed at the end."""

import heapq
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.split.grow.best_first import (
    ORIGIN,
    RANKED,
    are_first,
    in_preorder,
    is_hopeless,
    make_budget,
    merge_rows,
    number_split,
    origins,
    prune,
    rank_splits,
)
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import Nodes, empty_nodes
from dtrees.split.policy import MOST_RANKED
from tests.examples import examples


def wild_tree(n_splits: int, seed: int, n_gains: int) -> Nodes:
    """A tree in preorder, with 3 in-sample rows and 2 out-of-sample rows in each leaf; few distinct gains, so that many tie."""
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


def shuffled(nodes: Nodes, seed: int) -> Nodes:
    """The same tree with its nodes in another order, but for the root."""
    order = np.append(0, 1 + np.random.default_rng(seed).permutation(nodes.records.shape[0] - 1))
    records, place = nodes.records[order], np.argsort(order)
    for side in ("left", "right"):
        inner = records[side] >= 0
        records[side][inner] = place[records[side][inner]]
    return Nodes(records, nodes.sums[order])


def in_order(nodes: Nodes, max_leaves: int) -> list[int]:
    """The nodes that best-first growth splits, in order, the older among equals first."""
    records, split = nodes.records, []
    waiting = [(-records[0]["gain"], 0, 0)] if records[0]["column"] >= 0 else []
    n_known = 1
    while waiting and len(split) + 1 < max_leaves:
        _, _, node = heapq.heappop(waiting)
        split.append(node)
        for child in (int(records[node]["left"]), int(records[node]["right"])):
            if records[child]["column"] >= 0:
                heapq.heappush(waiting, (-records[child]["gain"], n_known, child))
            n_known += 1
    return split


@given(st.integers(0, 60), st.integers(0, 10**6), st.sampled_from([2, 5, 10**6]), st.integers(2, 70))
@examples(60)
def test_prune_repeats_the_choice_of_nodes(n_splits: int, seed: int, n_gains: int, max_leaves: int) -> None:
    nodes = wild_tree(n_splits, seed, n_gains)
    split = in_order(nodes, max_leaves)
    pruned, merged = prune(shuffled(nodes, seed), max_leaves)
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
    """Unreachable nodes are dropped."""
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
    # One leaf at the places 1 to 8, of three ranges, the second without rows out of sample; and one of two at 10 to 12.
    start, in_stop, stop = np.array([1, 4, 6, 10, 12]), np.array([3, 6, 8, 11, 13]), np.array([4, 6, 9, 12, 13])
    merge_rows(RowPartition(rows, a, b), np.array([0, 3, 5]), start, in_stop, stop)
    assert rows.tolist() == [99, 1, 3, 4, 5, 8, 9, 0, 2, 77, 20, 30, 31]
    assert a[inside].tolist() == [50, 54, 55, 57, 51, 52, 56, 59, 62, 60]
    if weighted:
        assert b[inside].tolist() == [0, 40, 50, 70, 10, 20, 60, 90, 120, 100]


@kernel
def note(budget, origins_of, gain):  # type: ignore[no-untyped-def]
    """Return whether a node is hopeless, and the number that its split gets."""
    origin = origins_of[0]
    if is_hopeless(budget, origin):
        return True, -1, 0.0
    number, rank = number_split(budget, origin, gain)
    return False, number, rank


def origin_of(parent: int, side: int, rank: float) -> NDArray[Any]:
    return np.array([(parent, side, rank)], ORIGIN)


def children_with_splits(nodes: Nodes, node: int, number: int, rank: float) -> list[tuple[int, NDArray[Any]]]:
    """Return the children of a node that have a split, with their origins."""
    both = enumerate((int(nodes.records["left"][node]), int(nodes.records["right"][node])))
    return [(child, origin_of(number, side, rank)) for side, child in both if nodes.records["column"][child] >= 0]


def split_best_first(nodes: Nodes, most: int) -> set[int]:
    """Return the nodes that are split if nodes whose parents are split first are searched first; the root has a split."""
    budget, waiting, split = make_budget(most), [(-np.inf, 0, 0, origins(1))], set()
    for n_known in range(1, 2 * nodes.records.shape[0], 2):
        if not waiting:
            break
        _, _, node, origin = heapq.heappop(waiting)
        _, number, rank = note(budget, origin, float(nodes.records["gain"][node]))
        if number >= 0:
            split.add(node)
            for i, (child, of_child) in enumerate(children_with_splits(nodes, node, number, rank)):
                heapq.heappush(waiting, (rank, n_known + i, child, of_child))
    assert not waiting
    return split


@given(st.integers(0, 60), st.integers(0, 10**6), st.sampled_from([1, 2, 5, 10**6]), st.integers(1, 70), st.integers(0, 30))
@examples(100)
def test_what_is_first_is_known_in_whatever_order_nodes_are_looked_at(
    n_splits: int, seed: int, n_gains: int, most: int, n_before: int
) -> None:
    """The first known splits of a tree are those of best-first growth, in order; some are known when the kernel begins."""
    nodes, rng = wild_tree(n_splits, seed, n_gains), np.random.default_rng(seed)
    records, node_of = nodes.records, {}
    waiting = [(0, origins(1))] if n_splits else []
    first, n = np.empty(most, RANKED), 0
    budget = None
    for step in range(2 * n_splits):
        if not waiting:
            break
        node, origin = waiting.pop(rng.integers(len(waiting)))
        gain = float(records["gain"][node])
        if step < n_before:
            ranks = np.empty(1)
            n = rank_splits(first, n, np.array([node]), origin, np.array([gain]), ranks)
            hopeless, rank = False, float(ranks[0])
            number = node if node in first["node"][:n] else -1
            assert are_first(first, n, np.array([node]), ranks)[0] == (number >= 0)
        else:
            budget = budget or make_budget(most, first[:n])
            hopeless, number, rank = note(budget, origin, gain)
        if number >= 0:
            node_of[number] = node
            waiting += children_with_splits(nodes, node, number, rank)
        elif hopeless:
            assert node not in in_order(nodes, most + 1)
    budget = budget or make_budget(most, first[:n])
    expected = in_order(nodes, most + 1)
    assert [node_of[number] for number in budget.first["node"][: len(expected)].tolist()] == expected
    assert budget.control[8] == len(expected)


def test_where_there_is_no_rank_left_between_two() -> None:
    """A chain of splits to the left with equal gains, and later its right children with increasing gains."""
    budget, origin, chain, n = make_budget(200), origins(1), [], 40
    for _ in range(n):
        _, number, rank = note(budget, origin, 1000.0)
        chain.append((number, rank))
        origin = origin_of(number, 0, rank)
    right = [note(budget, origin_of(number, 1, rank), float(gain))[1:] for gain, (number, rank) in enumerate(chain[:-1])]
    last = [note(budget, origin_of(number, 0, rank), 2000.0)[1] for number, rank in right]
    expected = [number for number, _ in chain]
    for (number, _), child in zip(right[::-1], last[::-1], strict=True):
        expected += [number, child]
    n = budget.control[8]
    assert budget.first["node"][:n].tolist() == expected
    step = np.diff(budget.first["rank"][:n])
    assert (step >= 0).all()
    assert (step == 0).any()


@given(st.integers(1, 60), st.integers(0, 10**6), st.integers(1, 8))
@examples(40)
def test_few_nodes_too_many_are_grown_where_gains_rise_towards_the_leaves(n_splits: int, seed: int, most: int) -> None:
    """As in late trees of boosting: the least gain on the path from the root is the root's for all nodes."""
    nodes = wild_tree(n_splits, seed, 10**6)
    records, depth = nodes.records, np.zeros(nodes.records.shape[0])
    for node in range(depth.shape[0]):
        for side in ("left", "right"):
            if records["column"][node] >= 0:
                depth[records[side][node]] = depth[node] + 1
    records["gain"] += 10**7 * depth
    assert len(split_best_first(nodes, most)) <= 2 * most + 1


@given(st.integers(0, 10**6), st.sampled_from([2, 10**6]))
@examples(10)
def test_of_many_splits_none_of_the_first_is_left_out(seed: int, n_gains: int) -> None:
    """There are too many to be stored in order."""
    most = MOST_RANKED + 1 + seed % 50
    nodes = wild_tree(3 * most, seed, n_gains)
    assert split_best_first(nodes, most).issuperset(in_order(nodes, most + 1))


def test_a_budget_without_limit() -> None:
    budget = make_budget(0)
    assert [note(budget, origin_of(3, 0, gain), gain) for gain in (-np.inf, 3.0)] == [(False, 0, 0.0)] * 2
