"""Shards that are lost at any message: the model is that of the undisturbed fit, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from dtrees.engine.plan.plans import BoostingPlan, BoostingResult
from dtrees.engine.protocol.messages import Calls, ShardsLost, StaleMessage, Start
from dtrees.engine.run import recovery
from dtrees.engine.run.boosting_rounds import boost
from dtrees.ensemble.objective.regression import Huber
from dtrees.ensemble.objective.several_targets import SeveralTargets
from tests.engine.shards import (
    ShardedExecutor,
    Softmax,
    Squared,
    all_equal,
    local,
    rules,
    wild_table,
    wild_target,
    wild_weight,
)
from tests.slow import one_of_each, one_quick, thorough_for

N = 300
TABLE = wild_table(N, 3)
SPREAD = [(0, 2, 4), (1, 5), (3, 6)]
LOSSES = {"one output": (Squared(), 0), "three outputs": (Softmax(3), 3), "two targets": (SeveralTargets((Huber(),) * 2), 0)}


class LossyExecutor(ShardedExecutor):
    """Loses shards by a script: ``losses[k]`` are lost at the k-th message to any shard, before or after it is carried out."""

    def __init__(self, *args: Any, losses: Mapping[int, tuple[int, ...]], after: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._losses = losses
        self._after = after
        self._lost: set[int] = set()
        self.n_repairs = 0

    def _call(self, shard: int, message: Calls) -> dict[int, Any]:
        losses = self._losses.get(len(self.log), ())
        if not self._after:
            self._lost.update(losses)
        if shard in self._lost:
            self.log.append((shard, message))
            raise ShardsLost(str(shard))
        reply = super()._call(shard, message)
        self._lost.update(losses)
        if shard in self._lost:
            raise ShardsLost(str(shard))
        return reply

    def repair(self) -> None:
        self.n_repairs += 1
        for shard in self._lost:
            self.shards[shard].close()
            self.shards[shard] = self._make[shard]()
        self._lost.clear()


def case(name: str) -> tuple[Any, Any, BoostingPlan]:
    loss, n_classes = LOSSES[name]
    more: dict[str, Any] = {"n_iter_no_change": 99, "validation_fraction": 0.2, "subsample": 0.7}
    plan = BoostingPlan(rules("newton", len(TABLE), max_depth=3, max_features=3), 5, loss, 3, n_classes=n_classes, **more)
    y = wild_target(TABLE, n_classes, 3)
    if isinstance(loss, SeveralTargets):
        y = np.column_stack([y, wild_target(TABLE, 0, 4)])
    return y, wild_weight(N, 3), plan


def undisturbed(name: str) -> tuple[BoostingResult, list[tuple[int, Calls]]]:
    y, weight, plan = case(name)
    executor = ShardedExecutor(TABLE, y, weight, SPREAD)
    result = boost(executor, plan)
    with local(TABLE, y, weight) as alone:
        assert_same(boost(alone, plan), result)
    return result, executor.log


def assert_same(found: BoostingResult, wanted: BoostingResult) -> None:
    assert all(all_equal(a, b) for a, b in zip(found.rounds, wanted.rounds, strict=True))
    assert found.train_score.tobytes() == wanted.train_score.tobytes()
    assert found.validation_score.tobytes() == wanted.validation_score.tobytes()


def disturbed(name: str, losses: Mapping[int, tuple[int, ...]], after: bool = False) -> tuple[BoostingResult, LossyExecutor]:
    y, weight, plan = case(name)
    executor = LossyExecutor(TABLE, y, weight, SPREAD, losses=losses, after=after)
    return boost(executor, plan), executor


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("three outputs", False),
        pytest.param("one output", True, marks=pytest.mark.slow),
        pytest.param("two targets", False, marks=pytest.mark.slow),
        pytest.param("one output", False, marks=pytest.mark.thorough),
        pytest.param("three outputs", True, marks=pytest.mark.thorough),
        pytest.param("two targets", True, marks=pytest.mark.thorough),
    ],
)
def test_a_shard_is_lost_at_any_message(name: str, after: bool) -> None:
    wanted, log = undisturbed(name)
    tested = set()
    for k, (shard, message) in enumerate(log):
        place = (message.kind, shard == 0, getattr(message.calls[0][-1], "output", 0) > 0, k > len(log) // 2)
        if place in tested:
            continue
        tested.add(place)
        found, executor = disturbed(name, {k: (shard,)}, after)
        assert executor.n_repairs == 1
        assert_same(found, wanted)
    assert {kind for kind, *_ in tested} == {"Begin", "Start", "Search", "Advance", "Finish"} or name != "three outputs"


@pytest.mark.parametrize(("name", "lost"), one_of_each([*LOSSES], [((0, 1),), ((0, 1, 2),)]))
def test_several_are_lost_at_once(name: str, lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "STATE_PIECE_BYTES", 16 * 50)  # so that state travels in several pieces
    wanted, log = undisturbed(name)
    for k in (len(log) // 2, 4 * len(log) // 5):
        found, executor = disturbed(name, {k: lost})
        assert_same(found, wanted)
        kinds = {message.kind for _, message in executor.log}
        assert ("Route" in kinds) == (len(lost) == 3)
        assert ("Adopt" in kinds) == (len(lost) < 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_for({"three outputs"}, LOSSES))
def test_another_is_lost_while_state_is_brought_to_the_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "STATE_PIECE_BYTES", 16 * 50)
    wanted, log = undisturbed(name)
    k = len(log) // 2
    _, executor = disturbed(name, {k: (0,)})
    recovering = [i for i, (_, message) in enumerate(executor.log) if message.kind in {"Renew", "Begin", "Fetch", "Adopt"} and i > k]
    assert len(recovering) > 6
    for second in recovering:
        for lost in ((0,), (1,), (2, 0)):
            found, executor = disturbed(name, {k: (0,), second: lost})
            assert executor.n_repairs >= 2
            assert_same(found, wanted)


class MendedExecutor(LossyExecutor):
    """Wants repair at the ``when``-th time of asking."""

    when: int
    n_asked = 0

    def wants_repair(self) -> bool:
        self.n_asked += 1
        return self.n_asked == self.when


@pytest.mark.parametrize("name", one_quick(["two targets", "one output", "three outputs"]))
def test_a_tree_that_is_started_already_starts_again_after_repair(name: str) -> None:
    wanted, _ = undisturbed(name)
    y, weight, plan = case(name)
    MendedExecutor.when = plan.n_rounds * plan.loss.n_outputs - 1  # before the last tree but one
    calm = MendedExecutor(TABLE, y, weight, SPREAD, losses={})
    assert_same(boost(calm, plan), wanted)
    assert calm.n_repairs == 1
    (renewed,) = {message.epoch for _, message in calm.log if message.kind == "Renew"}
    twice = [k for k, (_, message) in enumerate(calm.log) if message.kind == "Start" and message.epoch < renewed][-len(SPREAD) :]
    again = [message for _, message in calm.log if message.kind == "Start" and message.epoch == renewed]
    assert [calm.log[k][1].calls[0][1].tree for k in twice] == [again[0].calls[0][1].tree] * len(SPREAD)
    for k in twice:  # and if a shard is lost at it
        executor = MendedExecutor(TABLE, y, weight, SPREAD, losses={k: (calm.log[k][0],)})
        assert_same(boost(executor, plan), wanted)
        assert executor.n_repairs == 1


def test_the_only_shard_is_lost() -> None:
    y, weight, plan = case("one output")
    wanted, _ = undisturbed("one output")
    executor = LossyExecutor(TABLE, y, weight, [range(len(TABLE))], losses={5: (0,), 14: (0,)})
    assert_same(boost(executor, plan), wanted)
    assert executor.n_repairs == 2


def test_messages_of_an_earlier_epoch_are_refused() -> None:
    y, weight, plan = case("one output")
    with local(TABLE, y, weight) as executor:
        handle = executor.shard.handle
        handle(Calls("fit", 0, (0,), (("begin", plan, None, 0),)))
        renew = (("renew",),)
        assert handle(Calls("fit", 1, (0,), renew)) == {0: 0}
        start = (("start", Start(0, 0, True, True)),)
        for stale in (Calls("fit", 0, (0,), start), Calls("fit", 1, (0,), renew), Calls("other", 2, (0,), renew)):
            with pytest.raises(StaleMessage):
                handle(stale)


def test_a_new_shard_knows_nothing() -> None:
    y, weight, _ = case("one output")
    with local(TABLE, y, weight) as executor:
        assert executor.shard.handle(Calls("fit", 7, (0,), (("renew",),))) == {0: -1}
