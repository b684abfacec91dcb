"""Random thresholds of nodes spread over shards: ends and sides as counted one by one, and the split that one process finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.work_queue import make_queue
from dtrees.split.node.candidate import CONSTANT, SPLIT, empty_candidates
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import NodesOfTree
from dtrees.split.search.column import search_many
from dtrees.split.search.scratch import make_scratch
from dtrees.split.search.thresholds.random_sides import draw_thresholds, find_ends, sum_sides, try_thresholds
from dtrees.split.table.columns import presort
from tests.engine.shards import rules
from tests.examples import examples
from tests.slow import one_quick

VALUES = [np.nan, -1.0, -0.0, 0.0, 0.5, np.nextafter(0.5, 1.0), 7.0, np.inf, -np.inf]


def limits_for(n_classes: int, sums: NDArray[np.int64], changes: Any) -> Any:
    from dtrees.engine.plan.node_limits import make_limits

    some = rules("gini" if n_classes else "squared_error", 3, random_splits=True, **changes)
    return make_limits(some, n_classes if n_classes > 2 else 0, sums, (0, 0), 100.0)[0]


@pytest.mark.parametrize("n_classes", one_quick([0, 3]))
@given(data=st.data())
@examples(100)
def test_shards_find_what_one_process_does(n_classes: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 20))
    table = [np.array(data.draw(st.lists(st.sampled_from(VALUES), min_size=n, max_size=n))) for _ in range(3)]
    g = np.array(data.draw(st.lists(st.integers(0, 2) if n_classes else st.integers(-9, 9), min_size=n, max_size=n)), np.int64)
    weighted = data.draw(st.booleans())
    h = np.array(data.draw(st.lists(st.integers(1, 4), min_size=n, max_size=n)), np.int64)[: n if weighted else 0]
    weight = h if weighted else np.ones(n, np.int64)
    shard = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    sums = np.bincount(g, weight, 3).astype(np.int64) if n_classes else np.array([g.sum(), weight.sum()])
    node_sums, n_sums = sums[None], sums.shape[0]
    limits = limits_for(n_classes, sums, {"min_samples_leaf": data.draw(st.sampled_from([1, 3]))})
    key, path = np.uint64(data.draw(st.integers(0, 2**63))), np.array([data.draw(st.integers(0, 2**63))], np.uint64)
    ids, zero = np.array([4, 0, 7], np.int32), np.zeros(1, np.int64)
    scratch = make_scratch(n, n, n_classes, n_sums=n_sums)

    columns, every = presort(table), np.arange(3)
    whole = RowPartition(np.arange(n, dtype=np.uint32), g, h)
    expected = empty_candidates(3, n_sums)
    pairs = np.stack([every * 0, every], axis=1)
    nodes = NodesOfTree(whole, zero, np.array([n]), node_sums, path, key)
    search_many(columns, ids, pairs, 0, 3, nodes, limits, scratch, expected)

    low, high, missing = np.full(3, np.inf), np.full(3, -np.inf), np.zeros(3, np.int64)
    shards = []
    for which in range(3):
        mine = np.flatnonzero(shard == which)
        own = presort([column[mine] for column in table])
        rows = RowPartition(np.arange(mine.shape[0], dtype=np.uint32), g[mine], h[mine] if weighted else h)
        shards.append((own, rows))
        tasks, ends = np.stack([every * 0, every * 0 + mine.shape[0], every], axis=1), np.empty((3, 3), np.int64)
        find_ends(make_queue(), tasks, own, rows.rows, ends)
        for j, (first, last, n_missing) in enumerate(ends.tolist()):
            x = table[j][mine] + 0.0
            present = x[~np.isnan(x)]
            assert n_missing == np.isnan(x).sum()
            assert (last < 0) == (first == own.missing(j)) == (present.shape[0] == 0)
            if present.shape[0]:
                assert own.values_of(j, np.array([first, last])).tolist() == [present.min(), present.max()]
                low[j], high[j] = min(low[j], present.min()), max(high[j], present.max())
            missing[j] += n_missing
    thresholds = np.empty(3)
    draw_thresholds(key, np.repeat(path, 3), ids.astype(np.int64), low, high, thresholds)
    assert ((low <= thresholds) & ((thresholds < high) | (thresholds == np.inf)))[low <= high].all()
    place = np.where(missing > 0, np.cumsum(missing > 0) - 1, -1)
    left, gone = np.zeros((3, n_sums + 1), np.int64), np.zeros((int((missing > 0).sum()), n_sums + 1), np.int64)
    for own, rows in shards:
        cuts = own.codes_up_to(every, thresholds)
        tasks = np.stack([every * 0, every * 0 + rows.rows.shape[0], every, every * 0, place], axis=1)
        some, some_gone = np.zeros_like(left), np.zeros_like(gone)
        sum_sides(make_queue(), tasks, own, rows, cuts, node_sums, limits, scratch, some, some_gone)
        left += some
        gone += some_gone
    for j, threshold in enumerate(thresholds.tolist()):
        x = table[j]
        for told, which in ((left[j], x <= threshold), *([(gone[place[j]], np.isnan(x))] if place[j] >= 0 else [])):
            of_g = np.bincount(g[which], weight[which], 3) if n_classes else [g[which].sum(), weight[which].sum()]
            assert told.tolist() == [*of_g, which.sum()]
    varies = (low < high) | ((missing > 0) & (low <= high))
    some = np.flatnonzero(varies)
    found = empty_candidates(some.shape[0], n_sums)
    tasks = np.stack([some * 0, ids[some], place[some]], axis=1).astype(np.int64)
    try_thresholds(make_queue(), tasks, thresholds[some], left[some], gone, np.array([n]), node_sums, limits, scratch, found)
    assert (expected.records["status"][~varies] == CONSTANT).all()
    for name in ("status", "column"):
        np.testing.assert_array_equal(found.records[name], expected.records[name][some])
    split = found.records["status"] == SPLIT
    for name in ("missing_left", "score", "gain", "threshold", "n_left"):
        np.testing.assert_array_equal(found.records[name][split], expected.records[name][some][split])
    np.testing.assert_array_equal(found.left[split], expected.left[some][split])
