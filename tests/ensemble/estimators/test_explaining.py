import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import dtrees
from tests.ensemble.samples import BOOSTING, KINDS, LABELS, SIGNAL, N, X, is_classifier, make, target, trees
from tests.slow import slow_for, thorough_for
from tests.tree.naive_shapley import game_of, interaction_values, shapley_values

#: A frame with missing values and categories, some of which occur only in rows to be explained.
FRAME = pd.DataFrame(X[:, :4], columns=list("abcd"))
FRAME["job"] = pd.Categorical(np.random.default_rng(1).choice(["smith", "baker", "miller", "cook"], N))
ROWS = FRAME.head(3).copy()
ROWS["job"] = ["cook", "potter", None]


def explained(model, rows):
    """The explained output: predictions, probabilities or raw scores."""
    if not is_classifier(type(model)):
        return model.predict(rows)
    found = model.decision_function(rows) if type(model) in BOOSTING else model.predict_proba(rows)
    return np.hstack(found) if isinstance(found, list) else found


def fitted(kind, several):
    """A model, for several targets if requested."""
    y = target(kind)
    return make(kind, max_depth=4).fit(FRAME, np.column_stack([y, y[::-1]]) if several else y)


def naive(model, rows, background=None):
    """Games of the rows of a matrix, from the trees themselves, for each output, including the expected value."""
    matrix = model._schema.matrix(rows)
    seen = None if background is None else model._schema.matrix(background)
    found = []
    for row in matrix:
        games = [game_of(list(group), row, matrix.shape[1], seen) for group in model._trees.groups]
        scale = 1 if type(model) in BOOSTING else len(trees(model))
        found.append({known: np.concatenate([game[known] for game in games]) / scale for known in games[0]})
    return found


#: Random thresholds with sets of categories have kernels of their own, for slow tests, those of classes for thorough ones.
EXTRA = [kind for kind in KINDS if "Extra" in kind.__name__]
most_kinds = pytest.mark.parametrize(
    ("kind", "several"),
    [
        *slow_for(EXTRA, [(kind, False) for kind in KINDS], [kind for kind in EXTRA if is_classifier(kind)]),
        (dtrees.GradientBoostingRegressor, True),
        *slow_for(KINDS, [(kind, True) for kind in (dtrees.DecisionTreeClassifier, dtrees.RandomForestRegressor)]),
        *thorough_for(KINDS, [(kind, True) for kind in (dtrees.ExtraTreeRegressor, dtrees.ExtraTreesClassifier)]),
    ],
)


@most_kinds
def test_values_are_those_by_definition_and_add_up(kind, several):
    model = fitted(kind, several)
    values, expected, pairs = model.shap_values(ROWS), model.shap_expected_value(), model.shap_interaction_values(ROWS)
    assert values.shape == (3, 5, *np.shape(expected))
    assert pairs.shape == (3, 5, 5, *np.shape(expected))
    assert np.ndim(expected) == int(is_classifier(kind) or several)
    np.testing.assert_allclose(values.sum(axis=1) + expected, explained(model, ROWS), rtol=0, atol=1e-12)
    np.testing.assert_allclose(pairs.sum(axis=2), values, rtol=0, atol=1e-12)
    for game, mine, my_pairs in zip(naive(model, ROWS), values, pairs, strict=True):
        np.testing.assert_allclose(mine.reshape(5, -1), shapley_values(game, 5), rtol=0, atol=1e-12)
        np.testing.assert_allclose(my_pairs.reshape(5, 5, -1), interaction_values(game, 5), rtol=0, atol=1e-12)


@most_kinds
def test_interventional_values_are_those_by_definition_and_add_up(kind, several):
    model, background = fitted(kind, several), FRAME.tail(4)
    values, expected = model.shap_values(ROWS, background), model.shap_expected_value(background)
    np.testing.assert_allclose(values.sum(axis=1) + expected, explained(model, ROWS), rtol=0, atol=1e-12)
    np.testing.assert_allclose(expected, explained(model, background).mean(axis=0), rtol=0, atol=1e-12)
    for game, mine in zip(naive(model, ROWS, background), values, strict=True):
        np.testing.assert_allclose(mine.reshape(5, -1), shapley_values(game, 5), rtol=0, atol=1e-12)


def test_two_classes():
    y = LABELS == "low"
    boosted = make(dtrees.GradientBoostingClassifier).fit(X, y)
    assert boosted.shap_values(X).shape == X.shape
    np.testing.assert_allclose(boosted.shap_values(X).sum(axis=1) + boosted.shap_expected_value(), boosted.decision_function(X))
    forest = make(dtrees.RandomForestClassifier).fit(X, y)
    values = forest.shap_values(X)
    assert values.shape == (*X.shape, 2)
    np.testing.assert_allclose(values[..., 0], -values[..., 1], atol=1e-14)


def test_deep_forests_and_threads():
    table = np.random.default_rng(0).normal(size=(3000, 6))
    y = np.sin(3 * table[:, 0]) + table[:, 1] * table[:, 2]
    forest = dtrees.RandomForestRegressor(3, random_state=0, n_jobs=2).fit(table, y)
    assert max(tree.get_depth() for tree in forest) > 15
    values = forest.shap_values(table[:600])
    np.testing.assert_allclose(values.sum(axis=1) + forest.shap_expected_value(), forest.predict(table[:600]), rtol=0, atol=1e-12)
    assert np.array_equal(forest.set_params(n_jobs=1).shap_values(table[:600]), values)
    some = forest.shap_values(table[:20], table[-10:])
    expected = forest.shap_expected_value(table[-10:])
    np.testing.assert_allclose(some.sum(axis=1) + expected, forest.predict(table[:20]), rtol=0, atol=1e-12)


def test_any_kind_of_table():
    model = make(dtrees.GradientBoostingRegressor).fit(FRAME, SIGNAL)
    values = model.shap_values(FRAME)
    assert np.array_equal(model.shap_values(pl.from_pandas(FRAME)), values)
    assert np.array_equal(model.shap_values(pl.from_pandas(FRAME).to_arrow()), values)
    cells = sparse.random_array((60, 30), density=0.2, random_state=0, format="csr")
    by_cells = make(dtrees.GradientBoostingRegressor).fit(cells, cells.sum(axis=1))
    assert np.array_equal(by_cells.shap_values(cells, cells[:5]), by_cells.shap_values(cells.toarray(), cells[:5].toarray()))
    small = make(dtrees.GradientBoostingRegressor).fit(X.astype(np.float32), SIGNAL)
    total = small.shap_values(X.astype(np.float32)).sum(axis=1) + small.shap_expected_value()
    np.testing.assert_allclose(total, small.predict(X.astype(np.float32)))


def test_what_trees_add_to_a_start_is_explained():
    table = np.nan_to_num(X)
    start = LinearRegression().fit(table, SIGNAL)
    model = make(dtrees.GradientBoostingRegressor, init=start).fit(table, SIGNAL)
    total = model.shap_values(table).sum(axis=1) + model.shap_expected_value()
    np.testing.assert_allclose(total + model.init_.predict(table), model.predict(table))
    margin = make(dtrees.GradientBoostingRegressor).fit(table, SIGNAL, base_margin=start.predict(table))
    total = margin.shap_values(table, table[:5]).sum(axis=1) + margin.shap_expected_value(table[:5])
    np.testing.assert_allclose(total, margin.predict(table, base_margin=0))


def test_a_loss_with_a_link_is_explained_before_it():
    model = make(dtrees.GradientBoostingRegressor, loss="poisson").fit(X, SIGNAL - SIGNAL.min())
    np.testing.assert_allclose(np.exp(model.shap_values(X).sum(axis=1) + model.shap_expected_value()), model.predict(X))


@pytest.mark.parametrize(
    ("background", "message"),
    [
        (FRAME.iloc[:0], "background has no rows"),
        (FRAME[["a", "b"]], "background: The feature names should match"),
        (FRAME.assign(a="text"), "background: "),
        (7, "background: "),
    ],
)
def test_a_wrong_background_is_named(background, message):
    model = make(dtrees.GradientBoostingRegressor).fit(FRAME, SIGNAL)
    for method in (model.shap_expected_value, lambda some: model.shap_values(ROWS, some)):
        with pytest.raises(ValueError, match=message):
            method(background)


def test_a_model_without_trees_explains_nothing():
    with pytest.raises(NotFittedError):
        dtrees.DecisionTreeRegressor().shap_values(X)
    with pytest.raises(ValueError, match="feature names"):
        make(dtrees.GradientBoostingRegressor).fit(FRAME, SIGNAL).shap_values(FRAME[["a", "b"]])


@pytest.mark.slow
def test_shap_draws_our_values():
    shap = pytest.importorskip("shap")
    plt = pytest.importorskip("matplotlib.pyplot")
    model = dtrees.GradientBoostingRegressor(n_estimators=10).fit(FRAME, target(dtrees.GradientBoostingRegressor))
    explanation = shap.Explanation(
        values=model.shap_values(FRAME), base_values=np.full(len(FRAME), model.shap_expected_value()), data=FRAME, feature_names=list(FRAME)
    )
    shap.plots.beeswarm(explanation, show=False)
    assert plt.gcf().axes
    plt.close("all")
