"""Targets, weights, and warnings that point to the user's line."""

import enum
import inspect
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import DataConversionWarning
from sklearn.pipeline import make_pipeline

import dtrees
from dtrees.ensemble.input.target import TargetSummary, check_target, check_weights, encode_classes
from dtrees.ensemble.input.warning import collected_warnings

floats = st.floats(0, 1e300, allow_subnormal=True)


@given(st.lists(st.tuples(st.sampled_from("abc"), floats), min_size=1, max_size=20), st.integers(1, 6))
def test_summaries_do_not_depend_on_partitions(rows, n_parts):
    y = np.array([row[0] for row in rows])
    weight = np.array([row[1] for row in rows])
    whole = TargetSummary.of(y, weight, classify=True)
    parts = np.array_split(np.arange(len(rows)), n_parts)  # some are empty
    merged = TargetSummary.merge(TargetSummary.of(y[part], weight[part], classify=True) for part in parts)
    (of_merged,), (of_whole,) = merged.by_target, whole.by_target
    assert (merged.n_rows, merged.total_weight, of_merged.exact_weights) == (whole.n_rows, whole.total_weight, of_whole.exact_weights)
    assert merged.n_weighted == whole.n_weighted == np.count_nonzero(weight)
    np.testing.assert_array_equal(merged.classes, whole.classes)
    assert of_merged.counts.tolist() == of_whole.counts.tolist() == [np.count_nonzero(weight[y == label]) for label in whole.classes]
    assert whole.total_weight == sum(of_whole.exact_weights)
    np.testing.assert_array_equal(whole.classes[encode_classes(y, whole.classes)], y)


def test_regression_has_no_classes():
    merged = TargetSummary.merge(TargetSummary.of(np.ones(n), None, classify=False) for n in (3, 0, 4))
    assert merged == TargetSummary(7, Fraction(7), n_weighted=7)
    merged.check()


def test_partitions_of_different_kinds():
    parts = [TargetSummary.of(np.array(labels), None, classify=True) for labels in (["a"], [1])]
    with pytest.raises(ValueError, match="y holds text in some partitions and numbers in others"):
        TargetSummary.merge(parts)


@pytest.mark.parametrize(
    ("summary", "message"),
    [(TargetSummary(0, Fraction(0)), "have no rows"), (TargetSummary(3, Fraction(0)), "all weights are zero")],
)
def test_nothing_to_learn_from(summary, message):
    with pytest.raises(ValueError, match=message):
        summary.check()


@pytest.mark.parametrize(
    "y",
    [[1, 2], (1.0, 2.0), np.array([1, 2], dtype=np.uint8), pd.Series([1, 2]), pd.array([1, 2], dtype="Int64"), np.array([1, 2], object)],
)
def test_real_targets_become_float64(y):
    values = check_target(y, classify=False, name="Tree")
    assert values.dtype == np.float64
    assert values.flags.writeable
    assert values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "y",
    [
        [[1, 2], [3, 4], [5, 6]],
        (np.array([1, 2]), [3, 4], (5, 6)),
        np.array([[1, 2], [3, 4], [5, 6]], np.float32),
        np.array([[1, 2], [3, 4], [5, 6]], object),
        pd.DataFrame({"a": pd.array([1, 3, 5], "Int64"), "b": [2.0, 4.0, 6.0]}),
    ],
)
def test_several_targets_lie_side_by_side(y):
    values = check_target(y, classify=False, name="Tree", multi_output=True)
    assert values.dtype == np.float64
    assert values.T.flags.c_contiguous
    assert values.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    with pytest.raises(ValueError, match="1d array|inhomogeneous"):
        check_target(y, classify=False, name="Tree")


def test_partitions_have_as_many_targets():
    parts = [TargetSummary.of(np.ones(shape), None, classify=False) for shape in ((3, 2), (0, 5), (4, 2))]
    assert TargetSummary.merge(parts) == TargetSummary(7, Fraction(7), n_targets=2, n_weighted=7)
    with pytest.raises(ValueError, match=r"y has 1 column\(s\) in some partitions and 2 in others"):
        TargetSummary.merge([*parts, TargetSummary.of(np.ones(3), None, classify=False)])


def test_weights():
    assert check_weights(None, 3) is None
    assert check_weights(2, 3).tolist() == [2.0, 2.0, 2.0]
    weight = check_weights(pd.Series([1, 0, 2]), 3)
    assert weight.dtype == np.float64
    assert weight.flags.writeable


BIG = [2**60, 2**60 + 1]


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 3
    HIGH = 5


@pytest.mark.parametrize(
    ("y", "wanted"),
    [
        (pd.Series([True, False], dtype="boolean"), [True, False]),
        (pd.Series([True, False], dtype="bool[pyarrow]"), [True, False]),
        (pd.array([True, False], dtype="boolean"), [True, False]),
        (pd.Index(pd.Categorical([True, False])), [True, False]),
        (pd.Series(pd.Categorical([True, False])), [True, False]),
        (pd.DataFrame({"y": pd.array([True, False], dtype="boolean")}), [True, False]),
        (pl.Series([True, False]), [True, False]),
        (pl.DataFrame({"y": [True, False]}), [True, False]),
        (pa.chunked_array([pa.array([True, False])]), [True, False]),
        (pd.Series(BIG, dtype="Int64"), BIG),
        (pd.Series(BIG, dtype="int64[pyarrow]"), BIG),
        (pd.Series(pd.Categorical(BIG)), BIG),
        (pl.Series([1, 2], dtype=pl.Int128), [1, 2]),
        (BIG, BIG),
        (pd.Series([Colour.RED, Colour.BLUE], dtype=object), ["red", "blue"]),
        ([Colour.RED, Colour.BLUE], ["red", "blue"]),
        (np.array([np.str_("b"), np.str_("a")], object), ["b", "a"]),
        (np.array(["b", "a"], np.dtypes.StringDType()), ["b", "a"]),
        (np.array([Level.LOW, Level.HIGH], object), [3, 5]),
        (np.array([np.True_, np.False_], object), [True, False]),
    ],
)
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_labels_keep_their_kind(y, wanted):
    labels = check_target(y, classify=True, name="Tree")
    assert labels.tolist() == wanted
    assert {type(label) for label in labels.tolist()} == {type(label) for label in wanted}


@pytest.mark.parametrize(
    "y", [[*BIG, 0.0], np.array([*BIG, 0.0], object), np.array(BIG, np.longdouble), pd.Series([*BIG, 0.5], dtype=object), [2**63 + 1, -1]]
)
def test_labels_that_would_be_the_same_float(y):
    with pytest.raises(ValueError, match="y holds the label .* beside floats, as one of which it is .*; give y one dtype"):
        check_target(y, classify=True, name="Tree")


def test_partitions_whose_labels_would_be_the_same_float():
    parts = [TargetSummary.of(np.array(labels), None, classify=True) for labels in (BIG, [0.0])]
    with pytest.raises(ValueError, match="y holds the label 1152921504606846977 beside floats"):
        TargetSummary.merge(parts)


def test_lists_of_several_kinds_do_not_become_text():
    with pytest.raises(ValueError, match="y holds labels of type int and str"):
        check_target([1, "1"], classify=True, name="Tree")


@pytest.mark.parametrize("as_frame", [pd.DataFrame, pl.DataFrame])
def test_several_labels_keep_their_kind(as_frame):
    frame = as_frame({"a": [True, False], "b": BIG, "c": ["x", "y"]})
    labels = check_target(frame, classify=True, name="Tree", multi_output=True)
    assert [labels[:, k].tolist() for k in range(3)] == [[True, False], BIG, ["x", "y"]]


def test_labels_that_no_file_could_hold():
    with pytest.raises(ValueError, match="the labels in y contain text that is not valid Unicode"):
        TargetSummary.of(np.array(["a", "\ud800"]), None, classify=True).check()


@pytest.mark.parametrize("kind", [int, float, str, object])
def test_many_classes_are_warned_of_once(kind):
    """Warned for all rows together: a partition, or an evaluation set, may well have few rows of each class."""
    labels = np.arange(30).astype(str if kind is object else kind).astype(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summaries = [TargetSummary.of(check_target(labels, classify=True, name="it"), None, classify=True) for _ in range(3)]
        TargetSummary.merge(summaries).check()
    with pytest.warns(UserWarning, match=r"y has 30 classes in 30 rows.*regressor"):
        summaries[0].check()


def test_fractions_are_no_classes():
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        check_target(np.append(np.arange(50.0), 0.5), classify=True, name="it")


# --- warnings point to the user's line ---


X = np.arange(40.0)[:, None]


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (dtrees.RandomForestRegressor(1, oob_score=True, random_state=0), X[:, 0]),
        (dtrees.RandomForestRegressor(1, max_samples=0.02), X[:, 0]),
        (dtrees.DecisionTreeRegressor(), X),
        (make_pipeline(dtrees.GradientBoostingRegressor(n_estimators=1)), X),
    ],
)
def test_warnings_point_at_the_users_line(model: Any, y: Any) -> None:
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with pytest.warns((UserWarning, DataConversionWarning)) as warned:
        model.fit(X, y)
    assert {(warning.filename, warning.lineno) for warning in warned} == {(__file__, line)}


def test_warnings_that_are_collected_keep_their_kind() -> None:
    with collected_warnings() as found:
        dtrees.DecisionTreeRegressor().fit(X, X)
    assert [type(warning) for warning in found] == [DataConversionWarning]
