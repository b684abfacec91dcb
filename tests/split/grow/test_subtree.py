"""Stopping, and values of leaves, in the subtree kernels. Whole subtrees are tested in ``tests/engine``."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.criteria.parts import node_weights
from dtrees.split.node.limits import NodeLimits, may_be_split
from dtrees.split.node.records import NODE, add_values, leaf_means
from dtrees.split.numbers import hashing
from tests import naive
from tests.naive import GINI, SQUARED_ERROR
from tests.split.nodes import package_limits


@pytest.mark.parametrize(
    ("n_rows", "depth", "weight", "expected"),
    [(10, 2, 50, True), (9, 2, 50, False), (10, 3, 50, False), (10, 2, 49, False), (1000, 0, 1000, True)],
)
def test_may_be_split(n_rows: int, depth: int, weight: int, expected: bool) -> None:
    stops = NodeLimits(
        max_depth=3, min_samples=10, min_weight=50, max_features=1, right_side=hashing.RIGHT, keeps_rows=True, keeps_sums=True
    )
    assert may_be_split(stops, n_rows, depth, weight) == expected


def test_node_weights() -> None:
    moments = package_limits(naive.SplitLimits(SQUARED_ERROR))
    classes = package_limits(naive.SplitLimits(GINI, n_classes=3))
    assert node_weights(moments.criterion, np.array([-5, 7])) == 7
    assert node_weights(classes.criterion, np.array([[1, 2, 4], [0, 0, 1]])).tolist() == [7, 1]


@given(st.integers(1, 12), st.booleans(), st.sampled_from([1.0, 1e-300, 1e150]), st.data())
def test_leaf_means(n: int, weighted: bool, scale: float, data: st.DataObject) -> None:
    # A common offset must not cost precision.
    offset = data.draw(st.sampled_from([0.0, 1e9]))
    target = (data.draw(arrays(np.float64, n, elements=st.floats(-1, 1))) + offset) * scale
    b = data.draw(arrays(np.int64, n, elements=st.integers(1, 1000))) if weighted else np.empty(0, np.int64)
    rows = np.random.default_rng(n).permutation(n).astype(np.uint32)
    cut = data.draw(st.integers(0, n))
    starts, in_stops = np.array([0, cut]), np.array([cut, n])
    keep = in_stops > starts
    starts, in_stops = starts[keep], in_stops[keep]
    means, spreads = np.empty(starts.shape[0]), np.empty(starts.shape[0])
    leaf_means(criterion_named(SQUARED_ERROR).for_kernels(0, 0.0), rows, b, target, starts, in_stops, means, spreads)
    for start, in_stop, mean, spread in zip(starts, in_stops, means, spreads, strict=True):
        y = [Fraction(target[row]) for row in rows[start:in_stop]]
        w = [Fraction(int(x)) for x in b[start:in_stop]] if weighted else [Fraction(1)] * len(y)
        exact = sum(x * z for x, z in zip(w, y, strict=True)) / sum(w)
        largest = max(abs(z) for z in y)
        assert abs(Fraction(mean) - exact) <= largest * Fraction(1e-15) + Fraction(5e-324)
        if scale == 1.0:
            exact_spread = sum(x * (z - exact) ** 2 for x, z in zip(w, y, strict=True))
            assert spread == pytest.approx(float(exact_spread), rel=1e-6, abs=1e-12 * float(sum(w)))
        if len(set(y)) == 1:
            assert (mean, spread) == (float(y[0]), 0.0)


def test_a_leaf_without_weight_takes_its_first_target() -> None:
    means, spreads = np.empty(1), np.empty(1)
    value = criterion_named(SQUARED_ERROR).for_kernels(0, 0.0)
    leaf_means(
        value, np.arange(2, dtype=np.uint32), np.zeros(2, np.int64), np.array([3.0, 4.0]), np.zeros(1, int), np.array([2]), means, spreads
    )
    assert (means[0], spreads[0]) == (3.0, 0.0)


@given(st.integers(1, 12), st.data())
def test_values_are_added_by_leaf(n: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, n))
    records = np.zeros(3, NODE)
    records["column"], records["start"], records["stop"] = [4, -1, -1], [0, 0, cut], [n, cut, n]
    rows = np.random.default_rng(n).permutation(n).astype(np.uint32)
    total, expected = np.arange(n) / 8, np.arange(n) / 8
    expected[rows[:cut]] += 2.0
    expected[rows[cut:]] += 3.0
    add_values(records, np.array([[1.0], [2.0], [3.0]]), total, rows)
    assert total.tolist() == expected.tolist()
