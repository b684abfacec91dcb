"""Shards of columns that are lost at any message, or are more from some tree on: the model is that of one process, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dtrees.engine.coordinator import session as sessions
from dtrees.engine.plan.plans import Callback
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.executor import ShardsLost
from dtrees.engine.run import recovery
from tests.engine.problems import Case, Problem, assert_same, boosting, forest
from tests.engine.shards import ShardedExecutor, SpreadingExecutor, local
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

    def _call(self, shard: int, message: m.Message) -> m.Reply:
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
    """Wants repair before the last tree but one; of a forest, when no tree is under way."""

    def wants_repair(self, n_left: int) -> bool:
        return n_left == 2 and not self.n_repairs


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


def undisturbed(problem: Problem) -> tuple[Any, list[tuple[int, m.Message]]]:
    """What one process finds, and all messages to shards that find it undisturbed."""
    wanted = problem.grow(N_TREES)
    found, executor = disturbed(problem, {})
    assert_same(wanted, found)
    return wanted, executor.log


def within(message: m.Message) -> tuple[m.Message, ...]:
    return getattr(message, "messages", (message,))


def starts(executor: ShardedExecutor) -> list[int]:
    """The trees that were started on shard 0, in order."""
    return [one.tree for shard, message in executor.log if shard == 0 for one in within(message) if isinstance(one, m.Start)]


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
        kinds = frozenset((type(one), getattr(one, "output", 0) > 0) for one in within(message))
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
        assert {kind for kinds, *_ in tested for kind, _ in kinds} == {m.Begin, m.Start, m.Search, m.Evaluate, m.Advance, m.Finish}


@pytest.mark.parametrize(("name", "lost"), one_of_each([*CASES], [((0, 1),), ((0, 1, 2),)]))
def test_several_are_lost_at_once(name: str, lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "STATE_PIECE_BYTES", 16 * 50)  # so that state travels in several pieces
    problem = problem_of(name)
    wanted, log = undisturbed(problem)
    for k in (len(log) // 3, len(log) // 2, 4 * len(log) // 5):
        found, executor = disturbed(problem, {k: lost})
        assert_same(wanted, found)
        if name in BOOSTING and 2 * k >= len(log):
            kinds = {type(message) for _, message in executor.log}
            assert (m.Route in kinds) == (len(lost) == 3)
            assert (m.Adopt in kinds) == (len(lost) < 3)
        # Only where all shards are lost, the sums of a forest are too, and finished trees are grown again.
        again = name not in BOOSTING and len(starts(executor)) > N_TREES + 4
        assert not again or (len(lost) == 3 and name == "out of bag")


@pytest.mark.parametrize(("name", "lost"), one_of_each(["out of bag", *BOOSTING], one_quick([(2, 0), (0,), (1,)])))
def test_another_is_lost_while_state_is_brought_to_the_first(name: str, lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "STATE_PIECE_BYTES", 16 * 50)
    problem = problem_of(name)
    wanted, log = undisturbed(problem)
    k = 2 * len(log) // 3
    _, executor = disturbed(problem, {k: (0,)})
    recovering = [i for i, (_, message) in enumerate(executor.log) if isinstance(message, m.Renew | m.Begin | m.Fetch | m.Adopt) and i > k]
    assert len(recovering) > 6
    for second in recovering[:: 1 if name == "out of bag" else 3]:
        found, executor = disturbed(problem, {k: (0,), second: lost})
        assert executor.n_repairs >= 2
        assert_same(wanted, found)


@pytest.mark.parametrize(("name", "when"), [*one_of_each([*BOOSTING], [1, 2, 3]), ("out of bag", 7), ("trees only", 7)])
def test_columns_are_spread_over_more_shards(name: str, when: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of boosting before a tree, of a forest when none is under way; nothing is replayed or grown in vain."""
    monkeypatch.setattr(recovery, "STATE_PIECE_BYTES", 16 * 50)
    problem = problem_of(name)
    spread, wider = [(0, 2, 4), (1, 5), (3, 6)], [(0, 4), (1,), (3, 6), (2, 5)]
    executor = SpreadingExecutor(problem.table, problem.target, problem.weight, spread, when=when, wider=wider)
    assert_same(problem.grow(N_TREES), problem.grow_on(executor, N_TREES, 2))
    assert executor.spread_at
    after = executor.log[executor.spread_at :]
    adopted = {shard for shard, message in after if isinstance(message, m.Adopt)}
    assert adopted == ({3} if when > 1 and name != "trees only" else set())
    if name in BOOSTING:
        n_trees = problem.plan.n_rounds * problem.plan.loss.n_outputs
        assert executor.n_left == list(range(n_trees, 0, -1))
        assert {shard for shard, message in after if isinstance(message, m.Begin)} == {3 if when > 1 else shard for shard in range(4)}
        assert not any(isinstance(message, m.Route) for _, message in after)
    else:
        assert starts(executor) == list(range(N_TREES))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_shard_is_lost_at_a_scan(after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "OFFER_ROWS", 150)  # some levels take one exchange, some two
    problem = boosting(weighted=True, **HELD_OUT | {"max_features": 7, "max_depth": 4}).problem(300, 3)
    wanted, log = undisturbed(problem)
    scans = [k for k, (_, message) in enumerate(log) if isinstance(message, m.Scan)]
    advances = [message for shard, message in log if shard == 0 and isinstance(message, m.Advance)]
    assert 0 < len(scans) < len(SPREAD) * len(advances)
    for k in scans:
        found, executor = disturbed(problem, {k: (log[k][0],)}, after)
        assert_same(wanted, found)
        assert executor.n_repairs == 1


@pytest.mark.parametrize("name", thorough_for({"one output"}, CASES))
def test_shards_are_replaced_before_a_tree(name: str) -> None:
    """One of boosting that is started already starts again; of a forest, none is under way then."""
    problem = problem_of(name)
    wanted = problem.grow(N_TREES)
    found, calm = disturbed(problem, {}, kind=MendedExecutor)
    assert_same(wanted, found)
    assert calm.n_repairs == 1
    if name not in BOOSTING:
        assert starts(calm) == list(range(N_TREES))
        return
    (renewed,) = {message.epoch for _, message in calm.log if isinstance(message, m.Renew)}
    twice = [k for k, (_, message) in enumerate(calm.log) if isinstance(message, m.Start) and message.epoch < renewed][-len(SPREAD) :]
    again = [message for _, message in calm.log if isinstance(message, m.Start) and message.epoch == renewed]
    assert [calm.log[k][1].tree for k in twice] == [again[0].tree] * len(SPREAD)  # type: ignore[attr-defined]
    for k in twice:  # and if a shard is lost at it
        found, executor = disturbed(problem, {k: (calm.log[k][0],)}, kind=MendedExecutor)
        assert_same(wanted, found)
        assert executor.n_repairs == 1


def test_the_only_shard_is_lost() -> None:
    problem = problem_of("one output")
    found, executor = disturbed(problem, {5: (0,), 14: (0,)}, spread=[range(7)])
    assert_same(problem.grow(), found)
    assert executor.n_repairs == 2


def test_messages_of_an_earlier_epoch_are_refused() -> None:
    problem = problem_of("one output")
    with local(problem.table, problem.target) as executor:
        assert executor.broadcast(m.Renew("fit", 7)) == [m.Standing(-1)]  # a new shard knows nothing
        executor.broadcast(m.Begin("fit", 0, problem.plan))
        assert executor.broadcast(m.Renew("fit", 1)) == [m.Standing(0)]
        for stale in (m.Start("fit", 0, 0, 0, True, True), m.Renew("fit", 1), m.Renew("other", 2)):
            with pytest.raises(m.StaleMessage):
                executor.broadcast(stale)
