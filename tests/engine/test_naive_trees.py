"""Whole trees against growing them by the book, split by split."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.special import xlogy

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.run.boosting_rounds import boost
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.targets.prepared import Prepared
from dtrees.split.criteria.criterion import criterion_named
from dtrees.tree.predict import packed_for, sum_values
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
    wild_table,
    wild_target,
    wild_weight,
)
from tests.examples import THOROUGH, examples
from tests.slow import KERNELS_OF_THEIR_OWN, slow_for
from tests.split.strategies import as_lists, integers_of, tables


def sample_of(prepared: Prepared) -> naive.Sample:
    n = prepared.g.shape[0]
    rows = list(range(n)) if prepared.in_sample is None else np.flatnonzero(prepared.in_sample).tolist()
    b = prepared.h.tolist() or None
    return naive.Sample(prepared.g.tolist(), b, prepared.exponents, rows, prepared.pure_by.tolist() or None, prepared.levels.tolist())


def assert_same(tree: Tree, root: naive.Node, plan: Any, sample: naive.Sample, target: NDArray[Any]) -> None:
    """Compare structure, gains and counts bit for bit, values and impurities but for rounding."""
    nodes = root.preorder()
    number = {id(node): i for i, node in enumerate(nodes)}
    criterion, n_classes = plan.rules.criterion, getattr(plan, "n_classes", 0)
    by_class = criterion_named(criterion).row_statistic == "class"
    unit = -criterion_named(criterion).gain_exponent(sample.exponents)
    b = sample.exponents[1]
    assert tree.node_count == len(nodes)
    for i, node in enumerate(nodes):
        split = node.split
        children = [number[id(child)] for child in node.children] or [-1, -1]
        assert [tree.children_left[i], tree.children_right[i]] == children
        assert tree.feature[i] == (split.column if split else -2)
        if split and split.categories is not None:
            assert np.isnan(tree.threshold[i])
            assert set(tree.categories.of_node(i).tolist()) == split.categories
        else:
            assert tree.threshold[i] == (split.threshold if split else -2.0)
        assert tree.missing_go_to_left[i] == (split.missing_left if split else False)
        assert tree.gain[i] == (np.ldexp(split.gain, unit) if split else 0.0)
        assert tree.n_node_samples[i] == len(node.rows)
        weight = naive.weight_of(node.sums, n_classes if n_classes > 2 else 0)
        assert tree.weighted_n_node_samples[i] == np.ldexp(float(weight), -b)
        rows = np.array(node.rows)
        w = np.array([1.0 if sample.h is None else float(sample.h[row]) for row in rows])
        if by_class:
            share = np.bincount(target[rows], weights=w, minlength=n_classes) / w.sum()
            assert tree.value[i] == pytest.approx(share, abs=1e-14)
            spread = 1 - (share**2).sum() if criterion == "gini" else -sum(p * np.log2(p) for p in share if p)
            assert tree.impurity[i] == pytest.approx(spread, abs=1e-12)
        elif criterion_named(criterion).measured == "leaves":
            size = np.abs(target).max()
            mean = np.average(target[rows], weights=w)
            assert tree.value[i, 0] == pytest.approx(mean, abs=1e-12 * size)
            spread, unit_of_spread = (target[rows] - mean) ** 2, size**2
            if criterion == "poisson":
                spread, unit_of_spread = xlogy(target[rows], target[rows] / mean if mean else 1.0), size
            assert tree.impurity[i] == pytest.approx(np.average(spread, weights=w), abs=1e-11 * unit_of_spread)
        elif criterion in naive.BY_ORDER:
            alpha = Fraction(plan.rules.alpha).limit_denominator(10_000) if plan.rules.alpha else Fraction(1, 2)
            quantile = quantile_of(target[rows].tolist(), [1 if sample.h is None else sample.h[row] for row in rows], alpha)
            assert tree.value[i, 0] == quantile
            above = 1.0 if criterion == "absolute_error" else float(alpha)
            below = 1.0 if criterion == "absolute_error" else float(1 - alpha)
            y = target[rows]
            mean = np.average(np.where(y > quantile, above * (y - quantile), below * (quantile - y)), weights=w)
            assert tree.impurity[i] == pytest.approx(mean, rel=1e-12, abs=1e-300)


def quantile_of(targets: list[float], weights: list[int], alpha: Fraction) -> float:
    """The weighted quantile: where it lies between two targets, halfway."""
    ordered = sorted(zip(targets, weights, strict=True))
    below = [0, *itertools.accumulate(w for _, w in ordered)]
    # All rows that it may be: at most its share of the weight before, at most the rest behind.
    share = alpha * below[-1]
    middle = [y for (y, _), before, upto in zip(ordered, below[:-1], below[1:], strict=True) if before <= share <= upto]
    return middle[0] if middle[0] == middle[-1] else middle[0] / 2 + middle[-1] / 2


@st.composite
def problems(draw: st.DrawFn, n_classes: int) -> tuple[list[NDArray[Any]], NDArray[Any], NDArray[np.float64] | None]:
    """A table, a target and weights."""
    table = draw(tables(max_rows=24, min_rows=2))
    n = table[0].shape[0]
    if n_classes:
        target = draw(integers_of(n, 0, n_classes - 1))
    elif draw(st.booleans()):
        target = draw(integers_of(n, -3, 3)).astype(np.float64)
    else:
        target = draw(arrays(np.float64, n, elements=st.floats(-1e6, 1e6).map(lambda y: y if abs(y) > 1e-60 else 0.0)))
    if draw(st.booleans()):
        return table, target, None
    if draw(st.booleans()):
        weight = draw(integers_of(n, 0, 3)).astype(np.float64)
    else:
        weight = draw(arrays(np.float64, n, elements=st.sampled_from([0.0, 1e-9, 0.1, 1.0, 1.5, 1e6])))
    weight[draw(st.integers(0, n - 1))] = 1.0
    return table, target, weight


@st.composite
def plans(draw: st.DrawFn, criterion: str, n_classes: int, n_rows: int, n_columns: int) -> ForestPlan:
    """Any rules, mostly the plain ones."""

    def rarely(value: Any, *others: Any) -> Any:
        return draw(st.sampled_from([value, value, *others]))

    return ForestPlan(
        rules(
            criterion,
            n_columns,
            max_features=draw(st.integers(1, n_columns)),
            columns_per_tree=rarely(n_columns, max(1, n_columns - 1)),
            random_splits=rarely(False, True),
            by_level=rarely(False, True),
            max_depth=rarely(None, 0, 1, 3),
            min_samples_split=rarely(2, 5),
            min_samples_leaf=rarely(1, 2, 4),
            min_weight_fraction_leaf=rarely(0.0, 0.1, 0.3),
            max_leaf_nodes=rarely(None, 2, 3, 7),
            min_impurity_decrease=rarely(0.0, 0.01, 0.3),
            alpha=rarely(0.9, 0.5, 0.25, 1 / 3, 0.0001) if criterion == "quantile" else 0.0,
        ),
        seed=draw(st.integers(0, 2**70)),
        n_classes=n_classes,
        n_draws=rarely(None, n_rows, max(1, n_rows // 2)),
        class_weight=rarely(None, tuple(range(1, n_classes + 1))) if n_classes else None,
        balanced_subsample=False,
        out_of_bag=draw(st.booleans()),
    )


CASES = [
    ("squared_error", 0),
    ("absolute_error", 0),
    ("quantile", 0),
    ("poisson", 0),
    ("gini", 2),
    ("gini", 4),
    ("entropy", 2),
    ("entropy", 3),
]


@pytest.mark.parametrize(("criterion", "n_classes"), slow_for(KERNELS_OF_THEIR_OWN, CASES))
@given(data=st.data())
@examples(200)
def test_forest_trees(criterion: str, n_classes: int, data: st.DataObject) -> None:
    table, target, weight = data.draw(problems(n_classes))
    if criterion == "poisson":
        target = np.abs(target)
        assume(target[slice(None) if weight is None else weight > 0].any())
    plan = data.draw(plans(criterion, n_classes, target.shape[0], len(table)))
    if criterion in KERNELS_OF_THEIR_OWN and not THOROUGH:  # few kernels
        plan = dataclasses.replace(plan, rules=dataclasses.replace(plan.rules, random_splits=False))
    prepared = ForestTarget.of_table(plan, target, weight).start(3, 0)
    sample = sample_of(prepared)
    root = naive.grow(as_lists(table), sample, plan.rules, n_classes, plan.seed, 3)
    trees = grow_here(table, target, weight, plan, n_trees=4)
    assert_same(trees[3], root, plan, sample, target)
    trees[3].validate(len(table), max(n_classes, 1))
    # The same trees when they grow level by level, on two shards where there are two columns.
    spread = [range(0, len(table), 2), range(1, len(table), 2)] if len(table) > 1 else [range(1)]
    assert all_equal(grow_sharded(table, target, weight, plan, 4, spread)[0], trees)


@st.composite
def with_categories(draw: st.DrawFn, problem: Any, plan: Any) -> tuple[Table, Any]:
    """A problem's table with some columns of categories, and its plan."""
    table, target, _ = problem
    n = target.shape[0]
    more = []
    for _ in range(draw(st.integers(1, 2))):
        numbers = draw(integers_of(n, 0, draw(st.sampled_from([1, 3, 40])))).astype(np.float32)
        more.append(np.where(draw(arrays(np.bool_, n)), np.float32(np.nan), numbers) if draw(st.booleans()) else numbers)
    mixed = [*more, *table]
    some = dataclasses.replace(
        plan.rules,
        max_features=plan.rules.max_features + draw(st.integers(0, len(more))),
        columns_per_tree=plan.rules.columns_per_tree + len(more),
        categorical=tuple(range(len(more))),
        cat_smooth=draw(st.sampled_from([0.0, 0.7, 5.0])),
        min_samples_category=tuple(draw(st.sampled_from([1, 2, 5])) for _ in more),
        max_cat_threshold=tuple(draw(st.sampled_from([99, 1, 3])) for _ in more),
    )
    return mixed, dataclasses.replace(plan, rules=some)


OF_CATEGORIES = [("squared_error", 0), ("gini", 2), ("gini", 4), ("poisson", 0), ("entropy", 3)]


@pytest.mark.parametrize(
    ("criterion", "n_classes", "random"),
    [
        *slow_for({"poisson", "entropy"}, ((*case, False) for case in OF_CATEGORIES)),
        pytest.param("squared_error", 0, True, marks=pytest.mark.slow),  # sets beside random thresholds have kernels of their own
        *(pytest.param(*case, True, marks=pytest.mark.thorough) for case in OF_CATEGORIES[1:]),
    ],
)
@given(data=st.data())
@examples(150)
def test_trees_of_categories(criterion: str, n_classes: int, random: bool, data: st.DataObject) -> None:
    problem = data.draw(problems(n_classes))
    _, target, weight = problem
    if criterion == "poisson":
        target = np.abs(target)
        assume(target[slice(None) if weight is None else weight > 0].any())
    plan = data.draw(plans(criterion, n_classes, target.shape[0], len(problem[0])))
    if not random:
        plan = dataclasses.replace(plan, rules=dataclasses.replace(plan.rules, random_splits=False))
    table, plan = data.draw(with_categories(problem, plan))
    sample = sample_of(ForestTarget.of_table(plan, target, weight).start(3, 0))
    root = naive.grow(as_lists(table), sample, plan.rules, n_classes, plan.seed, 3)
    trees = grow_here(table, target, weight, plan, n_trees=4)
    assert_same(trees[3], root, plan, sample, target)
    trees[3].validate(len(table), max(n_classes, 1))
    spread = [range(0, len(table), 2), range(1, len(table), 2)]
    assert all_equal(grow_sharded(table, target, weight, plan, 4, spread)[0], trees)


@pytest.mark.parametrize("criterion", slow_for(KERNELS_OF_THEIR_OWN, ["newton", "newton_l1"]))
@given(problem=problems(0), data=st.data())
@examples(200)
def test_newton_trees(criterion: str, problem: tuple[Table, NDArray[Any], NDArray[np.float64] | None], data: st.DataObject) -> None:
    table, target, weight = problem
    n_columns = len(table)
    forest = data.draw(plans(criterion, 0, target.shape[0], n_columns))
    some = dataclasses.replace(
        forest.rules,
        reg_alpha=data.draw(st.sampled_from([0.5, 3.0])) if criterion == "newton_l1" else 0.0,
        min_split_gain=data.draw(st.sampled_from([0.0, 2.0])),
        reg_lambda=data.draw(st.sampled_from([0.0, 1.0, 0.3])),
        min_child_weight=data.draw(st.sampled_from([0.0, 1.0, 2.5])),
        random_splits=False,  # which boosting does not know
    )
    plan = BoostingPlan(some, forest.seed, Squared(), n_rounds=1, subsample=data.draw(st.sampled_from([1.0, 0.6])), learning_rate=0.5)
    spread = [range(0, n_columns, 2), range(1, n_columns, 2)] if n_columns > 1 else [range(1)]
    sharded = ShardedExecutor(table, target, weight, spread)
    with local(table, target, weight) as executor:
        tree = boost(executor, plan).rounds[0][0]
        executor.shard.target.raw[:] = executor.shard.target.initial[:, None]
        prepared = executor.shard.target.start(0, 0)
        sample = sample_of(prepared)
    root = naive.grow(as_lists(table), sample, plan.rules, 0, plan.seed, 0)
    assert_same(tree, root, plan, sample, target)
    for node, value in zip(root.preorder(), tree.value[:, 0], strict=True):
        g, h = (np.ldexp(float(x), -e) for x, e in zip(node.sums, sample.exponents, strict=True))
        beyond = np.sign(g) * max(abs(g) - some.reg_alpha, 0.0)
        assert value == pytest.approx(-0.5 * beyond / (h + some.reg_lambda) if h + some.reg_lambda else 0.0, rel=1e-12)
    assert all_equal(boost(sharded, plan).rounds[0], [tree])


def assert_exact(tree: Tree, table: Table, sample: naive.Sample, plan: Any, depth: int) -> int:
    """Compare the split of every node with a full scan of its rows; returns the number of splits."""
    a = np.array(sample.g)
    b = np.ones(a.shape[0], np.int64) if sample.h is None else np.array(sample.h)
    columns = [column.astype(np.float64) for column in table]
    rows = np.array(sample.rows)
    limits = naive.limits_of(plan.rules, 0, (int(a[rows].sum()), int(b[rows].sum())), sample.exponents)
    waiting, n_splits = [(0, rows)], 0
    while waiting:
        node, rows = waiting.pop()
        answers = [naive.full_scan(x[rows], j, a[rows], b[rows], limits) for j, x in enumerate(columns)]
        for j in plan.rules.categorical:
            given = columns[j].tolist(), j, rows.tolist(), sample.g, sample.h, limits
            answers[j] = naive.SPLIT, naive.best_of_column(*given)
        best = max((split for _, split in answers if split is not None), key=lambda split: split.score, default=None)
        if tree.feature[node] < 0:
            pure = sample.pure_by is not None and len({sample.pure_by[row] for row in rows}) == 1
            small = len(rows) < 2 * limits.min_samples or b[rows].sum() < 2 * limits.min_weight
            stopped = plan.rules.max_leaf_nodes is not None or tree.node_depth[node] == depth
            assert best is None or stopped or pure or small
            continue
        n_splits += 1
        x = columns[best.column][rows]
        left = np.array([best.sends_left(value) for value in x.tolist()])
        assert (tree.feature[node], tree.missing_go_to_left[node]) == (best.column, best.missing_left)
        if best.categories is None:
            assert tree.threshold[node] == best.threshold
        else:
            assert set(tree.categories.of_node(node).tolist()) == best.categories
        assert tree.n_node_samples[tree.children_left[node]] == best.n_left == left.sum()
        waiting += [(int(tree.children_left[node]), rows[left]), (int(tree.children_right[node]), rows[~left])]
    return n_splits


LARGE = 7000
CATEGORIES = {"categorical": (3, 4), "cat_smooth": 3.0, "min_samples_category": (1, 4), "max_cat_threshold": (99, 32)}
SPREAD = [(0, 2, 4, 7), (1, 3, 5, 6, 8)]


def large_table(seed: int) -> list[NDArray[Any]]:
    """Columns of many values and of few, with values missing, and copies that tie with them to the last bit."""
    table = wild_table(LARGE, seed)
    return [-table[0], *table, table[2].copy()]


def with_large_categories(table: Table, target: NDArray[np.float64], seed: int) -> list[NDArray[Any]]:
    """The table with its fourth and fifth column in place of two: a few categories and many, of which some matter and some are missing."""
    rng = np.random.default_rng(seed)
    mixed = list(table)
    for j, n_categories in ((3, 12), (4, 900)):
        numbers = np.floor(n_categories * rng.random(LARGE) ** 2).astype(np.float32)
        target += rng.normal(size=n_categories + 1)[numbers.astype(np.int64)] * target.std() / 3
        mixed[j] = np.where(rng.random(LARGE) < 0.1, np.float32(np.nan), numbers)
    return mixed


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("seed", "changes"),
    [
        (0, {}),
        (1, {}),
        (2, {"max_depth": None, "max_leaf_nodes": 25}),
        pytest.param(3, CATEGORIES, marks=pytest.mark.slow),  # compiles what searches the zones of large nodes for sets
        pytest.param(5, {"criterion": "newton_l1", "reg_alpha": 5.0}, marks=pytest.mark.slow),
        pytest.param(4, {"criterion": "newton_l1", "reg_alpha": 0.5, "max_depth": None, "max_leaf_nodes": 25}, marks=pytest.mark.thorough),
    ],
)
def test_every_split_of_large_boosted_trees(seed: int, changes: dict[str, Any], weighted: bool) -> None:
    """However large nodes are searched (zones, sums inherited from parents): what a full scan finds, on any threads and shards."""
    table = large_table(seed)
    y, weight = wild_target(table[1:], 0, seed), wild_weight(LARGE, seed) if weighted else None
    some = rules(**{"criterion": "newton", "n_columns": len(table), "max_depth": 5, "reg_lambda": 1.0, "min_child_weight": 3.0} | changes)
    if some.categorical:
        table = with_large_categories(table, y, seed)
    plan = BoostingPlan(some, seed, Squared(), n_rounds=3, subsample=0.8 if seed else 1.0)
    trees = {}
    for n_threads in (1, 4):
        with local(table, y, weight, n_threads) as executor:
            trees[n_threads] = [tree for (tree,) in boost(executor, plan).rounds]
            samples = []
            executor.shard.target.raw[:] = executor.shard.target.initial[:, None]
            for number, tree in enumerate(trees[n_threads]):
                samples.append(sample_of(executor.shard.target.start(number, 0)))
                X = np.stack([column.astype(np.float64) for column in table], axis=1)
                executor.shard.target.raw += sum_values(packed_for([tree], np.float64), X)[:, 0]
    assert all_equal(trees[1], trees[4])
    assert all_equal([tree for (tree,) in boost(ShardedExecutor(table, y, weight, SPREAD, 2), plan).rounds], trees[1])
    for tree, sample in zip(trees[1], samples, strict=True):
        assert assert_exact(tree, table, sample, plan, 5) > 20


@pytest.mark.parametrize(("criterion", "n_classes"), slow_for({"poisson"}, [("squared_error", 0), ("poisson", 0), ("gini", 2)]))
def test_every_split_of_large_forest_trees(criterion: str, n_classes: int) -> None:
    for seed, changes in enumerate([{"max_depth": 6}, {"min_samples_leaf": 40}]):
        table = large_table(seed + 5)
        y, weight = wild_target(table[1:], n_classes, seed), wild_weight(LARGE, seed) if seed else None
        if criterion == "poisson":
            y = np.random.default_rng(seed).poisson(np.exp(y / 2)).astype(np.float64)
        plan = ForestPlan(rules(criterion, len(table), **changes), seed, n_classes, n_draws=None if seed else LARGE)
        trees = grow_here(table, y, weight, plan)
        for other in (grow_here(table, y, weight, plan, n_threads=4), grow_sharded(table, y, weight, plan, 1, SPREAD)[0]):
            assert all_equal(other, trees)
        sample = sample_of(ForestTarget.of_table(plan, y, weight).start(0, 0))
        assert assert_exact(trees[0], table, sample, plan, 6 if not seed else 99) > 30
