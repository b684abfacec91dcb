"""Columns of categories, as users pass them: selection of columns, splits, and unseen categories."""

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dtrees
from dtrees import DecisionTreeClassifier, DecisionTreeRegressor, RandomForestClassifier
from tests.ensemble.samples import assert_same_trees, trees
from tests.plain import regressor

RANDOM = np.random.default_rng(5)
N = 400
LEVEL = RANDOM.integers(0, 12, N)
NUMBER = RANDOM.normal(size=N)
Y = RANDOM.permutation(12)[LEVEL] + NUMBER
NAMES = np.array([f"level {i}" for i in range(12)])
FRAME = pd.DataFrame({"number": NUMBER, "level": NAMES[LEVEL]})
BY_NUMBER = np.column_stack([NUMBER, LEVEL])
SMALL = {"max_depth": 5, "random_state": 0}


def sets(model):
    return sum(len(tree.categories.node) for tree in trees(model))


def test_columns_are_named_in_every_way():
    by_dtype = regressor(n_estimators=5).fit(FRAME, Y)
    assert sets(by_dtype) > 5
    assert by_dtype.is_categorical_.tolist() == [False, True]
    # Names are in the order of numbers except "level 10" and "level 11": sets have other numbers, but predictions are the same.
    for given in ([1], [False, True], np.array([False, True]), (1,)):
        model = regressor(n_estimators=5, categorical_features=given).fit(BY_NUMBER, Y)
        np.testing.assert_allclose(model.predict(BY_NUMBER), by_dtype.predict(FRAME), rtol=1e-12)
    for frame in (FRAME, FRAME.astype({"level": "category"}), pl.from_pandas(FRAME), FRAME.assign(level=LEVEL)):
        model = regressor(n_estimators=5, categorical_features=["level"]).fit(frame, Y)
        np.testing.assert_allclose(model.predict(frame), by_dtype.predict(FRAME), rtol=1e-12)
    for none in (None, [], [False, False]):
        assert sets(regressor(n_estimators=5, categorical_features=none).fit(FRAME, Y)) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["job"], r"names the column 'job', which X does not have"),
        ([2], r"holds 2; wants names of columns, or positions from 0 to 1"),
        ([True], r"is a mask of 1 columns, but X has 2"),
        ([1, "level"], r"names a column twice"),
        ([[1]], r"has shape \(1, 1\)"),
        ([0.5], r"holds 0.5"),
    ],
)
def test_columns_that_are_not_there(given, message):
    with pytest.raises(ValueError, match=f"categorical_features .*{message}"):
        DecisionTreeRegressor(categorical_features=np.array(given, dtype=object) if len(given) == 2 else given).fit(FRAME, Y)


def squares(target, weight):
    """The weighted sum of squares about the mean."""
    return weight.sum() * np.average((target - np.average(target, weights=weight)) ** 2, weights=weight) if weight.size else 0.0


def deviance(target, weight):
    """Half the Poisson deviance from the mean, up to a constant of all splits."""
    total = (target * weight).sum()
    return -total * np.log(total / weight.sum()) if weight.size and total > 0 else 0.0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("kind", "options", "target", "impurity"),
    [
        (DecisionTreeRegressor, {}, Y, squares),
        (DecisionTreeClassifier, {}, (Y > 6).astype(int), squares),
        pytest.param(DecisionTreeRegressor, {"criterion": "poisson"}, np.exp(Y / 4), deviance, marks=pytest.mark.thorough),
        (dtrees.GradientBoostingRegressor, {"n_estimators": 1, "reg_lambda": 0.0, "min_child_weight": 0.0}, Y, squares),
    ],
)
def test_no_set_is_better(kind, options, target, impurity, weighted):
    """Compared with all sets of a node, by brute force: with ties, missing values, weights."""
    few = np.where(LEVEL < 7, LEVEL, np.nan)
    weight = np.where(RANDOM.random(N) < 0.5, 1.0, 3.0) if weighted else np.ones(N)
    everything = {"cat_smooth": 0.0, "min_samples_category": 1, "max_cat_threshold": 99}
    model = kind(max_depth=1, categorical_features=[0], **everything, **options)
    model.fit(few[:, np.newaxis], target, sample_weight=weight if weighted else None)
    levels = [few == level for level in range(7)] + [np.isnan(few)]
    worth = []
    for size in range(1, 5):
        for some in itertools.combinations(levels, size):
            left = np.any(some, axis=0)
            worth.append(impurity(target[left], weight[left]) + impurity(target[~left], weight[~left]))
    ours = np.asarray(model.apply(few[:, np.newaxis])).reshape(N) == 1
    assert impurity(target[ours], weight[ours]) + impurity(target[~ours], weight[~ours]) == pytest.approx(min(worth), rel=1e-12)


def test_one_level_and_all_levels_distinct():
    """No split with one level; if each row has its own level, a prefix of the order goes left."""
    with pytest.warns(UserWarning, match="no tree found a split"):
        one = regressor(n_estimators=3, categorical_features=[0]).fit(np.zeros((N, 1)), Y)
    assert all(tree.node_count == 1 for tree in trees(one))
    everything = {"cat_smooth": 0.0, "min_samples_category": 1, "max_cat_threshold": N}
    tree = DecisionTreeRegressor(max_depth=1, categorical_features=[0], **everything).fit(np.arange(N)[:, np.newaxis], Y)
    left = np.asarray(tree.apply(np.arange(N)[:, np.newaxis])) == 1
    assert Y[left].max() < Y[~left].min() or Y[~left].max() < Y[left].min()


@pytest.mark.parametrize("kind", ["GradientBoostingRegressor", "GradientBoostingClassifier", "RandomForestClassifier"])
def test_many_levels_are_used_only_if_they_tell_something(kind):
    """By default; a set of random levels gains as much as a good threshold, unless something is subtracted from its gain."""
    rng, n = np.random.default_rng(7), 3000
    numbers = rng.integers(0, 600, (2, n))
    noise, level = np.char.add("level ", numbers.astype(str))
    frame = pd.DataFrame({"number": rng.normal(size=n), "noise": noise, "level": level})
    y = frame["number"] + 2 * rng.normal(size=600)[numbers[1]] + rng.normal(size=n)
    y = y if kind.endswith("Regressor") else y > 0

    def share(**parameters):
        """Return the shares of the noise and of the level in the importances."""
        model = getattr(dtrees, kind)(n_estimators=30, random_state=0, **parameters)
        return model.fit(frame, y).feature_importances_[1:]

    noise, level = share()
    assert level > 0.5 > 5 * noise
    assert share(min_samples_category=2)[0] > 2.5 * noise


def test_levels_that_are_missing_or_new():
    level = np.where(RANDOM.random(N) < 0.3, None, NAMES[LEVEL])
    y = np.where(pd.isna(level), 50.0, Y)
    model = DecisionTreeRegressor(min_samples_leaf=5).fit(pd.DataFrame({"level": level}), y)
    missing, new = (model.predict(pd.DataFrame({"level": pd.Series([value], dtype=object)})) for value in (None, "level 99"))
    assert missing == pytest.approx(50.0)
    assert new == missing


def test_rare_levels_are_taken_together():
    level = np.concatenate([np.repeat([0, 1], 50), np.arange(2, 12)])
    y = np.where(level == 0, 0.0, np.where(level == 1, 1.0, 5.0))
    tree = DecisionTreeRegressor(max_depth=1, categorical_features=[0], min_samples_category=5).fit(level[:, np.newaxis], y)
    assert np.asarray(tree.apply(level[level > 1, np.newaxis])).tolist() == [2] * 10
    assert tree.tree_.feature[0] == 0
    assert len({*np.asarray(tree.apply([[0.0], [1.0]])).tolist()}) == 1


def test_more_classes():
    y = np.array(["a", "b", "c", "d"])[RANDOM.permutation(12)[LEVEL] % 4]
    model = RandomForestClassifier(10, random_state=0, min_samples_category=1).fit(FRAME[["level"]], y)
    assert model.score(FRAME[["level"]], y) == 1.0
    assert DecisionTreeClassifier(max_depth=3, min_samples_category=1).fit(FRAME[["level"]], y).score(FRAME[["level"]], y) > 0.99


@pytest.mark.slow  # kernels of its own
def test_absolute_error_knows_no_sets():
    tree = DecisionTreeRegressor(criterion="absolute_error", **SMALL)
    assert sets(tree.fit(FRAME, Y)) == 0
    with pytest.raises(ValueError, match=r"criterion='absolute_error' cannot be used with categorical_features=\['level'\]"):
        tree.set_params(categorical_features=["level"]).fit(FRAME, Y)


def test_text_is_no_number():
    frame = FRAME.assign(day=LEVEL % 7, colour=pd.Categorical(NAMES[LEVEL % 3]))
    with pytest.raises(
        ValueError, match=r"categorical_features is \['day'\], which leaves out X columns 'level', 'colour': text.*'from_dtype'"
    ):
        DecisionTreeRegressor(categorical_features=["day"]).fit(frame, Y)
    mask = DecisionTreeRegressor(categorical_features=[False, True, True, False])
    with pytest.raises(ValueError, match="leaves out X column 'colour': text"):
        mask.fit(frame, Y)
    with pytest.warns(UserWarning, match="text of X column 'level' and 1 more is used as numbers, in alphabetical order"):
        DecisionTreeRegressor(criterion="absolute_error", max_depth=2).fit(frame, Y)
    for columns in (["level", "colour", "day"], ["day", "from_dtype"], [2, "from_dtype"], np.array(["from_dtype", "day"])):
        model = DecisionTreeRegressor(categorical_features=columns).fit(frame, Y)
        assert model.is_categorical_.tolist() == [False, True, True, True]
    with pytest.raises(ValueError, match="names a column twice"):
        DecisionTreeRegressor(categorical_features=["from_dtype", "day", "day"]).fit(frame, Y)


SIZES = ["small", "medium", "large", "huge"]


@pytest.mark.parametrize(
    "column",
    [pd.Categorical(np.take(SIZES, LEVEL % 4), SIZES, ordered=True), pl.Series(np.take(SIZES, LEVEL % 4).tolist(), dtype=pl.Enum(SIZES))],
    ids=["pandas", "polars"],
)
def test_order_of_ordered_dtypes(column, tmp_path):
    """It is the order of numbers if category numbers are used as numbers; so it is for monotonic_cst."""
    frame = pl.DataFrame({"size": column}) if isinstance(column, pl.Series) else pd.DataFrame({"size": column})
    number = (LEVEL % 4).astype(np.float64)[:, np.newaxis]
    y = LEVEL % 4 + 0.3 * RANDOM.normal(size=N)
    for options in (
        {"categorical_features": None},
        {"criterion": "absolute_error"},
        {"monotonic_cst": [1]},
        {"monotonic_cst": {"size": 1}},
    ):
        if "criterion" not in options:
            options = {"max_depth": 3, **options}
        same = {name: value for name, value in options.items() if not isinstance(value, dict)} | {
            "monotonic_cst": options.get("monotonic_cst") and [1]
        }
        model = DecisionTreeRegressor(**options).fit(frame, y)
        assert not model.is_categorical_.any() or "criterion" in options
        assert_same_trees(model, DecisionTreeRegressor(**same).fit(number, y))
        dtrees.save(model, tmp_path / "model")
        loaded = dtrees.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
        assert loaded.is_categorical_.tolist() == model.is_categorical_.tolist()
    assert DecisionTreeRegressor(max_depth=3).fit(frame, y).is_categorical_.all()
    with pytest.raises(ValueError, match="wants 0 for it, or an ordered dtype"):
        DecisionTreeRegressor(monotonic_cst=[1]).fit(pd.DataFrame({"size": np.take(SIZES, LEVEL % 4)}), y)
