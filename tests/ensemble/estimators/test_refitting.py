"""Refitted leaves: compared with fits on the same rows, with plain formulas, and with LightGBM."""

import pickle

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, softmax
from sklearn.linear_model import LinearRegression

import dtrees
from tests.ensemble.samples import (
    BOOSTING,
    FORESTS,
    KINDS,
    LABELS,
    SIGNAL,
    WEIGHT,
    N,
    X,
    assert_same_trees,
    is_classifier,
    make,
    target,
    trees,
)
from tests.slow import slow_for

Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier
RNG = np.random.default_rng(5)
COUNTS = np.floor(np.abs(SIGNAL))
BOTH, CLASSES = np.column_stack([SIGNAL, COUNTS]), np.column_stack([LABELS, (SIGNAL > 0).astype(int).astype(str)])
X_NEW, NEW = RNG.normal(size=(120, 5)) + 1.0, RNG.normal(size=120) + 3.0
X_NEW[RNG.random(size=X_NEW.shape) < 0.1] = np.nan
NEW_WEIGHT = RNG.integers(0, 3, 120).astype(float)
SIGNS = [1, 0, 0, -1, 0]


def filled(kind, **parameters):
    """A model whose trees are grown on all rows."""
    return make(kind, **({"bootstrap": False} if kind in FORESTS else {}), **parameters)


def half_squares(y, raw, weight):
    weight = np.ones(len(y)) if weight is None else weight
    return (raw - y) * weight, weight


SAME = [
    *((kind, target(kind), {}) for kind in KINDS),
    *((Regressor, COUNTS + 1, {"loss": loss}) for loss in ("absolute_error", "quantile", "huber", "poisson", "gamma", "tweedie")),
    (Regressor, BOTH, {}),
    (Regressor, SIGNAL, {"loss": "quantile", "alpha": [0.2, 0.5]}),
    (Regressor, BOTH, {"loss": "absolute_error", "max_depth": 3}),
    (Regressor, COUNTS, {"loss": "poisson", "criterion": "squared_error"}),
    (Regressor, SIGNAL, {"reg_alpha": 2.0, "reg_lambda": 3.0, "monotonic_cst": SIGNS}),
    (Regressor, SIGNAL, {"loss": "quantile", "monotonic_cst": SIGNS}),
    (Regressor, SIGNAL, {"loss": half_squares}),
    (Classifier, SIGNAL > 0, {"class_weight": "balanced"}),
    (Classifier, SIGNAL > 0, {"loss": "exponential", "criterion": "squared_error"}),
    (Classifier, CLASSES, {"class_weight": [{"low": 3.0}, {"1": 2.0}]}),
    *((dtrees.DecisionTreeRegressor, COUNTS + 1, {"criterion": name}) for name in ("absolute_error", "quantile", "poisson")),
    (dtrees.DecisionTreeRegressor, BOTH, {}),
    (dtrees.DecisionTreeRegressor, BOTH, {"criterion": "absolute_error"}),
    (dtrees.DecisionTreeRegressor, SIGNAL, {"monotonic_cst": SIGNS}),
    (dtrees.DecisionTreeClassifier, SIGNAL > 0, {"class_weight": "balanced", "criterion": "entropy"}),
    (dtrees.DecisionTreeClassifier, SIGNAL > 0, {"monotonic_cst": SIGNS}),
    (dtrees.DecisionTreeClassifier, CLASSES, {}),
    (dtrees.RandomForestClassifier, LABELS, {"class_weight": {"low": 5.0}}),
]  # fmt: skip
#: Losses and criteria that no other quick test compiles.
RARE = {"absolute_error", "quantile", "huber", "gamma", "tweedie", "exponential"}


def _marks(kind, y, parameters):
    rare = RARE & {parameters.get("loss") if isinstance(parameters.get("loss"), str) else None, parameters.get("criterion")}
    name = "-".join([kind.__name__, *map(str, np.shape(y)[1:]), *(f"{value}"[:16] for value in parameters.values())])
    return pytest.param(kind, y, parameters, id=name, marks=pytest.mark.slow if rare or "monotonic_cst" in parameters else ())


@pytest.mark.parametrize(("kind", "y", "parameters"), [_marks(*case) for case in SAME])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_the_rows_of_the_fit_give_the_model_itself(kind, y, parameters, weight):
    """To the last bit without the old values; and the old values are the result if only these count."""
    model = filled(kind, **parameters).fit(X, y, weight)
    again = model.refit_leaves(X, y, weight, decay=0.0)
    assert_same_trees(again, model)
    if kind in BOOSTING:
        assert_array_equal(again.train_score_, model.train_score_)
    assert_same_trees(model.refit_leaves(X[::2], y[::2], decay=1.0), model)


@pytest.mark.parametrize(("kind", "y", "parameters"), [
    (Regressor, SIGNAL, {}), (Regressor, SIGNAL, {"reg_alpha": 2.0}), (Classifier, SIGNAL > 0, {"loss": "log_loss"}),
    pytest.param(Regressor, SIGNAL, {"loss": "absolute_error"}, marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_effects_of_splits_are_shrunk_as_in_the_fit(kind, y, parameters, weight):
    """To the last bit; splits for which the new rows carry no information have little effect."""
    model = make(kind, split_shrinkage=3.0, reg_lambda=1.0, **parameters).fit(X, y, weight)
    assert_same_trees(model.refit_leaves(X, y, weight, decay=0.0), model)
    plain = make(kind, reg_lambda=1.0, **parameters).fit(X, y, weight)
    noise = RNG.permutation(y)
    shrunk, free = (np.ptp(trees(one.refit_leaves(X, noise, decay=0.0))[0].value) for one in (model, plain))
    assert shrunk < free / 2


# --- plain formulas ---


def plain_values(tree, leaves, value_of, decay):
    """Return the values of a tree's leaves, given a function of the numbers of the rows in a leaf."""
    return {
        leaf: decay * tree.value[leaf, 0] + (1 - decay) * value_of(np.flatnonzero(leaves == leaf))
        if leaf in leaves
        else tree.value[leaf, 0]
        for leaf in np.flatnonzero(tree.children_left < 0)
    }


def weighted_median(values, weight):
    """The smallest value up to which half of the weight lies, or the midpoint to the next if that is exact, as in fits."""
    order = np.argsort(values)
    values, total = values[order], np.cumsum(weight[order])
    i = np.searchsorted(total, total[-1] / 2)
    return (values[i] + values[i + 1]) / 2 if total[i] == total[-1] / 2 else values[i]


DERIVATIVES = {
    "squared_error": lambda y, raw: (raw - y, np.ones(len(y))),
    "poisson": lambda y, raw: (np.exp(raw) - y, np.exp(raw)),
    "log_loss": lambda y, raw: (expit(raw) - y, expit(raw) * (1 - expit(raw))),
}


@pytest.mark.parametrize(
    ("kind", "loss", "new"), [(Regressor, "squared_error", NEW), (Classifier, "log_loss", NEW > 3), (Regressor, "absolute_error", NEW)]
)
@pytest.mark.parametrize("weight", [None, NEW_WEIGHT], ids=["plain", "weighted"])
def test_boosting_takes_newton_steps_down_the_loss_of_the_new_rows(kind, loss, new, weight):
    model = make(kind, loss=loss, reg_lambda=1.5, learning_rate=0.4, max_depth=4).fit(X, SIGNAL if kind is Regressor else SIGNAL > 0)
    made, w = model.refit_leaves(X_NEW, new, weight, decay=0.7), np.ones(120) if weight is None else weight
    raw = np.full(120, model._trees.initial[0])
    there, empty = w > 0, 0
    for i, (old, fresh) in enumerate(zip(trees(model), trees(made), strict=True)):
        leaves = model.apply(X_NEW).reshape(120, -1)[:, i]
        if loss == "absolute_error":
            value_of = lambda rows: 0.4 * weighted_median((new - raw)[rows], w[rows])  # noqa: B023, E731
        else:
            g, h = DERIVATIVES[loss](new, raw)
            value_of = lambda rows: -0.4 * (g * w)[rows].sum() / ((h * w)[rows].sum() + 1.5)  # noqa: B023, E731
        wanted = plain_values(old, np.where(there, leaves, -1), lambda rows: value_of(rows), 0.7)  # noqa: B023
        assert_allclose([fresh.value[leaf, 0] for leaf in wanted], list(wanted.values()), rtol=1e-9, atol=1e-12)
        raw += fresh.value[leaves, 0]
        empty += sum(leaf not in leaves[there] for leaf in wanted)
        for name in ("threshold", "gain", "impurity", "weighted_n_node_samples", "n_node_samples", "children_left", "feature"):
            assert_array_equal(getattr(old, name), getattr(fresh, name))
    assert empty > 5  # leaves without rows do not change
    assert_allclose(made.decision_function(X_NEW) if kind is Classifier else made.predict(X_NEW), raw)
    assert made.init_ is not None
    assert_array_equal(made.feature_importances_, model.feature_importances_)


def test_boosting_of_several_classes():
    """Gradients of a round are computed at its beginning, for all classes."""
    model = make(Classifier, reg_lambda=0.0, learning_rate=0.4, max_depth=3).fit(X, LABELS)
    new = np.array(["high", "mid", "low"])[np.digitize(NEW, [2, 4])]
    made, raw = model.refit_leaves(X_NEW, new, decay=0.2), np.tile(model._trees.initial, (120, 1))
    leaves = model.apply(X_NEW)
    for i in range(8):
        shares = softmax(raw, axis=1)
        for k, label in enumerate(model.classes_):
            g, h = shares[:, k] - (new == label), 1.5 * shares[:, k] * (1 - shares[:, k])
            old, fresh = model._trees.groups[k][i], made._trees.groups[k][i]
            wanted = plain_values(old, leaves[:, i, k], lambda rows: -0.4 * g[rows].sum() / h[rows].sum(), 0.2)  # noqa: B023
            assert_allclose([fresh.value[leaf, 0] for leaf in wanted], list(wanted.values()), rtol=1e-9, atol=1e-12)
        raw += np.stack([made._trees.groups[k][i].value[leaves[:, i, k], 0] for k in range(3)], axis=1)


@pytest.mark.parametrize("kind", [dtrees.DecisionTreeRegressor, dtrees.RandomForestRegressor, dtrees.RandomForestClassifier])
def test_trees_take_the_means_of_the_new_rows(kind):
    model = make(kind, max_depth=4).fit(X, target(kind))
    new = np.array(["high", "mid", "low"])[np.digitize(NEW, [2, 4])] if is_classifier(kind) else NEW
    made, w = model.refit_leaves(X_NEW, new, NEW_WEIGHT, decay=0.25), NEW_WEIGHT
    says = (new[:, np.newaxis] == model.classes_).astype(float) if is_classifier(kind) else NEW[:, np.newaxis]
    for i, (old, fresh) in enumerate(zip(trees(model), trees(made), strict=True)):
        leaf = model.apply(X_NEW).reshape(120, -1)[:, i]
        within = np.zeros((120, old.node_count), bool)  # also in inner nodes
        for node in range(old.node_count - 1, -1, -1):
            children = [child for child in (old.children_left[node], old.children_right[node]) if child >= 0]
            within[:, node] = (leaf == node) | within[:, children].any(axis=1)
        for node in range(old.node_count):
            rows = within[:, node] & (w > 0)
            wanted = 0.25 * old.value[node] + 0.75 * np.average(says[rows], axis=0, weights=w[rows]) if rows.any() else old.value[node]
            assert_allclose(fresh.value[node], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("decay", [0.9, 0.3])
def test_as_lightgbm(decay):
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 3, (400, 2)).astype(float)
    y, new = cells[:, 0] * 3 + np.exp(cells[:, 1]) + rng.normal(size=400), rng.normal(size=400) + cells[:, 1]
    given = {
        "learning_rate": 0.3,
        "num_leaves": 9,
        "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": 0.0,
        "lambda_l2": 0.0,
        "boost_from_average": False,
    }
    theirs = lightgbm.train({**given, "objective": "regression", "verbose": -1, "min_data_in_bin": 1}, lightgbm.Dataset(cells, y), 6)
    ours = Regressor(n_estimators=6, learning_rate=0.3, reg_lambda=0.0, min_samples_leaf=1, max_depth=None, max_leaf_nodes=9, init="zero")
    ours = ours.set_params(min_child_weight=0.0).fit(cells, y)
    assert_allclose(ours.predict(cells), theirs.predict(cells), rtol=1e-5)
    assert_allclose(
        ours.refit_leaves(cells, new, decay=decay).predict(cells), theirs.refit(cells, new, decay_rate=decay).predict(cells), rtol=1e-5
    )


# --- the same result for any location of rows ---


@pytest.mark.parametrize("kind", slow_for({dtrees.RandomForestRegressor}, [Regressor, Classifier, dtrees.RandomForestRegressor]))
def test_threads_and_partitions_do_not_matter(kind, monkeypatch):
    y = (NEW > 3) if kind is Classifier else NEW
    model = make(kind, n_jobs=1).fit(X, SIGNAL > 0 if kind is Classifier else SIGNAL)
    alone = model.refit_leaves(X_NEW, y, NEW_WEIGHT)
    assert_same_trees(model.set_params(n_jobs=4).refit_leaves(X_NEW, y, NEW_WEIGHT), alone)
    monkeypatch.setattr("dtrees.engine.run.refitting._MOST_LEAVES", 250)  # some rounds at a time
    assert_same_trees(model.refit_leaves(X_NEW, y, NEW_WEIGHT), alone)
    for chunks in ((120,), (1, 50, 69), (40, 0, 80)):
        lazy = [
            da.from_array(X_NEW, chunks=120).rechunk((chunks, 5)),
            *(da.from_array(a, chunks=120).rechunk((chunks,)) for a in (y, NEW_WEIGHT)),
        ]
        assert_same_trees(model.refit_leaves(*lazy), alone)
    frame = dd.from_pandas(pd.DataFrame(X_NEW), npartitions=3)
    assert_same_trees(model.refit_leaves(frame.to_dask_array(lengths=True), y, NEW_WEIGHT), alone)


def test_frames_with_categories_that_some_rows_lack():
    frame = pd.DataFrame({"a": X[:, 0], "kind": pd.Categorical(LABELS)})
    model = make(Regressor, max_features=None).fit(frame, SIGNAL)
    some = frame[LABELS != "mid"].astype({"kind": str})
    wanted = model.refit_leaves(some.astype({"kind": "category"}), SIGNAL[LABELS != "mid"])
    assert_same_trees(
        model.refit_leaves(
            dd.from_pandas(some, npartitions=3), dd.from_pandas(pd.Series(SIGNAL[LABELS != "mid"], some.index), npartitions=3)
        ),
        wanted,
    )
    assert_array_equal(wanted._trees.groups[0][0].categories.words, model._trees.groups[0][0].categories.words)


def test_what_boosting_starts_from_stays():
    filled = np.nan_to_num(X)
    model = make(Regressor, init=LinearRegression()).fit(filled, SIGNAL)
    assert_same_trees(model.refit_leaves(filled, SIGNAL, decay=0.0), model)
    lazy = da.from_array(filled, chunks=(77, 5)), da.from_array(SIGNAL, chunks=77)
    assert_same_trees(model.refit_leaves(*lazy), model.refit_leaves(filled, SIGNAL))
    for kind, y, margin in ((Regressor, SIGNAL, SIGNAL / 2), (Classifier, LABELS, RNG.normal(size=(N, 3)))):
        model = make(kind).fit(X, y, base_margin=margin)
        made = model.refit_leaves(X, y, decay=0.0, base_margin=margin)
        assert_same_trees(made, model)
        assert_array_equal(made.predict(X, base_margin=margin), model.predict(X, base_margin=margin))
        with pytest.raises(ValueError, match="pass base_margin"):
            model.refit_leaves(X, y)


def test_a_refitted_model_is_a_model(tmp_path):
    """It can be saved, sliced, refitted and, in boosting, continued; the original model does not change."""
    model = make(Regressor, warm_start=True, n_iter_no_change=20).fit(X, SIGNAL, eval_set=[(X, SIGNAL)])
    before = model.predict(X_NEW)
    made = model.refit_leaves(X_NEW, NEW)
    assert_array_equal(model.predict(X_NEW), before)
    assert abs((made.predict(X_NEW) - NEW).mean()) < abs((before - NEW).mean())
    assert not hasattr(made, "evals_result_")
    assert not hasattr(made, "validation_score_")
    assert_allclose(made.train_score_[-1], np.mean((made.predict(X_NEW) - NEW) ** 2))
    dtrees.save(made, tmp_path / "model")
    for twin in (dtrees.load(tmp_path / "model"), pickle.loads(pickle.dumps(made))):
        assert_array_equal(twin.predict(X), made.predict(X))
        assert_array_equal(twin.refit_leaves(X, SIGNAL).predict(X), made.refit_leaves(X, SIGNAL).predict(X))
    assert_same_trees(made[:3], model[:3].refit_leaves(X_NEW, NEW))
    longer = made.set_params(n_estimators=12, n_iter_no_change=None).fit(X_NEW, NEW)
    assert (len(longer), longer.train_score_[-1] < made.train_score_[-1] + 1e-12) == (12, True)
    forest = make(dtrees.RandomForestRegressor, oob_score=True, n_estimators=30).fit(X, SIGNAL)
    assert not hasattr(forest.refit_leaves(X, SIGNAL), "oob_score_")


def test_one_row_and_one_class():
    for kind in (dtrees.RandomForestClassifier, Classifier):
        model = make(kind).fit(X, LABELS)
        made = model.refit_leaves(X[:1], LABELS[:1], decay=0.5)
        assert_allclose(made.predict_proba(X).sum(axis=1), 1.0)


def test_monotonic_models_stay_so():
    """Leaves without rows keep their values, unless these contradict new ones."""
    model = make(Regressor, monotonic_cst=[1, 0, 0, 0, 0], max_features=None, max_depth=4).fit(X, SIGNAL)
    made = model.refit_leaves(X_NEW[:25], -10 * np.nan_to_num(X_NEW[:25, 0]), decay=0.0)
    rows = np.repeat(X[:40], 50, axis=0)
    rows[:, 0] = np.tile(np.linspace(-3, 3, 50), 40)
    assert np.diff(made.predict(rows).reshape(40, 50), axis=1).min() >= 0.0


def test_what_cannot_be_refitted(tmp_path):
    model = make(Regressor).fit(X, SIGNAL)
    for decay in (-0.1, 1.1, "all", True, np.nan):
        with pytest.raises(ValueError, match="decay is .*; wants a number from 0 to 1"):
            model.refit_leaves(X, SIGNAL, decay=decay)
    with pytest.raises(ValueError, match="X has 300 rows but y has 100|300"):
        model.refit_leaves(X, SIGNAL[:100])
    with pytest.raises(ValueError, match="all weights are zero"):
        model.refit_leaves(X, SIGNAL, np.zeros(N))
    with pytest.raises(ValueError, match="X has 4 features"):
        model.refit_leaves(X[:, :4], SIGNAL)
    with pytest.raises(ValueError, match="not fitted"):
        make(Regressor).refit_leaves(X, SIGNAL)
    with pytest.raises(ValueError, match="y has the label 'other', which the y of fit does not have"):
        make(Classifier).fit(X, LABELS).refit_leaves(X[:1], ["other"])
    with pytest.raises(ValueError, match="base_margin is given, but the model was fitted without"):
        model.refit_leaves(X, SIGNAL, base_margin=0.0)
    with pytest.raises(ValueError, match="loss='poisson' is for targets that are not negative"):
        make(Regressor, loss="poisson").fit(X, COUNTS).refit_leaves(X, SIGNAL)
    own = make(Regressor, loss=lambda y, raw, weight: (raw - y, np.ones(len(y)))).fit(X, SIGNAL)
    dtrees.save(own, tmp_path / "model")
    with pytest.raises(ValueError, match="loss is 'custom', a function that a model file could not hold"):
        dtrees.load(tmp_path / "model").refit_leaves(X, SIGNAL)
