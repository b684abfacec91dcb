"""Boosting over shards of rows: ordered sums and losses, objectives of all rows, rows sent in batches, hard tables."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import BLOCK_ROWS
from dtrees.engine.plan.wants import ALL_ROWS, ROUNDS, of_criterion, of_loss
from dtrees.engine.protocol import exchange
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.exchange import Step
from dtrees.engine.protocol.messages import StaleMessage
from dtrees.engine.rows import flagged_rows, levels, rows_in_tree
from dtrees.engine.rows.searcher import Searcher
from dtrees.ensemble.objective.registry import CustomObjective
from dtrees.ensemble.objective.regression import SquaredError
from dtrees.split.policy import flagged_bytes
from tests.engine.local_rows import LocalRowsExecutor, PayloadsMissing
from tests.engine.problems import (
    COLUMNS,
    Case,
    Problem,
    assert_same,
    boosting,
    cut_finely,
    forest,
    pulled_together,
    send_rows,
    spread,
    trees_of,
)
from tests.engine.shards import wild_table

# --- boosting over shards of rows: ordered sums and losses, objectives and scorers of all rows, refusals ---


def assert_same_over_rows(problem: Problem, cuts: Any, **more: Any) -> None:
    assert_same(problem.grow(**more), problem.grow_on(problem.rows(cuts), **more))


def test_more_shards_than_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that searches no column waits while others divide parts."""
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

    def plan_and_note(planned: Any, splits: Any) -> None:
        plan_level(planned, splits)
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


def test_losses_of_torn_blocks_are_put_together_where_they_begin() -> None:
    """Chunks of a block are on its own shard, on others, or on several in turns; only a few sums pass through the coordinator."""
    n = 40_000
    problem = boosting(weighted=True, n_rounds=2, n_iter_no_change=50, max_depth=2, max_features=1, columns_per_tree=1).problem(n)
    problem = replace(problem, table=[np.arange(n) % 97 * 1.0], target=np.sin(np.arange(n) * 0.1))
    ends = [0, 5, 8191, 8192, 8200, 9000, 16_384, 20_000, 20_001, 31_000, n]
    ranges = list(pairwise(ends))
    cuts = [ranges[:1] + ranges[3:7:3], ranges[1:3] + ranges[7:9], [], ranges[4:6] + ranges[9:]]
    assert sorted(one for some in cuts for one in some) == ranges
    executor = problem.rows(cuts)
    assert_same(problem.grow(), problem.grow_on(executor))
    assert executor.largest["GrowTree"] < BLOCK_ROWS


def test_payloads_that_nobody_sends_are_named() -> None:
    problem = boosting().problem(50)
    executor = problem.rows([[(0, 30)], [(30, 50)]], kind=LocalRowsExecutor)
    shard, plan = executor.shards[0], problem.plan
    opened = [m.Open("fit", 1, shard, 2, plan, None) for shard in range(2)]
    step = next(executor.shards[1].program(opened[1]))
    assert list(step.payloads) == [0]
    with pytest.raises(PayloadsMissing, match="shard 0 awaits targets of the shards \\[1\\]"):
        executor.send({0: opened[0]})
    with pytest.raises(StaleMessage):
        executor.send({0: replace(opened[0], epoch=0)})
    shard.mailbox.put(step.payloads[0]._replace(epoch=0))  # of an earlier epoch: dropped
    with pytest.raises(PayloadsMissing):
        executor.send({0: opened[0]})
    shard.mailbox.put(step.payloads[0])
    assert executor.send({0: opened[0]})[0].initial.shape == (1,)
    executor.close()


class InOrder:
    """A scorer that also depends on the order of rows."""

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

    problem = boosting("log loss of three" if n_classes else "squared", weighted=weighted, subsample=0.7).problem(300)
    problem = problem.with_plan(loss=CustomObjective(n_classes, objective))
    one, cuts = problem.grow(), spread(300, 3, [20, 150], [2, 0, 1])
    calls[0] = 0
    assert_same(one, problem.grow_on(problem.rows(cuts, kind=LocalRowsExecutor)))
    assert calls == [3]
    problem = problem.with_plan(loss=CustomObjective(n_classes, pulled_together))
    lasting = problem.losing(cuts, "level", 5)
    assert_same(one, problem.grow_on(lasting))
    assert lasting.n_lost == 1


class MeasuresOtherwise(SquaredError):
    measures_leaves = True


def test_what_wants_all_rows_in_one_place() -> None:
    assert of_loss(SquaredError(), "squared_error") == (ROUNDS,)
    rounds, other = of_loss(MeasuresOtherwise(), "mine")
    assert (rounds, other.what) == (ROUNDS, ALL_ROWS)
    assert "loss='mine'" in other.reason
    assert of_criterion("squared_error") == ()
    (by_order,) = of_criterion("absolute_error")
    assert by_order.what == ALL_ROWS
    assert "criterion='absolute_error'" in by_order.reason


# --- rows in flagged parts sent in batches: parts of each batch, the same splits, and bounded memory ---


class Weighing(LocalRowsExecutor):
    """Records the bytes of rows that a shard receives at a time, and the number of batches of a level."""

    most = n_batches = 0

    def hand_over(self, shard: int, step: Step) -> None:
        super().hand_over(shard, step)
        if step.name.startswith("picked"):
            # Views keep the arrays of many rows alive.
            held = sum(array.nbytes for payload in step.payloads.values() for array in payload.arrays)
            self.most, self.n_batches = max(self.most, held), self.n_batches + 1


def noise(case: Case, n: int, n_columns: int) -> Problem:
    """Columns and targets that are independent of each other."""
    rng = np.random.default_rng(0)
    table = [np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n)).astype(np.float32) for _ in range(n_columns)]
    return case.on(table, [rng.normal(size=n) for _ in range(7)], None)


def few_bytes(patch: pytest.MonkeyPatch, n_bytes: int) -> None:
    patch.setattr(rows_in_tree, "flagged_bytes", lambda n_rows, n_columns: n_bytes)


def test_boosted_trees_are_the_same_however_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 12_000
    problem = noise(boosting(max_depth=3), n, 4)
    problem.table[1] = np.round(problem.table[1], 1)  # type: ignore[index]
    one, steps = problem.grow(), []
    for n_bytes in (2**23, 50_000, 5_000):
        few_bytes(monkeypatch, n_bytes)
        executor = problem.rows(spread(n, 2, [n // 3]), kind=Weighing)
        assert_same(one, problem.grow_on(executor))
        steps.append(executor.n_batches)
        assert executor.most < n_bytes + 12_000 * 20 / 100  # a part more
    assert steps == sorted(set(steps))


def test_a_small_table_takes_one_batch() -> None:
    """Steps of three exchanges each would take longer than all its rows."""
    n_rows, n_columns, row_bytes = 20_000, 28, 20
    assert flagged_bytes(n_rows // 2, n_columns) >= row_bytes * n_rows * n_columns // 4


@pytest.mark.parametrize("case", [boosting(max_depth=3), forest(max_depth=3, n_draws=9000)])
def test_rows_that_are_looked_up_in_lists(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their places are updated after they have moved, or after those of another tree were stored."""
    monkeypatch.setattr(flagged_rows, "CODES_FOR_LISTS", 0)
    monkeypatch.setattr(flagged_rows, "LARGE_NODE_SHARE", 2**20)
    noted, looked_up = [], []
    note_places, lists = flagged_rows.note_places, flagged_rows._Listed.lists
    monkeypatch.setattr(flagged_rows, "note_places", lambda *given: (noted.append(1), note_places(*given)))

    def look_up(*given: Any, **options: Any) -> Any:
        found = lists(*given, **options)
        looked_up.append(found is not flagged_rows.NO_LISTS)
        return found

    monkeypatch.setattr(flagged_rows._Listed, "lists", look_up)
    if not case.is_boosting:
        send_rows(monkeypatch, 1000)
    problem = noise(case, 12_000, 4)
    assert_same(problem.grow(4), problem.grow_on(problem.rows(spread(12_000, 2, [4_000])), 4))
    assert noted
    assert any(looked_up)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classes", "targets"])
def test_memory_of_rows_sent_of_noise_is_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All cells are flagged if no bar is known."""
    find_bars = Searcher.find_bars
    monkeypatch.setattr(Searcher, "find_bars", lambda *given: np.full_like(find_bars(*given), -1.0))
    n, n_columns, n_bytes = 60_000, 8, 2**18
    case = forest("gini", 3, max_depth=1) if kind == "classes" else forest("squared_error", 1, 1, 1, max_depth=1)
    problem, cuts = noise(case, n, n_columns), spread(n, 2, [n // 2])
    one = problem.grow(1)
    few_bytes(monkeypatch, n_bytes)
    # The first fit compiles, which would take many times as long while memory is traced.
    assert_same(one, problem.grow_on(problem.rows(cuts, kind=LocalRowsExecutor), 1, 1))
    executor = problem.rows(cuts, kind=Weighing)
    tracemalloc.start()
    try:
        assert_same(one, problem.grow_on(executor, 1, 1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    row_bytes = 8 * (4 if kind == "classes" else 6)
    assert executor.n_batches * n_bytes > 0.9 * row_bytes * n * n_columns  # those that are not missing
    assert executor.most < 2 * n_bytes + row_bytes * n / 100
    # Memory of trees, and of batches as they are picked, sent and merged; all cells at once would take 50 and 65 MB.
    assert peak < {"classes": 150, "targets": 280}[kind] * n + 7 * n_bytes


# --- tables that are hard for zones, and for the distribution of rows: the model equals that of one process ---


N = 900
#: Three shards with a third of the rows each.
THIRDS = [[(0, 300)], [(300, 600)], [(600, N)]]


def table_of(names: Sequence[str], dtype: Any) -> list[NDArray[Any]]:
    return [COLUMNS[name](np.random.default_rng(i), N).astype(dtype) for i, name in enumerate(names)]


def target_of(table: list[NDArray[Any]]) -> NDArray[np.float64]:
    rng = np.random.default_rng(99)
    ranks = [np.unique(column, return_inverse=True)[1] for column in table]
    return rng.normal(size=N) + sum(np.sin(7.0 * rank / (1 + rank.max())) for rank in ranks)


def problem_of(case: Case, table: list[NDArray[Any]], y: NDArray[Any], weight: Any = None, **changes: Any) -> Problem:
    return Problem(table, y, weight, case.on(table, wild_table(len(y), 0), None, **changes).plan)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("max_features", "case"), [(19, boosting()), (19, forest(random_splits=True)), (1, forest(random_splits=True))])
def test_all_of_them_together(case: Case, max_features: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one with infinite values, which are the largest numbers in tables from estimators."""
    send_rows(monkeypatch, 50 if case.is_boosting else 10)
    table = table_of(list(COLUMNS), dtype)
    y, weight = target_of(table), np.random.default_rng(2).integers(0, 3, N).astype(float)
    infinite = table[0].copy()
    infinite[::7], infinite[1::9] = np.inf, -np.inf
    problem = problem_of(case, [*table, np.nan_to_num(infinite, nan=np.nan)], y, weight, max_features=max_features)
    wanted = problem.grow()
    assert all(tree.node_count > 3 for tree in trees_of(wanted))
    for cuts in (THIRDS, [[(0, 1)], [(1, 2)], [(2, N)], []], [[(first, first + 1) for first in range(i, N, 7)] for i in range(7)]):
        assert_same(wanted, problem.grow_on(problem.rows(cuts)))
