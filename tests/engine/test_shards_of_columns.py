"""Shards of columns: the messages that they receive and refuse, delegated small nodes, trees that grow side by side."""

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan, ForestResult
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.exchange import Step, alone
from dtrees.engine.protocol.nodes import DelegatedNodes, Splits
from dtrees.engine.run.boosting_rounds import boost
from dtrees.engine.run.lasting import LastingForest, trees_side_by_side
from dtrees.engine.shard import node_search
from dtrees.engine.shard import tree as tree_program
from dtrees.engine.shard.shard import Shard
from dtrees.engine.shard.tree_state import TreeState
from dtrees.ensemble.objective.regression import SquaredError
from dtrees.split.table.columns import presort
from dtrees.tree.category_sets import NO_SETS, CategorySets
from tests.engine.problems import Problem, assert_same, forest
from tests.engine.shards import ShardedExecutor, all_equal, called, grow_here, grow_sharded, rules, wild_table, wild_target

# --- messages to shards of columns, and equal large nodes ---


N = 500
TABLE = wild_table(N, 4)
P = len(TABLE)
TARGET = wild_target(TABLE, 0, 4)
SPREADS = {"two": [(0, 2, 4), (1, 3, 5, 6)], "three": [(6,), (1, 4), (0, 2, 3, 5)], "reversed": [(5, 6), (3, 4), (0, 1, 2)]}


@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_drawing_goes_on_over_the_shards_while_columns_are_constant(spread: Any) -> None:
    """The next column searched is the next one drawn, whichever shard has it."""
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
    assert called(executor, "further columns")
    assert {1, 4} <= set(here[0].feature.tolist())


@pytest.mark.parametrize("max_features", [P, P - 1])
def test_a_level_takes_two_steps(max_features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages and payloads of shards while a tree of depth 4 grows."""
    monkeypatch.setattr(tree_program, "SHARED_CELLS", 0)
    plan = ForestPlan(rules("squared_error", P, max_depth=4, max_features=max_features), seed=0)
    log = grow_sharded(TABLE, TARGET, None, plan, 1, SPREADS["two"])[1].log
    for shard in (0, 1):
        steps = ["rows", "found", *3 * ["marks", "found"], "marks", "leaves"]
        assert [name for to, name, _ in log if to == shard] == ["Open", "standing", "GrowTrees", *steps]


def test_columns_in_any_number_of_shards_keep_their_numbers() -> None:
    """A tie between equal columns goes to the lowest number, not to the first shard."""
    column = np.arange(40.0)
    table, target = [column, column * 2, column], np.sin(column)
    plan = ForestPlan(rules("squared_error", 3), seed=0)
    for spread in ([(1, 2), (0,)], [(2,), (1,), (0,)], [(0, 1, 2)]):
        (tree,), _ = grow_sharded(table, target, None, plan, 1, spread)
        assert set(tree.feature.tolist()) == {-2, 0}
    assert all_equal([tree], grow_here(table, target, None, plan))


# --- a single shard: what it refuses, and what it replies ---


PLAN = ForestPlan(rules("squared_error", P), seed=1)
NODE = np.zeros(1, np.int64)
OPEN = m.Open("fit", 3, 0, 1, PLAN, None)


def splits(column: int, threshold: float, n_left: int, missing_left: bool = False) -> Splits:
    return Splits(NODE, NODE + 1, np.array([column], np.int32), np.array([threshold]), np.array([missing_left]), np.array([n_left]))


def make_shard() -> Shard:
    return Shard(presort(TABLE), np.arange(P, dtype=np.int32), P, TARGET, None)


def opened() -> TreeState:
    """A tree that has been opened on a shard."""
    shard = make_shard()
    alone(shard.program(OPEN))
    shard.trees[0].open(0, 0, by_levels=True)
    return shard.trees[0]


@pytest.mark.parametrize(("fit", "epoch"), [("fit", 2), ("fit", 4), ("other", 3)])
@pytest.mark.parametrize("message", [m.GrowTrees, m.Replay, m.CountVotes], ids=lambda kind: kind.__name__)
def test_messages_of_another_fit_or_epoch_are_refused(message: Any, fit: str, epoch: int) -> None:
    shard = make_shard()
    alone(shard.program(OPEN))
    arguments = (0, 1) if message is not m.CountVotes else ()
    with pytest.raises(m.StaleMessage, match=rf"fit {fit}, epoch {epoch} to a shard"):
        alone(shard.program(message(fit, epoch, *arguments)))
    assert len(alone(shard.program(m.GrowTrees("fit", 3, 0, 1))).trees) == 1  # and the state is unchanged


def test_an_epoch_before_is_refused() -> None:
    shard = make_shard()
    alone(shard.program(OPEN))
    with pytest.raises(m.StaleMessage, match="epoch 2 of fit fit is before epoch 3"):
        alone(shard.program(dataclasses.replace(OPEN, epoch=2)))


def test_nothing_is_done_before_a_fit_begins() -> None:
    with pytest.raises(m.StaleMessage):
        alone(make_shard().program(m.GrowTrees("fit", 0, 0, 1)))


def test_a_new_fit_takes_the_place_of_the_old() -> None:
    shard = make_shard()
    alone(shard.program(OPEN))
    alone(shard.program(dataclasses.replace(OPEN, fit="other", epoch=0)))
    with pytest.raises(m.StaleMessage):
        alone(shard.program(m.GrowTrees("fit", 3, 0, 1)))
    assert len(alone(shard.program(m.GrowTrees("other", 0, 0, 1))).trees) == 1


@pytest.mark.parametrize("missing_left", [False, True])
def test_marks_are_one_bit_a_row(missing_left: bool) -> None:
    for column, threshold in ((0, 0.2), (2, 0.0), (2, np.inf), (4, -1e300), (5, 0.5)):
        bits, offsets = opened().mark(splits(column, threshold, 0, missing_left), NO_SETS)
        x = TABLE[column].astype(float)
        left = np.where(np.isnan(x), missing_left, x <= threshold)
        assert offsets.tolist() == [0, 63]
        assert np.unpackbits(bits, bitorder="little")[:N].tolist() == left.tolist()


def test_counts_from_the_bits_must_agree_with_the_split() -> None:
    rows = opened()
    n_left = int((TABLE[0] <= 0.2).sum())
    marks = rows.mark(splits(0, 0.2, n_left), NO_SETS)
    with pytest.raises(m.ShardsDisagree, match="not as many"):
        rows.divide(splits(0, 0.2, n_left + 1), marks)
    rows = opened()
    rows.divide(splits(0, 0.2, n_left), marks)
    assert rows.nodes.stop[1] == rows.nodes.start[2] == n_left


def test_replicas_that_disagree_about_rows_stop_the_fit() -> None:
    def meddle(shard: int, step: Step) -> Step:
        if shard != 1 or step.name != "rows":
            return step
        ((checksum, exponents),) = step.payloads[0].arrays
        payloads = {to: payload._replace(arrays=((checksum ^ 1, exponents),)) for to, payload in step.payloads.items()}
        return step._replace(payloads=payloads)

    executor = ShardedExecutor(TABLE, TARGET, None, SPREADS["two"], meddle=meddle)
    with pytest.raises(m.ShardsDisagree, match="tree 0"):
        LastingForest(executor, PLAN, 0, 6, 1).run()


@pytest.mark.parametrize("drift", [1e-3, 2.0**-45])
def test_replicas_whose_predictions_have_drifted_stop_the_fit(drift: float) -> None:
    """For example because of another machine's ``exp``: an error at once, never a wrong model."""
    executor = ShardedExecutor(TABLE, TARGET, None, SPREADS["two"])
    plan = BoostingPlan(rules("newton", P, max_depth=2), 0, SquaredError(), n_rounds=4)

    def disturb(progress: Any) -> None:
        if progress.done == 2:
            executor.shards[1].target.raw[0, 17] += drift

    with pytest.raises(m.ShardsDisagree, match="tree 2"):
        boost(executor, plan, callback=disturb)


# --- delegated small nodes: number of exchanges, which shard grows them, and no trace of batches ---


SPREAD = [(0, 2), (1, 4, 5), (3, 6)]


def plan_of(criterion: str = "squared_error", n_classes: int = 0, **changes: Any) -> ForestPlan:
    return ForestPlan(rules(criterion, P, **changes), seed=3, n_classes=n_classes, n_draws=N, out_of_bag=True)


def grown(plan: ForestPlan, spread: list[Any] = SPREAD, table: list[Any] = TABLE) -> tuple[ForestResult, ShardedExecutor]:
    problem = Problem(table, wild_target(TABLE, plan.n_classes, 4), None, plan)
    executor = problem.columns(spread)
    found = problem.grow_on(executor, 4)
    assert_same(problem.grow(4), found)
    return found, executor


def test_small_nodes_are_shared_out() -> None:
    found, executor = grown(plan_of())
    told = [
        (shard, one) for shard, step in called(executor, "subtrees") for one in step.payloads[0].arrays if isinstance(one, DelegatedNodes)
    ]
    n_nodes = [sum(len(grown.subtrees) for shard, grown in told if shard == i) for i in range(3)]
    assert min(n_nodes) > 0
    assert max(n_nodes) - min(n_nodes) <= 4  # the nodes of each tree are distributed, starting from another shard
    assert called(executor, "delegated")
    assert all(tree.n_node_samples.min() < 4 for tree in found.trees)
    depth = max(int(np.log2(tree.node_count)) for tree in found.trees)
    assert len(called(executor, "marks")) < 4 * 3 * 2 * depth


@pytest.mark.parametrize("cells", [1, 2 * P * 30, 2 * P * 100])
def test_batches_leave_no_trace(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_program, "SHARED_CELLS", cells)
    _, executor = grown(plan_of(min_samples_leaf=2))
    delegated = called(executor, "delegated")
    assert not delegated if cells == 1 else len(delegated) > 8


@pytest.mark.slow  # kernels of its own
def test_medians_are_measured_by_one_shard() -> None:
    _, executor = grown(plan_of("absolute_error"))
    by_tree = [shard for shard, step in called(executor, "leaves") for _ in step.payloads.get(0, [[]])[-1][1:]]
    assert sorted(by_tree) == [0, 0, 1, 2]
    assert called(executor, "subtrees")


@pytest.mark.parametrize("changes", [{}, pytest.param({"random_splits": True, "max_features": 2}, marks=pytest.mark.thorough)])
def test_sets_of_categories(changes: dict[str, Any]) -> None:
    """Sets of delegated nodes are reported by the shards that grew these, other sets by the shards that have the columns."""
    random = np.random.default_rng(0)
    categories = [np.where(random.random(N) < 0.1, np.nan, random.integers(0, n, N)) for n in (4, 12, 60, 200)]
    limits = {"categorical": (3, 4, 5, 6), "cat_smooth": 1.0, "min_samples_category": (1, 1, 2, 2), "max_cat_threshold": (9,) * 4}
    found, executor = grown(plan_of(**limits, **changes), table=[*TABLE[:3], *categories])
    assert all(tree.categories.node.shape[0] > 20 for tree in found.trees)
    assert called(executor, "subtrees")
    told = sum(
        sets.node.shape[0] for _, step in called(executor, "sets") for sets in step.payloads[0].arrays if isinstance(sets, CategorySets)
    )
    assert 0 < told < sum(tree.categories.node.shape[0] for tree in found.trees) // 2


def test_one_shard_takes_no_steps() -> None:
    _, executor = grown(plan_of(), [range(P)])
    assert {name for _, name, _ in executor.log} == {"Open", "GrowTrees", "AddVotes", "CountVotes"}


def test_too_many_columns_are_not_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_program, "DELEGATED_COLUMNS", 2)
    assert not called(grown(plan_of())[1], "subtrees")
    assert not called(grown(dataclasses.replace(plan_of(max_leaf_nodes=30)))[1], "subtrees")


# --- forests over shards of columns: trees side by side, number of messages, and the end ---


PROBLEM = forest(weighted=True, max_features=2, max_depth=3, n_draws=120).problem(120, 3)


def test_messages_of_many_trees_travel_together() -> None:
    def n_exchanges(side_by_side: int) -> int:
        executor = PROBLEM.columns(SPREADS["three"])
        PROBLEM.grow_on(executor, 6, side_by_side)
        return len({(step.serial, step.name) for _, _, step in executor.log if isinstance(step, Step)})

    assert n_exchanges(6) < n_exchanges(1) / 3


@pytest.mark.parametrize(
    "changes", [{}, {"n_draws": 4000}, {"n_draws": 1000}, {"n_draws": 4000, "out_of_bag": True}], ids=["all", "drawn", "few", "out of bag"]
)
def test_the_trees_under_way_are_limited_by_memory(changes: dict[str, Any]) -> None:
    """The bound allows only as many trees as fit, given the memory that the rows of one are found to take."""
    n, times = 4000, 1000
    table = [np.random.default_rng(0).random(n)]
    plan = ForestPlan(rules("squared_error", 1, max_depth=5), seed=0, **changes)
    shard = Shard(presort(table), np.zeros(1, np.int32), 1, table[0], None)
    alone(shard.program(m.Open("fit", 0, 0, 1, plan, None, n_side_by_side=1)))
    shard.trees[0].open(0, 0, by_levels=True)
    used = times * sum(array.nbytes for array in shard.trees[0].rows)
    shard.close()
    larger = dataclasses.replace(plan, n_draws=plan.n_draws and times * plan.n_draws)
    n_trees = trees_side_by_side(larger, times * n, weighted=False)
    assert 64 * times * n // used - 1 <= n_trees <= 64 * times * n / used + 0.1
    assert trees_side_by_side(plan, n, weighted=False) == 64


def test_trees_under_way_share_nothing_that_a_draw_of_columns_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads draw for several trees at once, and reorder the columns of a tree to do so."""
    pools: list[NDArray[np.int32]] = []
    pair_drawn, search_on = node_search.pair_drawn, node_search.search_on
    monkeypatch.setattr(
        node_search, "pair_drawn", lambda key, paths, pool, *rest: pools.append(pool) or pair_drawn(key, paths, pool, *rest)
    )
    monkeypatch.setattr(node_search, "search_on", lambda *first, **_: pools.append(first[3]) or search_on(*first))
    shard = make_shard()
    plan = ForestPlan(rules("squared_error", P, max_features=1), seed=0)
    alone(shard.program(m.Open("fit", 0, 0, 1, plan, None, n_side_by_side=2)))
    for number, rows in enumerate(shard.trees):
        rows.runner = shard.trees[0].runner
        rows.open(number, 0, by_levels=True)
        rows.find(NODE, NODE[:0], NODE[:0])
        rows.find_further(NODE, 1)
    assert len(pools) == 4
    assert not any(np.shares_memory(one, other) for i, one in enumerate(pools) for other in pools[:i])


def test_threads_are_ended() -> None:
    before = set(threading.enumerate())
    executor = PROBLEM.columns([(0, 2, 4), (1, 3, 5, 6)], 4)
    LastingForest(executor, PROBLEM.plan, 0, 6, 2).run()
    assert set(threading.enumerate()) > before
    executor.close()
    assert set(threading.enumerate()) == before
