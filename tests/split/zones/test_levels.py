"""A level searched by zone sums, compared bit for bit with trying every split of every node, by every way to pick rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.shard import zone_sums as engine_sums
from dtrees.engine.shard.dense_runner import SubtreeRunner
from dtrees.engine.shard.node_search import NodeSearch, ShardColumns
from dtrees.engine.shard.zone_sums import Sizes, ZoneSums
from dtrees.engine.threads import Threads
from dtrees.engine.tree.grower import NodeTable
from dtrees.split import policy
from dtrees.split.compile.kernels import NONE as NOTHING
from dtrees.split.compile.kernels import ZERO, kernel
from dtrees.split.node.limits import NodeLimits
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import empty_candidates
from dtrees.split.numbers.hashing import RIGHT, ROOT
from dtrees.split.policy import FOLD, LIST_ROWS, MAX_PARTS
from dtrees.split.search.scratch import make_scratch
from dtrees.split.table.columns import presort
from dtrees.split.table.zone_map import map_zones
from dtrees.split.zones.by_category import SummedNode
from dtrees.split.zones.sum_slots import search_columns
from dtrees.split.zones.sums import SCALE, Sums, best_edges, get_ready, lay_out_slots, size_shift, sum_rows
from tests import naive
from tests.examples import examples
from tests.naive import ENTROPY, GINI, NEWTON, SQUARED_ERROR
from tests.slow import KERNELS_OF_THEIR_OWN, one_of_each, one_quick, quick_criteria, slow_for, thorough_for
from tests.split.nodes import best_of, candidate, comparable, package_limits, same, search_of, slope_of
from tests.split.strategies import Task, as_lists

# --- a level searched by zone sums, compared bit for bit with trying every split of every node ---


#: A number of rows from which no node is summed by parts of zones.
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
    """Search the root, then the two halves of its rows by one column, as for a tree, and compare each with the oracle.

    Returns the scales of the halves' sums.
    """
    rng = np.random.default_rng(seed)
    n, k = a.shape[0], len(table)
    columns = ShardColumns(presort(table), np.arange(k, dtype=np.int32), k)
    weights = b if b.shape[0] else np.ones(n, np.int64)
    of_tree = package_limits(limits, float((np.abs(a) / weights).max())), NodeLimits(9, 0, 0, k, RIGHT, True, False)
    goes_left = rng.random(n) < rng.choice([0.5, 0.02])
    goes_left[0], goes_left[-1] = True, False
    nodes, search, rows, nothing = NodeTable(2), NodeSearch(columns, sums_zones=True), np.arange(n), np.empty(0, np.int64)
    nodes.open(n, n, ROOT, np.array([a.sum(), weights.sum()]))
    with Threads(n_threads) as threads:
        runner = SubtreeRunner(presort(table), threads)
        search._zone_sums = sums = ZoneSums(columns.zone_map(threads, ()), threads, fine_rows)
        search.runner, search.nodes, search.rows = runner, nodes, RowPartition(rows, a, b)
        search._limits, search._stops = of_tree
        search._keys = ROOT, ROOT
        search.begin_search(Sizes(int(np.abs(a).sum())), inherit=True)
        for which, parents in (np.array([0]), nothing), (np.array([1, 2]), np.array([0])):
            if parents.shape[0]:
                rows = np.argsort(~goes_left, kind="stable")
                nodes.divide(parents, which[:1], (np.array([goes_left.sum()]),) * 2)
                for node, inside in (1, goes_left), (2, ~goes_left):
                    nodes.sums[node] = a[inside].sum(), weights[inside].sum()
            search.rows = RowPartition(rows.astype(np.uint32), a[rows], b[rows] if b.shape[0] else b)
            found, _ = search.find(which, parents, which[: parents.shape[0]])
            for i, node in enumerate(which.tolist()):
                mine = rows[nodes.start[node] : nodes.in_stop[node]]
                if n <= 700:
                    lists, weight = as_lists(table), b.tolist() or None
                    expected = comparable(naive.best_split(lists, range(k), np.sort(mine).tolist(), a.tolist(), weight, limits, [0] * k))
                else:  # nodes of up to 2047 rows are scanned completely there
                    expected = best_of(search_of(Task(table, a, b, np.isin(np.arange(n), mine), limits)))
                # A level does not distinguish columns that are constant in a node from those without an allowed split.
                assert same(candidate(found, i), expected if expected[1] else (naive.NO_SPLIT, None))
        return sums._sums.scales[search._last_level[1]]


@kernel
def begin_node(summed, limits, scratch):  # type: ignore[no-untyped-def]
    """Sum a node's rows; return its bar."""
    zone_map, ids, sums, partition, place, node_sums = summed
    sum_rows(zone_map, partition, place[0], place[1], sums, place[2])
    get_ready(zone_map, partition, sums, place, node_sums, limits)
    return best_edges(ids, zone_map, sums, place, node_sums, limits, (ZERO(), zone_map.which.shape[0]), -1.0, scratch)[0]


@kernel
def scan_columns(summed, first, last, columns, limits, bar, scratch, out):  # type: ignore[no-untyped-def]
    search_columns(summed, first, last, NOTHING(), columns, limits, bar, scratch, out)


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
    st.sampled_from([2**20, 2**20, 0.0, 0.4, 0.9, 2.0]),
)
@examples(120)
def test_levels(
    kinds: list[str],
    target: str,
    criterion: str,
    weighted: bool,
    n: int,
    seed: int,
    penalty: float,
    min_samples: int,
    n_threads: int,
    fine: float,
) -> None:
    """Nodes with at least some share of the rows are summed by parts: both children, one of them, only the root, or none."""
    table, a, b = make_case(kinds, target, criterion, weighted, n, seed)
    limits = naive.SplitLimits(criterion, penalty=penalty if criterion == NEWTON else 0.0, min_samples=min_samples)
    search_in_levels(table, a, b, limits, seed, n_threads, int(fine * n))


@pytest.mark.parametrize("target", ["noise", "step", "turns", "heavy tails"])
def test_flagged_zones_are_cut_finer(target: str) -> None:
    """Enough rows are in flagged zones to divide these, in continuous columns that are all noise."""
    for seed in range(4):
        table, a, b = make_case(["continuous", "missing", "half of it one value"], target, NEWTON, seed % 2 == 1, 2047, seed)
        search_in_levels(table, a, b, naive.SplitLimits(NEWTON, penalty=1.0), seed, n_threads=2)


@pytest.mark.parametrize(("criterion", "weighted"), one_of_each(one_quick([SQUARED_ERROR, NEWTON]), one_quick([False, True])))
def test_sums_are_made_anew(criterion: str, weighted: bool) -> None:
    """In a scale of their own if the root's is useless: without an outlier, and if all targets are far from the root's mean."""
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
    # Zones consist of whole values, in order.
    codes = np.arange(n) % 300
    assert all(np.unique(zones.part[codes == code, 1]).shape[0] == 1 for code in range(300))
    assert (np.diff(zones.part[:300, 1].astype(int)) >= 0).all()


# --- zones and their parts compared with a scan of every row, and proof that each way to pick rows is used ---


#: How a column was searched: nothing was flagged, only zones with listed rows, others as well; and whether flagged zones were divided.
NONE, LISTED, PICKED = range(3)
_SENTINEL = 7


def search_by_zones(
    task: Task, together: int, fine: int, lists: bool = False, known: Sequence[Any] = ()
) -> tuple[Any, set[tuple[int, bool]]]:
    """Search the node, ``together`` columns in each scan; return the best split and, for scans of one column, how it was searched.

    With ``lists``, LISTED are rows that were picked from the lists of whole columns, which are not used otherwise. ``known`` is stored
    data of nodes with more rows, and the shift of sizes.
    """
    columns = presort(task.table)
    zone_map, k = map_zones(columns, fold=FOLD if fine is True else int(fine)), columns.n_columns
    rows = np.flatnonzero(task.inside).astype(np.uint32)
    n = rows.shape[0]
    a, b = task.g[rows], task.h[rows] if task.h.shape[0] else task.h
    shown, kept, shift = known or (np.empty((2, 0, 0), np.int64), np.empty((k, 0), np.uint64), size_shift(int(np.abs(a).sum())))
    scales = np.array([(shift, 0, np.inf)], SCALE)
    width, grain = 3 if b.shape[0] else 2, zone_map.fold
    starts, shifts = lay_out_slots(zone_map, width)
    flagged = np.zeros(2, np.int64)
    sums = Sums(
        np.zeros((1, starts[grain, -1]), np.int64),
        np.full(1, grain),
        scales,
        scales,
        starts,
        shifts,
        width,
        grain,
        0,
        flagged,
        np.full(task.g.shape[0] if lists else 0, 2**32 - 1, np.uint32),
        np.empty((1, 0), np.uint8),
        shown,
        kept,
    )
    if lists:
        sums.place_of[rows] = np.arange(n)
        zone_map.ends[:, 0], zone_map.ends[:, 1] = 0, zone_map.n_zones << zone_map.fold  # nothing else is listed
    node_sums = np.array([a.sum(), b.sum() if b.shape[0] else n])
    summed = SummedNode(zone_map, np.arange(k, dtype=np.int32), sums, RowPartition(rows, a, b), (0, n, 0), node_sums)
    limits, scratch = package_limits(task.limits, slope_of(task)), make_scratch(n, int(np.diff(columns.offsets).max()), 0)
    bar, found, done = np.array([begin_node(summed, limits, scratch)]), empty_candidates(k, 2), set()
    for first in range(0, k, together):
        traces = scratch.keys, scratch.marks, scratch.cuts[1]  # written by all ways to pick rows, by one, and when zones are divided
        for array in traces:
            array[:] = _SENTINEL
        scan_columns(summed, first, min(first + together, k), columns, limits, bar, scratch, found.take(slice(first, None)))
        changed = [bool((array != _SENTINEL).any()) for array in traces]
        done.add((NONE if not changed[0] else PICKED if changed[1] else LISTED, changed[2]))
    assert 0 <= flagged[0] <= flagged[1] or lists
    status, split = best_of(found)
    return (status if split else naive.NO_SPLIT, split), done


def noise(n: int, seed: int, criterion: str, weighted: bool) -> Task:
    """A large node without information, except a little in the first column."""
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=n) for _ in range(5)]
    x[1][rng.random(n) < 0.1] = np.nan
    x[2] = np.round(x[2], 2)
    signal = rng.normal(size=n) + 0.02 * (x[0] > 0.1)
    b = rng.integers(1, 2**10, n) if weighted else np.empty(0, np.int64)
    in_classes = criterion in (GINI, ENTROPY)
    a = (signal > 0).astype(np.int64) * (b if weighted else 1) if in_classes else np.rint(signal * 2.0**35).astype(np.int64)
    penalty = 1.0 if criterion == NEWTON else 0.0
    return Task(list(x), a, b, rng.random(n) < 0.9, naive.SplitLimits(criterion, penalty=penalty, min_samples=1 + 30 * (seed % 2)))


#: Entropy has kernels of its own; slow tests use it in large nodes (test_column.py).
CRITERIA = thorough_for(KERNELS_OF_THEIR_OWN, [SQUARED_ERROR, GINI, ENTROPY, NEWTON])


@pytest.mark.parametrize(
    ("criterion", "weighted", "fine"),
    one_of_each(CRITERIA, [False, True], [True, False], others=pytest.mark.thorough),
)
def test_every_way_is_taken(criterion: str, weighted: bool, fine: bool) -> None:
    seen: set[tuple[int, bool]] = set()
    for seed in range(3):
        task = noise(200_000, seed, criterion, weighted)
        expected = best_of(search_of(task))
        found, done = search_by_zones(task, 1, fine)
        assert same(found, expected)
        seen |= done
        assert same(search_by_zones(task, 5, fine)[0], expected)
    ways = {way for way, _ in seen}
    assert PICKED in ways
    if fine and criterion in (SQUARED_ERROR, GINI):
        assert LISTED in ways
        assert {cut for way, cut in seen if way != NONE} == {False, True}


@pytest.mark.parametrize(
    ("criterion", "weighted", "share"),
    one_of_each(CRITERIA, [False, True], [0.9, 0.02], others=pytest.mark.thorough),
)
def test_rows_are_picked_from_lists(criterion: str, weighted: bool, share: float) -> None:
    """From the lists of whole columns if the node has many of the rows; otherwise its own rows are compared."""
    seen: set[int] = set()
    for seed in range(6):
        task = noise(30_000, seed, criterion, weighted)
        task = task._replace(inside=np.random.default_rng(seed).random(30_000) < share)
        expected = best_of(search_of(task))
        for fine in (False, True):
            found, done = search_by_zones(task, 1, fine, lists=True)
            assert same(found, expected)
            seen |= {way for way, _ in done}
            assert same(search_by_zones(task, 5, fine, lists=True)[0], expected)
    assert (LISTED if share > 0.5 else PICKED) in seen


@pytest.mark.parametrize(
    ("criterion", "weighted", "fine"),
    one_of_each(CRITERIA, [False, True], [True, False], others=pytest.mark.thorough),
)
def test_turns(criterion: str, weighted: bool, fine: bool) -> None:
    """Alternating values: every zone and every part has a high bound, so that all rows are picked."""
    table, a, b = make_case(["continuous"], "turns", criterion, weighted, 900, 1)
    x = table[0]
    rng = np.random.default_rng(0)
    table = [x, -x, np.round(x, 2), np.where(rng.random(900) < 0.3, np.nan, x), np.where(x > 0, 0.5, x)]
    seen: set[int] = set()
    for min_samples in (1, 40):
        limits = naive.SplitLimits(criterion, penalty=3.0 if criterion == NEWTON else 0.0, min_samples=min_samples)
        task = Task(table, a, b, np.ones(900, np.bool_), limits)
        expected = comparable(
            naive.best_split(as_lists(table), range(5), list(range(900)), a.tolist(), b.tolist() or None, limits, [0] * 5)
        )
        found, done = search_by_zones(task, 1, fine)
        assert same(found, expected)
        seen |= {way for way, _ in done}
        assert PICKED in seen or min_samples == 1  # there, the best split may be after a single row
        for together in (2, 5):
            assert same(search_by_zones(task, together, fine)[0], expected)
            assert same(search_by_zones(task, together, fine, lists=True)[0], expected)


@given(
    st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3),
    st.sampled_from(sorted(TARGETS)),
    st.sampled_from(quick_criteria([SQUARED_ERROR, GINI, ENTROPY, NEWTON])),
    st.booleans(),
    st.integers(700, 2047),
    st.integers(0, 2**20),
    st.sampled_from([0, 3]),
    st.sampled_from([0, 40, 350]),
    st.lists(st.tuples(st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.3]), st.sampled_from(["any", "low", "high", "large"])), max_size=4),
)
@examples(120)
def test_what_larger_nodes_have_shown(
    kinds: list[str],
    target: str,
    criterion: str,
    weighted: bool,
    n: int,
    seed: int,
    shift: int,
    room: int,
    losses: list[tuple[float, str]],
) -> None:
    """Nodes with ever fewer of the same rows miss no better split because of data of earlier nodes."""
    table, a, b = make_case(["continuous", *kinds], target, criterion, weighted, n, seed)
    k, rng = len(table), np.random.default_rng(seed)
    shown = np.full((2, k, map_zones(presort(table), fold=2).firsts.shape[1] + 1), -1)
    known = shown, np.empty((k, room), np.uint64), size_shift(int(np.abs(a).sum())) + shift
    inside = np.ones(n, np.bool_)
    for share, which in [(0.0, "any"), *losses]:
        by = {"any": rng.random(n), "low": table[0], "high": -table[0], "large": -np.abs(a)}[which]
        inside[np.argsort(by)[: int(share * n)]] = False
        task = Task(table, a, b, inside, naive.SplitLimits(criterion, penalty=3.0 if criterion == NEWTON else 0.0))
        expected = best_of(search_of(task))
        assert same(search_by_zones(task, 1, 2, known=known)[0], expected if expected[1] else (naive.NO_SPLIT, None))


@pytest.mark.parametrize("criterion", one_quick([NEWTON, GINI]))
def test_most_parts_are_not_looked_at_again(criterion: str) -> None:
    """A bound that never prunes would be safe, but useless."""
    task = noise(200_000, 0, criterion, False)
    task = task._replace(inside=np.ones(200_000, np.bool_))
    n_parts = map_zones(presort(task.table)).firsts.shape[1]
    known = np.full((2, 5, n_parts + 1), -1), np.empty((5, 20_000), np.uint64), size_shift(int(np.abs(task.g).sum()))
    expected, n_flagged = best_of(search_of(task)), list[int]()
    for _ in range(2):
        known[0][1] = -1  # no rows are stored
        assert same(search_by_zones(task, 5, True, known=known)[0], expected)
        n_flagged.append(int((known[0][1, :, :-2] > 0).sum()))
    assert n_flagged[0] > 20
    assert n_flagged[1] < n_flagged[0] / 2


def test_zones_are_cut_where_much_was_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tree of a table without lists is summed by parts, the next one depends on the previous tree."""
    monkeypatch.setattr(policy, "LIST_ROWS", 0)
    rng = np.random.default_rng(0)
    n = 3000
    columns = presort([rng.normal(size=n) for _ in range(5)])
    with Threads(1) as threads:
        sums, places = ZoneSums(map_zones(columns), threads, fine_rows=1000), np.arange(5)

        def grain_after(flagged: tuple[int, int]) -> int:
            sums.start(places, n, Sizes(1), False)
            of_tree = sums.sum_slots(1, np.arange(5, dtype=np.int32)).sums
            of_tree.flagged[:] = flagged
            return of_tree.most_grain

        assert grain_after((900, 1000)) == FOLD - 1
        assert grain_after((10, 1000)) == FOLD
        assert grain_after((1, 1000)) == FOLD - 2
        assert grain_after((900, 1000)) == 0
        assert grain_after((0, 0)) == FOLD
        assert grain_after((0, 1)) == FOLD  # no node was large enough
        assert grain_after((0, 0)) == 0


def test_slots_are_as_fine_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for the smallest parts before these are needed, and for larger ones if memory is short."""
    monkeypatch.setattr(policy, "LIST_ROWS", 0)
    monkeypatch.setattr(engine_sums, "SLOTS_BYTES_PER_ROW", 0)
    n = 3000
    columns = presort([np.random.default_rng(0).normal(size=n)])
    starts, _ = lay_out_slots(map_zones(columns), 2)
    with Threads(2) as threads:
        for room_for, wanted in ((FOLD, [FOLD - 1, FOLD, FOLD]), (FOLD - 2, [FOLD - 2] * 3), (0, [0] * 3)):
            monkeypatch.setattr(engine_sums, "SLOTS_MIN_BYTES", 2 * engine_sums.FINE_SLOTS_PER_THREAD * 8 * int(starts[room_for, -1]))
            sums = ZoneSums(map_zones(columns), threads, fine_rows=1000)
            for grain, flagged in zip(wanted, [1000, 0, 0], strict=True):
                sums.start(np.arange(1), n, Sizes(1), False)
                sum_slots = sums.sum_slots(2, np.zeros(1, np.int32))
                assert sum_slots is not None
                assert sum_slots.sums.slots.shape[1] == starts[grain, -1]
                sum_slots.sums.flagged[:] = flagged, 1000


@pytest.mark.parametrize("n", [1, 700, 40_000, 300_000])
@pytest.mark.parametrize("kind", COLUMNS)
def test_parts_of_a_column(kind: str, n: int) -> None:
    columns = presort([COLUMNS[kind](np.random.default_rng(0), n)])
    codes, n_distinct = columns.codes[0].astype(np.int64), int(columns.offsets[1])
    for fold_to in (0, FOLD):
        zones = map_zones(columns, fold=fold_to)
        n_parts = int(zones.n_zones[0]) << fold_to
        assert zones.fold == fold_to
        assert n_parts < MAX_PARTS
        part = zones.part[:, 0].astype(np.int64)
        present = codes < n_distinct
        if n <= LIST_ROWS:
            assert zones.lists[0].tolist() == sorted(code << 32 | row for row, code in enumerate(codes.tolist()))
        else:
            assert zones.lists.shape == (1, 0)
        assert (part[~present] == n_parts).all()
        if zones.exact[0]:
            assert n_distinct < 256
            assert (part == codes << fold_to).all()
            continue
        # Parts follow from their first codes.
        first_codes = zones.first_codes[0]
        assert (first_codes[0], first_codes[n_parts]) == (0, n_distinct)
        assert (part[present] == np.searchsorted(first_codes[: n_parts + 1], codes[present], side="right") - 1).all()
        if n <= LIST_ROWS:
            assert (zones.firsts[0, : n_parts + 1] == np.searchsorted(np.sort(codes), first_codes[: n_parts + 1])).all()
        if kind.startswith(("half", "mostly zero", "mostly two")):  # a frequent value has a zone to itself
            zone = part >> fold_to
            assert all(np.unique(codes[zone == zone[codes == one][0]]).size == 1 for one in np.flatnonzero(np.bincount(codes) > n // 9))
        inner = first_codes[: n_parts + 1]
        inner = inner[(inner > 0) & (inner < n_distinct)]
        assert (inner % (1 << zones.shift[0]) == 0).all()
        low, high, n_low, n_high = zones.ends[0]
        assert zones.listed[0, 0, :n_low].tolist() == np.flatnonzero(present & (part < low)).tolist()
        assert zones.listed[0, 1, :n_high].tolist() == np.flatnonzero(present & (part >= high)).tolist()
        assert 0 <= low <= high <= n_parts
        if kind == "continuous" and n > 700 and fold_to:
            assert 0 < low < 100
            assert 0 < n_parts - high < 100
            assert min(n_low, n_high) > 50
