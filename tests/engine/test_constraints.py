"""Trees under constraints against growing them by the book, and what constraints are for: predictions that are in order."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan, Rules
from dtrees.engine.run.boosting_rounds import boost
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.split.criteria import parts
from dtrees.split.criteria.constraints.kinds import Clipped, InOrder, make_constraints
from dtrees.split.criteria.constraints.words import begin_column, root_words
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.criteria.statistics import Moments
from dtrees.tree.tree import Tree
from tests import naive
from tests.engine.shards import (
    ShardedExecutor,
    Squared,
    Table,
    all_equal,
    grow_here,
    grow_sharded,
    local,
    rules,
    wild_target,
    wild_weight,
)
from tests.engine.test_naive_trees import LARGE, SPREAD, large_table, plans, problems, sample_of
from tests.examples import THOROUGH, examples
from tests.naive_constraints import Constraints
from tests.slow import thorough_for
from tests.split.strategies import as_lists

_BOUNDS = st.sampled_from([-2.0, -0.5, -0.1, 0.0, 0.3, 1.0, 4.0])
_SUMS = st.tuples(st.integers(-40, 40), st.integers(1, 9))


@st.composite
def constraints(draw: st.DrawFn, n_columns: int, monotonic: bool = True) -> dict[str, Any]:
    """Constraints on the columns of a table, as rules have them."""
    columns = st.integers(0, n_columns - 1)
    signs = draw(st.tuples(*[st.sampled_from([-1, 0, 1, 1])] * n_columns)) if monotonic and draw(st.booleans()) else ()
    kind = draw(st.sampled_from(["none", "none", "sets", "most"]))
    sets = {tuple(sorted(one)) for one in draw(st.lists(st.sets(columns, min_size=1, max_size=3), min_size=1, max_size=4))}
    rest = set(range(n_columns)) - {column for one in sets for column in one}
    sets |= {tuple(sorted(rest))} if rest else set()
    return {
        "monotonic": signs if any(signs) else (),
        "interactions": tuple(sorted(sets)) if kind == "sets" else (),
        "most_columns": draw(st.sampled_from([1, 2])) if kind == "most" else 0,
    }


def assert_same_splits(tree: Tree, root: naive.Node, plan: Any, sample: naive.Sample) -> None:
    """Compare structure and gains bit for bit."""
    nodes = root.preorder()
    number = {id(node): i for i, node in enumerate(nodes)}
    unit = -criterion_named(plan.rules.criterion).gain_exponent(sample.exponents)
    assert tree.node_count == len(nodes)
    for i, node in enumerate(nodes):
        split = node.split
        assert [tree.children_left[i], tree.children_right[i]] == ([number[id(child)] for child in node.children] or [-1, -1])
        assert tree.feature[i] == (split.column if split else -2)
        assert tree.threshold[i] == (split.threshold if split else -2.0)
        assert tree.missing_go_to_left[i] == (split.missing_left if split else False)
        assert tree.gain[i] == (np.ldexp(split.gain, unit) if split else 0.0)
        assert tree.n_node_samples[i] == len(node.rows)


def assert_respects(tree: Tree, some: Rules) -> None:
    """No leaf on the lower side of a split on a monotonic column passes one on the other side, and paths are of columns that may meet."""
    value = tree.value[:, -1]
    lowest, highest = value.copy(), value.copy()
    for node in range(tree.node_count - 1, -1, -1):
        i, j = tree.children_left[node], tree.children_right[node]
        if i >= 0:
            sign = some.monotonic[tree.feature[node]] if some.monotonic else 0
            assert sign <= 0 or highest[i] <= lowest[j]
            assert sign >= 0 or lowest[i] >= highest[j]
            lowest[node], highest[node] = min(lowest[i], lowest[j]), max(highest[i], highest[j])
    waiting: list[tuple[int, frozenset[int]]] = [(0, frozenset())]
    while waiting:
        node, path = waiting.pop()
        if tree.children_left[node] < 0:
            continue
        path |= {int(tree.feature[node])}
        assert not some.most_columns or len(path) <= some.most_columns
        assert not some.interactions or any(path <= set(one) for one in some.interactions)
        waiting += [(int(tree.children_left[node]), path), (int(tree.children_right[node]), path)]


#: All of these have kernels of their own; boosting's are those of quick tests.
CASES = [("squared_error", 0), ("gini", 2), ("gini", 3), ("absolute_error", 0), ("quantile", 0), ("poisson", 0), ("entropy", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("criterion", "n_classes"), thorough_for({"poisson", "entropy"}, CASES))
@given(data=st.data())
@examples(300)
def test_forest_trees(criterion: str, n_classes: int, data: st.DataObject) -> None:
    table, target, weight = data.draw(problems(n_classes))
    if criterion == "poisson":
        target = np.abs(target)
        assume(target[slice(None) if weight is None else weight > 0].any())
    given_plan = data.draw(plans(criterion, n_classes, target.shape[0], len(table)))
    wanted = data.draw(constraints(len(table), monotonic=n_classes <= 2))
    if criterion != "squared_error" or not THOROUGH:  # few kernels; a random threshold is one that others try as well
        wanted["random_splits"] = False
    plan = dataclasses.replace(given_plan, rules=dataclasses.replace(given_plan.rules, **wanted))
    sample = sample_of(ForestTarget.of_table(plan, target, weight).start(1, 0))
    root = naive.grow(as_lists(table), sample, plan.rules, n_classes, plan.seed, 1)
    trees = grow_here(table, target, weight, plan, n_trees=2)
    assert_same_splits(trees[1], root, plan, sample)
    for tree in trees:
        assert_respects(tree, plan.rules)
        tree.validate(len(table), max(n_classes, 1))
    spread = [range(0, len(table), 2), range(1, len(table), 2)] if len(table) > 1 else [range(1)]
    assert all_equal(grow_sharded(table, target, weight, plan, 2, spread)[0], trees)


@given(problems(0), st.data())
@examples(300)
def test_newton_trees(problem: tuple[Table, NDArray[Any], NDArray[np.float64] | None], data: st.DataObject) -> None:
    table, target, weight = problem
    n_columns = len(table)
    forest = data.draw(plans("newton", 0, target.shape[0], n_columns))
    some = dataclasses.replace(
        forest.rules,
        reg_lambda=data.draw(st.sampled_from([0.0, 1.0, 0.3])),
        min_child_weight=data.draw(st.sampled_from([0.0, 1.0, 2.5])),
        random_splits=False,  # which boosting does not know
        **data.draw(constraints(n_columns)),
    )
    plan = BoostingPlan(some, forest.seed, Squared(), n_rounds=1, subsample=data.draw(st.sampled_from([1.0, 0.6])), learning_rate=0.5)
    spread = [range(0, n_columns, 2), range(1, n_columns, 2)] if n_columns > 1 else [range(1)]
    sharded = ShardedExecutor(table, target, weight, spread)
    with local(table, target, weight) as executor:
        tree = boost(executor, plan).rounds[0][0]
        executor.shard.target.raw[:] = executor.shard.target.initial[:, None]
        sample = sample_of(executor.shard.target.start(0, 0))
    root = naive.grow(as_lists(table), sample, plan.rules, 0, plan.seed, 0)
    assert_same_splits(tree, root, plan, sample)
    assert_respects(tree, some)
    unit = 2.0 ** (sample.exponents[1] - sample.exponents[0])
    size = np.abs(target).max()
    for node, value in zip(root.preorder(), tree.value[:, 0], strict=True):
        around = node.constraints or Constraints(some)
        if node.sums[1] + some.reg_lambda:
            wanted = around.value(node.sums, some.reg_lambda * 2.0 ** sample.exponents[1]) * unit
            assert value == pytest.approx(0.5 * wanted, rel=1e-9, abs=1e-12 * size)
    assert all_equal(boost(sharded, plan).rounds[0], [tree])


@given(_SUMS, _SUMS, st.sampled_from([0.0, 0.5, 2.0]), st.tuples(_BOUNDS, _BOUNDS), st.sampled_from([-1, 0, 1]))
def test_clipped_gain(left: Any, right: Any, penalty: float, bounds: tuple[float, float], sign: int) -> None:
    """The gain of clipped values is the decrease of the loss, and never more than it would be without bounds, the node's own aside."""
    around = Constraints(rules("newton", 1, monotonic=(sign,)), *sorted(bounds))
    constrained = make_constraints((sign,), (), 0)
    criterion = Clipped(criterion_named("newton").for_kernels(0, penalty), constrained)
    total = np.array([left[0] + right[0], left[1] + right[1]])
    words = np.array([around.low, around.high, 0.0]).view(np.int64)
    assert root_words(constrained).shape == words.shape
    assert begin_column(criterion, np.concatenate([total, words]), 0)
    sides = [float(x) for x in (*left, *right)]
    score = parts.score(criterion, *sides)
    exact = around.exact_gain(left, right, penalty)
    if score < 0.0:
        assert not around.allows(0, left, right, penalty)
        return
    assert around.allows(0, left, right, penalty)
    gain = parts.gain(criterion, score, Moments(int(total[0]), int(total[1]), 2))
    size = max(abs(x) ** 2 for x in (*total.tolist(), around.low, around.high)) * float(total[1] + 1)
    assert gain == pytest.approx(float(exact), rel=1e-9, abs=1e-12 * size)
    free = Constraints(around.rules)
    own = around._loss(total.tolist(), penalty) - free._loss(total.tolist(), penalty)
    assert exact <= free.exact_gain(left, right, penalty) + own
    if penalty == 0.0:
        assert exact >= Fraction(0)


def assert_exact(tree: Tree, table: Table, sample: naive.Sample, plan: Any) -> int:
    """Compare the split of every node of a large tree with every split of its rows; returns the number of splits."""
    a = np.array(sample.g)
    b = np.ones(a.shape[0], np.int64) if sample.h is None else np.array(sample.h)
    columns = [column.astype(np.float64) for column in table]
    rows = np.array(sample.rows)
    limits = naive.limits_of(plan.rules, 0, (int(a[rows].sum()), int(b[rows].sum())), sample.exponents)
    waiting, n_splits = [(0, rows, Constraints(plan.rules))], 0
    while waiting:
        node, rows, around = waiting.pop()
        if tree.feature[node] < 0:
            continue
        best = max(
            (found for j, x in enumerate(columns) if around.may_use(j) for found in [_best(x[rows], j, a[rows], b[rows], limits, around)]),
            key=lambda found: found[0],
        )
        n_splits += 1
        _, column, threshold, missing_left = best
        assert (tree.feature[node], tree.threshold[node], tree.missing_go_to_left[node]) == (column, threshold, missing_left)
        x = columns[column][rows]
        left = np.where(np.isnan(x), missing_left, x <= threshold)
        sides = [(int(a[rows[side]].sum()), int(b[rows[side]].sum())) for side in (left, ~left)]
        one, other = (around.value(sums, limits.penalty) for sums in sides)
        for child, side, is_left in ((tree.children_left[node], left, True), (tree.children_right[node], ~left, False)):
            waiting.append((int(child), rows[side], around.child(column, one, other, is_left)))
    return n_splits


def _best(x: Any, j: int, a: Any, b: Any, limits: naive.SplitLimits, around: Constraints) -> tuple[float, int, float, bool]:
    """The score, the column, the threshold of the best split of a column, and whether missing values go left; -1 without any."""
    missing = np.isnan(x)
    order = np.argsort(x, kind="stable")[: x.shape[0] - int(missing.sum())]
    if not order.shape[0]:
        return -1.0, j, 0.0, False
    values = x[order]
    ends = np.append(np.flatnonzero(np.diff(values)), values.shape[0] - 1)
    top: tuple[float, int, float, bool] = (-1.0, j, 0.0, False)
    total = (int(a.sum()), int(b.sum()))
    g, h = np.cumsum(a[order])[ends].tolist(), np.cumsum(b[order])[ends].tolist()
    gone = (int(a[missing].sum()), int(b[missing].sum()), int(missing.sum()))
    for k, end in enumerate(ends.tolist()):
        is_last = k + 1 == ends.shape[0]
        for missing_left in (True, False):
            if (missing_left and (is_last or not gone[2])) or (is_last and not gone[2]):
                continue
            n_left = end + 1 + gone[2] * missing_left
            left = (g[k] + gone[0] * missing_left, h[k] + gone[1] * missing_left)
            right = naive.subtract(total, left)
            enough = min(n_left, x.shape[0] - n_left) >= limits.min_samples and min(left[1], right[1]) >= limits.min_weight
            if not enough or min(left[1], right[1]) + limits.penalty <= 0 or not around.allows(j, left, right, limits.penalty):
                continue
            score = around.score(naive.float_score(left, total, limits), left, right, limits.penalty)
            if score > top[0]:
                threshold = math.inf if is_last else naive.midpoint(float(values[end]), float(values[end + 1]))
                top = score, j, threshold, missing_left if gone[2] else 2 * n_left > x.shape[0]
    return top


SOME = [
    {"monotonic": (1, -1, 0, 1, 0, 0, -1, 0, 0)},
    {"interactions": ((0, 1, 3), (1, 2), (4, 5, 6, 7, 8)), "monotonic": (0, 1, 1, 0, 0, -1, 0, 0, 1)},
    {"most_columns": 2},
    {"monotonic": (1, -1, -1, -1, 1, 1, 0, 0, -1)},
]


@pytest.mark.slow  # compiles what searches the zones of large nodes
@pytest.mark.parametrize("number", range(len(SOME)))
def test_every_split_of_large_boosted_trees(number: int) -> None:
    """However large nodes are searched (zones, sums inherited from parents): what every split tells, on any threads and shards."""
    table = large_table(number)
    y, weight = wild_target(table[1:], 0, number), wild_weight(LARGE, number) if number == 1 else None
    some = rules("newton", len(table), max_depth=5, reg_lambda=1.0, min_child_weight=3.0, **SOME[number])
    plan = BoostingPlan(some, number, Squared(), n_rounds=3, learning_rate=0.5)
    with local(table, y, weight, 1) as executor:
        trees = [tree for (tree,) in boost(executor, plan).rounds]
        executor.shard.target.raw[:] = executor.shard.target.initial[:, None]
        sample = sample_of(executor.shard.target.start(0, 0))
    for tree in trees:
        assert_respects(tree, some)
    with local(table, y, weight, 4) as executor:
        assert all_equal([tree for (tree,) in boost(executor, plan).rounds], trees)
    assert all_equal([tree for (tree,) in boost(ShardedExecutor(table, y, weight, SPREAD, 2), plan).rounds], trees)
    assert assert_exact(trees[0], table, sample, plan) > 10


SEEDS = range(12)


def falling(seed: int) -> tuple[Table, NDArray[np.float64]]:
    """A table and a target that mostly falls where it should rise, and much is missing."""
    rng = np.random.default_rng(seed)
    n = 300
    x = np.where(rng.random(n) < 0.15, np.nan, rng.normal(size=n))
    table = [x, rng.integers(0, 12, n).astype(float), rng.normal(size=n), rng.normal(size=n).round(1)]
    y = 2 * np.nan_to_num(x) + table[1] / 3 + rng.normal(size=n) / 5
    y = np.sign(y - np.median(y)) if seed % 2 else y
    return table, y


@pytest.mark.slow  # compiles what searches the zones of levels under constraints
@pytest.mark.parametrize("seed", SEEDS)
def test_levels_where_columns_fall_that_should_rise(seed: int) -> None:
    """Most splits are against the constraints: what zones say of a split must be said of one that is tried."""
    table, y = falling(seed)
    some = rules("newton", 4, max_depth=4, reg_lambda=5.0, min_child_weight=1.0, monotonic=(-1, 1, 0, 0))
    boosting = BoostingPlan(some, seed, Squared(), n_rounds=3)
    with local(table, y) as executor:
        trees = [tree for (tree,) in boost(executor, boosting).rounds]
    assert all_equal([tree for (tree,) in boost(ShardedExecutor(table, y, None, [(0, 2), (1, 3)]), boosting).rounds], trees)


@pytest.mark.thorough  # kernels of their own
@pytest.mark.parametrize("seed", SEEDS)
def test_levels_of_forests_where_columns_fall_that_should_rise(seed: int) -> None:
    table, y = falling(seed)
    forest = ForestPlan(rules("squared_error", 4, max_depth=5, monotonic=(-1, -1, 0, 0)), seed)
    assert all_equal(grow_sharded(table, y, None, forest, 2, [(0, 2), (1, 3)])[0], grow_here(table, y, None, forest, 2))


@pytest.mark.thorough  # compiles what searches the zones of large nodes, in which boosting has its constraints alike
@pytest.mark.parametrize("number", range(len(SOME)))
def test_every_split_of_large_forest_trees(number: int) -> None:
    table = large_table(number + 5)
    y, weight = wild_target(table[1:], 0, number), wild_weight(LARGE, number) if number == 1 else None
    plan = ForestPlan(rules("squared_error", len(table), max_depth=6, **SOME[number]), number, 0, n_draws=LARGE if number == 2 else None)
    trees = grow_here(table, y, weight, plan)
    for other in (grow_here(table, y, weight, plan, n_threads=4), grow_sharded(table, y, weight, plan, 1, SPREAD)[0]):
        assert all_equal(other, trees)
    assert_respects(trees[0], plan.rules)
    assert assert_exact(trees[0], table, sample_of(ForestTarget.of_table(plan, y, weight).start(0, 0)), plan) > 10


def test_kernel_values_of_threads_are_their_own() -> None:
    from dtrees.split.criteria.constraints.kinds import criterion_for_thread

    inner = criterion_named("squared_error").for_kernels(0, 0.0)
    assert criterion_for_thread(inner) is inner
    constrained = InOrder(inner, make_constraints((1,), (), 0))
    own = criterion_for_thread(constrained)
    assert own.constraints.state is not constrained.constraints.state
    assert own.constraints.signs is constrained.constraints.signs
