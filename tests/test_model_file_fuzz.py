"""Model files that are changed at random, with a checksum that fits: each is refused by the one documented error, or is a sound model.

300 files are tried, and 10,000 by ``pytest -m slow tests/test_model_file_fuzz.py``, which takes some minutes.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from safetensors import safe_open

import dtrees
from dtrees import checked_arrays

#: Files of one test.
BATCH = 100
N_ROWS = 60

ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**62, 2**64, 10**30, -(10**30), 10**400, 0.5, -0.5, 1e-320, 1e308,
    float("nan"), float("inf"),
    "", "a", "x", "numeric", "categorical", "unknown", "float64", "int8", "<U3", "<U1", "<U400000000", "O", "|b1", "<f8", "<i4",
    "<f16", "<M8[s]",
    "V8", "i4,i4", "(2,3)f4", "S3", "balanced", "log_loss", "\ud800", "a\0", "evil" * 1000, [], [[]], {}, [None], [1, 2], ["a",
    "b"], ["b", "a"],
    [1, "a"], ["a", "a"], {"a": 1}, {"dict": []}, {"dict": [[[1], 2]]}, {"dict": [["a", 2.0]]}, {"dict": [[{}, {}]]},
    {"dict": 3}, [["a", "<i4"]],
]  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = 1
    for i in range(depth):
        value = [value] if i % 2 else {"dict": [[value, value]]} if i % 3 == 0 and depth < 20 else {"a": value}
    return value


def models() -> list[Any]:
    random = np.random.default_rng(5)
    plain = random.normal(size=(N_ROWS, 4))
    plain[random.random(plain.shape) < 0.1] = np.nan
    frame = pd.DataFrame({"a": plain[:, 0], "b": random.choice(["x", "y", "z", None], N_ROWS), "c": random.integers(0, 5, N_ROWS)})
    frame["d"] = pd.Categorical(random.integers(0, 3, N_ROWS))
    number = np.nan_to_num(plain[:, 0]) + frame["c"].to_numpy()
    labels = np.array(["low", "mid", "high"])[np.digitize(number, [1, 3])]
    small = {"max_depth": 3, "random_state": 0}
    ensemble = {**small, "n_estimators": 3}
    return [
        dtrees.DecisionTreeRegressor(**small).fit(frame, number),
        dtrees.DecisionTreeClassifier(**small, class_weight={"low": 2.0}).fit(plain, labels),
        dtrees.ExtraTreeRegressor(**small).fit(plain, number),
        dtrees.ExtraTreeClassifier(**small).fit(frame, number > 2),
        dtrees.RandomForestRegressor(**ensemble, bootstrap=False).fit(plain, number),
        dtrees.RandomForestClassifier(**ensemble, oob_score=True).fit(frame, labels.astype(object)),
        dtrees.ExtraTreesRegressor(**ensemble).fit(frame, number),
        dtrees.ExtraTreesClassifier(**ensemble).fit(plain, np.digitize(number, [1, 3])),
        dtrees.GradientBoostingRegressor(**ensemble, eval_metric=["mae", "rmse"]).fit(frame, number, eval_set={"one": (frame, number)}),
        dtrees.GradientBoostingRegressor(max_depth=None, reg_lambda=0.0, n_estimators=40, n_jobs=2).fit(plain, number),
        dtrees.GradientBoostingClassifier(**ensemble, n_iter_no_change=5).fit(plain, labels),
        dtrees.GradientBoostingClassifier(**ensemble).fit(frame, np.where(number > 2, 3.0, -2.0)),
    ]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the way to each part of a JSON document."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def change_document(state: dict[str, Any], random: np.random.Generator) -> None:
    ways = [way for way in places(state) if way]
    # Short ways first, so that they are not drowned by long lists.
    depth = random.integers(1, max(map(len, ways)) + 1)
    ways = [way for way in ways if len(way) == depth]
    *way, last = ways[random.integers(len(ways))]
    holder = state
    for key in way:
        holder = holder[key]
    what = random.integers(6)
    if what == 0:
        del holder[last]
    elif what == 1 and isinstance(holder, list):
        holder.insert(last, copy.deepcopy(holder[last]))
    elif what == 2 and isinstance(holder, dict):
        holder[str(ODD_VALUES[random.integers(len(ODD_VALUES))])[:20]] = holder.pop(last)
    elif what == 3:
        holder[last] = nested(int(random.choice([2, 5, 100, 450, 900])))
    elif what == 4 and isinstance(holder[last], int | float) and not isinstance(holder[last], bool):
        holder[last] = holder[last] * int(random.integers(-3, 4)) + int(random.integers(-2, 3))
    else:
        holder[last] = copy.deepcopy(ODD_VALUES[random.integers(len(ODD_VALUES))])


def change_arrays(arrays: dict[str, Any], random: np.random.Generator) -> None:
    name = str(random.choice(sorted(arrays)))
    array = arrays[name]
    what = random.integers(7)
    if what == 0:
        del arrays[name]
    elif what == 1:
        arrays[name] = array.astype(random.choice(["int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bool", "uint64"]))
    elif what == 2:
        arrays[name] = array.reshape(-1)[: random.integers(array.size + 1)]
    elif what == 3:
        arrays[name] = array[..., np.newaxis] if random.integers(2) else array.reshape(-1)[:1].reshape(())
    elif what == 4:
        arrays[name] = np.concatenate([array, array])
    elif what == 5:
        arrays[str(random.choice([*sorted(arrays), "odd", "initial", "trees.children_left"]))] = array
    elif array.size:
        array = arrays[name] = array.copy()
        odd = {"f": [np.nan, np.inf, -np.inf, 1e308, 0.0, -1.0], "b": [True, False]}.get(array.dtype.kind, [-2, -1, 0, 1, 2, 100])
        with np.errstate(over="ignore"):
            array.reshape(-1)[random.integers(array.size)] = np.array(odd[random.integers(len(odd))]).astype(array.dtype)


def change(document: dict[str, Any], arrays: dict[str, Any], files: list[Any], random: np.random.Generator) -> None:
    what = random.integers(10)
    if what == 0:
        document["estimator"] = files[random.integers(len(files))][0]["estimator"]
    elif what < 7:
        change_document(document["state"], random)
    elif arrays:
        change_arrays(arrays, random)


def rows_for(model: Any, random: np.random.Generator) -> Any:
    """Rows that a model must be able to predict, by the columns that it says it has."""
    columns = model._schema.columns
    if columns[0].name is None:
        return random.normal(size=(7, len(columns)))
    frame = {}
    for i, column in enumerate(columns):
        known = [*column.categories, None] if column.kind == "categorical" else [0.5, -1.0, np.nan]
        frame[i] = pd.Series(
            [known[j] for j in random.integers(len(known), size=7)], dtype=object if column.kind == "categorical" else float
        )
    frame = pd.DataFrame(frame)
    frame.columns = [column.name for column in columns]
    return frame


def use(model: Any, path: Path, random: np.random.Generator) -> None:
    X = rows_for(model, random)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function", "apply", "decision_path"):
        if hasattr(model, method):
            getattr(model, method)(X)
    for name in ("estimators_", "tree_", "feature_importances_", "init_"):
        getattr(model, name, None)
    if hasattr(model, "staged_predict"):
        list(model.staged_predict(X))
    for member in np.ravel(getattr(model, "estimators_", ()))[:2]:
        member.predict(X)
    repr(model)
    dtrees.save(model, path)
    again = dtrees.load(path)
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    contents = []
    path = tmp_path_factory.mktemp("models") / "model"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = models()
    for model in made:
        dtrees.save(model, path)
        use(dtrees.load(path), path, np.random.default_rng(0))
        with safe_open(path, framework="numpy") as file:
            document = json.loads(file.metadata()["dtrees"])
            contents.append((document, {key: file.get_tensor(key).copy() for key in file.keys()}))  # noqa: SIM118
    return contents


@pytest.mark.parametrize("batch", [batch if batch < 3 else pytest.param(batch, marks=pytest.mark.slow) for batch in range(100)])
def test_changed_files_are_refused_or_sound(batch: int, files: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "model"
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        random = np.random.default_rng(seed)
        document, arrays = copy.deepcopy(files[random.integers(len(files))])
        try:
            for _ in range(random.integers(1, 3)):
                change(document, arrays, files, random)
            document["sha256"] = checked_arrays.digest(document, arrays)
            path.write_bytes(safetensors.numpy.save(arrays, {"dtrees": json.dumps(document)}))
        except (RecursionError, UnicodeEncodeError):
            continue  # no file can hold it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                model = dtrees.load(path)
            except ValueError as error:
                assert "model' " in str(error), f"seed {seed}"
                continue
            except BaseException as error:
                raise AssertionError(f"seed {seed}: load raised {type(error).__name__}") from error
            try:
                use(model, path, random)
            except BaseException as error:
                raise AssertionError(
                    f"seed {seed}: {type(model).__name__} loaded, and then raised {type(error).__name__}: {error}"
                ) from error
