"""Stored cells of sparse columns, categories in order, and deviations of targets in order."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.node.partition import NOWHERE
from dtrees.split.node.records import SPLIT
from dtrees.split.search.category_orders import make_groups, order_ends
from dtrees.split.search.deviations import DEVIATION, deviations_by_tree, note_all_quantiles
from dtrees.split.search.line_up import ITEM, LINE, LINK, deviations
from dtrees.split.search.sparse import any_varies, find_cells, forget_cells, list_cells, lists_all, make_cell_buffer, may_list_all
from tests import naive
from tests.examples import examples
from tests.slow import slow_for
from tests.split.nodes import candidate, search_of
from tests.split.strategies import ALPHAS, Task, integers_of
from tests.split.tables import random_table, sparse_of

# --- the stored cells of a node, found in every way, compared with the table itself ---


@kernel
def listed(columns, rows, room):  # type: ignore[no-untyped-def]
    n_present = list_cells(columns, rows, room)
    return n_present, any_varies(room, n_present, rows.shape[0])


@kernel
def found(columns, column, rows, first, room):  # type: ignore[no-untyped-def]
    return find_cells(columns, column, rows, first, room)


@kernel
def forget(room, n_present):  # type: ignore[no-untyped-def]
    forget_cells(room, n_present)


@kernel
def choices(columns, rows, n_drawn, room):  # type: ignore[no-untyped-def]
    return lists_all(columns, rows, n_drawn, room), may_list_all(columns, rows, room)


@given(st.integers(1, 60), st.integers(1, 6), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(0, 10**6))
def test_cells_of_a_node(n_rows: int, n_columns: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = random_table(n_rows, n_columns, density, seed)
    columns = sparse_of(X)
    rows = np.sort(rng.permutation(n_rows)[: rng.integers(1, n_rows + 1)]).astype(np.uint32)
    first = int(rng.integers(0, 5))
    used = rng.random(n_columns) < 0.8
    room = make_cell_buffer(columns, dense=False)
    room.place_of[:] = NOWHERE
    room.place_of[rows] = first + np.arange(len(rows))
    room.n_listed[~used] = -1

    def cells(keys: np.ndarray) -> list[tuple[int, int]]:
        return sorted((int(key) & 0xFFFFFFFF, int(key) >> 32) for key in keys)

    wanted = []
    for j in range(n_columns):
        mine = slice(columns.starts[j], columns.starts[j + 1])
        code_of = dict(zip(columns.rows[mine].tolist(), columns.codes[mine].tolist(), strict=True))
        wanted.append([(place, code_of[row]) for place, row in enumerate(rows.tolist()) if row in code_of])
        assert cells(room.keys[: found(columns, j, rows, first, room)]) == wanted[j]
    _, may = choices(columns, rows, n_columns, room)
    if may:
        n_present, varies = listed(columns, rows, room)
        assert sorted(room.present[:n_present].tolist()) == [j for j in range(n_columns) if used[j] and wanted[j]]
        for j in room.present[:n_present].tolist():
            assert cells(room.keys[room.end[j] - room.n_listed[j] : room.end[j]]) == wanted[j]
        taken = [{np.nan if x != x else x for x in X[rows, j].tolist()} for j in np.flatnonzero(used)]
        assert varies == any(len(values) > 1 for values in taken)
        forget(room, n_present)
    assert room.n_listed.tolist() == np.where(used, 0, -1).tolist()


def test_what_costs_less() -> None:
    X = np.zeros((4000, 100))
    X[np.arange(4000), np.arange(4000) % 100] = 1.0
    columns = sparse_of(X)
    room = make_cell_buffer(columns, dense=False)
    few, all_rows = np.arange(3, dtype=np.uint32), np.arange(4000, dtype=np.uint32)
    assert choices(columns, few, 100, room) == (True, True)
    assert choices(columns, all_rows[:30], 1, room) == (False, True)
    assert choices(columns, all_rows, 100, room) == (False, False)


# --- the order of categories at both ends ---


@kernel
def _order_ends(groups: Any, m: Any, most: Any) -> None:
    order_ends(groups, m, most)


KEYS = {
    "noise": lambda random, m: random.normal(size=m),
    "ties": lambda random, m: random.integers(0, 5, m) / 3.0,
    "one key": lambda random, m: np.zeros(m),
    "far out": lambda random, m: np.where(random.random(m) < 0.01, 1e300, random.normal(size=m)),
    "infinite": lambda random, m: np.where(random.random(m) < 0.1, -np.inf, random.normal(size=m)),
    "subnormal": lambda random, m: random.integers(0, 9, m) * 5e-324,
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(("m", "most"), [(1, 0), (2, 1), (9, 1), (60, 9), (700, 3), (700, 40), (700, 350), (3000, 100)])
def test_both_ends_are_in_order(kind: str, m: int, most: int) -> None:
    groups = make_groups(m, 2)
    groups.key[:m] = KEYS[kind](np.random.default_rng(m), m)
    _order_ends(groups, np.int64(m), np.int64(most))
    wanted = np.argsort(groups.key[:m], kind="stable")
    assert groups.order[0, :most].tolist() == wanted[:most].tolist()
    assert groups.order[0, m - most : m].tolist() == wanted[m - most :].tolist()


# --- absolute error and quantiles: the best split of a node compared with sorting both sides of every split ---


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
    """Return (deviation, weight) and quantile of every set, each computed by sorting; for many sets, of a hundred of them."""
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
    """Compare prefixes and suffixes of the first ``end`` rows in ``order``, with and without the other rows, by both methods."""
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
    """Also with weights that make the quantile move far each time, so that the tree takes over."""
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


@pytest.mark.slow  # small nodes use all ways to search
def test_a_large_node() -> None:
    """The best split of some thousand rows, compared with a hundred others computed by sorting: none is better."""
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
