"""Forests over shards of columns: what grows side by side, by how many messages, and how it ends."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.coordinator.fit import trees_side_by_side
from dtrees.engine.plan.plans import ForestPlan, Progress
from dtrees.engine.protocol import messages as m
from dtrees.engine.run.lasting import grow_forest_on_shards
from dtrees.engine.run.local_executor import grow_forest
from dtrees.engine.shard import node_search
from dtrees.engine.shard.shard import Shard
from dtrees.split.table.columns import presort
from tests.engine.by_the_book import plans, problems
from tests.engine.problems import assert_same, forest
from tests.engine.shards import ShardedExecutor, rules, wild_table
from tests.examples import THOROUGH, examples
from tests.slow import KERNELS_OF_THEIR_OWN, slow_for

N = 500
TABLE = wild_table(N, 1)
P = len(TABLE)

CRITERIA = [("squared_error", 0), ("absolute_error", 0), ("quantile", 0), ("gini", 2), ("gini", 3), ("entropy", 3)]


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


PROBLEM = forest(weighted=True, max_features=2, max_depth=3, n_draws=120).problem(120, 3)
SPREAD = [(6,), (1, 4), (0, 2, 3, 5)]


@pytest.mark.parametrize("out_of_bag", [False, True])
@pytest.mark.parametrize("side_by_side", [1, 2, 6])
def test_a_callback_ends_the_forest(out_of_bag: bool, side_by_side: int) -> None:
    problem = PROBLEM.with_plan(out_of_bag=out_of_bag)
    seen: list[Progress] = []

    def callback(progress: Progress) -> bool:
        seen.append(progress)
        return progress.done == 3

    assert_same(problem.grow(3), problem.grow_on(problem.columns(SPREAD), 6, side_by_side, callback=callback))
    assert [(progress.done, progress.total) for progress in seen] == [(1, 6), (2, 6), (3, 6)]


def test_messages_of_many_trees_travel_together() -> None:
    def n_exchanges(side_by_side: int) -> int:
        executor = PROBLEM.columns(SPREAD)
        PROBLEM.grow_on(executor, 6, side_by_side)
        return sum(shard == 2 for shard, _ in executor.log)

    assert n_exchanges(6) < n_exchanges(1) / 3


def test_an_error_in_one_tree_ends_the_forest() -> None:
    def meddle(shard: int, reply: Any) -> Any:
        return reply._replace(checksum=reply.checksum + 1) if shard == 1 and isinstance(reply, m.Root) else reply

    executor = ShardedExecutor(PROBLEM.table, PROBLEM.target, None, SPREAD, meddle=meddle)
    with pytest.raises(m.ReplicasDiffer, match="tree 0"):
        PROBLEM.grow_on(executor, 6, 2)


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
    executor = PROBLEM.columns([(0, 2, 4), (1, 3, 5, 6)], 4)
    grow_forest_on_shards(executor, PROBLEM.plan, 0, 6, 2)
    assert set(threading.enumerate()) > before
    executor.close()
    assert set(threading.enumerate()) == before
