"""Comparison of trees with those of the oracle (:mod:`tests.naive`), and the tables, targets and rules of both."""

import dataclasses
import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.special import xlogy

from dtrees.engine.plan.plans import ForestPlan, Rules
from dtrees.engine.shard.targets.forest_target import ForestTarget, Prepared
from dtrees.split.criteria.criterion import criterion_named
from dtrees.tree.tree import Tree
from tests import naive
from tests.engine.shards import Table, all_equal, grow_here, grow_sharded, rules
from tests.naive_constraints import Constraints
from tests.naive_targets import SEVERAL, SeveralTargets
from tests.split.strategies import as_lists, integers_of, tables


def sample_of(prepared: Prepared, plan: Any = None) -> naive.Sample:
    """Return the data of a tree as lists of integers."""
    n = prepared.g.shape[0]
    rows = list(range(n)) if prepared.in_sample is None else np.flatnonzero(prepared.in_sample).tolist()
    several = None
    if getattr(plan, "targets", ()):
        assert prepared.targets is not None
        several = SeveralTargets(plan.rules.criterion, prepared.targets.tolist(), plan.targets, plan.n_classes > 0)
    b, pure_by, levels = prepared.h.tolist() or None, prepared.pure_by.tolist() or None, prepared.levels.tolist()
    return naive.Sample(prepared.g.tolist(), b, prepared.exponents, rows, pure_by, levels, several)


def halves(table: Table) -> list[range]:
    """The columns of two shards, where there are two columns."""
    return [range(0, len(table), 2), range(1, len(table), 2)] if len(table) > 1 else [range(1)]


def check_forest(table: Table, target: NDArray[Any], weight: Any, plan: ForestPlan, here: bool = True, n_trees: int = 2) -> list[Tree]:
    """Compare the last of some trees with the oracle's, and all trees of one process with those of two shards."""
    number = n_trees - 1
    several = SEVERAL if criterion_named(plan.rules.criterion).by_sums else 0
    sample = sample_of(ForestTarget.of_table(plan, target, weight).start(number, 0), plan)
    root = naive.grow(as_lists(table), sample, plan.rules, several if plan.targets else plan.n_classes, plan.seed, number)
    trees = grow_sharded(table, target, weight, plan, n_trees, halves(table))[0]
    assert_same_splits(trees[number], root, plan, sample)
    if not plan.rules.monotonic:
        assert_same_values(trees[number], root, plan, sample, target)
    for tree in trees:
        tree.validate(len(table), plan.n_values)
        assert_respects(tree, plan.rules)
    if here:
        assert all_equal(grow_here(table, target, weight, plan, n_trees), trees)
    return trees


def assert_same_splits(tree: Tree, root: naive.Node, plan: Any, sample: naive.Sample) -> None:
    """Compare structure, gains and counts bit for bit."""
    nodes = root.preorder()
    number = {id(node): i for i, node in enumerate(nodes)}
    unit = -criterion_named(plan.rules.criterion).gain_exponent(sample.exponents)
    n_classes = getattr(plan, "n_classes", 0)
    in_classes = SEVERAL if sample.several else n_classes if n_classes > 2 else 0
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
        weight = naive.weight_of(node.sums, in_classes)
        assert tree.weighted_n_node_samples[i] == np.ldexp(float(weight), -sample.exponents[1])


def assert_same_values(tree: Tree, root: naive.Node, plan: ForestPlan, sample: naive.Sample, target: NDArray[Any]) -> None:
    """Compare the values of a forest's tree, and its impurities (for several targets their means), up to rounding."""
    name = plan.rules.criterion
    criterion, targets = criterion_named(name), target.reshape(target.shape[0], -1)
    classes = plan.targets or (max(plan.n_classes, 1),)
    whole = len(root.rows) if sample.h is None else sum(int(sample.h[row]) for row in root.rows)
    for i, node in enumerate(root.preorder()):
        w = np.array([1 if sample.h is None else sample.h[row] for row in node.rows])
        values = np.split(tree.value[i], np.cumsum(classes)[:-1]) if plan.n_classes else tree.value[i][:, None]
        found = [_spread_of(name, y[node.rows], w, k, plan.rules.alpha) for y, k in zip(targets.T, classes, strict=True)]
        size = max(float(np.abs(target).max()), 1e-300)
        for mine, (value, _, _) in zip(values, found, strict=True):
            exact = not plan.n_classes and criterion.measured != "leaves"
            assert mine == pytest.approx(
                value, rel=0.0 if exact else 1e-12, abs=0.0 if exact else 1e-14 if plan.n_classes else 1e-11 * size
            )
        # Sums of squares of light nodes are differences of those of heavy ones.
        rounding = max(1e-10, 1e-14 * float(whole) / float(w.sum()))
        tolerance = max(rounding * size**power for _, _, power in found)
        assert tree.impurity[i] == pytest.approx(np.mean([spread for _, spread, _ in found]), rel=1e-12, abs=tolerance)


def _spread_of(criterion: str, y: NDArray[Any], w: NDArray[Any], n_classes: int, alpha: float) -> tuple[Any, float, int]:
    """The value of some rows, their impurity, and the power of the target's unit in it."""
    if criterion in ("gini", "entropy"):
        share = np.bincount(y, weights=w, minlength=n_classes) / w.sum()
        return share, 1 - (share**2).sum() if criterion == "gini" else -sum(p * np.log2(p) for p in share if p), 0
    if criterion in naive.BY_ORDER:
        share = Fraction(alpha).limit_denominator(10_000) if alpha else Fraction(1, 2)
        quantile = quantile_of(y.tolist(), w.tolist(), share)
        above, below = (1.0, 1.0) if criterion == "absolute_error" else (float(share), float(1 - share))
        return quantile, np.average(np.where(y > quantile, above * (y - quantile), below * (quantile - y)), weights=w), 0
    mean = np.average(y, weights=w)
    if criterion == "poisson":
        return mean, np.average(xlogy(y, y / mean if mean else 1.0), weights=w), 1
    return mean, np.average((y - mean) ** 2, weights=w), 2


def quantile_of(targets: list[float], weights: list[int], alpha: Fraction) -> float:
    """The weighted quantile: the midpoint if it lies between two targets."""
    ordered = sorted(zip(targets, weights, strict=True))
    below = [0, *itertools.accumulate(w for _, w in ordered)]
    # All rows that qualify: at most its share of the weight before, at most the rest after.
    share = alpha * below[-1]
    middle = [y for (y, _), before, upto in zip(ordered, below[:-1], below[1:], strict=True) if before <= share <= upto]
    return middle[0] if middle[0] == middle[-1] else middle[0] / 2 + middle[-1] / 2


def assert_respects(tree: Tree, some: Rules) -> None:
    """Check that no leaf on the lower side of a split on a monotonic column passes one on the other side, and that paths are allowed."""
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


def assert_exact(tree: Tree, table: Table, sample: naive.Sample, plan: Any) -> int:
    """Compare the split of every node with a full scan of its rows; returns the number of splits."""
    a = np.array(sample.g)
    b = np.ones(a.shape[0], np.int64) if sample.h is None else np.array(sample.h)
    columns = [column.astype(np.float64) for column in table]
    root = np.array(sample.rows)
    sums = int(a[root].sum()), int(b[root].sum())
    limits = naive.limits_of(plan.rules, 0, sums, sample.exponents)._replace(chance=naive.chance_of(plan.rules, 0, sample, sums))
    some = plan.rules
    waiting: list[Any] = [(0, root, Constraints(some) if some.monotonic or some.interactions or some.most_columns else None)]
    n_splits = 0
    while waiting:
        node, rows, around = waiting.pop()
        own = limits._replace(constraints=around)
        answers = [naive.full_scan(x[rows], j, a[rows], b[rows], own) for j, x in enumerate(columns)]
        for j in some.categorical:
            answers[j] = naive.SPLIT, naive.best_of_column(columns[j].tolist(), j, rows.tolist(), sample.g, sample.h, own)
        best = max((split for _, split in answers if split is not None), key=lambda split: split.score, default=None)
        if tree.feature[node] < 0:
            pure = sample.pure_by is not None and len({sample.pure_by[row] for row in rows}) == 1
            small = len(rows) < 2 * limits.min_samples or b[rows].sum() < 2 * limits.min_weight
            stopped = some.max_leaf_nodes is not None or tree.node_depth[node] == some.max_depth
            assert best is None or stopped or pure or small
            continue
        n_splits += 1
        assert best is not None
        left = np.array([best.sends_left(value) for value in columns[best.column][rows].tolist()])
        assert (tree.feature[node], tree.missing_go_to_left[node]) == (best.column, best.missing_left)
        if best.categories is None:
            assert tree.threshold[node] == best.threshold
        else:
            assert set(tree.categories.of_node(node).tolist()) == best.categories
        assert tree.n_node_samples[tree.children_left[node]] == best.n_left == left.sum()
        for child, side, is_left in ((tree.children_left[node], left, True), (tree.children_right[node], ~left, False)):
            waiting.append((int(child), rows[side], around and naive.below(around, best, (a[rows], b[rows]), limits, is_left)))
    return n_splits


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
def plans(draw: st.DrawFn, criterion: str, n_classes: int, n_rows: int, n_columns: int, random: bool = True) -> ForestPlan:
    """Any rules, mostly the plain ones; thresholds are random only if allowed."""

    def rarely(value: Any, *others: Any) -> Any:
        return draw(st.sampled_from([value, value, *others]))

    return ForestPlan(
        rules(
            criterion,
            n_columns,
            max_features=draw(st.integers(1, n_columns)),
            columns_per_tree=rarely(n_columns, max(1, n_columns - 1)),
            random_splits=random and rarely(False, True),
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


@st.composite
def forests(
    draw: st.DrawFn, criterion: str, targets: tuple[int, ...], random: bool = True
) -> tuple[Table, NDArray[Any], NDArray[np.float64] | None, ForestPlan]:
    """A table, one or several targets (some may be equal) with these numbers of classes (1: numbers), weights, and a plan."""
    by_class = criterion_named(criterion).task == "classification"
    table, first, weight = draw(problems(targets[0] if by_class else 0))
    n, columns = first.shape[0], [first]
    for n_classes in targets[1:]:
        if by_class:
            columns.append(np.array(draw(st.lists(st.integers(0, n_classes - 1), min_size=n, max_size=n)), first.dtype))
        else:
            columns.append(draw(st.sampled_from([first, first[::-1].copy(), np.arange(n) % 3 * 0.5, np.zeros(n)])))
    target = np.asfortranarray(np.column_stack(columns)) if len(targets) > 1 else first
    if criterion == "poisson":
        target = np.abs(target)
        assume(np.all(target[slice(None) if weight is None else weight > 0].any(axis=0)))
    if len(targets) == 1:
        return table, target, weight, draw(plans(criterion, targets[0] if by_class else 0, n, len(table), random))
    plan = draw(plans(criterion, 0, n, len(table), random))
    class_weight = None
    if by_class and draw(st.booleans()):
        class_weight = tuple(tuple(float(k + 1) for k in range(n_classes)) for n_classes in targets)
    return (
        table,
        target,
        weight,
        dataclasses.replace(plan, targets=targets, n_classes=sum(targets) if by_class else 0, class_weight=class_weight),
    )


@st.composite
def with_categories(draw: st.DrawFn, table: Table, plan: Any) -> tuple[Table, Any]:
    """A table with some columns of categories before the others, and its plan."""
    n = table[0].shape[0]
    more = []
    for _ in range(draw(st.integers(1, 2))):
        numbers = draw(integers_of(n, 0, draw(st.sampled_from([1, 3, 40])))).astype(np.float32)
        more.append(np.where(draw(arrays(np.bool_, n)), np.float32(np.nan), numbers) if draw(st.booleans()) else numbers)
    some = dataclasses.replace(
        plan.rules,
        max_features=plan.rules.max_features + draw(st.integers(0, len(more))),
        columns_per_tree=plan.rules.columns_per_tree + len(more),
        categorical=tuple(range(len(more))),
        cat_smooth=draw(st.sampled_from([0.0, 0.7, 5.0])),
        min_samples_category=tuple(draw(st.sampled_from([1, 2, 5])) for _ in more),
        max_cat_threshold=tuple(draw(st.sampled_from([99, 1, 3])) for _ in more),
        chance=0.0 if plan.rules.random_splits else draw(st.sampled_from([0.0, 0.3, 1.0])),
    )
    return [*more, *table], dataclasses.replace(plan, rules=some)


@st.composite
def constraints(draw: st.DrawFn, n_columns: int, monotonic: bool = True) -> dict[str, Any]:
    """Constraints on the columns of a table, in the form of rules."""
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
