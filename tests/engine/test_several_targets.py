"""Trees of several targets: against growing them by the book, and against those of one target where these must be the same."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.targets.prepared import Prepared
from dtrees.split.criteria.criterion import criterion_named
from dtrees.tree.tree import Tree
from tests import naive
from tests.engine.shards import Table, all_equal, grow_here, grow_sharded, rules
from tests.engine.test_naive_trees import plans, problems, quantile_of, with_categories
from tests.examples import THOROUGH, examples
from tests.naive_targets import SEVERAL, SeveralTargets
from tests.slow import thorough_for
from tests.split.strategies import as_lists

#: Of these, trees that grow in one place are compared, too; others are grown over shards only, which takes less to compile.
COMPILED = {("squared_error", False), ("squared_error", True), ("gini", False), ("absolute_error", False)}
#: Criterion, and the classes of each target (1: numbers).
CASES = [
    ("squared_error", (1, 1, 1)),
    ("squared_error", (1, 1)),
    ("gini", (2, 3)),
    ("gini", (3, 1, 4)),
    ("absolute_error", (1, 1)),
    ("poisson", (1, 1)),
    ("entropy", (2, 3, 1)),
]


def sample_of(prepared: Prepared, plan: ForestPlan) -> naive.Sample:
    assert prepared.targets is not None
    n = prepared.g.shape[0]
    rows = list(range(n)) if prepared.in_sample is None else np.flatnonzero(prepared.in_sample).tolist()
    several = SeveralTargets(plan.rules.criterion, prepared.targets.tolist(), plan.targets, plan.n_classes > 0)
    b, pure_by, levels = prepared.h.tolist() or None, prepared.pure_by.tolist(), prepared.levels.tolist()
    return naive.Sample(prepared.g.tolist(), b, prepared.exponents, rows, pure_by, levels, several)


def assert_same(tree: Tree, root: naive.Node, plan: ForestPlan, sample: naive.Sample, target: NDArray[Any]) -> None:
    """Compare structure, gains and counts bit for bit, values and impurities but for rounding."""
    nodes = root.preorder()
    number = {id(node): i for i, node in enumerate(nodes)}
    criterion = criterion_named(plan.rules.criterion)
    unit = -criterion.gain_exponent(sample.exponents)
    assert tree.node_count == len(nodes)
    for i, node in enumerate(nodes):
        split = node.split
        assert [tree.children_left[i], tree.children_right[i]] == ([number[id(child)] for child in node.children] or [-1, -1])
        assert tree.feature[i] == (split.column if split else -2)
        if split and split.categories is not None:
            assert np.isnan(tree.threshold[i])
            assert set(tree.categories.of_node(i).tolist()) == split.categories
        else:
            assert tree.threshold[i] == (split.threshold if split else -2.0)
        assert tree.missing_go_to_left[i] == (split.missing_left if split else False)
        assert tree.gain[i] == (np.ldexp(split.gain, unit) if split else 0.0)
        assert tree.n_node_samples[i] == len(node.rows)
        assert tree.weighted_n_node_samples[i] == np.ldexp(float(node.sums[-1]), -sample.exponents[1])
        w = np.array([1 if sample.h is None else sample.h[row] for row in node.rows])
        y, size = target[node.rows], max(float(np.abs(target).max()), 1e-300)
        if plan.n_classes:
            ends = np.cumsum(plan.targets)[:-1]
            impurities = []
            for t, mine in enumerate(np.split(tree.value[i], ends)):
                share = np.bincount(y[:, t], weights=w, minlength=plan.targets[t]) / w.sum()
                assert mine == pytest.approx(share, abs=1e-14)
                impurities.append(criterion.impurity(share[None])[0])
            assert tree.impurity[i] == pytest.approx(np.mean(impurities), abs=1e-12)
        elif criterion.measured == "leaves":
            mean = np.average(y, axis=0, weights=w)
            assert tree.value[i] == pytest.approx(mean, abs=1e-11 * size)
            if criterion.name == "squared_error":
                assert tree.impurity[i] == pytest.approx(np.average((y - mean) ** 2, axis=0, weights=w).mean(), abs=1e-10 * size**2)
        else:
            medians = [quantile_of(column.tolist(), w.tolist(), Fraction(1, 2)) for column in y.T]
            assert tree.value[i].tolist() == medians
            spreads = np.average(np.abs(y - medians), axis=0, weights=w)
            assert tree.impurity[i] == pytest.approx(spreads.mean(), rel=1e-12, abs=1e-300)


@st.composite
def several(
    draw: st.DrawFn, criterion: str, classes: tuple[int, ...]
) -> tuple[Table, NDArray[Any], NDArray[np.float64] | None, ForestPlan]:
    """A table, several targets, of which some may be the same, weights, and a plan."""
    by_class = criterion_named(criterion).task == "classification"
    table, first, weight = draw(problems(classes[0] if by_class else 0))
    n = first.shape[0]
    columns = [first]
    for n_classes in classes[1:]:
        if by_class:
            columns.append(np.array(draw(st.lists(st.integers(0, n_classes - 1), min_size=n, max_size=n)), first.dtype))
        else:
            columns.append(draw(st.sampled_from([first, first[::-1].copy(), np.arange(n) % 3 * 0.5, np.zeros(n)])))
    target = np.asfortranarray(np.column_stack(columns))
    if criterion == "poisson":
        target = np.abs(target)
        assume(target[slice(None) if weight is None else weight > 0].any(axis=0).all())
    plan = draw(plans(criterion, 0, n, len(table)))
    class_weight = None
    if by_class and draw(st.booleans()):
        class_weight = tuple(tuple(float(k + 1) for k in range(n_classes)) for n_classes in classes)
    plan = dataclasses.replace(plan, targets=classes, n_classes=sum(classes) if by_class else 0, class_weight=class_weight)
    return table, target, weight, plan


@pytest.mark.slow  # kernels of their own
@pytest.mark.timeout(600)  # several of them
@pytest.mark.parametrize(("criterion", "classes"), thorough_for({"poisson"}, CASES))
@given(data=st.data())
@examples(150)
def test_trees_by_the_book(criterion: str, classes: tuple[int, ...], data: st.DataObject) -> None:
    table, target, weight, plan = data.draw(several(criterion, classes))
    if criterion == "absolute_error" and not THOROUGH:  # few kernels
        plan = dataclasses.replace(plan, rules=dataclasses.replace(plan.rules, random_splits=False))
    sample = sample_of(ForestTarget.of_table(plan, target, weight).start(3, 0), plan)
    root = naive.grow(as_lists(table), sample, plan.rules, SEVERAL if criterion_named(criterion).by_sums else 0, plan.seed, 3)
    # Level by level, on two shards where there are two columns, and the same trees when they grow in one place.
    spread = [range(0, len(table), 2), range(1, len(table), 2)] if len(table) > 1 else [range(1)]
    trees = grow_sharded(table, target, weight, plan, 4, spread)[0]
    assert_same(trees[3], root, plan, sample, target)
    trees[3].validate(len(table), sum(classes))
    if (criterion, plan.rules.random_splits) in COMPILED:
        assert all_equal(grow_here(table, target, weight, plan, n_trees=4), trees)


@pytest.mark.slow  # kernels of their own
@pytest.mark.timeout(600)
@pytest.mark.parametrize("random_splits", thorough_for({True}, [False, True]))
@pytest.mark.parametrize(("criterion", "classes"), [("squared_error", (1, 1, 1)), ("gini", (2, 3, 2, 1))])
@given(data=st.data())
@examples(150)
def test_sets_of_categories_by_the_book(criterion: str, classes: tuple[int, ...], random_splits: bool, data: st.DataObject) -> None:
    """Orders by each target, by each class, and by the direction in which means differ most; few rows, ties, missing values, draws.

    Sets at random are drawn whatever the classes of the first target.
    """
    problem = data.draw(several(criterion, classes))
    _, target, weight, plan = problem
    plan = dataclasses.replace(plan, rules=dataclasses.replace(plan.rules, random_splits=random_splits))
    table, plan = data.draw(with_categories(problem[:3], plan))
    sample = sample_of(ForestTarget.of_table(plan, target, weight).start(3, 0), plan)
    root = naive.grow(as_lists(table), sample, plan.rules, SEVERAL, plan.seed, 3)
    spread = [range(0, len(table), 2), range(1, len(table), 2)]
    trees = grow_sharded(table, target, weight, plan, 4, spread)[0]
    assert_same(trees[3], root, plan, sample, target)
    trees[3].validate(len(table), sum(classes))
    assert all_equal(grow_here(table, target, weight, plan, n_trees=4), trees)


def large(criterion: str, n: int = 6000) -> tuple[Table, NDArray[Any]]:
    """A table with ties and missing values, larger than a block, and a target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5)).round(2)
    X[:, 3] = (X[:, 3] > 1) * X[:, 3]
    X[rng.random((n, 5)) < 0.05] = np.nan
    y = np.nan_to_num(X[:, 0] * 2 + X[:, 1] ** 2) + rng.normal(size=n)
    if criterion == "poisson":
        y = np.abs(y)
    return list(X.T), (np.digitize(y, [0.0, 1.5]) if criterion in ("gini", "entropy") else y)


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize("n_draws", [None, 4000])
@pytest.mark.parametrize(("criterion", "random_splits"), sorted(COMPILED))
def test_copies_of_one_target_give_its_trees(criterion: str, n_draws: int | None, random_splits: bool) -> None:
    table, y = large(criterion)
    n_classes = 3 if criterion in ("gini", "entropy") else 0
    some = rules(criterion, 5, max_depth=9, max_features=3, random_splits=random_splits)
    plan = ForestPlan(some, 5, n_classes=n_classes, n_draws=n_draws)
    one = grow_here(table, y, None, plan, n_trees=2)
    # Two copies: sums of two equal floats are exact, so that no tie is made or broken.
    twice = dataclasses.replace(plan, n_classes=2 * n_classes, targets=(max(n_classes, 1),) * 2)
    two = grow_here(table, np.asfortranarray(np.column_stack([y, y])), None, twice, n_trees=2)
    for tree, same in zip(one, two, strict=True):
        assert tree.node_count > 100
        for name in ("feature", "threshold", "children_right", "missing_go_to_left", "n_node_samples"):
            assert np.array_equal(getattr(tree, name), getattr(same, name))
        assert np.allclose(np.hstack([tree.value, tree.value]), same.value, rtol=1e-12, atol=1e-12)
        assert np.allclose(tree.impurity, same.impurity, atol=1e-12)


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize(("criterion", "n_classes"), [("squared_error", 0), ("gini", 2), ("gini", 3)])
@pytest.mark.parametrize("max_features", [5, 2])
def test_sets_by_copies_of_one_target_are_its_sets(criterion: str, n_classes: int, max_features: int) -> None:
    table, y = large(criterion)
    levels = np.random.default_rng(3).integers(0, 60, (2, len(y))).astype(np.float64)
    levels[0, ::7] = np.nan
    effect = np.random.default_rng(4).normal(size=60)[levels[1].astype(int)] > 0.5
    y = np.minimum(y, 1) ^ effect if n_classes == 2 else np.where(effect, y + 1, y) % 3 if n_classes else y + effect
    table = [*table[:3], *levels]
    some = dataclasses.replace(
        rules(criterion, 5, max_depth=9, max_features=max_features), categorical=(3, 4), cat_smooth=10.0,
        min_samples_category=(3, 3), max_cat_threshold=(32, 32),
    )  # fmt: skip
    plan = ForestPlan(some, 5, n_classes=n_classes, n_draws=4000)
    one = grow_here(table, y, None, plan, n_trees=2)
    twice = dataclasses.replace(plan, n_classes=2 * n_classes, targets=(max(n_classes, 1),) * 2)
    two = grow_here(table, np.asfortranarray(np.column_stack([y, y])), None, twice, n_trees=2)
    for tree, same in zip(one, two, strict=True):
        assert len(tree.categories.node) > 20
        for name in ("feature", "children_right", "missing_go_to_left", "n_node_samples"):
            assert np.array_equal(getattr(tree, name), getattr(same, name))
        assert np.array_equal(tree.categories.node, same.categories.node)
        assert np.array_equal(tree.categories.words, same.categories.words)


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize("criterion", ["squared_error", "gini"])
@pytest.mark.parametrize("weighted", [False, True])
def test_large_tables_level_by_level(criterion: str, weighted: bool) -> None:
    """Large nodes, blocks and tiny nodes find what a search node by node does."""
    table, y = large(criterion)
    by_class = criterion == "gini"
    other = np.nan_to_num(table[2]).round(1)
    target = np.column_stack([y, np.digitize(other, [0.0]) if by_class else other, y[::-1]])
    classes = (3, 2, 3) if by_class else (1, 1, 1)
    weight = np.random.default_rng(1).random(len(y)) if weighted else None
    plan = ForestPlan(rules(criterion, 5, max_features=4), 7, n_classes=sum(classes) * by_class, targets=classes)
    here = grow_here(table, np.asfortranarray(target), weight, plan, n_trees=1)
    assert here[0].node_count > 3000
    assert all_equal(grow_sharded(table, np.asfortranarray(target), weight, plan, 1, [[0, 3], [1, 2, 4]])[0], here)
