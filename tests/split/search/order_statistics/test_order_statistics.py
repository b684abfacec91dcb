"""Absolute error and quantiles: the best split of a node against sorting every side of every split again."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.node.records import SPLIT
from dtrees.split.search.deviations import DEVIATION, deviations_by_tree, note_all_quantiles
from dtrees.split.search.line_up import ITEM, LINE, LINK, deviations
from dtrees.split.table.columns import presort
from tests import naive
from tests.examples import examples
from tests.slow import slow_for
from tests.split.nodes import best_of, candidate, expected, same, search, search_of, widen
from tests.split.strategies import ALPHAS, Task, integers_of, tasks_by_order


@pytest.mark.slow  # what searches a column takes long to compile; the sums of deviations, below, are tried in every run
@given(tasks_by_order())
@examples(400)
def test_the_best_of_every_split(task: Task) -> None:
    assert same(best_of(search_of(task)), expected(task))


@pytest.mark.slow
@given(tasks_by_order(random=True))
@examples(300)
def test_random_thresholds(task: Task) -> None:
    assert same(best_of(search_of(task)), expected(task))


@pytest.mark.slow
@pytest.mark.parametrize("random", [False, True])
@given(task=tasks_by_order())
def test_rows_outside_the_node_do_not_matter(random: bool, task: Task) -> None:
    task = task._replace(limits=task.limits._replace(random=random))
    assert same(best_of(search_of(widen(task, 100), seed=3)), expected(task))


@pytest.mark.slow
@pytest.mark.parametrize("random", [False, True])
@given(task=tasks_by_order(max_rows=60))
def test_rows_divide_as_the_split_says(random: bool, task: Task) -> None:
    task = task._replace(limits=task.limits._replace(random=random))
    found = search(task, presort(task.table))
    for j in np.flatnonzero(found.records["status"] == SPLIT):
        values = task.table[j].astype(np.float64)
        threshold, to_left, n_left = found.records[["threshold", "missing_left", "n_left"]][j]
        goes_left = np.where(np.isnan(values), to_left, values <= threshold) & task.inside
        assert goes_left.sum() == n_left
        rows = np.flatnonzero(goes_left).tolist()
        assert tuple(found.left[j]) == naive.node_sums(rows, task.g.tolist(), task.h.tolist() or None, 0)


# --- the deviations of all prefixes and suffixes ---


@kernel
def _by_line(criterion, line, links, items, whole, n, end, left_last, right_last, weighted, max_steps, left, right):
    deviations(criterion, line, links, items, whole, n, end, left_last, right_last, weighted, max_steps, left, right)


@kernel
def _by_tree(criterion, line, items, n, end, last, forward, out):
    deviations_by_tree(criterion, line, items, n, end, last, forward, out)


@kernel
def _quantiles(criterion, line, items, n, end, last, forward, out):
    note_all_quantiles(criterion, line, items, n, end, last, forward, out)


def by_the_book(
    alpha: Fraction, level: NDArray[Any], weight: NDArray[Any], order: NDArray[Any], end: int, last: int, forward: bool
) -> tuple[list[tuple[int, int]], list[float]]:
    """(deviation, weight) and quantile of every set, each sorted anew; where there are many sets, of a hundred of them."""
    n = end + 1
    above, both = alpha.as_integer_ratio()
    out, quantiles = [], []
    for i in range(0, n, max(1, n // 100)):
        rows = np.concatenate([order[i:end] if forward else order[:i], order[end:last]])
        ordered = rows[np.argsort(level[rows], kind="stable")]
        w, y = weight[ordered].astype(object), level[ordered].astype(object)
        total = int(w.sum())
        below = np.cumsum(w)
        quantile = y[np.flatnonzero(both * below >= above * total)[0]] if len(y) else 0
        out.append((int((w * np.maximum(above * (y - quantile), (both - above) * (quantile - y))).sum()) if len(y) else 0, total))
        beyond = y[np.flatnonzero(both * below > above * total)[0]] if len(y) else 0
        quantiles.append((float(quantile) + float(beyond)) / 2 if len(y) else np.nan)
    return out, quantiles


def check_deviations(
    alpha: Fraction, level: NDArray[np.int64], weight: NDArray[np.int64] | None, order: NDArray[np.int64], end: int, steps: int
) -> None:
    """Compare prefixes and suffixes of the first ``end`` rows in ``order``, with and without the others, found in either way."""
    n = level.shape[0]
    criterion, (above, both) = criterion_named("quantile").at(float(alpha)).for_kernels(0, 0.0), alpha.as_integer_ratio()
    w = np.ones(n, np.int64) if weight is None else weight
    line, links, items = np.zeros(n + 1, LINE), np.zeros((2, n + 1), LINK), np.zeros(n, ITEM)
    line["level"][1:], line["weight"][1:] = level, w
    items["element"], items["level"], items["weight"] = order + 1, level[order], w[order]
    total, before = int(w.sum()), np.concatenate([[0], np.cumsum(w)])
    first = int(np.flatnonzero(both * before[1:] >= above * total)[0])
    factors = (w * np.where(np.arange(n) > first, above, above - both)).tolist()
    parts = [sum(factor * int(v) for factor, v in zip(factors, p.tolist(), strict=True))
             for p in ((level >> 22) - (level[first] >> 22), (level & (2**22 - 1)) - (level[first] & (2**22 - 1)))]  # fmt: skip
    whole = (total, first + 1, int(before[first]), *parts)
    for forward in (False, True):
        for last in {end, n}:
            right, right_quantiles = by_the_book(alpha, level, w, order, end, last, forward)
            quantiles = np.full(end + 1, np.nan)
            _quantiles(criterion, line, items, n, end, last, forward, quantiles)
            np.testing.assert_array_equal(quantiles[:: max(1, (end + 1) // 100)], right_quantiles)
            for tree in (False, True):
                out, other = np.zeros(end + 1, DEVIATION), np.zeros(end + 1, DEVIATION)
                if tree:
                    _by_tree(criterion, line, items, n, end, last, forward, out)
                else:
                    lasts = (end + n - last, last) if forward else (last, end + n - last)
                    sides = (other, out) if forward else (out, other)
                    _by_line(criterion, line, links, items, whole, n, end, *lasts, weight is not None, steps, *sides)
                some = out[:: max(1, (end + 1) // 100)].tolist()
                assert [(high * 2**22 + low, total) for high, low, total in some] == right
                assert all(0 <= low < 2**22 for _, low, _ in some)


@given(st.data())
@examples(200)
def test_deviations(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 30))
    alpha = data.draw(st.sampled_from(ALPHAS))
    factor = max(alpha.numerator, alpha.denominator - alpha.numerator)
    largest = data.draw(st.sampled_from([1, 4, 2**40 // (n * factor)]))
    weight = data.draw(integers_of(n, 1, largest)) if data.draw(st.booleans()) else None
    bits = min(61, 84 - (factor * int(n if weight is None else weight.sum())).bit_length())
    level = np.sort(data.draw(integers_of(n, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)))
    order = np.array(data.draw(st.permutations(range(n))))
    check_deviations(alpha, level, weight, order, data.draw(st.integers(0, n)), data.draw(st.sampled_from([0, 3, 10**9])))


@pytest.mark.parametrize("weights", slow_for({"even", "counts"}, ["none", "counts", "even", "wild", "light in the middle"]))
def test_deviations_of_many(weights: str) -> None:
    """Also with weights that make the quantile walk far each time, so that the tree takes over."""
    rng = np.random.default_rng(0)
    n = 3000
    level = np.sort(np.rint(rng.standard_cauchy(n) * 2**30).astype(np.int64))
    weight = {
        "none": None,
        "counts": np.maximum(rng.poisson(1, n), 1),
        "even": rng.integers(1, 1000, n),
        "wild": np.rint(10.0 ** rng.uniform(0, 8, n)).astype(np.int64),
        "light in the middle": np.where(np.abs(np.arange(n) - n / 2) < n / 3, 1, 10**6),
    }[weights]
    for end, alpha in ((n, Fraction(1, 2)), (n - 200, Fraction(9, 10))):
        check_deviations(alpha, level, weight, rng.permutation(n), end, 6 * n)


@pytest.mark.slow  # small nodes have all ways to search them
def test_a_large_node() -> None:
    """The best split of some thousand rows, found among a hundred by sorting anew each time: no other of these is better."""
    rng = np.random.default_rng(1)
    n = 4000
    x = rng.normal(size=n)
    x[rng.random(n) < 0.1] = np.nan
    y = np.rint((np.nan_to_num(x, nan=2.0) > 0.5) * 2**30 + rng.normal(size=n) * 2**29).astype(np.int64)
    levels, a = np.unique(y, return_inverse=True)
    for weighted in (False, True):
        b = np.rint(np.exp(rng.normal(0, 3, n)) * 1000 + 1).astype(np.int64) if weighted else np.empty(0, np.int64)
        limits = naive.SplitLimits(naive.ABSOLUTE_ERROR, levels=levels.tolist())
        task = Task([x], a.astype(np.int64), b, np.ones(n, np.bool_), limits)
        status, split = candidate(search_of(task), 0)
        assert status == SPLIT
        assert split is not None
        rows, lists = list(range(n)), (a.tolist(), b.tolist() or None)
        for threshold in [split.threshold, *rng.choice(x[~np.isnan(x)], 50)]:
            for missing_left in (False, True):
                left = np.flatnonzero(np.where(np.isnan(x), missing_left, x <= threshold)).tolist()
                gain = naive.deviation_gain(left, rows, *lists, limits)
                assert float(gain) <= split.gain
                if threshold == split.threshold and missing_left == split.missing_left:
                    assert float(gain) == split.gain
