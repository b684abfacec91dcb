"""Shards of columns that are lost at any message: the model is that of one process, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dtrees.engine.coordinator import fit as columns_fit
from dtrees.engine.plan.plans import Callback
from dtrees.engine.protocol.messages import Calls, ShardsLost
from tests.engine.problems import Case, Problem, assert_same, boosting, forest
from tests.engine.shards import (
    ShardedExecutor,
    called,
)
from tests.slow import one_of_each, one_quick, thorough_for

SPREAD = [(0, 2, 4), (1, 5), (3, 6)]
HELD_OUT: dict[str, Any] = {
    "seed": 5,
    "reg_lambda": 0.0,
    "n_iter_no_change": 99,
    "validation_fraction": 0.2,
    "subsample": 0.7,
    "max_depth": 3,
    "max_features": 3,
}
DRAWN: dict[str, Any] = {"n_draws": 120, "max_features": 2, "max_depth": 3}
BOOSTING: dict[str, Case] = {
    "one output": boosting(weighted=True, **HELD_OUT),
    "three outputs": boosting("softmax", weighted=True, **HELD_OUT),
    "two targets": boosting("targets", weighted=True, **HELD_OUT),
}
CASES = BOOSTING | {"out of bag": forest(weighted=True, out_of_bag=True, **DRAWN), "trees only": forest(weighted=True, **DRAWN)}
N_TREES = 6


def problem_of(name: str) -> Problem:
    return CASES[name].problem(300 if name in BOOSTING else 120, 3)


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


class MendedExecutor(LossyExecutor):
    """Wants repair when it is asked so many times: before the last tree but one; of a forest, before the last trees."""

    when: int
    n_asked = 0

    def wants_repair(self) -> bool:
        self.n_asked += 1
        return self.n_asked == self.when


def disturbed(
    problem: Problem,
    losses: Mapping[int, tuple[int, ...]],
    after: bool = False,
    kind: type[LossyExecutor] = LossyExecutor,
    callback: Callback | None = None,
    spread: Any = SPREAD,
) -> tuple[Any, LossyExecutor]:
    executor = kind(problem.table, problem.target, problem.weight, spread, losses=losses, after=after)
    return problem.grow_on(executor, N_TREES, 2, callback=callback), executor


def undisturbed(problem: Problem) -> tuple[Any, list[tuple[int, Calls]]]:
    """What one process finds, and all messages to shards that find it undisturbed."""
    wanted = problem.grow(N_TREES)
    found, executor = disturbed(problem, {})
    assert_same(wanted, found)
    return wanted, executor.log


def starts(executor: ShardedExecutor) -> list[int]:
    """The trees that were started on shard 0, in order."""
    return [start.tree for shard, (start,) in called(executor, "start") if shard == 0]


@pytest.mark.parametrize(
    ("name", "after", "at_all"),
    [
        ("three outputs", False, False),
        pytest.param("one output", True, False, marks=pytest.mark.slow),
        pytest.param("two targets", False, False, marks=pytest.mark.slow),
        *(pytest.param(name, True, False, marks=pytest.mark.thorough) for name in ("three outputs", "two targets")),
        ("out of bag", False, False),
        pytest.param("trees only", True, False, marks=pytest.mark.slow),
        pytest.param("out of bag", False, True, marks=pytest.mark.slow),
        *(
            pytest.param(*case, True, marks=pytest.mark.thorough)
            for case in (("out of bag", True), ("trees only", False), ("trees only", True))
        ),
    ],
)
def test_a_shard_is_lost_at_any_message(name: str, after: bool, at_all: bool) -> None:
    """Or at one of each kind to the first shard and to others, of the first output and of others, early and late."""
    problem = problem_of(name)
    wanted, log = undisturbed(problem)
    tested: set[Any] = set()
    for k, (shard, message) in enumerate(log):
        kinds = frozenset((call[0], getattr(call[-1], "output", 0) > 0) for call in message.calls)
        place = kinds, shard == 0, name in BOOSTING and k > len(log) // 2
        if place in tested and not at_all:
            continue
        tested.add(place)
        told: list[int] = []
        found, executor = disturbed(problem, {k: (shard,)}, after, callback=lambda progress, told=told: told.append(progress.done))
        assert executor.n_repairs == 1
        assert_same(wanted, found)
        if name not in BOOSTING:
            assert told == [1, 2, 3, 4, 5, 6]
            # Finished trees are not grown again: at most those under way, two and those told of but not closed, start anew.
            assert len(starts(executor)) <= N_TREES + 4
    if name == "three outputs":
        assert {kind for kinds, *_ in tested for kind, _ in kinds} == {"begin", "start", "search", "advance", "finish"}


@pytest.mark.parametrize(("name", "lost"), one_of_each([*CASES], [((0, 1),), ((0, 1, 2),)]))
def test_several_are_lost_at_once(name: str, lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_fit, "STATE_PIECE_BYTES", 16 * 50)  # so that state travels in several pieces
    problem = problem_of(name)
    wanted, log = undisturbed(problem)
    for k in (len(log) // 3, len(log) // 2, 4 * len(log) // 5):
        found, executor = disturbed(problem, {k: lost})
        assert_same(wanted, found)
        if name in BOOSTING and 2 * k >= len(log):
            kinds = {message.kind for _, message in executor.log}
            assert ("Route" in kinds) == (len(lost) == 3)
            assert ("Adopt" in kinds) == (len(lost) < 3)
        # Only where all shards are lost, the sums of a forest are too, and finished trees are grown again.
        again = name not in BOOSTING and len(starts(executor)) > N_TREES + 4
        assert not again or (len(lost) == 3 and name == "out of bag")


@pytest.mark.parametrize(("name", "lost"), one_of_each(["out of bag", *BOOSTING], one_quick([(2, 0), (0,), (1,)])))
def test_another_is_lost_while_state_is_brought_to_the_first(name: str, lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_fit, "STATE_PIECE_BYTES", 16 * 50)
    problem = problem_of(name)
    wanted, log = undisturbed(problem)
    k = 2 * len(log) // 3
    _, executor = disturbed(problem, {k: (0,)})
    recovering = [i for i, (_, message) in enumerate(executor.log) if message.kind in {"Renew", "Begin", "Fetch", "Adopt"} and i > k]
    assert len(recovering) > 6
    for second in recovering[:: 1 if name == "out of bag" else 3]:
        found, executor = disturbed(problem, {k: (0,), second: lost})
        assert executor.n_repairs >= 2 or name == "out of bag"  # its sums are fetched at the end, from the first shard alone
        assert_same(wanted, found)


@pytest.mark.parametrize("name", thorough_for({"one output"}, CASES))
def test_shards_are_replaced_before_a_tree(name: str) -> None:
    """One of boosting that is started already starts again; of a forest, none is under way then."""
    problem = problem_of(name)
    wanted = problem.grow(N_TREES)
    MendedExecutor.when = (problem.plan.n_rounds * problem.plan.loss.n_outputs if name in BOOSTING else N_TREES // 2) - 1
    found, calm = disturbed(problem, {}, kind=MendedExecutor)
    assert_same(wanted, found)
    assert calm.n_repairs == 1
    if name not in BOOSTING:
        assert starts(calm) == list(range(N_TREES))
        return
    (renewed,) = {message.epoch for _, message in calm.log if message.kind == "Renew"}
    twice = [k for k, (_, message) in enumerate(calm.log) if message.kind == "Start" and message.epoch < renewed][-len(SPREAD) :]
    again = [message for _, message in calm.log if message.kind == "Start" and message.epoch == renewed]
    assert [calm.log[k][1].calls[0][1].tree for k in twice] == [again[0].calls[0][1].tree] * len(SPREAD)
    for k in twice:  # and if a shard is lost at it
        found, executor = disturbed(problem, {k: (calm.log[k][0],)}, kind=MendedExecutor)
        assert_same(wanted, found)
        assert executor.n_repairs == 1


def test_the_only_shard_is_lost() -> None:
    problem = problem_of("one output")
    found, executor = disturbed(problem, {5: (0,), 14: (0,)}, spread=[range(7)])
    assert_same(problem.grow(), found)
    assert executor.n_repairs == 2
