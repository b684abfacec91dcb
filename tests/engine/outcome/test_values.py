"""From the nodes of a tree that was grown to its arrays and values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.outcome.values import boosted_tree, newton_values, places_of_leaves, take_apart
from dtrees.split.node.records import NODE, Nodes
from dtrees.tree.tree import Tree
from tests.engine.shards import rules
from tests.examples import examples


@dataclass
class Grown:
    """A node as a person would write it down; ``children`` is None for a leaf."""

    start: int
    in_stop: int
    stop: int
    children: tuple[int, int] | None = None
    column: int = -1
    threshold: float = math.nan
    missing_left: bool = False
    gain: float = 0.0


@st.composite
def grown_trees(draw: st.DrawFn) -> list[Grown]:
    """Trees of any shape; rows in sample lie from start to in_stop, others after them."""
    nodes = [Grown(0, draw(st.integers(1, 40)), 50)]
    for _ in range(draw(st.integers(0, 8))):
        leaf = draw(st.sampled_from([node for node in nodes if node.children is None]))
        cut = draw(st.integers(leaf.start, leaf.stop))
        leaf.children = len(nodes), len(nodes) + 1
        leaf.column, leaf.missing_left = draw(st.integers(0, 5)), draw(st.booleans())
        leaf.threshold, leaf.gain = draw(st.floats(-1e9, 1e9)), draw(st.floats(0, 2.0**60))
        nodes.append(Grown(leaf.start, draw(st.integers(leaf.start, cut)), cut))
        nodes.append(Grown(cut, draw(st.integers(cut, leaf.stop)), leaf.stop))
    return nodes


def as_records(nodes: list[Grown]) -> NDArray[Any]:
    records = np.zeros(len(nodes), NODE)
    for record, node in zip(records, nodes, strict=True):
        for name in ("start", "in_stop", "stop", "column", "threshold", "missing_left", "gain"):
            record[name] = getattr(node, name)
        record["left"], record["right"] = node.children or (-1, -1)
    return records


@examples(60)
@given(grown_trees())
def test_nodes_are_taken_apart(nodes: list[Grown]) -> None:
    leaves = [node for node in nodes if node.children is None]
    wanted = {
        "left": [-1 if node.children is None else node.children[0] for node in nodes],
        "right": [-1 if node.children is None else node.children[1] for node in nodes],
        "feature": [-2 if node.children is None else node.column for node in nodes],
        "threshold": [-2.0 if node.children is None else node.threshold for node in nodes],
        "missing_left": [node.children is not None and node.missing_left for node in nodes],
        "n_samples": [node.in_stop - node.start for node in nodes],
        "leaf": [node.children is None for node in nodes],
        "start": [node.start for node in leaves],
        "in_stop": [node.in_stop for node in leaves],
        "stop": [node.stop for node in leaves],
    }
    records = as_records(nodes)
    found = (*take_apart(records), *places_of_leaves(records))
    for array, (name, values) in zip(found, wanted.items(), strict=True):
        np.testing.assert_array_equal(array, values, err_msg=name)
    assert [array.dtype.name for array in found[:7]] == ["int32", "int32", "int32", "float64", "bool", "int64", "bool"]


EXPONENTS = st.integers(-40, 60)


@examples(60)
@given(
    grown_trees(),
    st.data(),
    EXPONENTS,
    EXPONENTS,
    EXPONENTS,
    st.sampled_from([0.0, 0.3, 1.0, 1e6]),
    st.sampled_from([0.0, 0.7, 1e6]),
    st.sampled_from([0.1, 1.0]),
)
def test_newton_steps(
    nodes: list[Grown],
    data: st.DataObject,
    g_exponent: int,
    h_exponent: int,
    gain_exponent: int,
    penalty: float,
    l1: float,
    learning_rate: float,
) -> None:
    """-learning_rate T(G) / (H + penalty), where T moves G towards 0 by ``l1``, and the loss that it saves per unit of H.

    Both are 0 where they would be divided by 0.
    """
    gradients = data.draw(st.lists(st.integers(-(2**61), 2**61), min_size=len(nodes), max_size=len(nodes)))
    hessians = data.draw(st.lists(st.integers(0, 2**61) | st.just(0), min_size=len(nodes), max_size=len(nodes)))
    sums = np.array([gradients, hessians], np.int64).T.copy()
    penalties = rules("newton", 1, reg_lambda=penalty, reg_alpha=l1)
    value, weight, impurity, gain = newton_values(as_records(nodes), sums, g_exponent, h_exponent, gain_exponent, penalties, learning_rate)
    assert value.shape == (len(nodes), 1)
    for i, node in enumerate(nodes):
        G, H = gradients[i] * 2.0**-g_exponent, hessians[i] * 2.0**-h_exponent
        G = math.copysign(max(abs(G) - l1, 0.0), G)
        step = -G / (H + penalty) if H + penalty else 0.0
        assert (value[i, 0], weight[i], gain[i]) == (learning_rate * step, H, node.gain * 2.0**-gain_exponent)
        assert impurity[i] == (-step * G / H if H else 0.0)


@examples(60)
@given(grown_trees(), st.data(), EXPONENTS, EXPONENTS, st.sampled_from([0.0, 0.3]), st.sampled_from([0.1, 1.0]))
def test_boosted_trees(
    nodes: list[Grown], data: st.DataObject, g_exponent: int, h_exponent: int, penalty: float, learning_rate: float
) -> None:
    """The arrays are those that nodes are taken apart into, with Newton steps as values."""
    sums = np.array(data.draw(st.lists(st.tuples(st.integers(-99, 99), st.integers(0, 99)), min_size=len(nodes), max_size=len(nodes))))
    records = as_records(nodes)
    tree = boosted_tree(Nodes(records, sums), (g_exponent, h_exponent), rules("newton", 1, reg_lambda=penalty), learning_rate)
    left, right, feature, threshold, missing_left, n_samples = take_apart(records)
    steps = newton_values(
        records, sums, g_exponent, h_exponent, 2 * g_exponent - h_exponent, rules("newton", 1, reg_lambda=penalty), learning_rate
    )
    value, weight, impurity, gain = steps
    assert tree.equals(Tree(left, right, feature, threshold, missing_left, impurity, gain, n_samples, weight, value))
    assert all(getattr(tree, name).dtype == dtype for name, dtype in Tree.ARRAYS.items())
