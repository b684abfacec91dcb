"""A level searched by zone sums, bit for bit against trying every split of every node."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.shard.zone_planner import Sizes, ZoneSums
from dtrees.engine.threads import Threads
from dtrees.split.grow import level
from dtrees.split.grow.level import search_level
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import Candidates, empty_candidates
from dtrees.split.search.scratch import make_scratch
from dtrees.split.table.columns import presort
from dtrees.split.table.zone_map import map_zones
from tests import naive
from tests.examples import examples
from tests.naive import ENTROPY, GINI, NEWTON, SQUARED_ERROR
from tests.slow import KERNELS_OF_THEIR_OWN, one_of_each, one_quick, quick_criteria, slow_for
from tests.split.nodes import best_of, comparable, package_limits, same, search_of
from tests.split.strategies import Task, as_lists

#: So many rows that no node is summed by parts of zones.
NO_PARTS = 2**30
#: A column's values, given random numbers and the number of rows.
COLUMNS = {
    "continuous": lambda rng, n: rng.normal(size=n),
    "float32": lambda rng, n: rng.normal(size=n).astype(np.float32),
    "few values": lambda rng, n: rng.integers(0, 5, n) / 3,
    "as many values as zones": lambda rng, n: rng.permutation(np.arange(n) % 255).astype(float),
    "one value more": lambda rng, n: rng.permutation(np.arange(n) % 256).astype(float),
    "half of it one value": lambda rng, n: np.where(rng.random(n) < 0.5, 0.25, rng.random(n)),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.9, 0.0, rng.normal(size=n)),
    "mostly two values": lambda rng, n: np.where(rng.random(n) < 0.4, 0.0, np.where(rng.random(n) < 0.6, 0.5, rng.normal(size=n))),
    "many ties": lambda rng, n: rng.integers(0, 300, n) ** 2.0,
    "heavy tails": lambda rng, n: np.exp(rng.normal(0, 30, n)),
    "missing": lambda rng, n: np.where(rng.random(n) < 0.3, np.nan, rng.random(n)),
    "mostly missing": lambda rng, n: np.where(rng.random(n) < 0.99, np.nan, rng.random(n)),
    "all missing": lambda rng, n: np.full(n, np.nan),
    "constant": lambda rng, n: np.full(n, 7.0),
    "adjacent floats": lambda rng, n: np.nextafter(1.0, 2.0, dtype=float) + np.spacing(1.0) * rng.integers(0, 400, n),
}
TARGETS = {
    "noise": lambda rng, x, n: rng.normal(size=n),
    "step": lambda rng, x, n: (x > np.median(x)) + rng.normal(0, 0.1, n),
    "ties": lambda rng, x, n: rng.choice([-1.0, 1.0], n),
    "heavy tails": lambda rng, x, n: rng.standard_cauchy(n),
    "one row": lambda rng, x, n: np.eye(1, n, n // 2)[0],
    "equal": lambda rng, x, n: np.zeros(n),
    "far off": lambda rng, x, n: rng.choice([-1e3, 1e3]) + rng.normal(size=n) + (x > np.median(x)),
    "outlier": lambda rng, x, n: rng.normal(size=n) + (x > np.median(x)) + 1e9 * (np.eye(1, n, n // 2)[0] - 1 / n),
    "turns": lambda rng, x, n: np.argsort(np.argsort(x)) % 2 * 2.0 - 1.0,
}


def search_in_levels(
    table: list[NDArray[Any]],
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    limits: naive.SplitLimits,
    seed: int,
    n_threads: int,
    fine_rows: int = NO_PARTS,
) -> NDArray[Any]:
    """Search the root, then the two halves of its rows by one column, as a tree would; compare each with the oracle.

    Returns the scales of the halves' sums.
    """
    rng = np.random.default_rng(seed)
    n = a.shape[0]
    columns = presort(table)
    ids = np.arange(len(table), dtype=np.int32)
    weights = b if b.shape[0] else np.ones(n, np.int64)
    slope = float((np.abs(a) / weights).max())
    goes_left = rng.random(n) < rng.choice([0.5, 0.02])
    goes_left[0], goes_left[-1] = True, False
    order = np.concatenate([np.flatnonzero(goes_left), np.flatnonzero(~goes_left)])
    n_left = int(goes_left.sum())
    with Threads(n_threads) as threads:
        sums = ZoneSums(map_zones(columns), threads, fine_rows)
        sums.start(np.arange(len(table)), n, Sizes(int(np.abs(a).sum())), b.shape[0] > 0)
        nothing = np.empty(0, np.int64)
        levels = [
            (np.arange(n), np.array([0]), np.array([n]), np.array([0]), nothing, nothing),
            (order, np.array([0, 0, n_left]), np.array([n, n_left, n]), np.array([1, 2]), np.array([0]), np.array([1])),
        ]
        for rows, start, in_stop, nodes, parents, left in levels:
            partition = RowPartition(rows.astype(np.uint32), a[rows], b[rows] if b.shape[0] else b)
            work = sums.plan(parents, left, nodes, start, in_stop)
            assert work is not None
            node_sums = np.array(
                [[a[rows[i:j]].sum(), weights[rows[i:j]].sum()] for i, j in zip(start[nodes], in_stop[nodes], strict=True)]
            )
            found = empty_candidates(work.operations.shape[0], 2)
            bars = np.full(nodes.shape[0], -1.0)

            summed = level.SummedLevel(sums.zone_map, ids, work.sums, partition, work.nodes, node_sums, bars)
            arguments = work.tasks, work.operations, columns, summed, package_limits(limits, slope)
            run = partial(_search_level, arguments, found, n)
            threads.share(work.tasks.shape[0], run)
            for i, node in enumerate(nodes.tolist()):
                mine = rows[start[node] : in_stop[node]]
                scans = (work.operations[:, 0] == level.SCAN) & (work.operations[:, 1] == i)
                if n <= 700:
                    lists, weight = as_lists(table), b.tolist() or None
                    expected = comparable(
                        naive.best_split(lists, range(len(table)), np.sort(mine).tolist(), a.tolist(), weight, limits, [0] * len(table))
                    )
                else:  # nodes of up to 2047 rows are scanned whole there
                    inside = np.isin(np.arange(n), mine)
                    expected = best_of(search_of(Task(table, a, b, inside, limits)))
                # A level does not tell columns that are constant in a node from those without an allowed split.
                assert same(best_of(found.take(scans)), expected if expected[1] else (naive.NO_SPLIT, None))
        return work.sums.scales[work.nodes[:, 2]]


def _search_level(arguments: tuple[Any, ...], found: Candidates, n: int, queue: NDArray[np.int64], _: int) -> None:
    search_level(queue, *arguments, make_scratch(n, n, 0), found)


def make_case(kinds: list[str], target: str, criterion: str, weighted: bool, n: int, seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    table = [COLUMNS[kind](rng, n) for kind in kinds]
    signal = TARGETS[target](rng, np.nan_to_num(table[0].astype(float)), n)
    b = rng.integers(1, 2**20, n) if weighted else np.empty(0, np.int64)
    if criterion in (GINI, ENTROPY):
        a = (signal > 0).astype(np.int64) * (b if weighted else 1)
    else:
        a = np.rint(signal * (2.0**50 / max(np.abs(signal).sum(), 1.0))).astype(np.int64)
    return table, a, b


@pytest.mark.parametrize(
    ("target", "criterion"),
    one_of_each(list(TARGETS), slow_for(KERNELS_OF_THEIR_OWN, [SQUARED_ERROR, GINI, ENTROPY, NEWTON]), others=pytest.mark.thorough),
)
def test_every_kind_of_column(target: str, criterion: str) -> None:
    for seed, weighted in enumerate([False, True]):
        table, a, b = make_case(list(COLUMNS), target, criterion, weighted, 400, seed)
        limits = naive.SplitLimits(criterion, penalty=3.0 if criterion == NEWTON else 0.0, min_samples=[1, 20][seed])
        search_in_levels(table, a, b, limits, seed, n_threads=1)


@given(
    st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4),
    st.sampled_from(sorted(TARGETS)),
    st.sampled_from(quick_criteria([SQUARED_ERROR, GINI, ENTROPY, NEWTON])),
    st.booleans(),
    st.one_of(st.integers(2, 300), st.integers(701, 2000)),
    st.integers(0, 2**20),
    st.sampled_from([0.0, 1.0, 1e9]),
    st.sampled_from([1, 2, 60]),
    st.sampled_from([1, 3]),
)
@examples(60)
def test_levels(
    kinds: list[str], target: str, criterion: str, weighted: bool, n: int, seed: int, penalty: float, min_samples: int, n_threads: int
) -> None:
    table, a, b = make_case(kinds, target, criterion, weighted, n, seed)
    limits = naive.SplitLimits(criterion, penalty=penalty if criterion == NEWTON else 0.0, min_samples=min_samples)
    search_in_levels(table, a, b, limits, seed, n_threads)


@pytest.mark.parametrize("target", ["noise", "step", "turns", "heavy tails"])
def test_flagged_zones_are_cut_finer(target: str) -> None:
    """Enough rows in flagged zones for a second cut, of continuous columns that all are as good as noise."""
    for seed in range(4):
        table, a, b = make_case(["continuous", "missing", "half of it one value"], target, NEWTON, seed % 2 == 1, 2047, seed)
        search_in_levels(table, a, b, naive.SplitLimits(NEWTON, penalty=1.0), seed, n_threads=2)


@pytest.mark.parametrize(("criterion", "weighted"), one_of_each(one_quick([SQUARED_ERROR, NEWTON]), one_quick([False, True])))
def test_sums_are_made_anew(criterion: str, weighted: bool) -> None:
    """In a scale of their own, where the root's tells nothing: without an outlier, and where all targets are far from the root's mean."""
    penalty = 3.0 if criterion == NEWTON else 0.0
    for seed, target in enumerate(["outlier", "far off", "noise"] * 4):
        table, a, b = make_case(["continuous", "missing", "few values"], target, criterion, weighted, 600, seed)
        fine_rows = 0 if seed > 5 else NO_PARTS
        scales = search_in_levels(table, a, b, naive.SplitLimits(criterion, penalty=penalty), seed, 1 + seed % 2, fine_rows)
        moved = criterion == SQUARED_ERROR and target != "noise"
        assert (scales["centre"] != 0).any() == (moved and not weighted)
        assert np.isfinite(scales["slope"]).any() == (moved and not weighted)


def test_zones_are_narrow_at_both_ends() -> None:
    n = 100_000
    zones = map_zones(presort([np.random.default_rng(0).normal(size=n), np.arange(n) % 300]), fold=0)
    rows = np.bincount(zones.part[:, 0])
    assert zones.n_zones[0] == 255 == rows.shape[0]
    assert rows[0] < 10 > rows[-1]
    assert 550 < rows[127] < 650
    assert zones.n_zones[1] <= 255
    assert not zones.exact.any()
    # Zones are made of whole values, in order.
    codes = np.arange(n) % 300
    assert all(np.unique(zones.part[codes == code, 1]).shape[0] == 1 for code in range(300))
    assert (np.diff(zones.part[:300, 1].astype(int)) >= 0).all()
