"""A shard by itself: what it refuses, and what it answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtrees.engine.coordinator.session import Session
from dtrees.engine.coordinator.tree import grow_tree, starting
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.splits import Splits
from dtrees.engine.run.boosting_rounds import boost
from dtrees.engine.shard.shard import Shard
from dtrees.split.table.columns import presort
from dtrees.tree.category_sets import NO_SETS
from tests.engine.shards import ShardedExecutor, Squared, rules, wild_table, wild_target

TABLE = wild_table(300, 0)
TARGET = wild_target(TABLE, 0, 0)
PLAN = ForestPlan(rules("squared_error", len(TABLE)), seed=1)
NODE = np.zeros(1, np.int64)
START = m.Start(tree=0, output=0, search=True, check=True)


def splits(column: int, threshold: float, n_left: int, missing_left: bool = False) -> Splits:
    return Splits(
        NODE,
        NODE + 1,
        np.array([column], np.int32),
        np.array([threshold]),
        np.array([missing_left]),
        np.array([n_left]),
        np.zeros((1, 2), int),
    )


def opened() -> Shard:
    """A shard in the middle of a tree."""
    shard = Shard(presort(TABLE), np.arange(len(TABLE), dtype=np.int32), len(TABLE), TARGET, None)
    shard.begin("fit", 3, PLAN, None, 0)
    call(shard, "fit", 3, "start", START)
    return shard


def call(shard: Shard, fit: str, epoch: int, *called: Any) -> Any:
    return shard.handle(m.Calls(fit, epoch, (0,), (called,)))[0]


@pytest.mark.parametrize(("fit", "epoch"), [("fit", 2), ("fit", 4), ("other", 3)])
@pytest.mark.parametrize("called", [("start", START), ("route", 0), ("fetch", 0, 1)])
def test_messages_of_another_fit_or_epoch_are_refused(called: Any, fit: str, epoch: int) -> None:
    shard = opened()
    with pytest.raises(m.StaleMessage, match=rf"fit {fit}, epoch {epoch} to a shard"):
        call(shard, fit, epoch, *called)
    # And changed nothing.
    assert call(shard, "fit", 3, "measure_leaves", NODE, NODE + 300).center[0] == pytest.approx(TARGET.mean())


def test_nothing_is_done_before_a_fit_begins() -> None:
    shard = Shard(presort(TABLE), np.arange(len(TABLE), dtype=np.int32), len(TABLE), TARGET, None)
    with pytest.raises(m.StaleMessage):
        call(shard, "fit", 0, "start", START)


def test_a_new_fit_takes_the_place_of_the_old() -> None:
    shard = opened()
    call(shard, "fit", 4, "begin", PLAN, None, 0)
    with pytest.raises(m.StaleMessage):
        call(shard, "fit", 3, "start", START)
    assert call(shard, "fit", 4, "start", START).n_rows == 300


@pytest.mark.parametrize("missing_left", [False, True])
def test_marks_are_one_bit_a_row(missing_left: bool) -> None:
    for column, threshold in ((0, 0.2), (2, 0.0), (2, np.inf), (4, -1e300), (5, 0.5)):
        bits, offsets = opened().trees[0].evaluate(splits(column, threshold, 0, missing_left), NO_SETS)
        x = TABLE[column].astype(float)
        left = np.where(np.isnan(x), missing_left, x <= threshold)
        assert offsets.tolist() == [0, 38]
        assert np.unpackbits(bits, bitorder="little")[:300].tolist() == left.tolist()


def test_counts_from_the_bits_must_agree_with_the_split() -> None:
    shard = opened()
    n_left = int((TABLE[0] <= 0.2).sum())
    marks = shard.trees[0].evaluate(splits(0, 0.2, n_left), NO_SETS)
    with pytest.raises(m.ReplicasDiffer, match="not as many"):
        shard.trees[0].advance(splits(0, 0.2, n_left + 1), marks, np.empty(0, int))
    shard = opened()
    divided = shard.trees[0].advance(splits(0, 0.2, n_left), marks, np.empty(0, int))
    assert (divided.left_in_stop.tolist(), divided.left_stop.tolist(), divided.found) == ([n_left], [n_left], None)


SPREAD = [(0, 2, 4), (1, 3, 5, 6)]


def test_replicas_that_disagree_about_rows_stop_the_fit() -> None:
    def meddle(shard: int, reply: Any) -> Any:
        return reply._replace(checksum=reply.checksum ^ 1) if shard == 1 and isinstance(reply, m.Root) else reply

    executor = ShardedExecutor(TABLE, TARGET, None, SPREAD, meddle=meddle)
    session = Session(executor, PLAN, "fit")
    session.begin()
    with pytest.raises(m.ReplicasDiffer, match="tree 4"):
        grow_tree(session, starting(session, 4))


@pytest.mark.parametrize("drift", [1e-3, 2.0**-45])
def test_replicas_whose_predictions_have_drifted_stop_the_fit(drift: float) -> None:
    """Another machine's ``exp``, say: an error at once, never a wrong model."""
    executor = ShardedExecutor(TABLE, TARGET, None, SPREAD)
    plan = BoostingPlan(rules("newton", len(TABLE), max_depth=2), 0, Squared(), n_rounds=4)

    def disturb(progress: Any) -> None:
        if progress.done == 2:
            executor.shards[1].target.raw[0, 17] += drift

    with pytest.raises(m.ReplicasDiffer, match="tree 2"):
        boost(executor, plan, callback=disturb)
