import datetime
import decimal
import enum
import json
import re
import warnings

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import dtrees
from dtrees.ensemble.input.column import CATEGORICAL, NUMERIC, UNKNOWN, Column, encode_column, float_dtype
from dtrees.ensemble.input.plain_data import plain_label
from dtrees.ensemble.input.schema import Schema
from tests.examples import examples


def arrow(values):
    return pa.table({"x": values})


def frames():
    """The same table in three libraries."""
    data = {
        "age": [1.5, None, 3.0],
        "job": ["smith", None, "baker"],
        "old": [True, False, True],
        "count": [3, 1, 2],
    }
    polars = pl.DataFrame(data)
    return [pd.DataFrame(data), polars, polars.to_arrow()]


@pytest.mark.parametrize("frame", frames(), ids=["pandas", "polars", "arrow"])
def test_frames_of_all_libraries_give_the_same_numbers(frame):
    schema = Schema.infer(frame)
    assert [column.kind for column in schema.columns] == [NUMERIC, CATEGORICAL, NUMERIC, NUMERIC]
    assert [column.dtype for column in schema.columns] == ["float64", "", "bool", "int64"]
    assert schema.columns[1].categories == ("baker", "smith")
    age, job, old, count = schema.encode(frame)
    np.testing.assert_array_equal(age, [1.5, np.nan, 3.0])
    np.testing.assert_array_equal(job, [1, np.nan, 0])
    np.testing.assert_array_equal(old, [True, False, True])
    np.testing.assert_array_equal(count, [3, 1, 2])
    assert (old.dtype, count.dtype) == (bool, np.int64)
    np.testing.assert_array_equal(schema.matrix(frame), np.column_stack([age, job, old, count]))


@pytest.mark.parametrize(
    ("column", "kind", "encoded"),
    [
        (pd.array([1, None], dtype="Int64"), NUMERIC, [1, np.nan]),
        (pd.array([True, None], dtype="boolean"), NUMERIC, [1, np.nan]),
        (pd.Series([True, None], dtype=object), NUMERIC, [1, np.nan]),
        (pd.Series([1.5, 2], dtype=object), NUMERIC, [1.5, 2]),
        (pd.Series([decimal.Decimal("1.5"), None], dtype=object), NUMERIC, [1.5, np.nan]),
        (pd.array([1, None], dtype="int8[pyarrow]"), NUMERIC, [1, np.nan]),
        (pd.array(["b", "a"], dtype="string[pyarrow]"), CATEGORICAL, [1, 0]),
        (pd.Series(["b", np.nan], dtype=object), CATEGORICAL, [0, np.nan]),
        (pd.Categorical(["b", "a"], categories=["b", "a", "never seen"]), CATEGORICAL, [1, 0]),
        (pd.Categorical([30, None], categories=[30, 10]), CATEGORICAL, [0, np.nan]),
        (pd.Series([None, None], dtype=object), UNKNOWN, [np.nan, np.nan]),
        (np.array([1.5, 2.5], dtype=np.float16), NUMERIC, [1.5, 2.5]),
    ],
)
def test_pandas_dtypes(column, kind, encoded):
    frame = pd.DataFrame({"x": column})
    schema = Schema.infer(frame)
    assert schema.columns[0].kind == kind
    np.testing.assert_array_equal(schema.encode(frame)[0], encoded)
    np.testing.assert_array_equal(schema.matrix(frame)[:, 0], encoded)


@pytest.mark.parametrize(
    ("column", "kind", "encoded"),
    [
        (pl.Series(["b", None], dtype=pl.Categorical), CATEGORICAL, [0, np.nan]),
        (pl.Series(["a", "b"], dtype=pl.Enum(["b", "c", "a"])), CATEGORICAL, [1, 0]),
        (pl.Series([None, None]), UNKNOWN, [np.nan, np.nan]),
        (pl.Series([1, None], dtype=pl.Int16), NUMERIC, [1, np.nan]),
        (pl.Series([1, 2], dtype=pl.Int128), NUMERIC, [1, 2]),
        (pl.Series([decimal.Decimal("1.5"), None]), NUMERIC, [1.5, np.nan]),
        (pl.Series([True, None]), NUMERIC, [1, np.nan]),
    ],
)
def test_polars_dtypes(column, kind, encoded):
    frame = pl.DataFrame({"x": column})
    schema = Schema.infer(frame)
    assert schema.columns[0].kind == kind
    np.testing.assert_array_equal(schema.encode(frame)[0], encoded)


@pytest.mark.parametrize(
    ("column", "kind", "encoded"),
    [
        (pa.array([decimal.Decimal("1.25"), None], pa.decimal32(5, 2)), NUMERIC, [1.25, np.nan]),
        (pa.array([decimal.Decimal("1.25"), None], pa.decimal64(12, 2)), NUMERIC, [1.25, np.nan]),
        (pc.run_end_encode(pa.array([3, 3, 5])), NUMERIC, [3, 3, 5]),
        (pc.run_end_encode(pa.array(["b", "a"])), CATEGORICAL, [1, 0]),
        (pa.array([1, 0], pa.bool8()), NUMERIC, [1, 0]),
    ],
)
def test_arrow_types_without_a_kernel(column, kind, encoded):
    """Arrow can list their values, but not determine the distinct ones."""
    schema = Schema.infer(arrow(column))
    assert schema.columns[0].kind == kind
    np.testing.assert_array_equal(schema.encode(arrow(column))[0], encoded)
    np.testing.assert_array_equal(schema.matrix(arrow(column))[:, 0], encoded)


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("values", "categories"),
    [
        ([decimal.Decimal("2.5"), decimal.Decimal("1")], (1, 2.5)),
        ([decimal.Decimal("0.1"), decimal.Decimal("Infinity")], (0.1, np.inf)),
        ([np.str_("b"), np.str_("a")], ("a", "b")),
        ([Colour.RED, Colour.BLUE], ("blue", "red")),
        ([2**60 + 1, 2**60], (2**60, 2**60 + 1)),
        ([np.float32(0.1), np.float32(2)], (float(np.float32(0.1)), 2.0)),
        ([True, np.False_], (False, True)),
    ],
)
def test_categories_are_what_a_file_holds(values, categories):
    frame = pd.DataFrame({"x": pd.Series(pd.Series(values, dtype=object).astype("category"))})
    schema = Schema.infer(frame)
    assert schema.columns[0].categories == categories
    assert list(map(type, schema.columns[0].categories)) == list(map(type, categories))
    restored = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert restored == schema
    np.testing.assert_array_equal(restored.matrix(frame)[:, 0], [categories.index(plain_label(value)) for value in values])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("dtype", "becomes"), [("f4", "f4"), ("f8", "f8"), ("i2", "f4"), ("i4", "f8"), ("?", "f4"), (object, "f8")])
def test_masked_cells_are_missing(dtype, becomes, masked):
    X = np.ma.array([[1, 0], [0, 1]], dtype, mask=[[False, masked], [False, False]])
    encoded = Schema.infer(X).encode(X)
    np.testing.assert_array_equal(np.column_stack(encoded), [[1, np.nan if masked else 0], [0, 1]])
    np.testing.assert_array_equal(Schema.infer(X).matrix(X), np.column_stack(encoded))
    if masked:
        assert encoded[0].dtype == becomes


def test_ordered_dtypes_give_categories_their_order():
    sizes = ["small", "medium", "large", "huge"]
    pandas = pd.DataFrame({"x": pd.Categorical(["large", "small", None, "huge"], sizes, ordered=True)})
    polars = pl.DataFrame({"x": pl.Series(["large", "small", None, "huge"], dtype=pl.Enum(sizes))})
    for frame in (pandas, polars):
        schema = Schema.infer(frame)
        assert schema.columns[0].categories == ("small", "large", "huge")
        assert Schema.merge([Schema.infer(frame[:1]), Schema.infer(frame[1:])]) == schema
        restored = Schema.from_json(json.loads(json.dumps(schema.to_json())))
        assert restored == schema
        assert bool(restored.columns[0].order)
        np.testing.assert_array_equal(restored.matrix(frame)[:, 0], [1, 0, np.nan, 2])
    for levels in ([3.5, -1.0, 2.0], [3, 1, 2]):
        schema = Schema.infer(pd.DataFrame({"x": pd.Categorical(levels, levels, ordered=True)}))
        assert schema.columns[0].categories == tuple(levels)
        for table in (pd.DataFrame({"x": levels[::-1]}), np.array(levels[::-1], np.float64)[:, np.newaxis]):
            np.testing.assert_array_equal(schema.matrix(table)[:, 0], [2, 1, 0])
    with pytest.raises(ValueError, match="partitions whose dtypes declare different orders"):
        Schema.merge([Schema.infer(pandas), Schema.infer(pd.DataFrame({"x": pd.Categorical(["a"], ordered=True)}))])
    damaged = [{"name": "x", "kind": CATEGORICAL, "dtype": "", "categories": ["b", "a", "b"], "ordered": True}]
    with pytest.raises(ValueError, match="not distinct"):
        Schema.from_json(damaged)


def test_partitions_agree_on_infinity():
    """Infinities are the extremes of the dtype of all partitions."""
    for as_table in (np.asarray, pd.DataFrame):
        parts = [as_table(np.array([[np.inf], [1.0]], dtype)) for dtype in (np.float32, np.float64)]
        schema = Schema.merge(map(Schema.infer, parts))
        assert [schema.encode(part)[0][0] for part in parts] == [np.finfo(np.float64).max] * 2
        assert [schema.matrix(part)[0, 0] for part in parts] == [np.inf] * 2
    sparse = csr_matrix(np.array([[-np.inf], [1.0]], np.float32))
    assert schema.cells(sparse).data.tolist() == [np.finfo(np.float64).min, 1.0]
    assert np.isinf(sparse.data[0])


def test_arrays_keep_their_dtype_and_are_not_copied():
    for dtype in (np.float32, np.float64, np.int8, np.int64, np.uint16, bool):
        X = np.ones((3, 2), dtype=dtype)
        columns = Schema.infer(X).encode(X)
        assert all(column.dtype == dtype and np.shares_memory(column, X) for column in columns)


@pytest.mark.parametrize(
    ("dtype", "expected"), [(np.float32, np.float32), (np.int16, np.float32), (bool, np.float32), (np.int32, np.float64), ("f8", "f8")]
)
def test_matrix_is_float32_where_that_is_exact(dtype, expected):
    X = np.ones((3, 2), dtype=dtype)
    assert Schema.infer(X).matrix(X).dtype == expected


@examples(30)
@given(st.lists(st.sampled_from("?bBhHiIlLqQefd"), min_size=1, max_size=5), st.integers(0, 3), st.booleans())
def test_frames_of_numbers_become_a_matrix_at_once_as_column_by_column(codes, n_rows, missing):
    rng = np.random.default_rng(len(codes))
    frame = pd.DataFrame({f"c{j}": rng.uniform(0.0, 120.0, n_rows).astype(code) for j, code in enumerate(codes)})
    if missing and n_rows:
        frame.loc[0, [name for name in frame if frame[name].dtype.kind == "f"]] = np.nan
    schema = Schema(tuple(Column(name, NUMERIC) for name in frame))
    one_by_one = [encode_column(Column(name, NUMERIC, ""), nw.from_native(frame[name], series_only=True)) for name in frame]
    expected = np.stack(one_by_one, axis=1).astype(float_dtype(*(array.dtype for array in one_by_one)))
    matrix = schema.matrix(frame)
    assert matrix.dtype == expected.dtype
    np.testing.assert_array_equal(matrix, expected)


def test_integers_that_no_float_holds_are_named_by_their_column():
    frame = pd.DataFrame({"small": [1, 2], "large": [0, 2**53 + 1]})
    with pytest.raises(ValueError, match="column 'large' contains the integer"):
        Schema((Column("small", NUMERIC), Column("large", NUMERIC))).matrix(frame)


def test_big_endian_arrays_are_turned_round():
    X = np.arange(4.0).reshape(2, 2).astype(">f8")
    assert Schema.infer(X).matrix(X).dtype == np.dtype("=f8")


@examples(50)
@given(
    st.lists(st.tuples(st.sampled_from(["x", "y", "z", None]), st.sampled_from([1, 2.5, None])), min_size=1, max_size=12),
    st.integers(1, 5),
)
def test_merging_does_not_depend_on_partitions(rows, n_parts):
    frame = pd.DataFrame({"c": [row[0] for row in rows], "v": [row[1] for row in rows]}).astype({"c": object})
    parts = [frame.iloc[part] for part in np.array_split(np.arange(len(frame)), n_parts)]
    merged = Schema.merge(Schema.infer(part) for part in parts)
    whole = Schema.infer(frame)
    assert merged.columns[0].categories == whole.columns[0].categories
    for joined, column in zip(np.concatenate([merged.matrix(part) for part in parts]).T, whole.matrix(frame).T, strict=True):
        np.testing.assert_array_equal(joined, column)


def test_merging_widens_dtypes():
    parts = [pd.DataFrame({"x": [1, 2]}), pd.DataFrame({"x": [0.5]}), pd.DataFrame({"x": [None]})]
    schema = Schema.merge(Schema.infer(part) for part in parts)
    assert schema.columns[0].dtype == "float64"
    assert all(schema.encode(part)[0].dtype == np.float64 for part in parts)


@pytest.mark.parametrize("missing", [np.array([None, None]), np.full(2, np.nan, "f4"), pd.array([pd.NA, pd.NA], "Int64")], ids=str)
@pytest.mark.parametrize("values", [[1, 2], [True, False], [0.1, 0.2], ["a", "b"], pd.Categorical(["b", "c"]), [None, None]], ids=str)
def test_partitions_without_a_value_are_of_any_kind(values, missing):
    parts = [pd.DataFrame({"x": values}), pd.DataFrame({"x": missing})]
    schema = Schema.merge(Schema.infer(part) for part in parts)
    assert schema.columns[0].kind == Schema.infer(parts[0]).columns[0].kind
    encoded = np.concatenate([schema.encode(part)[0] for part in parts])
    np.testing.assert_array_equal(encoded, [*Schema.infer(parts[0]).encode(parts[0])[0], np.nan, np.nan])
    np.testing.assert_array_equal(schema.matrix(parts[1]), [[np.nan], [np.nan]])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([pd.DataFrame({"x": ["a"]}), pd.DataFrame({"x": [1]})], "holds text or categories in some partitions and numbers in others"),
        ([pd.DataFrame({"x": [1]}), pd.DataFrame({"y": [1]})], "name a column differently"),
        ([pd.DataFrame({"x": [1]}), pd.DataFrame({"x": [1], "y": [1]})], "partitions of 1 and of 2 columns"),
        ([pd.DataFrame({"x": pd.Categorical(["a"])}), pd.DataFrame({"x": pd.Categorical([1])})], "categories of numbers and text"),
    ],
)
def test_partitions_that_disagree(parts, message):
    with pytest.raises(ValueError, match=message):
        Schema.merge([Schema.infer(part) for part in parts])


def test_unseen_categories_are_missing():
    schema = Schema.infer(pd.DataFrame({"x": ["a", "b"]}))
    np.testing.assert_array_equal(schema.matrix(pl.DataFrame({"x": ["b", "never", None]}))[:, 0], [1, np.nan, np.nan])
    np.testing.assert_array_equal(schema.matrix(pd.DataFrame({"x": [None, np.nan]}))[:, 0], [np.nan, np.nan])


def test_empty_blocks_have_a_matrix():
    frame = pd.DataFrame({"x": ["a"], "v": [1.0]})
    assert Schema.infer(frame).matrix(frame.iloc[:0]).shape == (0, 2)
    assert Schema.infer(np.ones((2, 3))).matrix(np.ones((0, 3))).shape == (0, 3)


def test_columns_of_the_same_name_are_told_apart_by_position():
    frame = pd.DataFrame([[1, "a"], [2, "b"]], columns=["x", "x"])
    np.testing.assert_array_equal(Schema.infer(frame).matrix(frame), [[1, 0], [2, 1]])


def test_json_round_trip():
    schema = Schema.infer(pd.DataFrame({"x": ["a", "b"], "v": [1, 2], "c": pd.Categorical([1, 2]), "none": [None, None]}))
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


@pytest.mark.parametrize("data", [[{"name": "x"}], [None], [{"name": "x", "kind": "other", "dtype": "", "categories": []}]])
def test_damaged_json(data):
    with pytest.raises(ValueError, match="schema is damaged"):
        Schema.from_json(data)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.array([["a"]]), ValueError, "array of dtype <U1; wants numbers.*frame"),
        ([["a", 1.0]], ValueError, "wants numbers"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), ValueError, "datetime64.*wants numbers"),
        (np.ones((2, 2), dtype=complex), ValueError, "Complex data not supported"),
        (np.matrix([[1.0, 2.0]]), TypeError, r"X is a numpy.matrix; wants an array, numpy.asarray\(X\)"),
        (np.ma.masked_equal([[2**60, 0]], 0), ValueError, "X contains the integer"),
        (np.array([[2**53 + 2]]), ValueError, "integer 9007199254740994; integers must lie within"),
        (np.array([[-(2**60)]]), ValueError, "integer -1152921504606846976"),
        (np.ones(3), ValueError, "Expected 2D array, got 1D array"),
        (np.ones((3, 0)), ValueError, "0 feature"),
        (csr_matrix(np.eye(2)), TypeError, "Sparse data was passed for X, but dense data is required"),
        (pl.LazyFrame({"x": [1]}), TypeError, r"call .collect\(\)"),
        (
            pd.DataFrame({"day": [datetime.datetime(2020, 1, 1)]}),
            ValueError,
            "column 'day' is of dtype datetime64.*wants numbers.*turn dates",
        ),
        (
            pl.DataFrame({"day": [datetime.datetime(2020, 1, 1)]}),
            ValueError,
            "column 'day' is of dtype Datetime.*wants numbers.*turn dates",
        ),
        (pl.DataFrame({"lists": [[1]]}), ValueError, "column 'lists' is of dtype List"),
        (pd.DataFrame({"x": [1, "a"]}), ValueError, "column 'x' mixes numbers and text"),
        (pd.DataFrame({"x": [{"a": 1}]}), ValueError, "column 'x' is of dtype object, whose values cannot be compared"),
        (pl.DataFrame({"x": [object()]}), ValueError, "column 'x' holds <object"),
        (
            arrow(pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])),
            ValueError,
            "column 'x' mixes",
        ),
        (arrow(pa.array([b"0" * 16] * 2, pa.uuid())), ValueError, "column 'x' holds UUID"),
        (arrow(pa.array([[1]], pa.list_view(pa.int64()))), ValueError, "column 'x' is of dtype list_view<item: int64>, whose values"),
        (
            pd.DataFrame({"x": pd.Categorical([decimal.Decimal("0.1"), decimal.Decimal("0.1") + decimal.Decimal("1e-25")])}),
            ValueError,
            "column 'x' has categories that are the same number",
        ),
        (pd.DataFrame({"x": pd.Series(["a", "\ud800"], dtype=object)}), ValueError, "X column 'x' contain text that is not valid Unicode"),
        (pd.DataFrame({"x": pd.array([2**53 + 2, None], dtype="Int64")}), ValueError, "column 'x' contains the integer"),
        (pd.DataFrame({"x": pd.Series([2**70, 1], dtype=object)}), ValueError, "column 'x' contains the integer"),
        (
            pd.DataFrame({"x": pd.to_datetime(["2020"]).astype("date32[pyarrow]")}),
            ValueError,
            "is of dtype date32.*turn dates into numbers",
        ),
        (pd.DataFrame({"x": pd.to_timedelta([1], unit="s")}), ValueError, "is of dtype timedelta64.*turn dates into numbers"),
        (pd.DataFrame({"x": pd.period_range("2020", periods=1, freq="D")}), ValueError, "holds Period.*wants numbers, booleans, text"),
        (pd.DataFrame({"x": pd.Categorical(pd.to_datetime(["2020"]))}), ValueError, "holds Timestamp.*wants numbers, booleans, text"),
        (pd.DataFrame({"x": [1j]}), ValueError, "holds .*complex; wants numbers"),
        (pd.DataFrame(index=[0, 1]), ValueError, "0 feature"),
    ],
)
def test_input_that_cannot_be_encoded(X, error, message):
    with pytest.raises(error, match=message):
        Schema.infer(X).encode(X)


def test_columns_that_changed_their_kind_since_fit():
    schema = Schema.infer(pd.DataFrame({"c": ["a", "b"], "v": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="column 'c' held categories of text at fit, but now holds 1"):
        schema.matrix(pd.DataFrame({"c": [1, 2], "v": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="column 'v' was numeric at fit, but now holds text, such as 'b'; convert it to numbers"):
        schema.matrix(pd.DataFrame({"c": ["a"], "v": ["b"]}))
    with pytest.raises(ValueError, match="X is an array, but column 'c' held categories at fit"):
        schema.matrix(np.ones((1, 2)))
    with pytest.raises(ValueError, match="X has 1 features, but 2 were seen at fit"):
        schema.matrix(np.ones((1, 1)))


NUMBERS = [f"{i}.5" for i in range(40)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            NUMBERS,
            r"X column 'x' holds numbers as text, such as '9.5', .* convert it to numbers \(astype\(float\), .*\), or to a category dtype",
        ),
        ([text.replace(".", ",") for text in NUMBERS], "X column 'x' holds numbers as text, such as '9,5'"),
        ([f"${i},{i:03}.50" for i in range(1, 40)], r"X column 'x' holds numbers as text, such as '\$9,009.50'"),
        (["1.000", "2.500", "12 %"] * 10, "X column 'x' holds numbers as text"),
        ([" 1", "2 ", None, "-3e5"] * 10, "X column 'x' holds numbers as text"),
        ([f"row {i}" for i in range(40)], "X column 'x' holds 40 different texts in 40 rows, such as 'row 9'"),
        (["1", "2", "many"] * 10, None),
        (["0", "1"] * 20, None),
        (["red", "green", "blue", None] * 10, None),
        (pd.Categorical(NUMBERS), None),
        (pl.Series(NUMBERS, dtype=pl.Categorical), None),
    ],
)
@pytest.mark.parametrize("as_frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_text_that_was_hardly_meant_to_be_categories(values, message, as_frame):
    if (isinstance(values, pd.Categorical) and as_frame is pl.DataFrame) or (isinstance(values, pl.Series) and as_frame is pd.DataFrame):
        pytest.skip("a column of the other kind of frame")
    frame = as_frame({"x": values})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        dtrees.DecisionTreeRegressor(min_samples_category=1).fit(frame, np.arange(len(values)))
    assert [re.match(message, str(one.message)) is not None for one in found] == ([True] if message else [])
    whole = Schema.merge([Schema.infer(frame[:7]), Schema.infer(frame[7:])])
    assert whole == Schema.infer(frame)
    assert whole.columns[0].is_text == Schema.infer(frame).columns[0].is_text


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize(
    "values",
    [
        [2, 0, 7, 2],
        [3, np.nan, 0, 3],
        [np.nan, np.nan],
        [-0.0, 5, 0.0],
        [1.5, 1, 2],
        [-1, 4, np.nan],
        [-1, 4],
        [0, 2**40, 7],
        [5, 9, 2**24],
        [2, 0, 1, np.nan, -0.0],
        [0],
    ],
)
def test_numbers_that_are_categories_are_numbered_in_their_order(values, dtype):
    """Numbers from 0 on are their own numbers, other small integers are looked up in a table, others are searched."""
    X = np.array(values, np.float64)[:, None]
    if dtype is np.int64:
        X = np.floor(np.nan_to_num(X, nan=6))
    X = X.astype(dtype)
    distinct = np.unique(X[~np.isnan(X)])
    schema = Schema.infer(X, {0})
    assert schema.columns[0].categories == tuple(float(value) for value in distinct)
    unseen = np.array([[0.5], [11], [-3], [2**41]]).astype(dtype)
    for table in (X, unseen):
        expected = [list(distinct).index(x) if x in distinct else np.nan for x in table[:, 0]]
        if len(distinct):
            np.testing.assert_array_equal(schema.encode(table)[0], expected)
