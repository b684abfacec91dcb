"""Warm starts: going on from finished rounds is the unbroken run, byte for byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtrees.engine.coordinator.session import replay_tree
from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.run.boosting_rounds import boost
from dtrees.tree.packing import pack
from dtrees.tree.predict import apply, sum_values
from tests.engine.shards import (
    Logistic,
    ShardedExecutor,
    Softmax,
    Squared,
    all_equal,
    local,
    opened,
    rules,
    wild_table,
    wild_target,
    wild_weight,
)
from tests.slow import one_of_each

N = 500
TABLE = wild_table(N, 6)
P = len(TABLE)
X = np.stack([column.astype(np.float64) for column in TABLE], axis=1)
WEIGHT = wild_weight(N, 6)
SPREAD = [(0, 2, 4), (1, 3, 5, 6)]


def plan(loss: Any, n_classes: int, n_rounds: int, **changes: Any) -> BoostingPlan:
    some = rules("newton", P, max_depth=5, reg_lambda=0.5, max_features=3)
    return BoostingPlan(some, 2, loss, n_rounds, n_classes=n_classes, **{"subsample": 0.7} | changes)


LOSSES = [(Squared(), 0), (Logistic(), 2), (Softmax(3), 3)]


@pytest.mark.parametrize(("loss", "n_classes", "weighted", "done"), one_of_each(LOSSES, [False, True], [0, 1, 4, 6]))
def test_going_on_is_the_unbroken_run(loss: Any, n_classes: int, weighted: bool, done: int) -> None:
    y = wild_target(TABLE, n_classes, 6)
    weight = WEIGHT if weighted else None
    more: dict[str, Any] = {"n_iter_no_change": 99, "validation_fraction": 0.2} if weighted else {}
    with local(TABLE, y, weight) as executor:
        whole = boost(executor, plan(loss, n_classes, 6, **more))
        first = boost(executor, plan(loss, n_classes, done, **more))
    for other in (local(TABLE, y, weight, n_threads=3), ShardedExecutor(TABLE, y, weight, SPREAD)):
        rest = boost(other, plan(loss, n_classes, 6, **more), previous=first.rounds, initial=first.initial)
        assert len(rest.rounds) == 6
        assert all(all_equal(a, b) for a, b in zip(rest.rounds, whole.rounds, strict=True))
        assert rest.initial.tobytes() == whole.initial.tobytes()
        assert rest.train_score.tobytes() == whole.train_score[done:].tobytes()
        assert rest.validation_score.tobytes() == whole.validation_score[done:].tobytes()


def test_a_given_start_is_kept() -> None:
    y = wild_target(TABLE, 0, 6)
    with local(TABLE, y) as executor:
        result = boost(executor, plan(Squared(), 0, 1), initial=np.array([7.5]))
        assert result.initial.tolist() == [7.5]
        own = boost(executor, plan(Squared(), 0, 1))
    assert not result.rounds[0][0].equals(own.rounds[0][0])


def test_every_row_gets_the_value_that_prediction_gives_it() -> None:
    """Rows drawn or not, values present or missing; also trees of other data, with thresholds between any values."""
    y = wild_target(TABLE, 0, 6)
    with local(wild_table(N, 7), wild_target(wild_table(N, 7), 0, 7)) as executor:
        foreign = boost(executor, plan(Squared(), 0, 3)).rounds
    some = plan(Squared(), 0, 3)
    for executor in (local(TABLE, y), ShardedExecutor(TABLE, y, None, SPREAD)):
        session = opened(executor, some, np.zeros(1))
        for (tree,) in foreign:
            replay_tree(session, tree, 0)
        shards = executor.shards if isinstance(executor, ShardedExecutor) else [executor.shard]
        expected = sum_values(pack([tree for (tree,) in foreign]), X)[:, 0]
        for shard in shards:
            assert shard.target.raw[0].tolist() == expected.tolist()


def test_nodes_without_rows() -> None:
    """Rows of another table may be few, and leave nodes of a tree empty, of whole levels too."""
    y = wild_target(TABLE, 0, 6)
    with local(TABLE, y) as executor:
        trees = boost(executor, plan(Squared(), 0, 4)).rounds
    leaves = apply(pack([tree for (tree,) in trees]), X)
    depths = np.array([tree.node_depth[own] for (tree,), own in zip(trees, leaves.T, strict=True)])
    shallow = int((depths - [[tree.max_depth] for (tree,) in trees]).min(axis=0).argmin())
    for few in ([shallow], [1, 7], [3, 4, 5, 6, 7]):
        table = [column[few] for column in TABLE]
        for other in (local(table, y[few]), ShardedExecutor(table, y[few], None, SPREAD)):
            session = opened(other, plan(Squared(), 0, 4), np.zeros(1))
            for (tree,) in trees:
                replay_tree(session, tree, 0)
            shard = other.shards[0] if isinstance(other, ShardedExecutor) else other.shard
            assert shard.target.raw[0].tolist() == sum_values(pack([tree for (tree,) in trees]), X[few])[:, 0].tolist()


def test_a_single_leaf_needs_no_splits() -> None:
    y = wild_target(TABLE, 0, 6)
    executor = ShardedExecutor(TABLE, y, None, SPREAD)
    with local(TABLE, np.ones(N)) as other:
        leaf = boost(other, plan(Squared(), 0, 1)).rounds[0][0]
    leaf.value[0, 0] = 1.25
    session = opened(executor, plan(Squared(), 0, 1), np.zeros(1))
    replay_tree(session, leaf, 0)
    assert executor.shards[1].target.raw.tolist() == [[1.25] * N]
    assert {message.kind for _, message in executor.log} == {"Begin", "Route", "Finish"}
