"""Whole trees compared with the oracle, split by split, and trees of several targets with those of one."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.run.boosting_rounds import boost
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.ensemble.objective.regression import SquaredError
from dtrees.tree.predict import packed_for, sum_values
from dtrees.tree.tree import Tree
from tests import naive
from tests.engine.by_the_book import (
    assert_exact,
    assert_respects,
    assert_same_splits,
    check_forest,
    constraints,
    forests,
    halves,
    plans,
    problems,
    sample_of,
    with_categories,
)
from tests.engine.shards import (
    ShardedExecutor,
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
from tests.naive_constraints import Constraints
from tests.slow import KERNELS_OF_THEIR_OWN, one_of_each, slow_for
from tests.split.strategies import as_lists

# --- whole trees compared with the oracle, split by split ---


#: Cases of trees of several targets that also grow in one process; others grow over shards only, which compiles less.
COMPILED = {("squared_error", False), ("squared_error", True), ("gini", False), ("absolute_error", False)}
CASES = [
    ("squared_error", (1,)),
    ("absolute_error", (1,)),
    ("quantile", (1,)),
    ("poisson", (1,)),
    ("gini", (2,)),
    ("gini", (4,)),
    ("entropy", (2,)),
    ("entropy", (3,)),
]
#: By criterion, and the classes of each target (1: numbers).
OF_TARGETS = [
    ("squared_error", (1, 1, 1)),
    ("squared_error", (1, 1)),
    ("gini", (2, 3)),
    ("gini", (3, 1, 4)),
    ("absolute_error", (1, 1)),
    ("entropy", (2, 3, 1)),
    ("poisson", (1, 1)),
]


@pytest.mark.timeout(600)  # several targets have several kernels
@pytest.mark.parametrize(
    ("criterion", "targets"),
    [
        *slow_for(KERNELS_OF_THEIR_OWN, CASES),
        *(pytest.param(*case, marks=pytest.mark.thorough if case[0] == "poisson" else pytest.mark.slow) for case in OF_TARGETS),
    ],
)
@given(data=st.data())
@examples(200)
def test_forest_trees(criterion: str, targets: tuple[int, ...], data: st.DataObject) -> None:
    few_kernels = criterion in KERNELS_OF_THEIR_OWN and not THOROUGH
    table, target, weight, plan = data.draw(forests(criterion, targets, random=not few_kernels))
    check_forest(table, target, weight, plan, here=len(targets) == 1 or (criterion, plan.rules.random_splits) in COMPILED)


OF_CATEGORIES = [("squared_error", (1,)), ("gini", (2,)), ("gini", (4,)), ("poisson", (1,)), ("entropy", (3,))]
SEVERAL_OF_CATEGORIES = [("squared_error", (1, 1, 1)), ("gini", (2, 3, 2, 1))]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("criterion", "targets", "random"),
    [
        *slow_for({"poisson", "entropy"}, ((*case, False) for case in OF_CATEGORIES)),
        pytest.param("squared_error", (1,), True, marks=pytest.mark.slow),  # sets and random thresholds together have kernels of their own
        *(pytest.param(*case, False, marks=pytest.mark.slow) for case in SEVERAL_OF_CATEGORIES),
        *(pytest.param(*case, True, marks=pytest.mark.thorough) for case in [*OF_CATEGORIES[1:], *SEVERAL_OF_CATEGORIES]),
    ],
)
@given(data=st.data())
@examples(150)
def test_trees_of_categories(criterion: str, targets: tuple[int, ...], random: bool, data: st.DataObject) -> None:
    """With several targets, in the orders of each, of each class, and of the direction in which means differ most."""
    table, target, weight, plan = data.draw(forests(criterion, targets, random))
    mixed, plan = data.draw(with_categories(table, plan))
    check_forest(mixed, target, weight, plan)


@pytest.mark.parametrize(
    ("criterion", "n_classes", "random", "categories"),
    [
        *one_of_each([("squared_error", 0), ("gini", 2), ("gini", 4)], [False, True], [False]),
        *(pytest.param(*case, False, False, marks=pytest.mark.slow) for case in [("gini", 300), ("entropy", 2), ("entropy", 4)]),
        *(pytest.param(*case, False, True, marks=pytest.mark.slow) for case in [("squared_error", 0), ("gini", 3)]),
    ],
)
def test_trees_of_many_columns(criterion: str, n_classes: int, random: bool, categories: bool) -> None:
    """Few rows are searched in all columns side by side, several vectors of them, or in the drawn ones; so are many categories."""
    for seed, n_columns in enumerate([1, 7, 19, 33] * 3):
        rng = np.random.default_rng(seed)
        n = [2, 3, 9, 17, 40, 90][seed % 6] * (4 if categories else 1)
        table = [rng.normal(size=n).astype(np.float32 if seed % 4 == 1 else np.float64) for _ in range(n_columns)]
        if categories:
            table[0] = rng.integers(0, [5, 30, 400][seed % 3], n).astype(np.float64)
        for column in table[seed % 2 :: 2]:
            column[rng.random(n) < 0.3 * (seed % 3 == 0)] = np.nan
        target = rng.integers(0, n_classes, n) if n_classes else rng.integers(-9, 10, n) + rng.random(n).round(2)
        some = rules(
            criterion,
            n_columns,
            max_features=[n_columns, 1 + n_columns // 3, 1][seed % 3],
            random_splits=random,
            min_samples_leaf=1 + 2 * (seed % 5 == 4),
            **{"categorical": (0,), "cat_smooth": 2.5 * (seed % 2), "min_samples_category": (1 + seed % 3,), "max_cat_threshold": (99,)}
            if categories
            else {},
        )
        check_forest(table, target, rng.integers(1, 4, n) + 0.5 if seed % 2 else None, ForestPlan(some, seed, n_classes))


#: Each has kernels of its own; boosting's are those of quick tests.
UNDER_CONSTRAINTS = [
    ("squared_error", (1,)),
    ("gini", (2,)),
    ("gini", (3,)),
    ("absolute_error", (1,)),
    ("quantile", (1,)),
    ("poisson", (1,)),
    ("entropy", (2,)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("criterion", "targets"), slow_for((), UNDER_CONSTRAINTS, thorough={"poisson", "entropy"}))
@given(data=st.data())
@examples(300)
def test_forest_trees_under_constraints(criterion: str, targets: tuple[int, ...], data: st.DataObject) -> None:
    # Few kernels; a random threshold is one of those tried otherwise.
    table, target, weight, plan = data.draw(forests(criterion, targets, random=criterion == "squared_error" and THOROUGH))
    wanted = data.draw(constraints(len(table), monotonic=targets[0] <= 2))
    check_forest(table, target, weight, dataclasses.replace(plan, rules=dataclasses.replace(plan.rules, **wanted)))


@pytest.mark.parametrize(
    ("criterion", "constrained"),
    [("newton", False), ("newton", True), *(pytest.param("newton_l1", some, marks=pytest.mark.slow) for some in (False, True))],
)
@given(problem=problems(0), data=st.data())
@examples(300)
def test_newton_trees(
    criterion: str, constrained: bool, problem: tuple[Table, NDArray[Any], NDArray[np.float64] | None], data: st.DataObject
) -> None:
    table, target, weight = problem
    forest = data.draw(plans(criterion, 0, target.shape[0], len(table), random=False))  # boosting does not have them
    some = dataclasses.replace(
        forest.rules,
        reg_alpha=data.draw(st.sampled_from([0.5, 3.0])) if criterion == "newton_l1" else 0.0,
        min_split_gain=0.0 if constrained else data.draw(st.sampled_from([0.0, 2.0])),
        reg_lambda=data.draw(st.sampled_from([0.0, 1.0, 0.3])),
        min_child_weight=data.draw(st.sampled_from([0.0, 1.0, 2.5])),
        **(data.draw(constraints(len(table))) if constrained else {}),
    )
    subsample, by = data.draw(st.sampled_from([(1.0, "uniform"), (0.6, "uniform"), (0.6, "gradient")]))
    plan = BoostingPlan(some, forest.seed, SquaredError(), n_rounds=1, subsample=subsample, subsample_by=by, learning_rate=0.5)
    with local(table, target, weight) as executor:
        tree = boost(executor, plan).rounds[0][0]
        executor.shard.target.raw[:] = executor.shard.target.initial[:, None]
        sample = sample_of(executor.shard.target.start(0, 0))
    root = naive.grow(as_lists(table), sample, plan.rules, 0, plan.seed, 0)
    assert_same_splits(tree, root, plan, sample)
    assert_respects(tree, some)
    if not constrained and (shrinkage := data.draw(st.sampled_from([0.0, 0.3, 2.0]))):
        shrunk = dataclasses.replace(plan, rules=dataclasses.replace(some, split_shrinkage=shrinkage))
        noise = naive.chance_of(dataclasses.replace(some, chance=shrinkage), 0, sample, root.sums)
        with local(table, target, weight) as executor:
            values = boost(executor, shrunk).rounds[0][0].value[:, 0]
        largest = np.abs(tree.value).max()
        assert values == pytest.approx(naive.shrunk(root, tree.value[:, 0].tolist(), noise), rel=1e-9, abs=1e-13 * largest)
        by_columns = boost(ShardedExecutor(table, target, weight, halves(table)), shrunk).rounds[0][0]
        assert by_columns.value[:, 0].tolist() == values.tolist()
    unit = 2.0 ** (sample.exponents[1] - sample.exponents[0])
    for node, value, impurity in zip(root.preorder(), tree.value[:, 0], tree.impurity, strict=True):
        if constrained:
            around = node.constraints or Constraints(some, l1=some.reg_alpha * 2.0 ** sample.exponents[0])
            if node.sums[1] + some.reg_lambda:
                wanted = around.value(node.sums, some.reg_lambda * 2.0 ** sample.exponents[1]) * unit
                assert value == pytest.approx(0.5 * wanted, rel=1e-9, abs=1e-12 * np.abs(target).max())
            continue
        g, h = (np.ldexp(float(x), -e) for x, e in zip(node.sums, sample.exponents, strict=True))
        beyond = np.sign(g) * max(abs(g) - some.reg_alpha, 0.0)
        step = -beyond / (h + some.reg_lambda) if h + some.reg_lambda else 0.0
        assert value == pytest.approx(0.5 * step, rel=1e-12)
        assert impurity == pytest.approx(-step * beyond / h if h else 0.0, rel=1e-12)
    assert all_equal(boost(ShardedExecutor(table, target, weight, halves(table)), plan).rounds[0], [tree])


LARGE = 7000
SPREAD = [(0, 2, 4, 7), (1, 3, 5, 6, 8)]
CATEGORIES = {"categorical": (3, 4), "cat_smooth": 3.0, "min_samples_category": (1, 4), "max_cat_threshold": (99, 32), "chance": 0.4}
CONSTRAINTS = [
    {"monotonic": (1, -1, 0, 1, 0, 0, -1, 0, 0)},
    {"interactions": ((0, 1, 3), (1, 2), (4, 5, 6, 7, 8)), "monotonic": (0, 1, 1, 0, 0, -1, 0, 0, 1)},
    {"most_columns": 2},
    {"monotonic": (1, -1, -1, -1, 1, 1, 0, 0, -1)},
]


def large_table(seed: int) -> list[NDArray[Any]]:
    """Columns of many values and of few, with missing values, and copies that tie to the last bit."""
    table = wild_table(LARGE, seed)
    return [-table[0], *table, table[2].copy()]


def with_large_categories(table: Table, target: NDArray[np.float64], seed: int) -> list[NDArray[Any]]:
    """Return the table with categories in its fourth and fifth column, few and many, some informative and some missing."""
    rng = np.random.default_rng(seed)
    mixed = list(table)
    for j, n_categories in ((3, 12), (4, 900)):
        numbers = np.floor(n_categories * rng.random(LARGE) ** 2).astype(np.float32)
        target += rng.normal(size=n_categories + 1)[numbers.astype(np.int64)] * target.std() / 3
        mixed[j] = np.where(rng.random(LARGE) < 0.1, np.float32(np.nan), numbers)
    return mixed


@pytest.mark.parametrize(
    ("seed", "changes", "weighted"),
    [
        *((seed, {}, weighted) for seed in (0, 1) for weighted in (False, True)),
        *((2, {"max_depth": None, "max_leaf_nodes": 25}, weighted) for weighted in (False, True)),
        # compile the search of zones of large nodes for sets, with a penalty, and under constraints
        *(pytest.param(3, CATEGORIES, weighted, marks=pytest.mark.slow) for weighted in (False, True)),
        *(pytest.param(5, {"criterion": "newton_l1", "reg_alpha": 5.0}, weighted, marks=pytest.mark.slow) for weighted in (False, True)),
        pytest.param(
            4,
            {"criterion": "newton_l1", "reg_alpha": 0.5, "max_depth": None, "max_leaf_nodes": 25},
            True,
            marks=pytest.mark.thorough,
        ),
        *(pytest.param(i, some, i == 1, marks=pytest.mark.slow) for i, some in enumerate(CONSTRAINTS)),
        pytest.param(0, {"criterion": "newton_l1", "reg_alpha": 5.0, **CONSTRAINTS[1]}, False, marks=pytest.mark.slow),
    ],
)
def test_every_split_of_large_boosted_trees(seed: int, changes: dict[str, Any], weighted: bool) -> None:
    """The search of large nodes (zones, inherited sums) finds the split of a full scan, on any threads and shards."""
    table = large_table(seed)
    y, weight = wild_target(table[1:], 0, seed), wild_weight(LARGE, seed) if weighted else None
    some = rules(**{"criterion": "newton", "n_columns": len(table), "max_depth": 5, "reg_lambda": 1.0, "min_child_weight": 3.0} | changes)
    if some.categorical:
        table = with_large_categories(table, y, seed)
    plan = BoostingPlan(some, seed, SquaredError(), n_rounds=3, subsample=0.8 if seed else 1.0)
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
        assert_respects(tree, some)
        assert assert_exact(tree, table, sample, plan) > 10


@pytest.mark.parametrize(
    ("criterion", "n_classes", "seed", "changes"),
    [
        *(
            pytest.param(criterion, n_classes, seed, changes, marks=pytest.mark.slow if criterion == "poisson" else ())
            for criterion, n_classes in (("squared_error", 0), ("poisson", 0), ("gini", 2))
            for seed, changes in ((0, {"max_depth": 6}), (1, {"min_samples_leaf": 40}))
        ),
        # Compiles the search of zones of large nodes; boosting's constraints work alike.
        *(pytest.param("squared_error", 0, i, {"max_depth": 6} | some, marks=pytest.mark.thorough) for i, some in enumerate(CONSTRAINTS)),
    ],
)
def test_every_split_of_large_forest_trees(criterion: str, n_classes: int, seed: int, changes: dict[str, Any]) -> None:
    table = large_table(seed + 5)
    y, weight = wild_target(table[1:], n_classes, seed), wild_weight(LARGE, seed) if seed else None
    if criterion == "poisson":
        y = np.random.default_rng(seed).poisson(np.exp(y / 2)).astype(np.float64)
    plan = ForestPlan(rules(criterion, len(table), **changes), seed, n_classes, n_draws=None if seed else LARGE)
    trees = grow_here(table, y, weight, plan)
    for other in (grow_here(table, y, weight, plan, n_threads=4), grow_sharded(table, y, weight, plan, 1, SPREAD)[0]):
        assert all_equal(other, trees)
    assert_respects(trees[0], plan.rules)
    assert assert_exact(trees[0], table, sample_of(ForestTarget.of_table(plan, y, weight).start(0, 0)), plan) > 10


# --- trees of several targets compared with those of one target if these must be equal, and large ones ---


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


def of_one_and_of_copies(table: Table, y: NDArray[Any], plan: ForestPlan) -> list[tuple[Tree, Tree]]:
    """Return trees of a target, and of two copies of it: sums of two equal floats are exact, so ties do not change."""
    one = grow_here(table, y, None, plan, n_trees=2)
    twice = dataclasses.replace(plan, n_classes=2 * plan.n_classes, targets=(max(plan.n_classes, 1),) * 2)
    two = grow_here(table, np.asfortranarray(np.column_stack([y, y])), None, twice, n_trees=2)
    for tree, same in zip(one, two, strict=True):
        for name in ("feature", "children_right", "missing_go_to_left", "n_node_samples"):
            assert np.array_equal(getattr(tree, name), getattr(same, name))
    return list(zip(one, two, strict=True))


@pytest.mark.slow  # kernels of its own
@pytest.mark.parametrize("n_draws", [None, 4000])
@pytest.mark.parametrize(("criterion", "random_splits"), sorted(COMPILED))
def test_copies_of_one_target_give_its_trees(criterion: str, n_draws: int | None, random_splits: bool) -> None:
    table, y = large(criterion)
    n_classes = 3 if criterion in ("gini", "entropy") else 0
    some = rules(criterion, 5, max_depth=9, max_features=3, random_splits=random_splits)
    for tree, same in of_one_and_of_copies(table, y, ForestPlan(some, 5, n_classes=n_classes, n_draws=n_draws)):
        assert tree.node_count > 100
        assert np.array_equal(tree.threshold, same.threshold)
        assert np.allclose(np.hstack([tree.value, tree.value]), same.value, rtol=1e-12, atol=1e-12)
        assert np.allclose(tree.impurity, same.impurity, atol=1e-12)


@pytest.mark.slow  # kernels of its own
@pytest.mark.parametrize(("criterion", "n_classes"), [("squared_error", 0), ("gini", 2), ("gini", 3)])
@pytest.mark.parametrize("max_features", [5, 2])
def test_sets_by_copies_of_one_target_are_its_sets(criterion: str, n_classes: int, max_features: int) -> None:
    table, y = large(criterion)
    levels = np.random.default_rng(3).integers(0, 60, (2, len(y))).astype(np.float64)
    levels[0, ::7] = np.nan
    effect = np.random.default_rng(4).normal(size=60)[levels[1].astype(int)] > 0.5
    y = np.minimum(y, 1) ^ effect if n_classes == 2 else np.where(effect, y + 1, y) % 3 if n_classes else y + effect
    sets = {"categorical": (3, 4), "cat_smooth": 10.0, "min_samples_category": (3, 3), "max_cat_threshold": (32, 32)}
    plan = ForestPlan(rules(criterion, 5, max_depth=9, max_features=max_features, **sets), 5, n_classes=n_classes, n_draws=4000)
    for tree, same in of_one_and_of_copies([*table[:3], *levels], y, plan):
        assert len(tree.categories.node) > 20
        assert tree.categories.equals(same.categories)
