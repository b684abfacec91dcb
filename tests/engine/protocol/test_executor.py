"""What shards of columns are sent, and that large nodes are the same on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtrees.engine.coordinator import delegation as delegating
from dtrees.engine.coordinator.tree import grow_tree, starting
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.run.local_executor import grow_forest
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.split.table.columns import presort
from dtrees.tree.packing import pack
from dtrees.tree.predict import sum_values
from tests.engine.shards import (
    ShardedExecutor,
    all_equal,
    called,
    grow_here,
    grow_sharded,
    opened,
    rules,
    wild_table,
    wild_target,
)
from tests.slow import KERNELS_OF_THEIR_OWN, slow_for

N = 900
TABLE = wild_table(N, 1)
P = len(TABLE)
SPREADS = {"two": [(0, 2, 4), (1, 3, 5, 6)], "three": [(6,), (1, 4), (0, 2, 3, 5)], "reversed": [(5, 6), (3, 4), (0, 1, 2)]}

TARGETS = slow_for(KERNELS_OF_THEIR_OWN, [("squared_error", 0), ("gini", 2), ("gini", 3), ("entropy", 3)])


@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_drawing_goes_on_over_the_shards_while_columns_are_constant(spread: Any) -> None:
    """The column that is searched next is the next one drawn, whoever has it."""
    n = 400
    rng = np.random.default_rng(0)
    table = [np.zeros(n) for _ in range(P)]
    table[4] = rng.random(n)
    table[1] = np.where(rng.random(n) < 0.02, 1.0, 0.0)
    target = table[4] + table[1] + rng.normal(size=n)
    plan = ForestPlan(rules("squared_error", P, max_features=2), seed=3)
    here = grow_here(table, target, None, plan, n_trees=2)
    trees, executor = grow_sharded(table, target, None, plan, 2, spread)
    assert all_equal(trees, here)
    assert any(skip == 2 for _, (_, skip) in called(executor, "search"))
    assert {1, 4} <= set(here[0].feature.tolist())


@pytest.mark.parametrize(("max_features", "n_trees"), [(P, 1), (1, 8)])
@pytest.mark.parametrize(("criterion", "n_classes"), TARGETS)
def test_large_nodes(criterion: str, n_classes: int, max_features: int, n_trees: int) -> None:
    """Level by level, threads sharing the nodes, subtrees, blocks within subtrees: all the same, for rows out of bag as well."""
    n = 12_000
    table = wild_table(n, 2)
    target = wild_target(table, n_classes, 2)
    some = rules(criterion, P, min_samples_leaf=5 if n_trees == 1 else 300, max_features=max_features)
    plan = ForestPlan(some, seed=0, n_classes=n_classes, out_of_bag=True, n_draws=n)
    one, four = (grow_forest(presort(table), target, None, plan, 0, n_trees, n_threads) for n_threads in (1, 4))
    assert all_equal(four.trees, one.trees)
    trees, executor = grow_sharded(table, target, None, plan, n_trees, SPREADS["two"], n_threads=2)
    assert all_equal(trees, one.trees)
    X = np.stack([column.astype(np.float64) for column in table], axis=1)
    expected = np.zeros_like(one.oob_sum)
    for number, tree in enumerate(trees):
        outside = ~ForestTarget.of_table(plan, target, None).start(number, 0).in_sample
        told = sum_values(pack([tree]), X[outside])
        expected[outside] += np.rint(np.ldexp(told, one.oob_exponent)).astype(np.int64)
    for oob_sum in (one.oob_sum, four.oob_sum, executor.shards[0].target.out_of_bag.sum):
        assert np.array_equal(oob_sum, expected)


@pytest.mark.parametrize("max_features", [P, P - 1])
def test_a_level_takes_one_exchange(max_features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the shards are sent while a tree of depth 4 grows."""
    monkeypatch.setattr(delegating, "SHARED_CELLS", 0)
    plan = ForestPlan(rules("squared_error", P, max_depth=4, max_features=max_features), seed=0)
    log = grow_sharded(TABLE, wild_target(TABLE, 0, 1), None, plan, 1, SPREADS["two"])[1].log
    for shard in (0, 1):
        sent = [message.kind for to, message in log if to == shard]
        assert sent[:6] == ["Begin", "Start"] + 4 * ["Advance"]
        assert sent[6:] == (["MeasureLeaves"] if shard == 0 else [])


def test_columns_in_any_number_of_shards_keep_their_numbers() -> None:
    """A tie between equal columns goes to the lowest number, not to the first shard."""
    column = np.arange(40.0)
    table, target = [column, column * 2, column], np.sin(column)
    plan = ForestPlan(rules("squared_error", 3), seed=0)
    for spread in ([(1, 2), (0,)], [(2,), (1,), (0,)], [(0, 1, 2)]):
        (tree,), _ = grow_sharded(table, target, None, plan, 1, spread)
        assert set(tree.feature.tolist()) == {-2, 0}
    assert all_equal([tree], grow_here(table, target, None, plan))


def test_messages_can_be_pickled_and_replies_share_no_memory() -> None:
    """The executor above pickles everything it carries; this one would notice if a shard handed out its own arrays."""
    target = wild_target(TABLE, 0, 1)
    plan = ForestPlan(rules("squared_error", P, max_depth=3), seed=0)
    executor = ShardedExecutor(TABLE, target, None, SPREADS["two"])
    session = opened(executor, plan)
    first = grow_tree(session, starting(session, 0))[0]
    kept = {name: getattr(first, name).copy() for name in first.ARRAYS}
    grow_tree(session, starting(session, 1))
    for name, array in kept.items():
        assert np.array_equal(getattr(first, name), array)
