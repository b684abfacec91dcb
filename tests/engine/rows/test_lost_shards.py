"""Shards of rows that are lost at any message or step: the result is that of one process, byte for byte."""

from typing import Any

import numpy as np
import pytest

from dtrees.engine.plan.plans import Dropout
from dtrees.engine.rows import levels, quantiles
from tests.engine.problems import Case, assert_same, boosting, cut_finely, forest, send_rows, spread
from tests.slow import one_of_each

DRAWN: dict[str, Any] = {"n_draws": 400, "out_of_bag": True}
BALANCED: dict[str, Any] = {"n_draws": 512, "balanced_subsample": True, "out_of_bag": True}
CASES: dict[str, Case] = {
    "boosting": boosting("log loss"),
    "leaves by order": boosting("targets"),
    "by gradients": boosting("log loss of three", weighted=True, subsample=0.5, subsample_by="gradient"),
    "dropout": boosting("log loss", n_rounds=6, subsample=0.7, dropout=Dropout(0.6)),
    "forest": forest(weighted=True, max_features=4, **DRAWN),
    "balanced": forest("gini", 2, max_features=4, **BALANCED),
    "at random": forest(random_splits=True, max_features=1, **DRAWN),
    "targets": forest("squared_error", 1, 1, 1, weighted=True, max_leaf_nodes=20, n_draws=300, out_of_bag=True),
    "targets, balanced": forest("gini", 2, 3, weighted=True, max_features=3, **BALANCED),
}

#: Messages and steps that occur less than five times.
ONCE_IN_BOOSTING = ["Open", "Replay", "GrowTree", "targets", "before targets", "held out"]
IN_BOOSTING = [
    "derived", "level", "subtrees", "before derived", "before level", "before subtrees", "sums",
    "before sums", "bars", "before bars", "flags", "before flags", "picked", "before picked", "delegated", "before delegated", "losses",
    "before losses", "finer sums", "before finer sums", "finer flags", "before finer flags", "before finer sums of batch 1",
    "picked of batch 1", "before picked of batch 2",
]  # fmt: skip
BY_ORDER = ["quantiles", "weights of leaves", "deviations", "counts", "bins", "rest", "GrowTree"]
ONCE_IN_FORESTS = ["Open", "GrowTrees", "AddVotes", "CountVotes"]
IN_FORESTS = [
    "drawn", "level", "subtrees", "means", "targets", "before targets", "held out", "sums", "before sums", "bars",
    "flags", "picked", "delegated", "before delegated", "leaves", "before leaves",
]  # fmt: skip
AT_RANDOM = ["drawn", "level", "means", "ends", "before ends", "sides", "before sides"]
OF_TARGETS = ["Open", "drawn", "level", "means", "held out", "bars", "picked", "picked of batch 1", "delegated", "leaves"]


def lost(case: str, places: list[str], *nth: int | tuple[int, int]) -> list[Any]:
    """Return parameters of the test: the case, the place, its n-th occurrence, and the number of trees side by side."""
    times = [one if isinstance(one, tuple) else (one, 1) for one in nth]
    found = one_of_each([(case, place) for place in places], times, others=pytest.mark.thorough)
    return [pytest.param(*one.values, marks=one.marks or pytest.mark.slow) for one in found]


@pytest.mark.parametrize(
    ("case", "place", "nth", "side_by_side"),
    [
        ("forest", "sums", 4, 3),
        ("dropout", "derived", 5, 1),
        ("forest", "GrowTrees", 2, 3),
        ("forest", "AddVotes", 2, 3),
        ("forest", "CountVotes", 1, 3),
        ("by gradients", "sizes", 2, 3),
        *lost("boosting", ONCE_IN_BOOSTING, 1),
        *lost("boosting", IN_BOOSTING, 1, 5),
        *lost("leaves by order", BY_ORDER, 4),
        *lost("by gradients", ["before sizes", "derived", "GrowTree"], 3),
        *lost("forest", ONCE_IN_FORESTS, (1, 1), (1, 3)),
        *lost("forest", IN_FORESTS, (1, 1), (3, 3), (1, 3), (3, 1)),
        *lost("balanced", ["draws", "sum in order"], (1, 1), (3, 3)),
        *lost("at random", AT_RANDOM, 1, 3),
        *lost("targets", OF_TARGETS, (1, 3)),
        *lost("targets, balanced", ["draws"], (1, 3)),
    ],
)
def test_a_shard_lost_anywhere(case: str, place: str, nth: int, side_by_side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boosting continues from a round that is replayed; the callback of a forest is called once for each tree."""
    send_rows(monkeypatch, 40)
    monkeypatch.setattr(quantiles, "SENT_VALUES", 20)
    if place.endswith("subtrees"):  # each small node has too many rows to be sent together with others
        monkeypatch.setattr(levels, "SHARED_CELLS", 1)
    if case == "boosting" or "batch" in place:
        cut_finely(monkeypatch)
    problem = CASES[case].problem(400)
    if place == "further columns":  # there are nodes in which the drawn column is constant
        problem = CASES[case].on([*problem.table, *[np.ones(400)] * 10], problem.table, None)
    executor = problem.losing(spread(400, 3, [10, 200]), place, nth)
    heard: list[int] = []
    if CASES[case].is_boosting:
        once = problem.with_plan(n_rounds=1).grow()
        before = {"previous": once.rounds, "initial": once.initial} if case == "boosting" else {}
        assert_same(problem.grow(**before), problem.grow_on(executor, **before))
    else:
        found = problem.grow_on(executor, 5, side_by_side, callback=lambda progress: heard.append(progress.done))
        assert_same(problem.grow(5), found)
        assert heard == [1, 2, 3, 4, 5]
    assert executor.n_lost == 1
