"""Shards of columns that are lost at any message or step: the model equals that of one process, byte for byte."""

from typing import Any

import pytest

from dtrees.engine.plan.plans import Dropout
from dtrees.engine.protocol.exchange import Step
from dtrees.engine.protocol.messages import Message, ShardsLost
from tests.engine.problems import Case, Problem, assert_same, boosting, forest
from tests.engine.shards import ShardedExecutor, called, losing
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
    "three outputs": boosting("log loss of three", weighted=True, **HELD_OUT),
    "two targets": boosting("targets", weighted=True, **HELD_OUT),
    "by gradients": boosting("log loss of three", weighted=True, **HELD_OUT, subsample_by="gradient"),
}
DROPOUT = {"dropout": boosting("log loss of three", n_rounds=4, dropout=Dropout(0.6), **HELD_OUT)}
CASES = {
    **BOOSTING,
    **DROPOUT,
    "out of bag": forest(weighted=True, out_of_bag=True, **DRAWN),
    "trees only": forest(weighted=True, **DRAWN),
    "sets": forest(categories=("some", "with gaps"), n_draws=120, out_of_bag=True),
}
N_TREES = 6
SLOW = {"three outputs", "by gradients", "out of bag", "sets"}
#: Steps of all trees, and of those of some cases.
STEPS = ["rows", "found", "marks"]
OF_CASES = {
    "one output": ["Open", "standing", "GrowTree"],
    "three outputs": ["Open", "standing", "GrowTree", "further columns"],
    "two targets": ["GrowTree", "leaves"],
    "by gradients": ["standing", "GrowTree"],
    "out of bag": ["Open", "standing", "GrowTrees", "AddVotes", "CountVotes", "leaves"],
    "trees only": ["GrowTrees", "leaves"],
    "dropout": ["Replay", "GrowTree"],
    "sets": ["delegated", "subtrees", "sets"],
}


def problem_of(name: str) -> Problem:
    return CASES[name].problem(300 if name in BOOSTING | DROPOUT else 120, 3)


class LossyExecutor(ShardedExecutor):
    """Loses several shards at once, and further ones after the first loss: those at the places in ``also``, each with a shard."""

    n_at_once = 1

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.also: list[tuple[str, int]] = []
        self.asked, self.n_asked = 0, 0

    def _lose_further(self, names: list[str]) -> None:
        if self.n_lost and self.also and self.also[0][0] in names:
            _, shard = self.also.pop(0)
            self.nth = 1
            self._count(shard)

    def _count(self, shard: int) -> None:
        try:
            super()._count(shard)
        except ShardsLost:
            for other in range(shard + 1, shard + self.n_at_once):
                self.shards[other % self.n_shards] = self.make().shards[other % self.n_shards]
            raise

    def hand_over(self, shard: int, step: Step) -> None:
        self._lose_further([step.name])
        super().hand_over(shard, step)

    def send(self, messages: dict[int, Message]) -> dict[int, Any]:  # type: ignore[override]
        self._lose_further([type(next(iter(messages.values()))).__name__])
        return super().send(messages)

    def wants_repair(self) -> bool:
        """Return True once, at the ``asked``-th call."""
        self.n_asked += 1
        return self.n_asked == self.asked


def lossy(problem: Problem, place: str, nth: int = 1, spread: Any = SPREAD) -> LossyExecutor:
    kept = [[j for j in mine if j < len(problem.table)] for mine in spread]
    executor = losing(lambda: LossyExecutor(problem.table, problem.target, problem.weight, kept), place, nth)
    assert isinstance(executor, LossyExecutor)
    return executor


def grow_on(problem: Problem, executor: LossyExecutor) -> Any:
    """Grow trees on shards some of which are lost; check the result, and that a forest's callback is called once for each tree."""
    heard: list[int] = []
    found = problem.grow_on(executor, N_TREES, 2, callback=lambda progress: heard.append(progress.done))
    assert_same(problem.grow(N_TREES), found)
    assert heard == list(range(1, len(heard) + 1))
    return found


@pytest.mark.parametrize(
    ("name", "place", "nth"),
    [
        ("three outputs", "marks", 9),
        ("one output", "before found", 12),
        ("out of bag", "marks", 3),
        ("dropout", "marks", 31),
        *(
            pytest.param(name, place, nth, marks=pytest.mark.slow if name in SLOW else pytest.mark.thorough)
            for name in CASES
            for place in [*STEPS, *OF_CASES[name]]
            for nth in ((1,) if place in ("Open", "standing", "CountVotes") else (1, 3))
        ),
        *(pytest.param("sets", f"before {place}", 2, marks=pytest.mark.thorough) for place in (*STEPS, *OF_CASES["sets"])),
    ],
)
def test_a_shard_is_lost_anywhere(name: str, place: str, nth: int) -> None:
    """Finished trees are not grown again, except those that were reported but not closed. With dropout they are replayed."""
    problem = problem_of(name)
    executor = lossy(problem, place, nth)
    if place == "Replay":  # occurs only after another loss
        executor.lose, executor.nth, executor.also = "found", 14, [(place, 1)]
    grow_on(problem, executor)
    assert executor.n_lost == (2 if place == "Replay" else 1)
    if name in DROPOUT:
        return
    assert {"Replay", "state"} & {which for _, which, _ in executor.log} <= {"state"} or place == "GrowTree"


@pytest.mark.parametrize(("name", "n_lost"), one_of_each([*BOOSTING, "out of bag", "trees only"], [2, 3]))
def test_several_are_lost_at_once(name: str, n_lost: int) -> None:
    """The state of surviving shards is used; only if all are lost, trees are replayed, or grown again for out-of-bag sums."""
    problem = problem_of(name)
    executor = lossy(problem, "found", 14 if name in BOOSTING else 9)
    executor.n_at_once = n_lost
    grow_on(problem, executor)
    which = {which for _, which, _ in executor.log}
    if name in BOOSTING:
        assert ("Replay" in which) == (n_lost == 3)
        assert ("state" in which) == (n_lost < 3)


@pytest.mark.parametrize(("name", "also"), one_of_each(["out of bag", *BOOSTING], one_quick([("state", 0), ("state", 1), ("standing", 2)])))
def test_another_is_lost_while_state_is_brought_to_the_first(name: str, also: tuple[str, int]) -> None:
    problem = problem_of(name)
    executor = lossy(problem, "found", 20 if name in BOOSTING else 18)
    executor.also = [also]
    grow_on(problem, executor)
    assert executor.n_lost == 2


@pytest.mark.parametrize("name", thorough_for({"one output"}, BOOSTING))
def test_shards_are_replaced_before_a_tree(name: str) -> None:
    """No tree is under way then, and none is grown again."""
    problem = problem_of(name)
    executor = lossy(problem, "")
    executor.asked = 2
    grow_on(problem, executor)
    grown = [(message.tree, shard) for shard, message in called(executor, "GrowTree")]
    assert len(grown) == len(set(grown))
    assert len({message.epoch for _, message in called(executor, "Open")}) == 2


def test_the_only_shard_is_lost() -> None:
    problem = problem_of("one output")
    executor = lossy(problem, "GrowTree", 2, spread=[range(7)])
    grow_on(problem, executor)
    assert executor.n_lost == 1
