"""Trees of a forest that grow side by side over shards of rows: the same trees by fewer exchanges, with a bound on what they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtrees.engine.rows.exchange import Parcel, Program, Step, Turn, side_by_side
from dtrees.engine.rows.forests.rows_in_forest import RowsInForest
from dtrees.engine.rows.forests.tree import trees_at_once
from tests.engine.problems import Pickling, assert_same, forest, send_rows, spread


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
    send_rows(monkeypatch, 40)
    problem = forest(max_features=4, n_draws=300, out_of_bag=True).problem(300)
    one = problem.grow(5)
    for n_shards, cuts, at_once in ((1, [], 3), (2, [100], 2), (3, [20, 150], 4), (5, [1, 2, 150, 299], 99)):
        assert_same(one, problem.grow_on(problem.rows(spread(300, n_shards, cuts)), 5, at_once))


def test_trees_share_exchanges_and_parcels(monkeypatch: pytest.MonkeyPatch) -> None:
    send_rows(monkeypatch, 40)
    problem = forest(n_draws=400).problem(400)

    def grown(at_once: int) -> Counting:
        executor = problem.rows(spread(400, 3, [10, 200]), kind=Counting)
        problem.grow_on(executor, 8, at_once)
        return executor

    alone, together = grown(1), grown(8)
    assert len(together.n_trees) < len(alone.n_trees) / 3
    assert together.n_parcels < alone.n_parcels / 3
    assert max(together.n_trees) == 8


def test_no_more_rows_are_sent_at_once_than_of_one_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees whose small nodes, or leaves, would be too many together wait for one another; others go on."""
    send_rows(monkeypatch, 40)
    monkeypatch.setattr("dtrees.engine.rows.row_shard.SHARED_CELLS", 0)
    problem = forest(n_draws=400).problem(400)
    executor = problem.rows(spread(400, 3, [10, 200]), kind=Counting)
    for name in ("send_rows", "rows_of_leaves"):
        monkeypatch.setattr(RowsInForest, name, _noting(executor, getattr(RowsInForest, name)))
    assert_same(problem.grow(5), problem.grow_on(executor, 5, 5))
    assert max(executor.n_sending) == 1
    assert sum(executor.n_sending) >= 10
    assert max(executor.n_trees) == 5


def _noting(executor: Counting, original: Any) -> Any:
    def send(rows: RowsInForest, *given: Any) -> Any:
        executor.sending += rows._shard == 0
        return original(rows, *given)

    return send


@pytest.mark.parametrize("n_classes", [0, pytest.param(5, marks=pytest.mark.slow)])  # sums of classes have kernels of their own
def test_a_tree_under_way_takes_no_more_than_is_reckoned_with(n_classes: int) -> None:
    n_rows = 4000
    problem = (forest("gini", n_classes, n_draws=n_rows) if n_classes else forest(n_draws=n_rows)).problem(n_rows)
    executor = problem.rows(spread(n_rows, 2, [n_rows // 2]))
    problem.grow_on(executor, 2, 2)
    first, other = executor.shards[0]._slots
    own = {id(array): array.nbytes for array in _arrays(other, 4)}
    shared = {id(array) for array in _arrays(first, 4)}
    n_bytes = sum(size for which, size in own.items() if which not in shared)
    assert n_bytes > 30 * n_rows / 2
    assert trees_at_once(problem.plan, n_rows // 2, 1, n_bytes) == 1
    assert trees_at_once(problem.plan, n_rows // 2, 1, 20 * n_bytes) > 1


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
