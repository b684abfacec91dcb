"""Boosting over shards of rows: sums and losses in their order, objectives and scorers of all rows, what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import BLOCK_ROWS
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.protocol.messages import StaleMessage
from dtrees.engine.rows import exchange, levels
from dtrees.engine.rows import messages as m
from dtrees.engine.rows.local import LocalRowsExecutor, ParcelsMissing
from dtrees.engine.rows.refusal import rows_placement_refusal
from dtrees.engine.rows.zone_edges import merge_sketches, sketch_columns
from dtrees.ensemble.objective.registry import CustomObjective
from tests.engine.problems import Problem, assert_same, boosting, cut_finely, pulled_together, send_rows, spread
from tests.engine.shards import Squared, rules


def assert_same_over_rows(problem: Problem, cuts: Any, **more: Any) -> None:
    assert_same(problem.grow(**more), problem.grow_on(problem.rows(cuts), **more))


def test_more_shards_than_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that searches no column waits while others have parts cut finer."""
    send_rows(monkeypatch, 1)
    cut_finely(monkeypatch)
    problem = boosting(max_features=2, columns_per_tree=2).problem(400)
    assert_same_over_rows(replace(problem, table=[problem.table[0], problem.table[2]]), spread(400, 3, [10, 200]))


@pytest.mark.slow
def test_children_are_summed_by_finer_parts_than_their_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "_ROWS_PER_PART", 8)
    monkeypatch.setattr(exchange, "_FIRST_GRAIN", 0)
    monkeypatch.setattr(exchange, "_FAR_TOO_MUCH_FLAGGED_SHARE", 2**40)
    both, plan_level = [], levels.Levels.plan

    def plan_and_note(planned: Any, grower: Any, splits: Any) -> None:
        plan_level(planned, grower, splits)
        both.append(any({left, left + 1} <= set(planned.summed.node.tolist()) for left in splits.left.tolist()))

    monkeypatch.setattr(levels.Levels, "plan", plan_and_note)
    problem = replace(boosting().problem(9000, 5), target=np.random.default_rng(5).normal(size=9000))
    assert_same_over_rows(problem, spread(9000, 2, [3000]))
    assert both[0]
    assert not all(both)


@pytest.mark.slow
@pytest.mark.parametrize("power", [10, 11])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_at_a_power_of_two_are_added_in_order(power: int, weighted: bool) -> None:
    n = 2**power
    table, y = [np.arange(n) % 37 * 1.0], np.where(np.arange(n) % 2, 1.0, -1.0)
    weight = np.full(n, 1.0) + (np.arange(n) % 3 - 1) * 2.0**-53 if weighted else None
    plan = boosting(max_features=1, columns_per_tree=1).problem(n).plan
    assert_same_over_rows(Problem(table, y, weight, plan), spread(n, 3, [5, 100, 101]), initial=np.zeros(1))


@pytest.mark.slow
def test_goes_on_from_predictions_of_each_row() -> None:
    initial = np.random.default_rng(0).normal(size=(1, 300))
    assert_same_over_rows(boosting().problem(300), spread(300, 2, [77]), initial=initial)


def test_losses_of_torn_blocks_are_put_together_where_they_begin() -> None:
    """Pieces of a block on its own shard, on others, on several in turns; and what goes by the coordinator is a few sums."""
    n = 40_000
    problem = boosting(weighted=True, n_rounds=2, n_iter_no_change=50, max_depth=2, max_features=1, columns_per_tree=1).problem(n)
    problem = replace(problem, table=[np.arange(n) % 97 * 1.0], target=np.sin(np.arange(n) * 0.1))
    ends = [0, 5, 8191, 8192, 8200, 9000, 16_384, 20_000, 20_001, 31_000, n]
    stretches = list(pairwise(ends))
    cuts = [stretches[:1] + stretches[3:7:3], stretches[1:3] + stretches[7:9], [], stretches[4:6] + stretches[9:]]
    assert sorted(one for some in cuts for one in some) == stretches
    executor = problem.rows(cuts)
    assert_same(problem.grow(), problem.grow_on(executor))
    assert executor.largest["GrowTree"] < BLOCK_ROWS


def test_parcels_that_nobody_sends_are_named() -> None:
    problem = boosting().problem(50)
    executor = problem.rows([[(0, 30)], [(30, 50)]], kind=LocalRowsExecutor)
    shard, plan = executor.shards[0], problem.plan
    executor.send({i: m.Introduce("fit", 0, i, 2, plan, 0, False) for i in range(2)})
    edges = merge_sketches([sketch_columns(one._columns) for one in executor.shards]).of_categories(np.zeros(7, np.int64))
    about = edges, [np.array([[0, 30]]), np.array([[30, 50]])]
    step = next(executor.shards[1].program(m.Open("fit", 0, *about)))
    assert list(step.parcels) == [0]
    with pytest.raises(ParcelsMissing, match="shard 0 awaits targets of the shards \\[1\\]"):
        executor.send({0: m.Open("fit", 0, *about)})
    with pytest.raises(StaleMessage):
        executor.send({0: m.Open("fit", 1, *about)})
    shard.mailbox.put(step.parcels[0]._replace(epoch=-1))  # of an earlier epoch: dropped
    with pytest.raises(ParcelsMissing):
        executor.send({0: m.Open("fit", 0, *about)})
    shard.mailbox.put(step.parcels[0])
    assert executor.send({0: m.Open("fit", 0, *about)})[0].initial.shape == (1,)
    executor.close()


class InOrder:
    """Scores by the order of rows, too."""

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        place = np.arange(target.shape[0])
        return float((place * (target - raw[0]) * (1.0 if weight is None else weight)).sum())


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.3, None])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_scorer_is_given_all_rows_held_out_in_their_order(weighted: bool, fraction: float | None) -> None:
    case = boosting(weighted=weighted, n_rounds=5, n_iter_no_change=2, validation_fraction=fraction, scoring=InOrder())
    for n_shards, bounds in ((1, []), (3, [50, 51, 200, 390])):
        assert_same_over_rows(case.problem(400), spread(400, n_shards, bounds, [2, 0, 1]))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [0, 3])
def test_an_objective_of_all_rows(n_classes: int, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One shard computes it, once for each round, also if a shard is lost between trees of a round."""
    send_rows(monkeypatch, 40)
    calls = [0]

    def objective(*given: Any) -> tuple[Any, Any]:
        calls[0] += 1
        return pulled_together(*given)

    problem = boosting("softmax" if n_classes else "squared", weighted=weighted, subsample=0.7).problem(300)
    problem = problem.with_plan(loss=CustomObjective(n_classes, objective))
    one, cuts = problem.grow(), spread(300, 3, [20, 150], [2, 0, 1])
    calls[0] = 0
    assert_same(one, problem.grow_on(problem.rows(cuts, kind=LocalRowsExecutor)))
    assert calls == [3]
    problem = problem.with_plan(loss=CustomObjective(n_classes, pulled_together))
    lasting = problem.losing(cuts, "level", 5)
    assert_same(one, problem.grow_on(lasting))
    assert lasting.n_lost == 1


class MeasuresOtherwise(Squared):
    measures_leaves = True


def test_refusals_name_the_parameter() -> None:
    plan = boosting().problem(10).plan
    assert rows_placement_refusal(plan) is None
    assert "loss='mine'" in str(rows_placement_refusal(replace(plan, loss=MeasuresOtherwise()), "mine"))
    forest = ForestPlan(rules("squared_error", 3), seed=0)
    assert rows_placement_refusal(forest) is None
    assert rows_placement_refusal(replace(forest, targets=(1, 1))) is None
    for random_splits in (False, True):
        plan = replace(forest, rules=rules("absolute_error", 3, random_splits=random_splits))
        assert "criterion='absolute_error'" in str(rows_placement_refusal(plan))
