"""Trees of a forest that grow side by side over shards of rows: the same trees by fewer exchanges, with a bound on what they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtrees.engine.plan.plans import Progress
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.exchange import Parcel, Program, Step, Turn, side_by_side
from dtrees.engine.rows.fit import grow_forest_on_rows
from dtrees.engine.rows.forests.rows_in_forest import RowsInForest
from dtrees.engine.rows.forests.tree import trees_at_once
from tests.engine.rows.forests.test_forests_by_rows import Log, assert_same, forest_plan, grow_here, grow_spread
from tests.engine.rows.test_rows_fit import Pickling, spread
from tests.engine.shards import wild_table, wild_target, wild_weight


class Counting(Pickling):
    """Counts parcels, and for each step of shard 0 the trees that take part, and those that have sent rows since the step before."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.n_parcels, self.n_trees, self.n_sending, self.sending = 0, list[int](), list[int](), 0

    def hand_over(self, shard: int, step: Step) -> None:
        self.n_parcels += len(step.parcels)
        if shard == 0 and step.parcels:
            self.n_trees.append(len(step.parcels[0].arrays[0]) if ": " in step.name else 1)
            self.n_sending.append(self.sending)
            self.sending = 0
        super().hand_over(shard, step)


def test_any_number_of_trees_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of finer parts are wanted of some trees only."""
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 40)
    n = 300
    table = wild_table(n, 4)
    plan, y, weight = (
        forest_plan("squared_error", len(table), {"max_features": 4}, n_draws=n, out_of_bag=True),
        wild_target(table, 0, 4),
        None,
    )
    one = grow_here(table, plan, y, weight, 5)
    for n_shards, cuts, trees in ((1, [], 3), (2, [100], 2), (3, [20, 150], 4), (5, [1, 2, 150, 299], 99)):
        assert_same(one, grow_spread(table, plan, y, weight, spread(n, n_shards, cuts, range(5)), 5, side_by_side=trees))


def test_trees_share_exchanges_and_parcels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 40)
    n = 400
    table = wild_table(n, 4)
    plan, y, cuts = forest_plan("squared_error", len(table), n_draws=n), wild_target(table, 0, 4), spread(n, 3, [10, 200], range(3))

    def grown(trees: int) -> Counting:
        executor = Counting.of(table, y, None, cuts)
        assert isinstance(executor, Counting)
        grow_forest_on_rows(executor, plan, 0, 8, n_side_by_side=trees)
        executor.close()
        return executor

    alone, together = grown(1), grown(8)
    assert len(together.n_trees) < len(alone.n_trees) / 3
    assert together.n_parcels < alone.n_parcels / 3
    assert max(together.n_trees) == 8


def test_no_more_rows_are_sent_at_once_than_of_one_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees whose small nodes, or leaves, would be too many together wait for one another; others go on."""
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 40)
    monkeypatch.setattr("dtrees.engine.rows.row_shard.SHARED_CELLS", 0)
    n = 400
    table = wild_table(n, 4)
    plan, y, cuts = forest_plan("squared_error", len(table), n_draws=n), wild_target(table, 0, 4), spread(n, 3, [10, 200], range(3))
    executor, one = Counting.of(table, y, None, cuts), grow_here(table, plan, y, None, 5)
    assert isinstance(executor, Counting)
    for name in ("send_rows", "rows_of_leaves"):
        monkeypatch.setattr(RowsInForest, name, _noting(executor, getattr(RowsInForest, name)))
    assert_same(one, grow_forest_on_rows(executor, plan, 0, 5, n_side_by_side=5))
    executor.close()
    assert max(executor.n_sending) == 1
    assert sum(executor.n_sending) >= 10
    assert max(executor.n_trees) == 5


def _noting(executor: Counting, original: Any) -> Any:
    def send(rows: RowsInForest, *given: Any) -> Any:
        executor.sending += rows._shard == 0
        return original(rows, *given)

    return send


@pytest.mark.parametrize("out_of_bag", [False, True])
@pytest.mark.parametrize("trees", [1, 2, 6])
def test_a_callback_hears_of_trees_in_their_order_and_ends_the_forest(trees: int, out_of_bag: bool) -> None:
    """Nothing of the trees after the last one is in the sums, though they may be grown already."""
    n = 200
    table = wild_table(n, 4)
    plan = forest_plan("squared_error", len(table), n_draws=n, out_of_bag=out_of_bag)
    y, cuts, heard, log = wild_target(table, 0, 4), spread(n, 2, [90], range(2)), list[Progress](), Log()

    def three(progress: Progress) -> bool:
        heard.append(progress)
        return progress.done == 3

    executor = Pickling.of(table, y, None, cuts)
    found = grow_forest_on_rows(executor, plan, 0, 6, three, log, n_side_by_side=trees)
    executor.close()
    assert_same(grow_here(table, plan, y, None, 3), found)
    assert [(progress.done, progress.total) for progress in heard] == [(1, 6), (2, 6), (3, 6)]
    assert len(log.kept) == 3


@pytest.mark.parametrize(("place", "nth"), [("sums", 4), ("GrowTrees", 2), ("AddVotes", 2), ("CountVotes", 1)])
def test_trees_under_way_are_grown_anew_when_a_shard_is_lost(place: str, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the callback hears of each once."""
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 40)
    n = 300
    table = wild_table(n, 4)
    plan, y, weight = forest_plan("squared_error", len(table), n_draws=n, out_of_bag=True), wild_target(table, 0, 4), wild_weight(n, 4)
    cuts, heard = spread(n, 3, [10, 200], range(3)), list[int]()
    executor = Pickling.of(table, y, weight, cuts)
    executor.lose, executor.nth, executor.make = place, nth, lambda: Pickling.of(table, y, weight, cuts)
    got = grow_forest_on_rows(executor, plan, 0, 5, lambda progress: heard.append(progress.done), n_side_by_side=3)
    executor.close()
    assert_same(grow_here(table, plan, y, weight, 5), got)
    assert executor.n_lost == 1
    assert heard == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "criterion", "n_classes"),
    [(4000, 6, "squared_error", 0), pytest.param(3000, 12, "gini", 5, marks=pytest.mark.slow)],  # sums of classes have kernels of their own
)
def test_a_tree_under_way_takes_no_more_than_is_reckoned_with(n_rows: int, n_columns: int, criterion: str, n_classes: int) -> None:
    rng = np.random.default_rng(0)
    table = [rng.normal(size=n_rows) for _ in range(n_columns)]
    y = np.digitize(table[0], np.linspace(-1, 1, n_classes - 1)).astype(np.int64) if n_classes else table[0] + rng.normal(size=n_rows)
    plan = forest_plan(criterion, n_columns, n_draws=n_rows, n_classes=n_classes)
    executor = Pickling.of(table, y, None, spread(n_rows, 2, [n_rows // 2], range(2)))
    grow_forest_on_rows(executor, plan, 0, 2, n_side_by_side=2)
    first, other = executor.shards[0]._slots
    own = {id(array): array.nbytes for array in _arrays(other, 4)}
    shared = {id(array) for array in _arrays(first, 4)}
    n_bytes = sum(size for which, size in own.items() if which not in shared)
    executor.close()
    assert n_bytes > 30 * n_rows / 2
    assert trees_at_once(plan, n_rows // 2, 1, n_bytes) == 1
    assert trees_at_once(plan, n_rows // 2, 1, 20 * n_bytes) > 1


def _arrays(thing: Any, depth: int) -> list[np.ndarray[Any, Any]]:
    """Return the arrays that an object has, and what it is made of."""
    if isinstance(thing, np.ndarray):
        return [thing]
    if not depth:
        return []
    parts = thing if isinstance(thing, list | tuple) else vars(thing).values() if hasattr(thing, "__dict__") else ()
    return [array for part in parts for array in _arrays(part, depth - 1)]


def test_programs_that_send_much_wait_for_one_another() -> None:
    """But those that send little go on, and the first never waits."""

    def program(n_cells: int) -> Any:
        for _ in range(2):
            yield Turn(n_cells)
            sending.append(n_cells)
            yield Step("fit", 0, 0, "apart", {0: Parcel("fit", 0, 0, "apart", 0, (np.array([n_cells]),))}, (0,))

    def at_a_time(most_cells: int) -> list[list[int]]:
        shard, found = side_by_side({i: program(n) for i, n in enumerate([9, 3, 0, 4])}, most_cells), []
        sent: Any = None
        while True:
            try:
                step = shard.send(sent)
            except StopIteration:
                return found
            sent = [parcel.arrays for parcel in step.parcels.values()]
            found.append(sending.copy())
            sending.clear()

    sending = list[int]()
    assert at_a_time(100) == [[9, 3, 0, 4]] * 2
    assert at_a_time(7) == [[9, 0], [9, 0], [3, 4], [3, 4]]
    assert at_a_time(0) == [[9, 0], [9, 0], [3], [3], [4], [4]]


def test_programs_of_unlike_length_side_by_side() -> None:
    """What two have for a shard at the same time goes in one parcel, and each is given its own; one takes no steps at all."""

    def program(serial: int, names: list[str], shard: int) -> Program:
        heard = []
        for name in names:
            parcel = Parcel("fit", 0, serial, name, shard, (np.array([serial, shard]), np.array([len(name)])))
            sent = yield Step("fit", 0, serial, name, {0: parcel, 1: parcel}, (0, 1) if name != "to 1" or shard else ())
            heard += [tuple(array.tolist() for array in arrays) for arrays in sent]
        return serial, heard

    lengths = {3: ["a", "bb", "c"], 1: ["bb"], 7: [], 4: ["bb", "a"]}

    def alone(number: int, shard: int) -> Any:
        heard = [([number, sender], [len(name)]) for name in lengths[number] for sender in (0, 1)]
        return number, heard

    shards = [side_by_side({number: program(number, names, shard) for number, names in lengths.items()}) for shard in (0, 1)]
    steps = [next(shard) for shard in shards]
    n_steps, replies = 1, list[Any]()
    while not replies:
        assert steps[0].name == steps[1].name
        assert steps[0].parcels[0] is steps[0].parcels[1]  # to be pickled once
        sent = [[steps[sender].parcels[shard].arrays for sender in (0, 1)] for shard in (0, 1)]
        try:
            steps = [shard.send(some) for shard, some in zip(shards, sent, strict=True)]
            n_steps += 1
        except StopIteration as end:
            replies.append(end.value)
            with pytest.raises(StopIteration) as other:
                shards[1].send(sent[1])
            replies.append(other.value.value)
    assert n_steps == 3
    assert replies == [[alone(number, shard) for number in lengths] for shard in (0, 1)]
