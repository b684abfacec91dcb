"""Forests over shards: whatever grows side by side, and whatever is lost meanwhile, the forest is the local one, byte for byte."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.plan.plans import Callback, ForestPlan, ForestResult, Progress
from dtrees.engine.protocol import messages as m
from dtrees.engine.run import recovery
from dtrees.engine.run.forest_growth import grow_forest
from dtrees.engine.run.lockstep import grow_forest_on_shards, trees_side_by_side
from dtrees.engine.shard import node_search
from dtrees.engine.shard.shard import Shard
from dtrees.split.table.columns import presort
from tests.engine.run.test_recovery import LossyExecutor
from tests.engine.shards import ShardedExecutor, Table, all_equal, called, rules, wild_table, wild_target, wild_weight
from tests.engine.test_naive_trees import plans, problems
from tests.examples import THOROUGH, examples
from tests.slow import KERNELS_OF_THEIR_OWN, one_of_each, one_quick, slow_for

N = 500
TABLE = wild_table(N, 1)
P = len(TABLE)
SPREADS = {1: [range(P)], 2: [(0, 2, 4), (1, 3, 5, 6)], 3: [(6,), (1, 4), (0, 2, 3, 5)]}

CRITERIA = [
    ("squared_error", 0),
    ("absolute_error", 0),
    ("quantile", 0),
    ("gini", 2),
    ("gini", 3),
    ("entropy", 3),
]

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    # name: (rules, plan, weighted)
    "plain": ({}, {}, False),
    "bootstrap": ({}, {"n_draws": N, "out_of_bag": True}, False),
    "some of the rows": ({"min_samples_leaf": 3}, {"n_draws": N // 3, "out_of_bag": True}, True),
    "columns by node": ({"max_features": 1}, {"n_draws": N}, True),
    "columns by tree": ({"columns_per_tree": 4, "max_features": 2}, {"n_draws": N}, False),
    "random thresholds": ({"random_splits": True, "max_features": 3}, {}, True),
    "best first": ({"max_leaf_nodes": 17}, {"n_draws": N, "out_of_bag": True}, True),
    "stopped": ({"max_depth": 6, "min_weight_fraction_leaf": 0.01, "min_impurity_decrease": 1e-3}, {"n_draws": N}, False),
}


def assert_same(found: ForestResult, wanted: ForestResult) -> None:
    assert all_equal(found.trees, wanted.trees)
    assert (found.oob_sum is None) == (wanted.oob_sum is None)
    if wanted.oob_sum is not None:
        assert np.array_equal(found.oob_sum, wanted.oob_sum)
        assert np.array_equal(found.oob_count, wanted.oob_count)
        assert found.oob_exponent == wanted.oob_exponent


ALL = one_of_each(list(CASES), slow_for(KERNELS_OF_THEIR_OWN, CRITERIA))
#: By criteria that quick tests do not have, slow ones grow forests of all sorts of rows, columns and orders.
SLOW = {(case, *criterion) for case in ("bootstrap", "columns by tree", "best first") for criterion in CRITERIA}


@pytest.mark.parametrize(
    ("case", "criterion", "n_classes"),
    [pytest.param(*one.values, marks=pytest.mark.thorough if one.marks and one.values not in SLOW else one.marks) for one in ALL],
)
def test_side_by_side(case: str, criterion: str, n_classes: int) -> None:
    rule_changes, plan_changes, weighted = CASES[case]
    plan = ForestPlan(rules(criterion, P, **rule_changes), seed=11, n_classes=n_classes, **plan_changes)
    target = wild_target(TABLE, n_classes, 1)
    weight = wild_weight(N, 1) if weighted else None
    here = grow_forest(presort(TABLE), target, weight, plan, 2, 7, 1)
    assert here.trees[0].node_count > 10
    for n_shards, side_by_side, n_threads in ((3, 5, 1), (2, 1, 5), (1, 99, 3)) + THOROUGH * ((2, 2, 5), (3, 1, 1), (2, 3, 2)):
        executor = ShardedExecutor(TABLE, target, weight, SPREADS[n_shards], n_threads)
        assert_same(grow_forest_on_shards(executor, plan, 2, 7, side_by_side), here)
        executor.close()


# Trees over shards, one after another, are grown of any table by each criterion (test_naive_trees.py), in every run by some.
@pytest.mark.parametrize(("criterion", "n_classes"), slow_for({one for one, _ in CRITERIA} - {"gini"}, CRITERIA[::-1]))
@given(data=st.data())
@examples(50)
def test_any_table(criterion: str, n_classes: int, data: st.DataObject) -> None:
    table, target, weight = data.draw(problems(n_classes))
    plan = data.draw(plans(criterion, n_classes, target.shape[0], len(table)))
    if criterion in KERNELS_OF_THEIR_OWN and not THOROUGH:  # few kernels
        plan = dataclasses.replace(plan, rules=dataclasses.replace(plan.rules, random_splits=False))
    if n_classes and plan.n_draws is not None:
        plan = dataclasses.replace(plan, balanced_subsample=data.draw(st.booleans()))
    here = grow_forest(presort(table), target, weight, plan, 0, 4, 1)
    n_shards = data.draw(st.integers(1, len(table)))
    executor = ShardedExecutor(table, target, weight, [range(i, len(table), n_shards) for i in range(n_shards)])
    assert_same(grow_forest_on_shards(executor, plan, 0, 4, data.draw(st.integers(1, 4))), here)


def forest_case(name: str) -> tuple[Table, NDArray[Any], NDArray[np.float64] | None, ForestPlan]:
    n = 120
    table = wild_table(n, 3)
    plan = ForestPlan(rules("squared_error", P, max_features=2, max_depth=3), seed=5, n_draws=n, out_of_bag=name == "out of bag")
    return table, wild_target(table, 0, 3), wild_weight(n, 3), plan


def disturbed(
    name: str, losses: Mapping[int, tuple[int, ...]], after: bool = False, callback: Callback | None = None
) -> tuple[ForestResult, LossyExecutor]:
    table, y, weight, plan = forest_case(name)
    executor = LossyExecutor(table, y, weight, SPREADS[3], losses=losses, after=after)
    return grow_forest_on_shards(executor, plan, 0, 6, 2, callback), executor


def undisturbed(name: str) -> ForestResult:
    table, y, weight, plan = forest_case(name)
    return grow_forest(presort(table), y, weight, plan, 0, 6, 1)


@pytest.mark.parametrize(
    ("name", "after", "at_all"),
    [
        pytest.param("out of bag", False, False, id="some messages"),
        pytest.param("out of bag", False, True, marks=pytest.mark.slow, id="out of bag, before"),
        pytest.param("out of bag", True, True, marks=pytest.mark.thorough, id="out of bag, after"),
        pytest.param("trees only", False, True, marks=pytest.mark.thorough, id="trees only, before"),
        pytest.param("trees only", True, False, marks=pytest.mark.slow, id="some messages, after"),
        pytest.param("trees only", True, True, marks=pytest.mark.thorough, id="trees only, after"),
    ],
)
def test_a_shard_is_lost_at_any_message(name: str, after: bool, at_all: bool) -> None:
    """Some: the last to the first shard, and the last to another one, of those that are made of the same kinds of messages."""
    wanted = undisturbed(name)
    found, executor = disturbed(name, {})
    assert_same(found, wanted)
    log = executor.log
    kinds = [(shard == 0, frozenset(call[0] for call in message.calls)) for shard, message in log]
    for k, (shard, _) in enumerate(log):
        if not at_all and kinds[k] in kinds[k + 1 :]:
            continue
        told: list[int] = []
        found, executor = disturbed(name, {k: (shard,)}, after, lambda progress, told=told: told.append(progress.done))
        assert executor.n_repairs == 1
        assert_same(found, wanted)
        assert told == [1, 2, 3, 4, 5, 6]
        # Finished trees are not grown again: at most those under way, two and those told of but not closed, start anew.
        assert len(starts(executor)) <= 6 + 4


def starts(executor: ShardedExecutor) -> list[int]:
    """The trees that were started on shard 0, in order."""
    return [start.tree for shard, (start,) in called(executor, "start") if shard == 0]


@pytest.mark.parametrize(
    ("name", "lost"), one_of_each(one_quick(["out of bag", "trees only"]), [((0, 1, 2),), pytest.param((0, 1), marks=pytest.mark.slow)])
)
def test_several_are_lost_at_once(name: str, lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "STATE_PIECE_BYTES", 16 * 50)  # so that sums travel in several pieces
    wanted = undisturbed(name)
    _, undisturbed_executor = disturbed(name, {})
    n = len(undisturbed_executor.log)
    for k in range(n // 3, n, 5):
        told: list[int] = []
        found, executor = disturbed(name, {k: lost}, callback=lambda progress, told=told: told.append(progress.done))
        assert_same(found, wanted)
        assert told == [1, 2, 3, 4, 5, 6]
        # Only where all shards are lost, the sums are too, and finished trees are grown again.
        again = len(starts(executor)) > 6 + 4
        assert not again or (len(lost) == 3 and name == "out of bag")


@pytest.mark.parametrize("lost", one_quick([(2, 0), (0,), (1,)]))
def test_another_is_lost_while_sums_are_brought_to_the_first(lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "STATE_PIECE_BYTES", 16 * 50)
    wanted = undisturbed("out of bag")
    _, executor = disturbed("out of bag", {})
    k = 2 * len(executor.log) // 3
    _, executor = disturbed("out of bag", {k: (0,)})
    recovering = [i for i, (_, message) in enumerate(executor.log) if message.kind in {"Renew", "Begin", "Fetch", "Adopt"} and i > k]
    assert len(recovering) > 6
    for second in recovering:
        found, executor = disturbed("out of bag", {k: (0,), second: lost})
        assert_same(found, wanted)


class RestlessExecutor(ShardedExecutor):
    """Wants its shards replaced at the ``when``-th time of asking."""

    def __init__(self, *args: Any, when: int) -> None:
        super().__init__(*args)
        self._when = when
        self.n_asked = 0
        self.repaired_at: list[int] = []

    def wants_repair(self) -> bool:
        self.n_asked += 1
        return self.n_asked == self._when

    def repair(self) -> None:
        self.repaired_at.append(len(self.log))
        self.shards[1] = self._make[1]()


@pytest.mark.parametrize("name", ["out of bag", "trees only"])
def test_shards_move_when_no_tree_is_under_way(name: str) -> None:
    table, y, weight, plan = forest_case(name)
    executor = RestlessExecutor(table, y, weight, SPREADS[3], when=7)
    assert_same(grow_forest_on_shards(executor, plan, 0, 6, 2), undisturbed(name))
    assert len(executor.repaired_at) == 1
    assert starts(executor) == list(range(6))  # none in vain


@pytest.mark.parametrize("name", ["out of bag", "trees only"])
@pytest.mark.parametrize("side_by_side", [1, 2, 6])
def test_a_callback_ends_the_forest(name: str, side_by_side: int) -> None:
    table, y, weight, plan = forest_case(name)
    seen: list[Progress] = []

    def callback(progress: Progress) -> bool:
        seen.append(progress)
        return progress.done == 3

    executor = ShardedExecutor(table, y, weight, SPREADS[3])
    found = grow_forest_on_shards(executor, plan, 0, 6, side_by_side, callback)
    assert_same(found, grow_forest(presort(table), y, weight, plan, 0, 3, 1))
    assert [(progress.done, progress.total) for progress in seen] == [(1, 6), (2, 6), (3, 6)]


def test_messages_of_many_trees_travel_together() -> None:
    table, y, weight, plan = forest_case("trees only")

    def n_exchanges(side_by_side: int) -> int:
        executor = ShardedExecutor(table, y, weight, SPREADS[3])
        grow_forest_on_shards(executor, plan, 0, 6, side_by_side)
        return sum(shard == 2 for shard, _ in executor.log)

    assert n_exchanges(6) < n_exchanges(1) / 3


def test_an_error_in_one_tree_ends_the_forest() -> None:
    table, y, weight, plan = forest_case("trees only")

    def meddle(shard: int, reply: Any) -> Any:
        return reply._replace(checksum=reply.checksum + 1) if shard == 1 and isinstance(reply, m.Root) else reply

    executor = ShardedExecutor(table, y, weight, SPREADS[3], meddle=meddle)
    with pytest.raises(m.ReplicasDiffer, match="tree 0"):
        grow_forest_on_shards(executor, plan, 0, 6, 2)


@pytest.mark.parametrize(
    "changes", [{}, {"n_draws": 4000}, {"n_draws": 1000}, {"n_draws": 4000, "out_of_bag": True}], ids=["all", "drawn", "few", "out of bag"]
)
def test_the_trees_under_way_are_limited_by_memory(changes: dict[str, Any]) -> None:
    """The bound allows for no more trees than fit, by what the rows of one are found to take."""
    n, times = 4000, 1000
    table = [np.random.default_rng(0).random(n)]
    plan = ForestPlan(rules("squared_error", 1, max_depth=5), seed=0, **changes)
    shard = Shard(presort(table), np.zeros(1, np.int32), 1, table[0], None)
    shard.begin("fit", 0, plan, None, n_slots=1)
    shard.handle(m.Calls("fit", 0, (0,), (("start", m.Start(0, 0, True, True)),)))
    used = times * sum(array.nbytes for array in shard.trees[0]._rows)
    shard.close()
    larger = dataclasses.replace(plan, n_draws=plan.n_draws and times * plan.n_draws)
    n_trees = trees_side_by_side(larger, times * n, weighted=False)
    assert 64 * times * n // used - 1 <= n_trees <= 64 * times * n / used + 0.1
    assert trees_side_by_side(plan, n, weighted=False) == 64


def test_trees_under_way_share_nothing_that_a_draw_of_columns_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads draw for several trees at once, and put the columns of a tree in another order to do so."""
    pools: list[NDArray[np.int32]] = []
    pair_drawn, search_on = node_search.pair_drawn, node_search.search_on
    monkeypatch.setattr(
        node_search, "pair_drawn", lambda key, paths, pool, *rest: pools.append(pool) or pair_drawn(key, paths, pool, *rest)
    )
    monkeypatch.setattr(node_search, "search_on", lambda *first, **_: pools.append(first[3]) or search_on(*first))
    shard = Shard(presort(TABLE), np.arange(P, dtype=np.int32), P, TABLE[0], None)
    plan = ForestPlan(rules("squared_error", P, max_features=1), seed=0)
    shard.begin("fit", 0, plan, None, n_slots=2)
    shard.handle(m.Calls("fit", 0, (0, 1), tuple(("start", m.Start(tree, 0, True, True)) for tree in (0, 1))))
    shard.handle(m.Calls("fit", 0, (0, 1), 2 * (("search", np.zeros(1, np.int64), 1),)))
    assert len(pools) == 4
    assert not any(np.shares_memory(one, other) for i, one in enumerate(pools) for other in pools[:i])


def test_threads_are_ended() -> None:
    before = set(threading.enumerate())
    table, y, weight, plan = forest_case("trees only")
    executor = ShardedExecutor(table, y, weight, SPREADS[2], 4)
    grow_forest_on_shards(executor, plan, 0, 6, 2)
    assert set(threading.enumerate()) > before
    executor.close()
    assert set(threading.enumerate()) == before
