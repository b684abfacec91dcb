"""``monotonic_cst`` and ``interaction_cst`` of all estimators: ordered predictions, scikit-learn's trees, errors, saved models."""

import math

import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import mean_squared_error

import dtrees
from dtrees.engine.plan import node_limits
from tests.ensemble.samples import BOOSTING, FORESTS, KINDS, LABELS, N, X, every_kind, is_classifier, make, sklearns, target, trees
from tests.examples import examples
from tests.slow import slow_for, thorough_for

BINARY = np.array(["no", "yes"])
SINGLE = KINDS[:4]
#: With constraints, all criteria except boosting's have kernels of their own, for slow tests.
QUICK = BOOSTING
some_kinds = pytest.mark.parametrize("kind", slow_for(set(KINDS) - set(QUICK), KINDS), ids=lambda kind: kind.__name__)


def quick_target(kind):
    """Two classes for trees, which have the kernels of numbers; more classes have others, for slow tests."""
    return LABELS == "low" if is_classifier(kind) and kind not in BOOSTING else target(kind)


def data(seed, n=400, n_columns=4, missing=0.0, digits=1):
    """A table with ties, and a target that increases and decreases with every column."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n, n_columns)).round(digits)
    y = np.sin(3 * table[:, 0]) + table[:, 0] - table[:, 1] + np.cos(4 * table[:, 1]) + rng.normal(size=n) / 2
    table[rng.random(table.shape) < missing] = np.nan
    return table, y


def raw(model, table):
    """Return the predictions that constraints apply to."""
    if not is_classifier(type(model)):
        return model.predict(table)
    return model.decision_function(table) if hasattr(model, "decision_function") else model.predict_proba(table)[:, 1]


def lowest_steps(model, column, n_columns, seed, missing):
    """Return the least step of predictions along a column, on a dense grid, for any values of the others; and the largest."""
    rng = np.random.default_rng(seed)
    grid = np.sort(np.concatenate([np.linspace(-4, 4, 161), rng.normal(size=40)]))
    others = rng.normal(size=(8, n_columns))
    others[rng.random(others.shape) < missing] = np.nan
    rows = np.repeat(others, grid.shape[0], axis=0)
    rows[:, column] = np.tile(grid, 8)
    steps = np.diff(raw(model, rows).reshape(8, -1), axis=1)
    return steps.min(), steps.max()


@st.composite
def tables(draw):
    """A table with ties, missing values, a constant column and a nearly constant one, its target, and weights, including 0."""
    n, seed = draw(st.sampled_from([200, 700])), draw(st.integers(0, 2**32 - 1))
    table, y = data(seed, n, 6, draw(st.sampled_from([0.0, 0.1])), draw(st.sampled_from([0, 1, 8])))
    table[:, 4], table[:, 5] = 3.0, table[:, 5] > 2.0
    rng = np.random.default_rng(seed)
    y = y * draw(st.sampled_from([1.0, 1000.0])) + draw(st.sampled_from([0.0, -50.0]))
    return table, y, rng.integers(0, 4, n) * 1.0 if draw(st.booleans()) else None


#: Estimators, each with kernels of its own.
BY_ZONES = {
    "boosting": (dtrees.GradientBoostingRegressor, {"n_estimators": 5}),
    "boosting of classes": (dtrees.GradientBoostingClassifier, {"n_estimators": 5}),
    "boosting, L1": (dtrees.GradientBoostingRegressor, {"n_estimators": 5, "reg_alpha": 20.0}),
    "forest": (dtrees.RandomForestRegressor, {"n_estimators": 3}),
    "tree by Poisson deviance": (dtrees.DecisionTreeRegressor, {"criterion": "poisson"}),
    "tree of two classes": (dtrees.DecisionTreeClassifier, {}),
}


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:no tree found a split")
@pytest.mark.parametrize(
    "name", slow_for({*BY_ZONES} - {"boosting", "boosting of classes"}, BY_ZONES, thorough={"tree by Poisson deviance"})
)
@given(
    tables(),
    st.lists(st.sampled_from([-1, 0, 1]), min_size=6, max_size=6).filter(any),
    st.fixed_dictionaries(
        {},
        optional={
            "max_depth": st.sampled_from([2, 5]),
            "max_leaf_nodes": st.sampled_from([4, 31]),
            "min_samples_leaf": st.sampled_from([1, 9]),
            "interaction_cst": st.just([(0, 1, 4), (1, 2, 3, 5)]),
            "n_jobs": st.just(2),
        },
    ),
    st.sampled_from([0.0, 1.0, 300.0]),
)
@examples(100)
def test_zones_are_as_good_as_full_scans(name, drawn, signs, given_options, penalty):
    table, y, weight = drawn
    kind, options = BY_ZONES[name]
    options = options | given_options | ({"reg_lambda": penalty} if kind in BOOSTING else {})
    if is_classifier(kind):
        y = y > np.median(y)
    elif "criterion" in options:
        y = np.maximum(y - np.median(y), 0.0)
    if "n_estimators" not in options:
        options.pop("n_jobs", None)
    found = []
    for by_zones in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            for constant in ("WHOLE_BLOCK_CELLS", "BOUNDED_ROWS", "BLOCK_ROWS") if by_zones else ():
                patch.setattr(node_limits, constant, 1)
            model = kind(monotonic_cst=signs, random_state=0, **options).fit(table, y, sample_weight=weight)
        found.append(raw(model, table))
    assert_array_equal(*found)


def settings(seed, quick):
    """An estimator with constraints; if ``quick``, one with few kernels."""
    rng = np.random.default_rng(seed)
    kind = QUICK[seed % len(QUICK)] if quick else KINDS[seed % 10]
    n_columns = int(rng.integers(2, 6))
    signs = rng.choice([-1, 0, 1], n_columns)
    signs[rng.integers(n_columns)] = rng.choice([-1, 1])
    some = {
        "monotonic_cst": signs.tolist(),
        "interaction_cst": [None, None, "pairwise", "no_interactions", [(0, 1)]][rng.integers(5)],
        "max_depth": [None, 3, 6][rng.integers(3)],
        "min_samples_leaf": int(rng.choice([1, 1, 5])),
        "max_leaf_nodes": [None, None, 12][rng.integers(3)],
        "max_features": [None, 1, 0.6][rng.integers(3)],
        "random_state": seed,
    }
    if kind in FORESTS + BOOSTING:
        some |= {"n_estimators": 4, "n_jobs": int(rng.choice([1, 3]))}
    if kind in BOOSTING:
        some |= {"learning_rate": float(rng.choice([0.1, 0.7])), "reg_lambda": float(rng.choice([0.0, 1.0, 5.0]))}
        losses = ["log_loss", "exponential"] if is_classifier(kind) else ["squared_error", "absolute_error", "quantile", "huber", "poisson"]
        some["loss"] = str(rng.choice(losses))
    elif not is_classifier(kind) and "Extra" not in kind.__name__:
        some["criterion"] = "squared_error" if quick else str(rng.choice(["squared_error", "absolute_error", "quantile"]))
    return kind(**some), n_columns, float(rng.choice([0.0, 0.2])), bool(rng.integers(2))


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(20, 200, 20))])
def test_predictions_are_in_order(first):
    for seed in range(first, first + 20):
        model, n_columns, missing, weighted = settings(seed, quick=first == 0)
        table, y = data(seed, n_columns=n_columns, missing=missing, digits=int(seed % 3) + 1)
        y = BINARY[(y > 0).astype(int)] if is_classifier(type(model)) else np.abs(y) if getattr(model, "loss", "") == "poisson" else y
        weight = np.random.default_rng(seed).integers(0, 4, len(y)) / 2 if weighted else None
        model.fit(table, y, weight)
        for column, sign in enumerate(model.monotonic_cst):
            least, most = lowest_steps(model, column, n_columns, seed, missing)
            assert sign <= 0 or least >= 0.0, (seed, model, column)
            assert sign >= 0 or most <= 0.0, (seed, model, column)


def test_without_constraints_predictions_are_not_in_order():
    """The previous test would detect it."""
    table, y = data(0)
    for kind in (dtrees.DecisionTreeRegressor, dtrees.RandomForestRegressor, dtrees.GradientBoostingRegressor):
        assert lowest_steps(make(kind, max_features=None).fit(table, y), 0, 4, 0, 0.0)[0] < 0.0


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("parameters", [{"max_depth": 4, "min_samples_leaf": 10}, {"min_samples_leaf": 20}], ids=str)
@pytest.mark.parametrize("kind", [dtrees.DecisionTreeRegressor, dtrees.DecisionTreeClassifier], ids=lambda kind: kind.__name__)
def test_scikit_learns_trees(kind, parameters, missing):
    """Node by node, if no two splits tie."""
    table, y = data(3, missing=missing, digits=9)
    y = (y > 0).astype(int) if is_classifier(kind) else y
    given = {"monotonic_cst": [1, 0, -1, 1], "random_state": 0, **parameters}
    ours, theirs = kind(**given).fit(table, y).tree_, sklearns(kind)(**given).fit(table, y).tree_
    if not is_classifier(kind):  # impurities of two classes tie too often
        assert_array_equal(ours.feature, theirs.feature)
        assert_allclose(ours.value[:, 0, 0], theirs.value[:, 0, 0], rtol=1e-9, atol=1e-12)
    assert_allclose(ours.node_count, theirs.node_count, rtol=0.0 if not is_classifier(kind) else 0.2)


@pytest.mark.slow  # compiles kernels of its own
def test_scikit_learns_trees_of_medians():
    table, y = data(4, n=300, digits=9)
    given = {"monotonic_cst": [1, 0, -1, 1], "criterion": "absolute_error", "max_depth": 3, "random_state": 0}
    ours, theirs = (kind(**given).fit(table, y) for kind in (dtrees.DecisionTreeRegressor, sklearns(dtrees.DecisionTreeRegressor)))
    assert_array_equal(ours.tree_.feature, theirs.tree_.feature)
    assert_allclose(ours.predict(table), theirs.predict(table), rtol=1e-9)


def test_held_out_loss_is_near_that_of_peers():
    table, y = data(5, n=4000, digits=3)
    new, wanted = data(6, n=4000, digits=3)
    signs = [1, -1, 0, 0]
    common = {"learning_rate": 0.1, "max_depth": 4}
    ours = dtrees.GradientBoostingRegressor(n_estimators=60, reg_lambda=1.0, monotonic_cst=signs, **common).fit(table, y)
    hist = sklearn.ensemble.HistGradientBoostingRegressor(max_iter=60, monotonic_cst=signs, early_stopping=False, **common).fit(table, y)
    losses = {"hist": mean_squared_error(wanted, hist.predict(new))}
    xgboost = pytest.importorskip("xgboost")
    peer = xgboost.XGBRegressor(n_estimators=60, tree_method="exact", monotone_constraints=tuple(signs), n_jobs=1, **common).fit(table, y)
    losses["xgboost"] = mean_squared_error(wanted, peer.predict(new))
    assert mean_squared_error(wanted, ours.predict(new)) < 1.03 * min(losses.values())


def paths(tree):
    """The sets of columns on the paths from the root to the leaves."""
    waiting, found = [(0, frozenset())], set()
    while waiting:
        node, path = waiting.pop()
        if tree.children_left[node] < 0:
            found.add(path)
            continue
        path |= {int(tree.feature[node])}
        waiting += [(tree.children_left[node], path), (tree.children_right[node], path)]
    return found


may_meet = pytest.mark.parametrize(
    ("given", "fits"),
    [
        ("no_interactions", lambda path: len(path) <= 1),
        ("pairwise", lambda path: len(path) <= 2),
        ([(0, 1), {1, 2}], lambda path: any(path <= one for one in ({0, 1}, {1, 2}, {3, 4}))),
        ([[0], [1, 2, 3, 4]], lambda path: path <= {0} or 0 not in path),
    ],
    ids=["none", "pairs", "sets that share a column", "apart"],
)


@some_kinds
@may_meet
def test_paths_are_of_columns_that_may_meet(kind, given, fits):
    check_paths(kind, given, fits, quick_target(kind))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    thorough_for({dtrees.ExtraTreeClassifier, dtrees.ExtraTreesClassifier}, [kind for kind in KINDS[:8] if is_classifier(kind)]),
    ids=lambda kind: kind.__name__,
)
@may_meet
def test_paths_of_three_classes(kind, given, fits):
    check_paths(kind, given, fits, LABELS)


def check_paths(kind, given, fits, y):
    model = make(kind, interaction_cst=given).fit(X, y)
    assert all(fits(path) for tree in trees(model) for path in paths(tree))
    assert max(len(path) for tree in trees(model) for path in paths(tree)) >= (2 if given == "pairwise" else 1)


@every_kind
def test_constraints_that_allow_everything_change_nothing(kind):
    plain = make(kind).fit(X, target(kind))
    signs = None if is_classifier(kind) else [0] * 5
    for some in ({"monotonic_cst": signs}, {"interaction_cst": [range(5)]}, {"interaction_cst": [(0, 1, 2, 3, 4), (1, 2)]}):
        model = make(kind, **some).fit(X, target(kind))
        assert all(one.equals(other) for one, other in zip(trees(plain), trees(model), strict=True))


@pytest.mark.parametrize("kind", slow_for({dtrees.RandomForestRegressor}, [dtrees.RandomForestRegressor, dtrees.GradientBoostingRegressor]))
def test_names_and_numbers_are_the_same(kind):
    table, y = data(7)
    frame = pd.DataFrame(table, columns=list("abcd"))
    by_name = {"monotonic_cst": {"a": 1, "c": -1}, "interaction_cst": [("a", "b"), ["c"]]}
    by_number = {"monotonic_cst": np.array([1.0, 0.0, -1.0, 0.0]), "interaction_cst": [(0, 1), {2}]}
    one, other = make(kind, **by_name).fit(frame, y), make(kind, **by_number).fit(table, y)
    assert all(a.equals(b) for a, b in zip(trees(one), trees(other), strict=True))


BAD = [
    ("monotonic_cst", [1, 0], r"monotonic_cst has shape \(2,\) but the input data X has 5 features"),
    ("monotonic_cst", [[1, 0, 0, 0, 0]], r"monotonic_cst has shape \(1, 5\)"),
    ("monotonic_cst", [1, 0, 0, 0, 2], "monotonic_cst must be an array-like of -1, 0 or 1"),
    ("monotonic_cst", [1, 0, 0, 0, math.nan], "monotonic_cst must be an array-like of -1, 0 or 1"),
    ("monotonic_cst", {"a": 1}, "was not fitted on data with feature names"),
    ("monotonic_cst", 3, "The 'monotonic_cst' parameter"),
    ("interaction_cst", "triples", "The 'interaction_cst' parameter"),
    ("interaction_cst", [0, 1], "interaction_cst is .* must be a sequence of tuples or lists"),
    ("interaction_cst", [(0, 7)], "interaction_cst holds 7; wants names of columns, or positions from 0 to 4"),
    ("interaction_cst", [(0, True)], "interaction_cst holds True"),
    ("interaction_cst", [("a", "b")], "interaction_cst names the column 'a', which X does not have; it has no names"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD)
@pytest.mark.parametrize("kind", [dtrees.DecisionTreeRegressor, dtrees.ExtraTreesRegressor, dtrees.GradientBoostingRegressor])
def test_errors(kind, name, value, message):
    with pytest.raises(ValueError, match=message):
        make(kind, **{name: value}).fit(X, target(kind))


def test_errors_of_frames_and_classes():
    frame = pd.DataFrame(X, columns=list("abcde")).assign(word=np.where(np.arange(N) % 3, "x", "y"))
    model = dtrees.RandomForestRegressor(2)
    with pytest.raises(ValueError, match=r"monotonic_cst contains 2 unexpected feature names: \['u', 'v'\]"):
        clone(model).set_params(monotonic_cst={"u": 1, "v": 0}).fit(frame, X[:, 1] > 0)
    with pytest.raises(ValueError, match=r"monotonic_cst\['a'\] must be either -1, 0 or 1. Got 2"):
        clone(model).set_params(monotonic_cst={"a": 2}).fit(frame, X[:, 1] > 0)
    with pytest.raises(ValueError, match="monotonic_cst is 1 for X column 'word', whose values are categories"):
        clone(model).set_params(monotonic_cst={"word": 1}).fit(frame, X[:, 1] > 0)
    with pytest.raises(ValueError, match=r"interaction_cst names the column 'z', which X does not have; it has only \['a', 'b'"):
        clone(model).set_params(interaction_cst=[("a", "z")]).fit(frame, X[:, 1] > 0)
    for kind in (dtrees.DecisionTreeClassifier, dtrees.ExtraTreesClassifier, dtrees.GradientBoostingClassifier):
        with pytest.raises(
            ValueError, match="monotonic_cst is given, and y has 3 classes. Monotonicity constraints are not supported with"
        ):
            make(kind, monotonic_cst=[1, 0, 0, 0, 0]).fit(X, target(kind))


def test_plans_without_constraints_are_saved_as_ever(tmp_path):
    from dtrees.engine.plan.plans import CONSTRAINTS

    model = make(dtrees.RandomForestRegressor).fit(X, target(dtrees.RandomForestRegressor))
    metadata, _ = model._to_state()
    plan = metadata["batches"][0][0]
    assert not set(CONSTRAINTS) & set(plan)


@pytest.mark.slow  # compiles kernels for constraints with sets
@pytest.mark.parametrize(
    "kind",
    thorough_for(
        {dtrees.DecisionTreeClassifier},
        [dtrees.GradientBoostingRegressor, dtrees.RandomForestRegressor, dtrees.DecisionTreeClassifier],
    ),
)
def test_columns_in_order_beside_columns_of_categories(kind):
    """On a dense grid, for any categories, known, missing or new; and the sets are informative."""
    table, y = data(5, 600)
    rng = np.random.default_rng(5)
    level = rng.integers(0, 30, (600, 2)).astype(np.float64)
    y = y + rng.normal(size=30)[level[:, 0].astype(np.int64)] * (1 + (table[:, 0] > 0))
    level[rng.random(level.shape) < 0.1] = np.nan
    table[:, 2:] = level
    model = kind(max_depth=6, monotonic_cst=[1, -1, 0, 0], categorical_features=[2, 3], min_samples_category=2, random_state=0)
    model.fit(table, y > 0 if is_classifier(kind) else y)
    assert sum(tree.categories.node.shape[0] for tree in trees(model)) > 3
    grid = np.linspace(-4, 4, 161)
    for column, sign in ((0, 1), (1, -1)):
        others = np.column_stack([rng.normal(size=(40, 2)), rng.integers(-1, 33, (40, 2))])
        others[::7, 2:] = np.nan
        rows = np.repeat(others, grid.shape[0], axis=0)
        rows[:, column] = np.tile(grid, 40)
        steps = sign * np.diff(raw(model, rows).reshape(40, -1), axis=1)
        assert steps.min() >= 0.0
        assert steps.max() > 0.0
