"""One result: threads, shards of columns and shards of rows find the same as one thread, to the last byte."""

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dtrees.engine.plan import node_limits
from dtrees.engine.plan.plans import Dropout
from dtrees.engine.rows import quantiles, zone_edges
from dtrees.engine.shard import node_search, row_division, runner
from dtrees.engine.shard import tree as tree_program
from dtrees.engine.shard import tree_state as one_tree
from dtrees.engine.shard import zone_sums as sums
from dtrees.engine.shard.targets import boosting_target as boosting_rows
from dtrees.engine.shard.targets import scales
from dtrees.ensemble.metrics import OfLoss
from dtrees.ensemble.objective.survival import Cox
from dtrees.split import policy
from dtrees.split.table.mmap_arrays import is_on_disk, on_disk
from tests.engine.local_rows import LocalRowsExecutor
from tests.engine.problems import (
    COLUMNS,
    KINDS,
    Case,
    Problem,
    assert_same,
    boosting,
    category_rules,
    cut_finely,
    forest,
    read_little_at_a_time,
    send_rows,
    spread,
    trees_of,
    with_categories,
)
from tests.engine.shards import wild_table, wild_weight
from tests.examples import THOROUGH, examples
from tests.slow import one_of_each

PATHS = {"interactions": ((0, 1, 2), (2, 3, 4, 5, 6)), "most_columns": 2}
IN_ORDER = (1, 0, -1, 0, 0, 1, 0)
DRAWN: dict[str, Any] = {"n_draws": 700, "out_of_bag": True}
BY_GRADIENT: dict[str, Any] = {"subsample": 0.3, "subsample_by": "gradient"}

FORESTS = {
    "tree": forest(),
    "weighted tree": forest(weighted=True, min_weight_fraction_leaf=0.02),
    "forest": forest(max_features=3, **DRAWN),
    "weighted forest, best first": forest(weighted=True, max_leaf_nodes=20, n_draws=300, out_of_bag=True),
    "shallow, of columns drawn for trees": forest(max_depth=3, columns_per_tree=5, max_features=2, n_draws=700),
    "one column a node": forest(max_features=1, n_draws=700),
    "one column a node, best first": forest(max_features=1, max_leaf_nodes=40, **DRAWN),
    "stopped": forest(weighted=True, max_depth=6, min_samples_split=12, min_impurity_decrease=1e-3, **DRAWN),
    "little gain": forest(weighted=True, min_impurity_decrease=0.01, min_samples_split=9),
    "pruned": forest(weighted=True, ccp_alpha=0.02, min_samples_leaf=3, **DRAWN),
    "in order": forest(monotonic=IN_ORDER, n_draws=500, out_of_bag=True),
    "few columns a path": forest(**PATHS, n_draws=500),
    "Poisson": forest("poisson", max_features=4, **DRAWN),
    "weighted, of Poisson": forest("poisson", weighted=True),
    "many rows": forest(n_rows=12_000, min_samples_leaf=5, n_draws=12_000, out_of_bag=True),
}
CLASSES = {
    "tree of classes": forest("gini", 2),
    "weighted tree of classes": forest("gini", 2, weighted=True, max_features=2, class_weight=(0.3, 2.0)),
    "forest of classes": forest("gini", 2, max_features=2, **DRAWN),
    "balanced": forest("gini", 2, max_features=3, balanced_draws=True, **DRAWN),
    "weighted, balanced, pruned": forest("gini", 2, weighted=True, ccp_alpha=0.01, balanced_draws=True, **DRAWN),
    "balanced by tree": forest("gini", 2, max_features=3, balanced_subsample=True, **DRAWN),
    "tree of three classes": forest("gini", 3),
    "forest of three classes": forest("gini", 3, max_features=2, **DRAWN),
    "three classes, few columns a path": forest("gini", 3, **PATHS, min_samples_leaf=3, n_draws=500),
    "three classes, balanced by tree": forest(
        "gini", 3, weighted=True, max_features=3, n_draws=512, balanced_subsample=True, out_of_bag=True
    ),
    "entropy": forest("entropy", 2, weighted=True, max_features=3, n_draws=900, class_weight=(0.3, 2.0)),
    "weighted tree by entropy": forest("entropy", 2, weighted=True),
    "entropy, balanced by tree": forest(
        "entropy", 2, weighted=True, min_weight_fraction_leaf=0.02, ccp_alpha=0.01, n_draws=512, balanced_subsample=True, out_of_bag=True
    ),
    "weighted tree by entropy of three": forest("entropy", 3, weighted=True, min_weight_fraction_leaf=0.02, max_features=4),
    "entropy of four, best first": forest(
        "entropy", 4, weighted=True, max_leaf_nodes=20, ccp_alpha=0.005, class_weight=(0.3, 2.0, 1.0, 1.0), n_draws=600, out_of_bag=True
    ),
    "entropy of three, balanced": forest("entropy", 3, weighted=True, balanced_draws=True, **DRAWN),
    "classes of many rows": forest("gini", 2, n_rows=12_000, min_samples_leaf=5, n_draws=12_000, out_of_bag=True),
    "three classes of many rows": forest("gini", 3, n_rows=12_000, max_features=1, min_samples_leaf=300, n_draws=12_000, out_of_bag=True),
}
#: Criteria that need whole columns on shards.
BY_ORDER = {
    "medians": forest("absolute_error"),
    "medians of few rows": forest("absolute_error", max_depth=5, **DRAWN),
    "medians, best first": forest("absolute_error", weighted=True, max_leaf_nodes=20),
    "medians of few columns": forest("absolute_error", max_features=2, min_samples_leaf=10),
    "medians, stopped": forest("absolute_error", weighted=True, min_weight_fraction_leaf=0.02, min_impurity_decrease=1e-3),
    "medians at random": forest("absolute_error", random_splits=True, n_draws=350, out_of_bag=True),
    "quantiles": forest("quantile", max_features=3, **DRAWN),
    "quantiles, best first": forest("quantile", weighted=True, max_leaf_nodes=17),
    "medians of two targets": forest("absolute_error", 1, 1, max_depth=5),
}
SEVERAL = {
    "targets": forest("squared_error", 1, 1, 1),
    "targets, weighted": forest("squared_error", 1, 1, weighted=True, min_weight_fraction_leaf=0.02),
    "forest of targets": forest("squared_error", 1, 1, 1, max_features=3, **DRAWN),
    "targets, best first": forest("squared_error", 1, 1, 1, weighted=True, max_leaf_nodes=20, n_draws=300, out_of_bag=True),
    "targets, few columns a path": forest("squared_error", 1, 1, **PATHS, ccp_alpha=0.02, min_samples_leaf=3, n_draws=500),
    "Poisson of targets": forest("poisson", 1, 1, max_features=4, **DRAWN),
    "weighted, of Poisson of targets": forest("poisson", 1, 1, weighted=True),
    "targets of classes": forest("gini", 2, 3),
    "targets by entropy": forest("entropy", 2, 3, 1, weighted=True, max_features=4),
    "targets of weighted classes": forest(
        "gini", 3, 1, 4, weighted=True, max_features=3, class_weight=((1.0, 0.3, 2.0), (1.0,), (1.0, 1.0, 3.0, 0.5)), **DRAWN
    ),
    "targets of classes, best first": forest("gini", 2, 2, max_leaf_nodes=20, ccp_alpha=0.005, **DRAWN),
    "targets balanced by tree": forest("gini", 2, 3, weighted=True, max_features=3, n_draws=512, balanced_subsample=True, out_of_bag=True),
    "targets by entropy, balanced by tree": forest("entropy", 2, 3, balanced_subsample=True, n_draws=700),
    "targets of many rows": forest("squared_error", 1, 1, 1, weighted=True, max_features=4, n_rows=6000),
    "targets of classes of many rows": forest("gini", 3, 2, 3, max_features=4, n_rows=6000),
}
SOME = ("some", "with gaps", "nearly all distinct")
NEITHER_SMOOTH_NOR_RARE = {"cat_smooth": 0.0, "min_samples_category": (1, 1, 1), "max_cat_threshold": (5000, 2, 1)}
SETS = {
    "sets": forest(categories=SOME),
    "sets for two classes": forest("gini", 2, categories=SOME, weighted=True, max_features=2, min_samples_category=(1, 2, 9), chance=1.5),
    "sets for three classes": forest("gini", 3, categories=SOME, max_leaf_nodes=20, chance=1.5),
    "sets for five classes": forest("gini", 5, categories=SOME, **NEITHER_SMOOTH_NOR_RARE, **DRAWN),
    "sets by entropy": forest("entropy", 3, categories=SOME, weighted=True, max_features=2, min_samples_leaf=3, chance=1.5),
    "sets by entropy, few columns a path": forest(
        "entropy", 3, categories=SOME, weighted=True, interactions=((0, 3), (1, 2, 4)), n_draws=700, balanced_subsample=True
    ),
    "sets for targets": forest("squared_error", 1, 1, 1, categories=SOME),
    "sets for targets, best first": forest(
        "squared_error", 1, 1, 1, categories=SOME, weighted=True, max_leaf_nodes=20, n_draws=300, out_of_bag=True
    ),
    "sets for targets of classes": forest("gini", 2, 3, categories=SOME),
    "sets for targets of weighted classes": forest(
        "gini", 3, 1, 4, categories=SOME, weighted=True, class_weight=((1.0, 0.3, 2.0), (1.0,), (1.0, 1.0, 3.0, 0.5))
    ),
}
BOOSTING = {
    "boosting": boosting(),
    "boosting of many rows": boosting(n_rows=9000),
    "levels of large nodes": boosting(n_rows=40_000, n_rounds=2, max_depth=7),
    "two classes, levels of large nodes": boosting("log loss", n_rows=40_000, n_rounds=2, max_depth=7),
    "boosting, weighted": boosting(weighted=True, min_child_weight=2.0, split_shrinkage=1.0),
    "two classes": boosting("log loss", min_samples_leaf=3, class_weight=(0.3, 2.0), split_shrinkage=3.0),
    "three classes": boosting("log loss of three", weighted=True),
    "deep": boosting(max_depth=None, reg_lambda=0.0, min_samples_leaf=5),
    "columns drawn": boosting("log loss", max_features=3, columns_per_tree=3),
    "one column a node": boosting("log loss", weighted=True, max_features=1, subsample=0.5),
    "best first": boosting(weighted=True, max_depth=None, max_leaf_nodes=9),
    "held out": boosting("log loss", weighted=True, n_iter_no_change=50, validation_fraction=0.25),
    "rows and columns drawn": boosting("log loss of three", max_features=2, columns_per_tree=5, subsample=0.6),
    "one column a level": boosting("log loss", weighted=True, max_features=1, by_level=True, subsample=0.5),
    "drawn and held out": boosting("log loss of three", weighted=True, n_iter_no_change=50, subsample=0.8, split_shrinkage=3.0),
    "parallel trees": boosting(max_features=3, subsample=0.6, n_parallel_trees=3),
    "parallel trees of three classes": boosting("log loss of three", weighted=True, max_features=2, n_iter_no_change=9, n_parallel_trees=2),
    "drawn by gradients": boosting(max_depth=4, min_samples_leaf=2, split_shrinkage=1.0, **BY_GRADIENT),
    "three classes, drawn by gradients": boosting("log loss of three", weighted=True, n_iter_no_change=50, max_features=2, **BY_GRADIENT),
    "parallel trees, drawn by gradients": boosting("log loss", weighted=True, n_parallel_trees=2, **BY_GRADIENT),
    "monotonic": boosting(monotonic=IN_ORDER, max_depth=5, split_shrinkage=0.5),
    "interactions": boosting(interactions=PATHS["interactions"]),
    "boosting, pruned": boosting(ccp_alpha=0.01),
    "dropout": boosting(n_rounds=6, dropout=Dropout(0.5)),
    "dropout of three classes": boosting(
        "log loss of three", n_rounds=5, weighted=True, subsample=0.6, n_iter_no_change=50, dropout=Dropout(0.7, 0.2, "forest")
    ),
    "dropout of parallel trees": boosting("targets", n_rounds=4, max_features=3, n_parallel_trees=2, dropout=Dropout(0.6, 0.2)),
}
BOOSTED_SETS = {
    "boosted sets": boosting(categories=SOME),
    "boosted sets, weighted": boosting(categories=SOME, weighted=True, chance=0.2),
    "boosted sets of two classes": boosting("log loss", categories=SOME, weighted=True, chance=0.2),
    "boosted sets, neither smooth nor rare": boosting(categories=SOME, **NEITHER_SMOOTH_NOR_RARE),
    "boosted sets, monotonic": boosting(categories=SOME, monotonic=(0, 0, 0, 1, -1), max_depth=5, chance=0.5),
    "boosted sets, interactions": boosting(categories=SOME, interactions=((0, 3), (1, 2, 4))),
    "boosted sets, columns drawn": boosting(categories=SOME, max_features=1, columns_per_tree=4),
    "boosted sets, best first": boosting(categories=SOME, max_depth=None, max_leaf_nodes=9, chance=0.5, split_shrinkage=1.0),
    "boosted sets, pruned": boosting(categories=SOME, ccp_alpha=0.02, max_depth=None),
}
#: Losses whose leaves are measured, and Newton steps of plain gradients.
MEASURED = {
    f"leaves by {loss}{name}": boosting(loss, **changes)
    for loss in ("median", "quantile", "quantiles", "Huber", "targets", "steps", "steps of two classes")
    for name, changes in {
        "": {},
        ", drawn": {"weighted": True, "monotonic": IN_ORDER, "subsample": 0.6, "split_shrinkage": 1.0},
        ", parallel": {"weighted": True, "max_features": 3, "subsample": 0.6, "n_parallel_trees": 2},
        ", held out": {"weighted": True, "max_leaf_nodes": 9, "max_depth": None, "ccp_alpha": 1e-4, "n_iter_no_change": 9},
    }.items()
}
LOSSES_AS_THEY_ARE = {
    loss: boosting(loss, weighted=True, subsample=0.7, n_iter_no_change=9) for loss in ("exponential", "Poisson", "gamma", "tweedie")
}
LOSSES_AS_THEY_ARE |= {loss: boosting(loss, weighted=True, subsample=0.7) for loss in ("objective", "objective of three", "LambdaRank")}
LOSSES_AS_THEY_ARE["LambdaRank, parallel"] = boosting("LambdaRank", subsample=0.7, n_parallel_trees=2)
LOSSES_AS_THEY_ARE |= {f"{loss}, drawn by gradients": boosting(loss, weighted=True, **BY_GRADIENT) for loss in ("steps", "LambdaRank")}
LOSSES_AS_THEY_ARE["AFT"] = boosting("AFT", weighted=True, subsample=0.7, n_iter_no_change=9)
LOSSES_AS_THEY_ARE["Cox"] = boosting("Cox", weighted=True, n_iter_no_change=9, scoring=OfLoss("concordance", Cox()))
AT_RANDOM = {f"{name}, at random": case.but(random_splits=True, chance=0.0) for name, case in (FORESTS | CLASSES | SEVERAL | SETS).items()}
CASES: dict[str, Case] = FORESTS | CLASSES | BY_ORDER | SEVERAL | SETS | {f"boosting: {name}": case for name, case in BOOSTING.items()}
CASES |= BOOSTED_SETS | MEASURED | {f"by {name}": case for name, case in LOSSES_AS_THEY_ARE.items()} | AT_RANDOM


@cache
def grown(name: str) -> tuple[Problem, Any]:
    """Return a case, and the result of one thread."""
    problem = CASES[name].problem()
    one = problem.grow(3)
    assert max(tree.node_count for tree in trees_of(one)) > 3
    if CASES[name].categories:
        assert any(tree.categories.node.shape[0] for tree in trees_of(one))
    return problem, one


#: Cases whose search kernels quick tests have.
QUICK = [
    name for name, case in (FORESTS | CLASSES).items() if case.of in ("squared_error", "gini") and not PATHS.keys() & case.changes.keys()
]
QUICK = [name for name in QUICK if name != "in order"] + ["weighted tree, at random", "one column a node, at random"]
QUICK += [*(f"boosting: {name}" for name in BOOSTING), *(f"by {loss}" for loss in LOSSES_AS_THEY_ARE)]
#: Cases whose properties are in other cases: each loss remains with two kinds of plan or more, each kind with three losses or more.
COMBINED = {
    f"leaves by {name}"
    for name in (
        "quantile, drawn", "quantile, held out", "quantiles", "quantiles, parallel", "Huber, drawn", "Huber, parallel", "targets",
        "targets, held out", "steps, drawn", "steps, parallel", "steps of two classes", "steps of two classes, parallel",
    )
}  # fmt: skip
#: Kernels of their own, which differ from others in the criterion alone.
COMBINED |= {"sets by entropy", "sets by entropy, few columns a path"}
SLOW = [*BY_ORDER, *SETS, *BOOSTED_SETS, *MEASURED, "targets", "targets of weighted classes", "targets of classes, best first", "in order"]
SLOW += ["Poisson", "entropy", "few columns a path", "tree of three classes, at random", "sets, at random"]
SLOW += ["targets of many rows", "targets of classes of many rows"]
SLOW = [name for name in SLOW if name not in COMBINED]
ON_COLUMNS = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
ON_COLUMNS += [pytest.param(name, marks=pytest.mark.thorough) for name in CASES if name not in [*QUICK, *SLOW]]
SPREADS = [[(0, 2, 4), (1, 3, 5, 6)], [(6,), (1, 4), (0, 2, 3, 5)]]


def columns_of(problem: Problem, spread: Any) -> list[Any]:
    """Return the columns of each shard, for a table that may have fewer."""
    kept = [[j for j in mine if j < len(problem.table)] for mine in spread]
    return [mine for mine in kept if mine]


@pytest.mark.timeout(600)  # the first tests compile
@pytest.mark.parametrize("name", ON_COLUMNS)
def test_threads_and_shards_of_columns(name: str) -> None:
    problem, one = grown(name)
    assert_same(one, problem.grow(3, n_threads=4))
    for which, n_threads, side_by_side in ((0, 1, 1), (0, 2, 5), (1, 3, 2)):
        executor = problem.columns(columns_of(problem, SPREADS[which]), n_threads)
        assert_same(one, problem.grow_on(executor, 3, side_by_side))
    if not CASES[name].is_boosting:
        assert_same(problem.grow(1), problem.grow(1, n_threads=4))
        assert_same(one, problem.grow_on(problem.columns([range(len(problem.table))]), 3, 99))


@pytest.mark.parametrize(
    "name",
    [
        "boosting, weighted",
        "two classes",
        "deep",
        "one column a node",
        "best first",
        "rows and columns drawn",
        "drawn and held out",
        "three classes, drawn by gradients",
        "monotonic",
    ],
)
def test_boosting_as_of_large_tables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By zone sums, large nodes by all threads; then with no spare slots; then by levels, like a very wide table, and on shards."""
    problem, one = grown(f"boosting: {name}")
    monkeypatch.setattr(node_limits, "WHOLE_BLOCK_CELLS", 0)
    for module, constant in (
        (node_limits, "BOUNDED_ROWS"), (node_search, "GROW_CELLS_BY_SUMS"), (one_tree, "THREAD_ROWS"), (row_division, "THREAD_ROWS"),
        (one_tree, "GROW_CELLS"), (one_tree, "GROW_CELLS_BY_SUMS"), (runner, "SHARE_ROWS"), (scales, "GATHERED_ROWS"),
        (boosting_rows, "ADDITION_ROWS"), (boosting_rows, "LOGARITHM_ROWS"),
    ):  # fmt: skip
        monkeypatch.setattr(module, constant, 1)
    for n_threads in (1, 3):
        assert_same(one, problem.grow(n_threads=n_threads))
    for sum_slots in (1, 2):
        monkeypatch.setattr(sums, "SLOTS_PER_THREAD", sum_slots)
        monkeypatch.setattr(sums, "FINE_SLOTS_PER_THREAD", sum_slots)
        assert_same(one, problem.grow(n_threads=3))
    monkeypatch.setattr(policy, "LIST_ROWS", 0)
    assert_same(one, problem.grow(n_threads=3))
    monkeypatch.setattr(tree_program, "subtree_rows", lambda *about: 50)
    assert_same(one, problem.grow(n_threads=130))  # more threads than chunks of work
    monkeypatch.setattr(sums, "SLOTS_MIN_BYTES", 0)
    monkeypatch.setattr(sums, "SLOTS_BYTES_PER_ROW", 0)
    for n_threads, cells in (1, 1), (3, 1), (3, 500):
        monkeypatch.setattr(node_search, "GROW_CELLS_BY_SUMS", cells)  # small levels are searched by fewer threads
        assert_same(one, problem.grow_on(problem.columns(columns_of(problem, SPREADS[0]), n_threads)))


#: Cases that do nothing on shards of rows that other cases do not do. (Random thresholds are drawn between the ends of a node's values,
#: whatever limits nodes and however rows are drawn.)
RARE = {
    "entropy", "weighted tree by entropy", "entropy, balanced by tree", "targets, few columns a path", "Poisson of targets",
    "weighted, of Poisson of targets", "targets by entropy", "targets by entropy, balanced by tree", "three classes, few columns a path",
    "sets for targets, best first", "sets for targets of weighted classes", *COMBINED, *AT_RANDOM,
}  # fmt: skip
RARE -= {
    f"{name}, at random"
    for name in (
        "tree", "forest", "weighted forest, best first", "one column a node", "tree of classes", "weighted, balanced, pruned",
        "forest of three classes", "sets",
    )
}  # fmt: skip
ON_ROWS = [
    pytest.param(name, marks=pytest.mark.thorough) if name in RARE else name
    for name, case in CASES.items()
    if name not in BY_ORDER and case.n_rows < 10_000
]


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first tests compile
@pytest.mark.parametrize(("name", "sent_rows"), one_of_each(ON_ROWS, [0, 30, 10_000], others=pytest.mark.thorough))
def test_shards_of_rows(name: str, sent_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some shards have one row or none; rows of no nodes, of some or of all are sent to one shard."""
    check_on_rows(name, sent_rows, monkeypatch, ((1, [], 2), (2, [233], 1), (5, [1, 2, 350, -1], 1)))


@pytest.mark.parametrize("name", ["forest", "forest, at random", "boosting: rows and columns drawn"])
def test_quickly_on_shards_of_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_on_rows(name, 40, monkeypatch, [(3, [20, 350], 1)])


def check_on_rows(name: str, sent_rows: int, patch: pytest.MonkeyPatch, layouts: Any) -> None:
    send_rows(patch, sent_rows)
    if sent_rows:
        cut_finely(patch, listed=sent_rows == 30)
        patch.setattr(zone_edges, "_LISTED_AT_ENDS", 2)  # and looked up in nodes of 256 rows
        patch.setattr(quantiles, "SENT_VALUES", 1 << 16 if sent_rows == 30 else 20)
    else:
        patch.setattr(quantiles, "SENT_VALUES", 0)
    problem, one = grown(name)
    for n_shards, cuts, n_threads in layouts:
        executor = problem.rows(spread(problem.n_rows, n_shards, [cut % problem.n_rows for cut in cuts]), n_threads)
        assert_same(one, problem.grow_on(executor, 3, side_by_side=n_shards))


#: How shards of rows read their cells depends on what is summed and which rows are drawn.
ON_DISK = [
    f"boosting: {name}"
    for name in ("boosting", "three classes", "one column a node", "best first", "drawn by gradients", "dropout", "monotonic")
]


@pytest.mark.parametrize(
    ("name", "keyed", "sent_rows"),
    [
        pytest.param("boosting: rows and columns drawn", True, 60),
        *(pytest.param("forest, at random", keyed, 30, marks=pytest.mark.slow) for keyed in (True, False)),
        *(
            pytest.param(*one.values, marks=one.marks or pytest.mark.slow)
            for one in one_of_each(ON_DISK, [(True, 60), (False, 60), (False, 0), (True, 0)], others=pytest.mark.thorough)
        ),
    ],
)
def test_cells_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, keyed: bool, sent_rows: int) -> None:
    send_rows(monkeypatch, sent_rows)
    if sent_rows:
        read_little_at_a_time(monkeypatch)
        cut_finely(monkeypatch)
    problem = CASES[name].problem(700)
    if keyed:
        problem = Problem([column.astype(np.float32) for column in problem.table], problem.target, problem.weight, problem.plan)
    cuts = spread(problem.n_rows, 3, [100, 101, 400], [0, 1, 2, 0])
    executor = problem.rows(cuts, 2, LocalRowsExecutor, allocate=partial(on_disk, str(tmp_path)))
    found = problem.grow_on(executor)
    for shard in executor.shards:
        assert is_on_disk(shard._columns.codes)
        assert shard._columns.is_keyed == keyed
    assert_same(problem.grow(), found)


ANY = {
    "boosting": [boosting(), boosting("log loss")],
    "boosting by order": [
        boosting(loss) for loss in ("median", "quantile", "quantiles", "Huber", "targets", "steps", "steps of two classes")
    ],
    "boosted sets": [boosting(), boosting("log loss")],
    "forests": [forest(), forest("gini", 2), forest("gini", 3), forest("entropy", 4)],
    "forests of targets": [forest("squared_error", 1, 1), forest("squared_error", 1, 1, 1), forest("gini", 2, 3)],
}


@st.composite
def problems(draw: st.DrawFn, kind: str) -> Problem:
    """A case of the kind on a table of one or many rows, with any columns and any kind of target."""

    def one_of(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    n, seed = one_of(1, 2, 3, 10, 60, 400, 1500), draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    case = one_of(*ANY[kind])
    base = wild_table(n, seed)
    changes: dict[str, Any] = {"max_depth": one_of(None, None, 2, 6), "min_samples_leaf": one_of(1, 4)}
    if kind == "boosted sets":
        kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
        table, base[0] = with_categories(kinds, n, seed)
        changes |= category_rules(len(kinds)) | {
            "cat_smooth": one_of(0.0, 10.0),
            "min_samples_category": (one_of(1, 2, 20),) * len(kinds),
            "chance": one_of(0.0, 0.2, 1.0),
            "max_cat_threshold": (one_of(1, 4, 10_000),) * len(kinds),
        }
    else:
        table = [make_column(rng, n) for make_column in draw(st.lists(st.sampled_from([*COLUMNS.values()]), min_size=1, max_size=5))]
        base[0] = np.nan_to_num(table[0].astype(float)) * 2 + one_of(0.0, 1.0, 1e6) * rng.normal(size=n)
    changes |= {"max_features": one_of(1, len(table), len(table)), "max_leaf_nodes": one_of(None, None, 6)}
    if case.is_boosting:
        changes |= {"reg_lambda": one_of(0.0, 1.0), "subsample": one_of(1.0, 1.0, 0.5), "split_shrinkage": one_of(0.0, 0.0, 2.0)}
        changes |= one_of({}, BY_GRADIENT)
    else:
        n_draws = one_of(None, 1, max(1, n // 2), n, 3 * n)
        changes |= {"n_draws": n_draws, "out_of_bag": n_draws is not None, "random_splits": draw(st.booleans())}
        changes |= {"ccp_alpha": one_of(0.0, 0.0, 0.01), "min_weight_fraction_leaf": one_of(0.0, 0.1)}
        if case.of != "squared_error" and n_draws is not None and len(case.targets) == 1:
            changes |= one_of({}, {"balanced_draws": True}, {"balanced_subsample": True})
        if case.of == "entropy" and not THOROUGH:  # few kernels
            changes["random_splits"] = False
    weight = wild_weight(n, seed) if draw(st.booleans()) else None
    if weight is not None:
        weight[0] = 1.0
    problem = case.on(table, base, weight, seed, **changes)
    if case.of in ("squared_error", "squared") and len(case.targets) < 2:
        y = problem.target
        y = one_of(y, np.round(y), np.full(n, 0.1), np.where(rng.random(n) < 0.95, -0.0, y), y * 1e-3 + 1e12)
        problem = Problem(table, y, weight, problem.plan)
    # Losses of positive predictions refuse a target that is zero for all rows with weight.
    of_positive = case.is_boosting and case.of.lower() in ("poisson", "steps", "tweedie", "gamma")
    assume(not of_positive or np.any(problem.target if weight is None else problem.target[weight > 0]))
    return problem


@pytest.mark.slow
@pytest.mark.parametrize("kind", ANY)
@examples(100)
@given(data=st.data())
def test_any_table_on_any_shards_of_rows(kind: str, data: st.DataObject) -> None:
    problem = data.draw(problems(kind))
    bounds = data.draw(st.lists(st.integers(0, problem.n_rows), max_size=7))
    owners = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    cuts = spread(problem.n_rows, data.draw(st.integers(1, 5)), bounds, owners)
    with pytest.MonkeyPatch.context() as patch:
        send_rows(patch, data.draw(st.sampled_from([0, 8, 100])))
        patch.setattr(quantiles, "SENT_VALUES", data.draw(st.sampled_from([0, 10, 1000])))
        rows, fewest, batch_bytes = (data.draw(st.sampled_from(some)) for some in ([1, 2, 16], [1, 2], [1, 100, 2000, 2**30]))
        cut_finely(patch, rows, fewest, data.draw(st.booleans()), batch_bytes)
        assert_same(problem.grow(), problem.grow_on(problem.rows(cuts)))
