"""Rounds of trees: scores, early stopping, callbacks, and continuing from finished rounds."""

import math
import traceback
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.plan import node_limits
from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, has_stalled
from dtrees.engine.run.boosting_rounds import boost
from dtrees.engine.shard import dense_runner
from dtrees.engine.shard import zone_sums as sums
from dtrees.ensemble.objective.classification import log_loss_for
from dtrees.ensemble.objective.regression import SquaredError
from dtrees.tree.packing import pack
from dtrees.tree.predict import apply, sum_values
from tests.engine.problems import assert_same
from tests.engine.shards import ShardedExecutor, local, opened, rules, wild_table, wild_target, wild_weight

# --- rounds of trees: the same on any shards and threads, scores, early stopping, callbacks ---


N = 700
TABLE = wild_table(N, 4)
P = len(TABLE)
X = np.stack([column.astype(np.float64) for column in TABLE], axis=1)
SPREADS = [[(0, 2, 4), (1, 3, 5, 6)], [(6,), (1, 4), (0, 2, 3, 5)]]
LOSSES = {"squared": (SquaredError(), 0), "logistic": (log_loss_for(2), 2), "softmax": (log_loss_for(3), 3)}


def make_plan(loss: Any, n_classes: int, n_rounds: int = 4, rule_changes: Any = None, **changes: Any) -> BoostingPlan:
    some = rules("newton", P, **({"max_depth": 4, "reg_lambda": 1.0} | (rule_changes or {})))
    return BoostingPlan(some, 9, loss, n_rounds, n_classes=n_classes, **changes)


def fit_here(plan: BoostingPlan, y: NDArray[Any], weight: Any = None, n_threads: int = 1, **more: Any) -> BoostingResult:
    with local(TABLE, y, weight, n_threads) as executor:
        return boost(executor, plan, **more)


def test_best_first_growth_takes_no_exchange_for_each_node() -> None:
    """Over shards, trees of many leaves take as many exchanges as level by level, and are the same if all leaves are wanted."""
    y = wild_target(TABLE, 0, 4)
    found = {}
    for n_leaves in (None, 5000, 100):
        plan = make_plan(*LOSSES["squared"], n_rounds=2, rule_changes={"max_depth": None, "max_leaf_nodes": n_leaves})
        executor = ShardedExecutor(TABLE, y, None, SPREADS[0])
        found[n_leaves] = boost(executor, plan), len(executor.log)
    assert_same(found[5000][0], found[None][0])
    assert min(tree.node_count for trees in found[5000][0].rounds for tree in trees) > 300
    assert [tree.node_count for trees in found[100][0].rounds for tree in trees] == [199, 199]
    assert max(n_messages for _, n_messages in found.values()) < 2 * found[None][1] < 400


def test_one_slot_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if few rows are split off many, and both children are searched by zone sums."""
    rng = np.random.default_rng(3)
    table: list[Any] = [np.exp(4 * rng.normal(size=9000)) for _ in range(4)]
    y = np.log(table).T @ np.array([1, -0.5, 0.3, 0.2]) + np.exp(2 * rng.normal(size=9000))
    plan = BoostingPlan(rules("newton", 4, max_depth=6, reg_lambda=1.0), 9, SquaredError(), 4)
    results = []
    for _ in range(2):
        with local(table, y) as executor:
            results.append(boost(executor, plan))
        for module, name, value in (
            (node_limits, "WHOLE_BLOCK_CELLS", 0),
            (node_limits, "BOUNDED_ROWS", 1),
            (sums, "SLOTS_PER_THREAD", 1),
            (sums, "FINE_SLOTS_PER_THREAD", 1),
        ):
            monkeypatch.setattr(module, name, value)
    assert_same(*results)


@pytest.mark.parametrize("loss", LOSSES)
def test_scores_are_those_of_the_predictions(loss: str) -> None:
    plan = make_plan(*LOSSES[loss], n_iter_no_change=50, validation_fraction=0.2)
    y = wild_target(TABLE, plan.n_classes, 4)
    executor = local(TABLE, y)
    result = boost(executor, plan)
    held_out = executor.shard.target.held_out
    raw = np.repeat(result.initial[:, None], N, axis=1)
    for number, trees in enumerate(result.rounds):
        for output, tree in enumerate(trees):
            raw[output] += sum_values(pack([tree]), X)[:, 0]
        losses = np.empty(N)
        plan.loss.pointwise(y, raw, losses)
        assert result.train_score[number] == pytest.approx(losses[~held_out].mean())
        assert result.validation_score[number] == pytest.approx(losses[held_out].mean())
    assert raw == pytest.approx(executor.shard.target.raw, abs=1e-12)
    assert result.initial.tolist() == plan.loss.initial(y[~held_out], None).tolist()


def test_few_frames_lie_between_the_loop_over_rounds_and_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """On small tables each frame takes as long as a node."""
    frames: list[str] = []
    grow = dense_runner.SubtreeRunner.grow

    def noted(*arguments: Any) -> Any:
        frames[:] = [frame.name for frame in traceback.extract_stack()]
        return grow(*arguments)

    monkeypatch.setattr(dense_runner.SubtreeRunner, "grow", noted)
    fit_here(make_plan(SquaredError(), 0, n_rounds=1), wild_target(TABLE, 0, 4))
    assert frames[frames.index("boost") + 1 :] == ["_grow_round", "grow_tree", "grow_alone", "grow_roots", "noted"]


@pytest.mark.parametrize(
    ("scores", "patience", "tol", "stalled"),
    [
        ([3.0], 1, 0.0, False),
        ([3.0, 2.0], 1, 0.5, False),
        ([3.0, 2.75], 1, 0.5, True),
        ([3.0, 3.0], 1, 0.0, False),  # not worse by more than the tolerance of zero
        ([3.0, 3.5], 1, 0.0, True),
        ([3.0, 2.0, 2.5], 1, 0.0, True),
        ([3.0, 2.0, 2.5], 2, 0.0, False),
        ([2.0, 3.0, 2.5], 2, 0.0, True),
        ([2.0, 3.0, 1.5, 9.0], 2, 0.1, False),
        ([2.0, 3.0], 2, 0.0, False),
    ],
)
def test_when_the_held_out_loss_has_stalled(scores: list[float], patience: int, tol: float, stalled: bool) -> None:
    assert has_stalled(scores, patience, tol) == stalled


@pytest.mark.parametrize("scale", [1e-280, 1e-120, 1e-30, 1e30, 1e120])
def test_targets_of_any_size(scale: float) -> None:
    """Trees do not depend on the unit of the target (a power of two, so that nothing is rounded)."""
    factor = 2.0 ** round(math.log2(scale))
    y = wild_target(TABLE, 0, 4)
    plan = make_plan(SquaredError(), 0, n_rounds=2)
    plain, scaled = fit_here(plan, y), fit_here(plan, y * factor)
    for (one,), (other,) in zip(plain.rounds, scaled.rounds, strict=True):
        assert one.feature.tolist() == other.feature.tolist()
        assert one.threshold.tolist() == other.threshold.tolist()
        assert (one.value * factor).tolist() == other.value.tolist()


# --- warm starts: continuing from finished rounds gives the uninterrupted run, byte for byte ---


WEIGHT = wild_weight(N, 6)


def plan(loss: Any, n_classes: int, n_rounds: int, **changes: Any) -> BoostingPlan:
    some = rules("newton", P, max_depth=5, reg_lambda=0.5, max_features=3)
    return BoostingPlan(some, 2, loss, n_rounds, n_classes=n_classes, **{"subsample": 0.7} | changes)


def test_every_row_gets_the_value_that_prediction_gives_it() -> None:
    """Rows drawn or not, values present or missing; also trees of other data, with thresholds between arbitrary values."""
    y = wild_target(TABLE, 0, 6)
    with local(wild_table(N, 7), wild_target(wild_table(N, 7), 0, 7)) as executor:
        foreign = boost(executor, plan(SquaredError(), 0, 3)).rounds
    some = plan(SquaredError(), 0, 3)
    for executor in (local(TABLE, y), ShardedExecutor(TABLE, y, None, SPREADS[0])):
        fit = opened(executor, some, np.zeros(1))
        for (tree,) in foreign:
            fit.replay_tree(tree, 0)
        shards = executor.shards if isinstance(executor, ShardedExecutor) else [executor.shard]
        expected = sum_values(pack([tree for (tree,) in foreign]), X)[:, 0]
        for shard in shards:
            assert shard.target.raw[0].tolist() == expected.tolist()


def test_nodes_without_rows() -> None:
    """Another table may have few rows, and leave nodes of a tree, or whole levels, empty."""
    y = wild_target(TABLE, 0, 6)
    with local(TABLE, y) as executor:
        trees = boost(executor, plan(SquaredError(), 0, 4)).rounds
    leaves = apply(pack([tree for (tree,) in trees]), X)
    depths = np.array([tree.node_depth[own] for (tree,), own in zip(trees, leaves.T, strict=True)])
    shallow = int((depths - [[tree.max_depth] for (tree,) in trees]).min(axis=0).argmin())
    for few in ([shallow], [1, 7], [3, 4, 5, 6, 7]):
        table = [column[few] for column in TABLE]
        for other in (local(table, y[few]), ShardedExecutor(table, y[few], None, SPREADS[0])):
            fit = opened(other, plan(SquaredError(), 0, 4), np.zeros(1))
            for (tree,) in trees:
                fit.replay_tree(tree, 0)
            shard = other.shards[0] if isinstance(other, ShardedExecutor) else other.shard
            assert shard.target.raw[0].tolist() == sum_values(pack([tree for (tree,) in trees]), X[few])[:, 0].tolist()


def test_a_single_leaf_needs_no_splits() -> None:
    y = wild_target(TABLE, 0, 6)
    executor = ShardedExecutor(TABLE, y, None, SPREADS[0])
    with local(TABLE, np.ones(N)) as other:
        leaf = boost(other, plan(SquaredError(), 0, 1)).rounds[0][0]
    leaf.value[0, 0] = 1.25
    opened(executor, plan(SquaredError(), 0, 1), np.zeros(1)).replay_tree(leaf, 0)
    assert executor.shards[1].target.raw.tolist() == [[1.25] * N]
    assert {name for _, name, _ in executor.log} == {"Open", "standing", "Replay"}
