"""Rounds of trees: the same on any shards and threads, scores, early stopping, callbacks."""

from __future__ import annotations

import math
import traceback
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.plan import search_plan
from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, Progress
from dtrees.engine.run.boosting_rounds import boost, has_stalled
from dtrees.engine.shard import dense_runner
from dtrees.engine.shard import tree_state as one_tree
from dtrees.engine.shard import zone_planner as sums
from dtrees.tree.packing import pack
from dtrees.tree.predict import apply, sum_values
from tests.engine.shards import Logistic, ShardedExecutor, Softmax, Squared, all_equal, local, rules, wild_table, wild_target

N = 700
TABLE = wild_table(N, 4)
P = len(TABLE)
X = np.stack([column.astype(np.float64) for column in TABLE], axis=1)
SPREADS = [[(0, 2, 4), (1, 3, 5, 6)], [(6,), (1, 4), (0, 2, 3, 5)]]
LOSSES = {"squared": (Squared(), 0), "logistic": (Logistic(), 2), "softmax": (Softmax(3), 3)}


def make_plan(loss: Any, n_classes: int, n_rounds: int = 4, rule_changes: Any = None, **changes: Any) -> BoostingPlan:
    some = rules("newton", P, **({"max_depth": 4, "reg_lambda": 1.0} | (rule_changes or {})))
    return BoostingPlan(some, 9, loss, n_rounds, n_classes=n_classes, **changes)


def same(one: BoostingResult, other: BoostingResult) -> bool:
    return (
        len(one.rounds) == len(other.rounds)
        and all(all_equal(a, b) for a, b in zip(one.rounds, other.rounds, strict=True))
        and one.initial.tobytes() == other.initial.tobytes()
        and one.train_score.tobytes() == other.train_score.tobytes()
        and one.validation_score.tobytes() == other.validation_score.tobytes()
    )


def fit_here(plan: BoostingPlan, y: NDArray[Any], weight: Any = None, n_threads: int = 1, **more: Any) -> BoostingResult:
    with local(TABLE, y, weight, n_threads) as executor:
        return boost(executor, plan, **more)


def test_best_first_growth_takes_no_exchange_for_each_node() -> None:
    """Over shards, trees of many leaves take as many exchanges as by levels, and are the same where all leaves are wanted."""
    y = wild_target(TABLE, 0, 4)
    found = {}
    for n_leaves in (None, 5000, 100):
        plan = make_plan(*LOSSES["squared"], n_rounds=2, rule_changes={"max_depth": None, "max_leaf_nodes": n_leaves})
        executor = ShardedExecutor(TABLE, y, None, SPREADS[0])
        found[n_leaves] = boost(executor, plan), len(executor.log)
    assert same(found[5000][0], found[None][0])
    assert min(tree.node_count for trees in found[5000][0].rounds for tree in trees) > 300
    assert [tree.node_count for trees in found[100][0].rounds for tree in trees] == [199, 199]
    assert max(n_messages for _, n_messages in found.values()) < 2 * found[None][1] < 400


@pytest.mark.slow
def test_more_threads_than_there_are_pieces_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    y = wild_target(TABLE, 0, 4)
    plan = make_plan(*LOSSES["squared"], n_rounds=2)
    here = fit_here(plan, y)
    monkeypatch.setattr(search_plan, "WHOLE_BLOCK_CELLS", 0)
    for module, name in (
        (search_plan, "BOUNDED_ROWS"),
        (one_tree, "GROW_CELLS"),
        (one_tree, "GROW_CELLS_BY_SUMS"),
        (one_tree, "SHARE_ROWS"),
    ):
        monkeypatch.setattr(module, name, 1)
    assert same(fit_here(plan, y, n_threads=130), here)


def test_one_slot_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where few rows are split off many, and both children are to be searched by zone sums."""
    rng = np.random.default_rng(3)
    table: list[Any] = [np.exp(4 * rng.normal(size=9000)) for _ in range(4)]
    y = np.log(table).T @ np.array([1, -0.5, 0.3, 0.2]) + np.exp(2 * rng.normal(size=9000))
    plan = BoostingPlan(rules("newton", 4, max_depth=6, reg_lambda=1.0), 9, Squared(), 4)
    results = []
    for _ in range(2):
        with local(table, y) as executor:
            results.append(boost(executor, plan))
        for module, name, value in (
            (search_plan, "WHOLE_BLOCK_CELLS", 0),
            (search_plan, "BOUNDED_ROWS", 1),
            (sums, "SLOTS_PER_THREAD", 1),
            (sums, "FINE_SLOTS_PER_THREAD", 1),
        ):
            monkeypatch.setattr(module, name, value)
    assert same(*results)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_several_levels_of_large_nodes(loss: str) -> None:
    """Beyond what one thread grows by itself, and summed by parts of zones in more slots than one."""
    n = 40_000
    table = wild_table(n, 5)
    plan = make_plan(*LOSSES[loss], n_rounds=2, rule_changes={"max_depth": 7})
    y = wild_target(table, plan.n_classes, 5)
    results = []
    for n_threads in (1, 4):
        with local(table, y, None, n_threads) as executor:
            results.append(boost(executor, plan))
    results.append(boost(ShardedExecutor(table, y, None, SPREADS[0], n_threads=2), plan))
    assert same(results[0], results[1])
    assert same(results[0], results[2])


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


def test_leaf_values_are_newton_steps() -> None:
    y = wild_target(TABLE, 0, 4)
    result = fit_here(make_plan(Squared(), 0, n_rounds=1, learning_rate=0.3, rule_changes={"reg_lambda": 2.5}), y)
    (tree,) = result.rounds[0]
    residual = y - result.initial[0]
    leaf = apply(pack([tree]), X)[:, 0]
    for node in np.unique(leaf):
        mine = residual[leaf == node]
        assert tree.value[node, 0] == pytest.approx(0.3 * mine.sum() / (len(mine) + 2.5))
        assert tree.n_node_samples[node] == tree.weighted_n_node_samples[node] == len(mine)
    # The impurity decrease of every split is what the second-order model promises.
    score = tree.impurity * tree.weighted_n_node_samples
    inner = np.flatnonzero(tree.children_left >= 0)
    assert tree.gain[inner] == pytest.approx(score[tree.children_left[inner]] + score[tree.children_right[inner]] - score[inner])


def test_few_frames_lie_between_the_loop_over_rounds_and_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """On small tables each costs as much as a node."""
    frames: list[str] = []
    grow = dense_runner.SubtreeRunner.grow

    def noted(*arguments: Any) -> Any:
        frames[:] = [frame.name for frame in traceback.extract_stack()]
        return grow(*arguments)

    monkeypatch.setattr(dense_runner.SubtreeRunner, "grow", noted)
    fit_here(make_plan(Squared(), 0, n_rounds=1), wild_target(TABLE, 0, 4))
    assert frames[frames.index("boost") + 1 :] == ["_grow_round", "grow_tree", "boost", "_grow_roots", "noted"]


def test_callbacks() -> None:
    y = wild_target(TABLE, 0, 4)
    plan = make_plan(Squared(), 0, n_rounds=5, n_iter_no_change=50)
    seen: list[Progress] = []
    result = fit_here(plan, y, callback=seen.append)
    assert [progress.done for progress in seen] == [1, 2, 3, 4, 5]
    assert {progress.total for progress in seen} == {5}
    assert [progress.train_score for progress in seen] == result.train_score.tolist()
    assert [progress.validation_score for progress in seen] == result.validation_score.tolist()
    assert [progress.seconds for progress in seen] == sorted(progress.seconds for progress in seen)
    stopped = fit_here(plan, y, callback=lambda progress: progress.done == 2)
    assert len(stopped.rounds) == 2
    assert all(all_equal(a, b) for a, b in zip(stopped.rounds, result.rounds, strict=False))
    assert fit_here(make_plan(Squared(), 0), y).validation_score.shape == (0,)


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


def test_early_stopping() -> None:
    """On noise the held-out loss soon stops falling; the fit up to there is that of an unbounded one."""
    y = np.random.default_rng(0).normal(size=N)
    plan = make_plan(Squared(), 0, n_rounds=60, n_iter_no_change=3, tol=0.0, learning_rate=0.5, validation_fraction=0.3)
    result = fit_here(plan, y)
    n = len(result.rounds)
    assert 3 < n < 60
    scores = result.validation_score
    assert scores[-3:].min() > scores[:-3].min()
    assert same(boost(ShardedExecutor(TABLE, y, None, SPREADS[0]), plan), result)
    patient = fit_here(make_plan(Squared(), 0, n_rounds=n, n_iter_no_change=60, learning_rate=0.5, validation_fraction=0.3), y)
    assert same(patient, result)


def test_no_split_at_all() -> None:
    y = np.full(N, 2.5)
    result = fit_here(make_plan(Squared(), 0), y)
    assert [tree.node_count for trees in result.rounds for tree in trees] == [1] * 4
    assert result.train_score.tolist() == [0.0] * 4


@pytest.mark.parametrize("minimum", [1e6, 1e18, 1e40])
def test_a_weight_that_no_child_has(minimum: float) -> None:
    y = wild_target(TABLE, 2, 4)
    for executor in (local(TABLE, y), ShardedExecutor(TABLE, y, None, SPREADS[0])):
        result = boost(executor, make_plan(Logistic(), 2, n_rounds=1, rule_changes={"min_child_weight": minimum}))
        assert result.rounds[0][0].node_count == 1


@pytest.mark.parametrize("scale", [1e-280, 1e-120, 1e-30, 1e30, 1e120])
def test_targets_of_any_size(scale: float) -> None:
    """Trees do not depend on the unit of the target (a power of two, so that nothing is rounded)."""
    factor = 2.0 ** round(math.log2(scale))
    y = wild_target(TABLE, 0, 4)
    plan = make_plan(Squared(), 0, n_rounds=2)
    plain, scaled = fit_here(plan, y), fit_here(plan, y * factor)
    for (one,), (other,) in zip(plain.rounds, scaled.rounds, strict=True):
        assert one.feature.tolist() == other.feature.tolist()
        assert one.threshold.tolist() == other.threshold.tolist()
        assert (one.value * factor).tolist() == other.value.tolist()
