"""Forests over shards of rows: what is sent, what is omitted, who draws, and trees that grow side by side."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dtrees.engine.plan.plans import ForestPlan, Progress
from dtrees.engine.plan.row_draws import RowDraws, find_drawing
from dtrees.engine.protocol.exchange import Payload, Shards, Step, Turn, side_by_side
from dtrees.engine.rows import whole, zone_edges
from dtrees.engine.rows.searcher import Searcher
from dtrees.engine.rows.tree import trees_at_once
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import exponent_for, scale_into
from tests.engine.local_rows import LocalRowsExecutor
from tests.engine.problems import Pickling, Problem, assert_same, forest, send_rows, spread
from tests.engine.shards import all_equal, rules, wild_weight
from tests.slow import thorough_for

# --- forests over shards of rows: what is sent, what is omitted, who draws, and how existing trees are used ---


THREE = spread(300, 3, [20, 150])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("criterion", "targets"),
    [
        *(("gini", (3,)), ("gini", (7,)), ("entropy", (3,)), ("entropy", (7,))),
        *thorough_for({"entropy"}, [("squared_error", (1, 1, 1)), ("poisson", (1, 1, 1)), ("gini", (3, 2, 3)), ("entropy", (3, 2, 3))]),
    ],
)
def test_parts_of_many_rows_that_may_hold_no_better_split_are_left_out(
    criterion: str, targets: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One column is informative, and few others are; and no split is missed."""
    send_rows(monkeypatch, 20)
    monkeypatch.setattr(zone_edges, "most_zones", lambda n_rows: 32 if len(targets) > 1 else 8)
    cells, flag = list[tuple[int, int]](), Searcher.flag

    def flag_and_note(searcher: Searcher, bars: Any, drawn: Any, most_bytes: int) -> Any:
        wanted = flag(searcher, bars, drawn, most_bytes)
        cells.append((int(wanted.tasks[:, 3].sum()), int(searcher._message.n_rows.sum()) * searcher._ids.shape[0]))
        return wanted

    monkeypatch.setattr(Searcher, "flag", flag_and_note)
    n, rng = 4_000, np.random.default_rng(1)
    table = [rng.normal(size=n) for _ in range(4)] + [np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))]
    signal = table[0] + np.nan_to_num(table[4]) + rng.normal(size=n) / 3
    y = np.column_stack([signal, signal**2 + rng.normal(size=n) / 3, rng.normal(size=n) / 3 + signal])[:, : len(targets)]
    if criterion == "poisson":
        y = np.round(np.exp(np.clip(y, -2, 3)))
    elif max(targets) > 1:
        y = np.column_stack([np.digitize(one, np.quantile(one, np.arange(1, k) / k)) for one, k in zip(y.T, targets, strict=True)])
    y = np.asfortranarray(y) if len(targets) > 1 else y[:, 0]
    for changes in ({}, {"n_draws": n}):
        plan = forest(criterion, *targets, max_depth=4, **changes).problem(10).plan
        plan = replace(plan, rules=replace(plan.rules, max_features=5, columns_per_tree=5))
        problem = Problem(table, y, None, plan)
        assert_same(problem.grow(), problem.grow_on(problem.rows(spread(n, 2, [n // 3]))))
    shares = [flagged / max(1, looked_at) for flagged, looked_at in cells]
    assert min(shares) < 0.2
    assert max(shares) > 0.001


@pytest.mark.parametrize("n_draws", [256, 301])
def test_trees_that_weigh_the_classes_of_their_own_rows(n_draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the weights of all rows sum to a power of two, so that their order matters."""
    send_rows(monkeypatch, 40)
    in_order, sum_in_order = list[str](), whole.sum_in_order
    monkeypatch.setattr(whole, "sum_in_order", lambda *given: in_order.append(given[2]) or sum_in_order(*given))
    problem = forest("gini", 2, max_features=4, n_draws=n_draws, balanced_subsample=True, out_of_bag=True).problem(300)
    problem = replace(problem, target=(problem.target & (np.arange(300) % 3 > 0)).astype(np.int64))
    assert_same(problem.grow(), problem.grow_on(problem.rows(THREE)))
    assert bool(in_order) == (n_draws == 256)


@pytest.mark.slow
@pytest.mark.parametrize("random_splits", [False, True])
@pytest.mark.parametrize(("n_targets", "weighted"), [(1, False), (1, True), (2, False)])
def test_a_node_of_one_target_is_a_leaf_though_columns_vary(
    n_targets: int, weighted: bool, random_splits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large nodes, all rows of which are 0, on all shards, or except for one row of one shard."""
    send_rows(monkeypatch, 5)
    problem = forest("squared_error", *[1] * n_targets, weighted=weighted, random_splits=random_splits).problem(600)
    y = np.where(problem.table[0] > 1.0, problem.table[5].astype(float), 0.0)
    if n_targets > 1:
        y = np.asfortranarray(np.column_stack([y, np.zeros(600)]))
    y.reshape(600, -1)[[0, 599], -1] = -7.0
    problem = replace(problem, target=y)
    assert_same(problem.grow(), problem.grow_on(problem.rows(spread(600, 3, [1, 300]))))


class Weighing(LocalRowsExecutor):
    """Records the largest payloads of each step."""

    def hand_over(self, shard: int, step: Step) -> None:
        for payload in step.payloads.values():
            self.sizes[step.name] = max(self.sizes.get(step.name, 0), sum(getattr(array, "nbytes", 0) for array in payload.arrays))
        super().hand_over(shard, step)


def test_what_is_sent_for_random_thresholds_grows_with_nodes_and_columns_not_with_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No zones are summed, and no rows are sent."""
    send_rows(monkeypatch, 1)
    for n in (500, 5000):
        problem = forest("gini", 2, random_splits=True, max_depth=2).problem(n)
        executor = problem.rows(spread(n, 2, [n // 2]), kind=Weighing)
        executor.sizes = {}
        problem.grow_on(executor, 1)
        assert {"ends", "sides"} < executor.sizes.keys()
        assert executor.sizes["sums"] <= 2 * 16  # for all rows together, or the division of two nodes
        assert not {"bars", "flags", "picked", "delegated"} & executor.sizes.keys()
        assert executor.sizes["ends"] <= 2 * (7 * 17 + 17)
        assert executor.sizes["sides"] <= 2 * 4 * 24


class Log:
    """Stores trees in memory."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def recall(self) -> list[Any]:
        return list(self.kept)

    def keep(self, tree: Any, scores: Any) -> None:
        self.kept.append((tree, scores))


def test_trees_that_a_log_kept_are_not_grown_again() -> None:
    problem, log = forest(n_draws=200).problem(200), Log()
    one = problem.grow(3).trees

    def grow(callback: Any = None) -> tuple[list[Any], Any]:
        executor = problem.rows(spread(200, 2, [90]))
        return problem.grow_on(executor, 3, 1, callback=callback, log=log).trees, executor.largest

    assert all_equal(grow(lambda progress: progress.done == 2)[0], one[:2])
    assert len(log.kept) == 2
    for sent in ({"GrowTrees"}, set()):  # the second time, no message is sent to shards
        trees, largest = grow()
        assert all_equal(trees, one)
        assert sent <= largest.keys()
        assert sent or not largest


@pytest.mark.parametrize("out_of_bag", [False, True])
@pytest.mark.parametrize("side_by_side", [1, 2, 6])
@pytest.mark.parametrize("layout", ["columns", "rows"])
def test_a_callback_hears_of_trees_in_their_order_and_ends_the_forest(layout: str, side_by_side: int, out_of_bag: bool) -> None:
    """Trees after the last one do not change the sums, though they may be grown already."""
    problem, heard, log = forest(n_draws=200, out_of_bag=out_of_bag).problem(200), list[Progress](), Log()

    def three(progress: Progress) -> bool:
        heard.append(progress)
        return progress.done == 3

    executor = problem.rows(spread(200, 2, [90])) if layout == "rows" else problem.columns([(6,), (1, 4), (0, 2, 3, 5)])
    found = problem.grow_on(executor, 6, side_by_side, callback=three, log=log)
    assert_same(problem.grow(3), found)
    assert [(progress.done, progress.total) for progress in heard] == [(1, 6), (2, 6), (3, 6)]
    assert len(log.kept) == 3


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_shards_draw_the_rows_that_one_process_draws(weighted: bool, balanced: bool) -> None:
    n = 500
    rng = np.random.default_rng(0)
    y = rng.choice([0, 2, 3], n, p=[0.7, 0.2, 0.1])
    weight = wild_weight(n, 1) if weighted else None
    plan = ForestPlan(rules("gini", 3), 5, n_classes=4, n_draws=n, balanced_draws=balanced)
    cuts = [np.array([[0, 1], [2, 90], [300, 499]]), np.empty((0, 2), np.int64), np.array([[1, 2], [90, 300], [499, 500]])]
    wanted = RowDraws.of_table(plan, y, weight).counts(3)
    assert wanted.sum() > 0
    if balanced:  # as many rows of each class as in the smallest one
        there = np.ones(n, bool) if weight is None else weight > 0
        assert np.bincount(y, wanted)[[0, 2, 3]].tolist() == [np.bincount(y[there])[[0, 2, 3]].min()] * 3
        assert not wanted[~there].any()
    else:
        key = np.uint64(hashing.stream_key(hashing.as_seed(5), hashing.STREAM_BOOTSTRAP, 3))
        drawn = [np.uint64(hashing.draw(key, i)) for i in range(n)]
        if weight is None:
            rows = [hashing.below(bits, n) for bits in drawn]
        else:
            fixed = np.empty(n, np.int64)
            scale_into(weight, exponent_for(weight), fixed)
            ends = np.cumsum(fixed)
            rows = [np.searchsorted(ends, int(hashing.uniform(bits) * float(ends[-1])), side="right") for bits in drawn]
        np.testing.assert_array_equal(wanted, np.bincount(rows, minlength=n))
    for ranges in cuts:
        drawing, before = find_drawing(plan, y, weight, ranges[:, 0])
        own = np.concatenate([np.empty(0, np.int64), *(np.arange(*ends) for ends in ranges.tolist())])
        draws = RowDraws(drawing, 5, ranges, before, y[own], None if weight is None else weight[own])
        np.testing.assert_array_equal(draws.counts(3), wanted[own])


# --- forest trees that grow side by side over shards of rows: the same trees with fewer exchanges, and bounded memory ---


class Counting(Pickling):
    """Counts payloads, and for each step of shard 0 the trees in it, and those that sent rows since the previous step."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.n_payloads, self.n_trees, self.n_sending, self.sending = 0, list[int](), list[int](), 0

    def hand_over(self, shard: int, step: Step) -> None:
        self.n_payloads += len(step.payloads)
        if shard == 0 and step.payloads:
            self.n_trees.append(len(step.payloads[0].arrays[0]) if ": " in step.name else 1)
            self.n_sending.append(self.sending)
            self.sending = 0
        super().hand_over(shard, step)


def test_trees_share_exchanges_and_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    send_rows(monkeypatch, 40)
    problem = forest(n_draws=400).problem(400)

    def grown(at_once: int) -> Counting:
        executor = problem.rows(spread(400, 3, [10, 200]), kind=Counting)
        problem.grow_on(executor, 8, at_once)
        return executor

    alone, together = grown(1), grown(8)
    assert len(together.n_trees) < len(alone.n_trees) / 3
    assert together.n_payloads < alone.n_payloads / 3
    assert max(together.n_trees) == 8


def test_no_more_rows_are_sent_at_once_than_of_one_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees whose small nodes, or leaves, would together be too many wait for each other; others continue."""
    send_rows(monkeypatch, 40)
    monkeypatch.setattr("dtrees.engine.rows.row_shard.SHARED_CELLS", 0)
    problem = forest(n_draws=400).problem(400)
    executor = problem.rows(spread(400, 3, [10, 200]), kind=Counting)
    step = Shards.step

    def note(shards: Shards, name: str, *given: Any) -> Step:
        executor.sending += shards.shard == 0 and name in ("delegated", "leaves")
        return step(shards, name, *given)

    monkeypatch.setattr(Shards, "step", note)
    assert_same(problem.grow(5), problem.grow_on(executor, 5, 5))
    assert max(executor.n_sending) == 1
    assert sum(executor.n_sending) >= 10
    assert max(executor.n_trees) == 5


@pytest.mark.parametrize("n_classes", [0, pytest.param(5, marks=pytest.mark.slow)])  # sums of classes have kernels of their own
def test_a_tree_under_way_takes_no_more_than_is_reckoned_with(n_classes: int) -> None:
    n_rows = 4000
    problem = (forest("gini", n_classes, n_draws=n_rows) if n_classes else forest(n_draws=n_rows)).problem(n_rows)
    executor = problem.rows(spread(n_rows, 2, [n_rows // 2]))
    problem.grow_on(executor, 2, 2)
    first, other = executor.shards[0].trees
    own = {id(array): array.nbytes for array in _arrays(other, 4)}
    shared = {id(array) for array in _arrays(first, 4)}
    n_bytes = sum(size for which, size in own.items() if which not in shared)
    assert n_bytes > 30 * n_rows / 2
    assert trees_at_once(problem.plan, n_rows // 2, 1, n_bytes) == 1
    assert trees_at_once(problem.plan, n_rows // 2, 1, 20 * n_bytes) > 1


def _arrays(thing: Any, depth: int) -> list[np.ndarray[Any, Any]]:
    """Return the arrays in an object and its parts."""
    if isinstance(thing, np.ndarray):
        return [thing]
    if not depth:
        return []
    parts = thing if isinstance(thing, list | tuple) else vars(thing).values() if hasattr(thing, "__dict__") else ()
    return [array for part in parts for array in _arrays(part, depth - 1)]


def test_programs_that_send_much_wait_for_one_another() -> None:
    """Those that send little continue, and the first never waits."""

    def program(n_cells: int) -> Any:
        for _ in range(2):
            yield Turn(n_cells)
            sending.append(n_cells)
            yield Step("fit", 0, 0, "delegated", {0: Payload("fit", 0, 0, "delegated", 0, (np.array([n_cells]),))}, (0,))

    def at_a_time(most_cells: int) -> list[list[int]]:
        shard, found = side_by_side({i: program(n) for i, n in enumerate([9, 3, 0, 4])}, most_cells), []
        sent: Any = None
        while True:
            try:
                step = shard.send(sent)
            except StopIteration:
                return found
            sent = [payload.arrays for payload in step.payloads.values()]
            found.append(sending.copy())
            sending.clear()

    sending = list[int]()
    assert at_a_time(100) == [[9, 3, 0, 4]] * 2
    assert at_a_time(7) == [[9, 0], [9, 0], [3, 4], [3, 4]]
    assert at_a_time(0) == [[9, 0], [9, 0], [3], [3], [4], [4]]
