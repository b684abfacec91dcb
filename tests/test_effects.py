"""Pictures of the behaviour of models: the drawn numbers equal those of a slow implementation or of another library."""

import matplotlib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.dummy import DummyRegressor
from sklearn.inspection import partial_dependence
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dtrees
from dtrees import plot_partial_dependence, plot_shap
from tests.ensemble.samples import LABELS, SIGNAL, X, every_kind, make, target
from tests.slow import slow_for

matplotlib.use("Agg")
from matplotlib import pyplot as plt

FILLED = np.nan_to_num(X)
FRAME = pd.DataFrame(
    {
        "x": X[:, 0],
        "text": np.where(X[:, 1] > 0, "$up_", np.where(X[:, 1] < -1, "down", "<b>")),
        "number": pd.Categorical(np.where(X[:, 2] > 0, 10.0, 30.0)),
        "ordered": pd.Categorical(np.where(X[:, 3] > 0, "low", "high"), ["low", "high"], ordered=True),
        "flag": X[:, 4] > 0,
        "count": np.arange(len(X)) % 7,
    }
)
FRAME.loc[::9, "text"] = None
FRAME.loc[::8, "number"] = np.nan
FRAME_Y = SIGNAL + 2 * (FRAME["text"] == "<b>") - FRAME["flag"] + (FRAME["number"] == 30.0)
NAMES = {
    "text": ["$up_", "<b>", "down", "missing"],
    "number": ["10", "30", "missing"],
    "ordered": ["low", "high"],
    "flag": ["False", "True"],
}


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def fitted(**more):
    return make(dtrees.GradientBoostingRegressor, **more).fit(FRAME, FRAME_Y)


def texts(labels):
    return [label.get_text() for label in labels]


@every_kind
def test_dependence_is_scikit_learns(kind):
    model = make(kind).fit(FILLED, target(kind))
    ax = plot_partial_dependence(model, FILLED, 1, grid_resolution=9)
    regression = kind.__name__.endswith("Regressor")
    *rows, mean = ax.get_lines()
    lines = [mean] if regression else ax.get_lines()
    grid = lines[0].get_xdata()
    assert len(grid) == 9
    wanted = partial_dependence(model, FILLED, [1], custom_values={1: grid}, method="brute", kind="both")
    assert_allclose([line.get_ydata() for line in lines], wanted.average, rtol=1e-12)
    if not regression:
        assert texts(ax.get_legend().get_texts()) == [f" {name}" for name in model.classes_]
        (line,) = plot_partial_dependence(model, FILLED, 1, grid_resolution=9, target="low", kind="average").get_lines()
        assert_allclose(line.get_ydata(), wanted.average[list(model.classes_).index("low")])
    else:
        assert_allclose([row.get_ydata() for row in rows], wanted.individual[0, ::6])


def test_dependence_on_two_columns_is_scikit_learns():
    model = make(dtrees.RandomForestRegressor).fit(FILLED, SIGNAL)
    ax = plot_partial_dependence(model, FILLED, (1, 0))
    (mesh, points) = ax.collections
    grid = {j: np.linspace(*np.quantile(FILLED[:, j], [0.01, 0.99]), 20) for j in (0, 1)}
    wanted = partial_dependence(model, FILLED, [1, 0], method="brute", custom_values=grid)
    assert_allclose(mesh.get_array(), wanted.average[0].T)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature_1", "feature_0")
    assert 280 < len(points.get_offsets()) < 300
    ax = plot_partial_dependence(fitted(), FRAME, ("text", "flag"))
    assert texts(ax.get_xticklabels()) == NAMES["text"]
    assert texts(ax.get_yticklabels()) == NAMES["flag"]


def by_hand(model, frame, name, value):
    """Return the predictions of rows with the same value in one column, and otherwise unchanged."""
    changed = frame.copy()
    changed[name] = pd.Series([value] * len(frame), dtype=frame[name].dtype if frame[name].dtype != bool else None)
    return model.predict(changed)


@pytest.mark.parametrize("library", slow_for({"polars"}, ["pandas", "polars"]))
def test_dependence_on_categories_by_name(library):
    import polars as pl

    frame = (
        FRAME
        if library == "pandas"
        else pl.from_pandas(FRAME.astype({"number": float, "ordered": str})).with_columns(pl.col("ordered").cast(pl.Enum(["low", "high"])))
    )
    options = {"categorical_features": ["from_dtype", "text", "number"]} if library == "polars" else {}
    model = make(dtrees.GradientBoostingRegressor, **options).fit(frame, FRAME_Y)
    twin = make(dtrees.GradientBoostingRegressor).fit(FRAME, FRAME_Y)
    for name, labels in NAMES.items():
        ax = plot_partial_dependence(model, frame, name)
        values = {"missing": None, "10": 10.0, "30": 30.0, "False": False, "True": True}
        found = {label: by_hand(twin, FRAME, name, values.get(label, label)) for label in labels}
        means = {label: one.mean() for label, one in found.items()}
        ax.figure.canvas.draw()
        order = labels if name == "ordered" else sorted(labels, key=means.get)
        assert texts(ax.get_yticklabels()) == order
        assert_allclose(ax.get_lines()[-1].get_xdata(), [means[label] for label in order])
        centre = np.mean(list(found.values()), axis=0)
        ranges = [np.quantile(found[label] - centre + centre.mean(), [0.1, 0.9]) for label in order]
        assert_allclose([segment[:, 0] for segment in ax.collections[0].get_segments()], ranges)


def test_missing_values_and_few_numbers():
    model = fitted()
    ax = plot_partial_dependence(model, FRAME, "x", kind="average")
    line, missing = ax.get_lines()
    assert missing.get_label() == "missing values"
    assert_allclose(missing.get_ydata()[0], by_hand(model, FRAME, "x", np.nan).mean())
    assert_allclose(line.get_ydata()[7], by_hand(model, FRAME, "x", line.get_xdata()[7]).mean())
    ax = plot_partial_dependence(model, FRAME, 5, kind="average")
    assert ax.get_lines()[0].get_xdata().tolist() == list(range(7))
    assert ax.get_xlabel() == "count"
    same = np.full((4, 2), [1.0, np.nan])
    constant = dtrees.DecisionTreeRegressor().fit(same, [2.0] * 4)
    for feature in (0, 1, (0, 1)):
        plot_partial_dependence(constant, same, feature).figure.canvas.draw()
    infinite = np.where(np.arange(300) % 3, FILLED[:, 0], np.where(np.arange(300) % 2, np.inf, -np.inf))[:, np.newaxis]
    model = make(dtrees.RandomForestRegressor, max_features=1).fit(infinite, SIGNAL)
    assert np.abs(plot_partial_dependence(model, infinite, 0).get_lines()[-1].get_xdata()).max() < 4
    plot_shap(model, infinite).figure.canvas.draw()
    plot_shap(constant, same[:1])
    plot_shap(constant, same, row=0)


def test_several_columns_and_the_most_important():
    model = fitted()
    axes = plot_partial_dependence(model, FRAME, ["x", ("x", "text"), 1], title="$here")
    assert axes.shape == (3,)
    assert axes[1].get_ylabel() == "text"
    assert axes[0].get_title() == "$here"
    axes[0].figure.canvas.draw()
    named = [ax.get_xlabel() if ax.get_xlabel() != "prediction" else ax.get_ylabel() for ax in plot_partial_dependence(model, FRAME)]
    assert named == FRAME.columns[np.argsort(-model.feature_importances_, kind="stable")].tolist()


def test_models_of_every_shape():
    """Several targets, of numbers and of classes; bags, pipelines, sparse tables; initial values that depend on X."""
    numbers = make(dtrees.RandomForestRegressor).fit(FILLED, np.column_stack([SIGNAL, -SIGNAL]))
    ax = plot_partial_dependence(numbers, FILLED, 0, target=1, kind="average")
    assert ax.get_ylabel() == "prediction of target 1"
    (both,) = plot_partial_dependence(numbers, FILLED, [0])
    assert_allclose(both.get_lines()[1].get_ydata(), ax.get_lines()[0].get_ydata())
    labels = np.column_stack([SIGNAL > 0, np.digitize(FILLED[:, 2], [-0.5, 0.5])]).astype(int)
    for kind in (dtrees.RandomForestClassifier, dtrees.GradientBoostingClassifier):
        model = make(kind).fit(FILLED, labels)
        keys = [(0, 1), (1, 0), (1, 1), (1, 2)]
        (ax,) = plot_partial_dependence(model, FILLED, [0])
        assert texts(ax.get_legend().get_texts()) == [f" target {k}: {label}" for k, label in keys]
        one = plot_partial_dependence(model, FILLED, 0, target=(1, 2), kind="average")
        assert_allclose(one.get_lines()[0].get_ydata(), ax.get_lines()[3].get_ydata())
        ax = plot_shap(model, FILLED, row=5, target=(0, 1))
        raw = model.shap_values(FILLED[5:6])[0][:, 0 if kind is dtrees.GradientBoostingClassifier else 1]
        assert_allclose(sorted(bar.get_width() for bar in ax.patches), sorted(raw))
        with pytest.raises(ValueError, match=r"target is \(0, 0\); wants one of \(0, 1\), \(1, 0\)"):
            plot_shap(model, FILLED, target=(0, 0))
    quantiles = make(dtrees.GradientBoostingRegressor, loss="quantile", alpha=[0.1, 0.9]).fit(FILLED, SIGNAL)
    (ax,) = plot_partial_dependence(quantiles, FILLED, [0])
    assert texts(ax.get_legend().get_texts()) == [" the 0.1 quantile", " the 0.9 quantile"]
    assert plot_shap(quantiles, FILLED, row=0, target=0.9).get_xlabel().startswith("prediction of the 0.9 quantile: from ")
    outliers = dtrees.IsolationForest(10, random_state=0).fit(FILLED)
    ax = plot_partial_dependence(outliers, FILLED, kind="average")[3]
    (line,) = ax.get_lines()
    changed = FILLED.copy()
    changed[:, 3] = line.get_xdata()[0]
    assert (ax.get_ylabel(), line.get_ydata()[0]) == ("score", pytest.approx(outliers.score_samples(changed).mean()))
    assert plot_shap(outliers, FILLED, row=0).get_xlabel().startswith("path length: from ")
    start = make(dtrees.GradientBoostingRegressor, init=DummyRegressor()).fit(FRAME[["x", "count"]], SIGNAL)
    margin = make(dtrees.GradientBoostingRegressor).fit(FILLED, SIGNAL, base_margin=np.full(len(X), SIGNAL.mean()))
    steps = make_pipeline(StandardScaler(), make(dtrees.DecisionTreeRegressor)).fit(FILLED, SIGNAL)
    bag = dtrees.BaggingClassifier(make(dtrees.GradientBoostingClassifier), 2, random_state=0).fit(FILLED, LABELS)
    for model, table in ((start, FRAME[["x", "count"]]), (margin, FILLED), (steps, FILLED), (bag, FILLED)):
        plot_partial_dependence(model, table, 0)
        plot_shap(model, table)
    (line,) = plot_partial_dependence(margin, FILLED, 0, kind="average").get_lines()
    changed = np.column_stack([np.full(len(X), line.get_xdata()[3]), FILLED[:, 1:]])
    assert_allclose(line.get_ydata()[3], margin.predict(changed, base_margin=0).mean())
    assert_allclose(plot_shap(bag, FILLED, row=0, target="mid").patches[-1].get_width(), largest_of_bag(bag))


def largest_of_bag(bag):
    values = np.mean([booster.shap_values(FILLED[:1]) for booster in bag.estimators_], axis=0)[0, :, 2]
    return values[np.argmax(np.abs(values))]


@pytest.mark.slow
def test_dask_collections_and_sparse_tables():
    import dask.dataframe as dd
    import scipy.sparse

    model = fitted()
    here, there = (
        plot_partial_dependence(model, table, "x", max_rows=50).get_lines() for table in (FRAME, dd.from_pandas(FRAME, npartitions=3))
    )
    for mine, other in zip(here, there, strict=True):
        assert_allclose(mine.get_ydata(), other.get_ydata())
    assert len(plot_shap(model, dd.from_pandas(FRAME, npartitions=3), max_rows=50).collections[1].get_offsets()) <= 50
    table = scipy.sparse.random(200, 30, 0.1, format="csr", random_state=0)
    model = make(dtrees.RandomForestRegressor).fit(table, SIGNAL[:200])
    assert_allclose(
        *([line.get_ydata() for line in plot_partial_dependence(model, one, 3).get_lines()] for one in (table, table.toarray()))
    )
    plot_shap(model, table)


def points_of(ax, place):
    """Return the x of the points of a column."""
    return np.sort(np.concatenate([points.get_offsets()[:, 0] for points in ax.collections[2 * place : 2 * place + 2]]))


@every_kind
def test_shapley_values_of_many_rows(kind):
    model = make(kind).fit(X, target(kind))
    values = model.shap_values(X).reshape(len(X), 5, -1)
    ax = plot_shap(model, X, max_num_features=4)
    order = np.argsort(-np.abs(values).mean(axis=0).sum(axis=1), kind="stable")[:4]
    assert texts(ax.get_yticklabels()) == [f"feature_{j}" for j in order]
    assert "(4 of 5 columns)" in ax.get_xlabel()
    if kind.__name__.endswith("Classifier"):
        sizes = np.abs(values).mean(axis=0)
        largest_first = np.argsort(-sizes[order].sum(axis=0), kind="stable")
        assert_allclose([bar.get_width() for bar in ax.patches], sizes[order].T[largest_first].ravel())
        ax = plot_shap(model, X, target="mid", feature_names=list("abcde"))
        values = values[:, :, 2:]
        order = np.argsort(-np.abs(values).mean(axis=0).sum(axis=1), kind="stable")
        assert texts(ax.get_yticklabels()) == ["abcde"[j] for j in order]
    for place, j in enumerate(order.tolist()):
        assert_allclose(points_of(ax, place), np.sort(values[:, j, 0]), atol=1e-12)
        grey = ax.collections[2 * place].get_offsets()[:, 0]
        assert_allclose(np.sort(grey), np.sort(values[np.isnan(X[:, j]), j, 0]), atol=1e-12)


def test_points_beside_each_other_are_within_their_row():
    model = fitted()
    ax = plot_shap(model, FRAME)
    for place in range(6):
        y = np.concatenate([points.get_offsets()[:, 1] for points in ax.collections[2 * place : 2 * place + 2]])
        assert np.abs(y - place).max() < 0.5
    place = texts(ax.get_yticklabels()).index("text")
    assert len(ax.collections[2 * place].get_offsets()) == len(FRAME)


def test_shapley_values_of_one_row():
    model, background = fitted(), FRAME[:20]
    values, expected = model.shap_values(FRAME[7:8])[0], model.shap_expected_value()
    ax = plot_shap(model, FRAME, row=7)
    order = np.argsort(-np.abs(values), kind="stable")[::-1]
    assert_allclose([bar.get_width() for bar in ax.patches], values[order])
    assert_allclose(ax.patches[0].get_x(), expected)
    assert_allclose(ax.patches[-1].get_x() + ax.patches[-1].get_width(), model.predict(FRAME[7:8])[0])
    assert ax.get_xlabel() == f"prediction: from {expected:.3f}, the expected value, to {model.predict(FRAME[7:8])[0]:.3f}"
    row = FRAME.iloc[7]
    said = {
        "x": f"x = {row['x']:.3f}",
        "text": f"text = {row['text']}",
        "number": f"number = {row['number']:.0f}",
        "ordered": f"ordered = {row['ordered']}",
    }
    said |= {"flag": f"flag = {row['flag']}", "count": "count = 0"}
    assert texts(ax.get_yticklabels()) == [said[FRAME.columns[j]] for j in order]
    assert "number = missing" in texts(plot_shap(model, FRAME, row=8).get_yticklabels())
    ax = plot_shap(model, FRAME, row=7, max_num_features=3)
    assert texts(ax.get_yticklabels())[0] == "4 other columns"
    assert_allclose(ax.patches[0].get_width(), values[order[:4]].sum())
    ax = plot_shap(model, FRAME, row=7, background=background)
    assert_allclose(ax.patches[0].get_x(), model.predict(background).mean())
    assert_allclose(sorted(bar.get_width() for bar in ax.patches), sorted(model.shap_values(FRAME[7:8], background)[0]))
    two = make(dtrees.GradientBoostingClassifier).fit(FRAME, FRAME_Y > 1)
    assert plot_shap(two, FRAME, row=7).get_xlabel().startswith("log odds of True: from ")


def test_what_cannot_be_drawn():
    model = fitted()
    classes = make(dtrees.DecisionTreeClassifier).fit(X, LABELS)
    axes = plt.subplots()[1]
    for plot, arguments, options, error, message in (
        (plot_partial_dependence, ("model", FRAME), {}, TypeError, "model is of type str; wants an estimator of dtrees"),
        (plot_partial_dependence, (model, FRAME, "y"), {}, ValueError, r"features names 'y'; wants columns by name \('x', 'text'"),
        (plot_partial_dependence, (model, FRAME, 6), {}, ValueError, r"features names 6; wants .* \(0 to 5\)"),
        (plot_partial_dependence, (model, FRAME, [(0, 1, 2)]), {}, ValueError, "wants columns, or pairs of them as tuples"),
        (plot_partial_dependence, (model, FRAME, []), {}, ValueError, "wants columns, or pairs of them as tuples"),
        (plot_partial_dependence, (model, FRAME, 0), {"kind": "mean"}, ValueError, "kind is 'mean'; wants 'average', 'individual', 'both'"),
        (plot_partial_dependence, (model, FRAME, 0), {"grid_resolution": 1}, ValueError, "grid_resolution is 1; wants at least 2"),
        (plot_partial_dependence, (model, FRAME, 0), {"max_rows": 0.5}, TypeError, "max_rows is 0.5; wants an integer"),
        (plot_partial_dependence, (model, FRAME, [0]), {"ax": axes}, ValueError, "ax is given, but features is a list"),
        (plot_partial_dependence, (model, FRAME[:0], 0), {}, ValueError, "X has no rows"),
        (plot_partial_dependence, (model, FRAME[["x"]], 0), {}, ValueError, "feature names"),
        (plot_partial_dependence, (classes, X, 0), {"target": "none"}, ValueError, "target is 'none'; wants one of 'high', 'low', 'mid'"),
        (plot_shap, (classes, X), {"row": 0}, ValueError, "target is None, but one of several is explained; wants one of 'high'"),
        (plot_shap, (model, FRAME), {"row": 300}, ValueError, "row is 300, but X has 300 rows; the first one is 0"),
        (plot_shap, (model, FRAME), {"row": -1}, ValueError, "row is -1; wants at least 0"),
        (plot_shap, (model, FRAME), {"seed": "a"}, TypeError, "seed is 'a'; wants an integer"),
        (plot_shap, (model, FRAME), {"ax": "here"}, TypeError, "ax is of type str"),
        (plot_shap, (model, FRAME), {"background": FRAME[:0]}, ValueError, "background has no rows"),
    ):
        with pytest.raises(error, match=message):
            plot(*arguments, **options)
