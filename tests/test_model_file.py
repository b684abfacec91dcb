"""Model files: a loaded model predicts the same, and only valid model files are loaded, however they were changed."""

import copy
import json
import mmap
import os
import pickle
import stat
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

import dtrees
from dtrees.files import atomic_file
from dtrees.tree import stacking
from tests import earlier_models
from tests.changed_model_files import nested, rewrite, try_files
from tests.slow import slow_for

# --- model files: a loaded model predicts the same, and only valid model files are loaded ---


N_ROWS = 120


def table() -> pd.DataFrame:
    random = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"a": random.normal(size=N_ROWS), "b": random.choice(["x", "y", None], N_ROWS), "c": random.integers(0, 5, N_ROWS)}
    )
    frame.loc[::7, "a"] = np.nan
    return frame


def target(name: str, n_classes: int = 3) -> Any:
    numbers = table()["c"] + table()["a"].fillna(3).round()
    return numbers if name.endswith("Regressor") else np.array(["low", "mid", "top"])[numbers.astype(int).to_numpy() % n_classes]


def fitted(name: str, n_classes: int = 3, X: pd.DataFrame | None = None, **parameters: Any) -> Any:
    if hasattr(getattr(dtrees, name)(), "n_estimators"):
        parameters.setdefault("n_estimators", 5)
    return getattr(dtrees, name)(random_state=1, max_depth=4, **parameters).fit(table() if X is None else X, target(name, n_classes))


def stump() -> Any:
    return dtrees.DecisionTreeRegressor(max_depth=2).fit(np.array([[0.0], [1.0], [2.0]]), [1.0, 2.0, 4.0])


@pytest.fixture(scope="module")
def small() -> Any:
    return stump()


@pytest.fixture
def saved(small: Any, tmp_path: Path) -> Path:
    path = tmp_path / "model.dtrees"
    dtrees.save(small, path)
    return path


def test_weights_of_classes_by_name(tmp_path: Path) -> None:
    model = fitted("GradientBoostingClassifier", 2, class_weight={"low": 2.0, "mid": 1.0})
    dtrees.save(model, tmp_path / "model")
    loaded = dtrees.load(tmp_path / "model")
    assert type(loaded) is type(model)
    assert loaded.get_params() == model.get_params()
    assert loaded.classes_.tolist() == ["low", "mid"]
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(loaded.predict_proba(table()), model.predict_proba(table()))


def test_large_models_take_a_third_of_the_space_and_older_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(2000, 3))
    model = dtrees.RandomForestRegressor(5, random_state=0).fit(X, X[:, 0] * X[:, 1])
    dtrees.save(model, tmp_path / "small")
    with monkeypatch.context() as patch:  # as the first version did
        patch.setattr(stacking, "LARGE", 10**9)
        dtrees.save(model, tmp_path / "large")
    rewrite(tmp_path / "large", lambda document, _: document.update(format_version=1))
    assert (tmp_path / "small").stat().st_size < 0.4 * (tmp_path / "large").stat().st_size
    for name in ("small", "large"):
        loaded = dtrees.load(tmp_path / name)
        assert all(a.equals(b) for a, b in zip(loaded._trees.groups[0], model._trees.groups[0], strict=True))
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_what_is_no_fitted_estimator_of_ours(small: Any, tmp_path: Path) -> None:
    class Mine(dtrees.DecisionTreeRegressor):
        pass

    for model in (LinearRegression(), make_pipeline(small), Mine().fit([[0.0], [1.0]], [0.0, 1.0]), None):
        with pytest.raises(TypeError, match="must be one of the estimators of dtrees"):
            dtrees.save(model, tmp_path / "model")
    with pytest.raises(NotFittedError):
        dtrees.save(dtrees.RandomForestRegressor(), tmp_path / "model")
    assert not list(tmp_path.iterdir())


# Mapped into memory


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("RandomForestClassifier", {}),
        ("GradientBoostingClassifier", {}),
        ("RandomForestRegressor", {"categorical_features": ["b"]}),
    ],
)
def test_a_mapped_model_is_the_saved_one(name: str, parameters: dict[str, Any], tmp_path: Path) -> None:
    model = fitted(name, **parameters)
    path = tmp_path / "model.dtrees"
    dtrees.save(model, path, mappable=True)
    mapped = dtrees.load(path, mmap_mode="r")
    for loaded in (mapped, dtrees.load(path), pickle.loads(pickle.dumps(mapped)), copy.deepcopy(mapped)):
        np.testing.assert_array_equal(loaded.predict(table()), model.predict(table()))
        np.testing.assert_array_equal(loaded.apply(table()), model.apply(table()))
        np.testing.assert_array_equal(loaded.shap_values(table()[:5]), model.shap_values(table()[:5]))
    tree = mapped._trees.groups[0][0]
    with pytest.raises(ValueError, match="read-only"):
        tree.value[0] = 1.0
    # Replacing the file does not affect processes that use it.
    dtrees.save(model, path)
    np.testing.assert_array_equal(mapped.predict(table()), model.predict(table()))


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])  # compiles a kernel of its own
def test_a_mapped_model_takes_no_memory_of_its_own(dtype: Any, tmp_path: Path) -> None:
    """All arrays that prediction reads are views of the file."""
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = dtrees.GradientBoostingRegressor(n_estimators=30, max_depth=7).fit(X, X[:, 0] * X[:, 1])
    path = tmp_path / "model"
    dtrees.save(model, path, mappable=True)
    mapped = dtrees.load(path, mmap_mode="r")
    np.testing.assert_array_equal(mapped.predict(X.astype(dtype)), model.predict(X.astype(dtype)))
    trees = mapped._trees
    fields = [array for packs in trees._packs.values() for pack in packs for array in pack if isinstance(array, np.ndarray)]
    for array in [*fields, *(getattr(tree, field) for tree in trees.groups[0] for field in tree.ARRAYS)]:
        base = array
        while isinstance(base, np.ndarray):
            base = base.base
        assert isinstance(base, mmap.mmap)


def test_files_that_cannot_be_mapped(small: Any, saved: Path) -> None:
    with pytest.raises(ValueError, match=r"model.dtrees' was not saved for mapping. Load it without mmap_mode, or save it with map"):
        dtrees.load(saved, mmap_mode="r")
    with pytest.raises(ValueError, match="mmap_mode is 'r\\+'; wants None or 'r'"):
        dtrees.load(saved, mmap_mode="r+")
    with pytest.raises(TypeError, match="mappable is 1; wants True or False"):
        dtrees.save(small, saved, mappable=1)


def test_a_file_with_more_than_its_arrays(small: Any, tmp_path: Path) -> None:
    """It is refused, mapped or not, as it is not the file that was written."""
    path = tmp_path / "model.dtrees"
    dtrees.save(small, path, mappable=True)
    content = path.read_bytes()
    gap = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    last = max((name for name in gap if name != "__metadata__"), key=lambda name: gap[name]["data_offsets"])
    gap[last]["data_offsets"] = [offset + 8 for offset in gap[last]["data_offsets"]]
    header = json.dumps(gap).encode()
    header += b" " * (-len(header) % 8)
    with_gap = len(header).to_bytes(8, "little") + header + content[8 + int.from_bytes(content[:8], "little") :] + bytes(8)
    for damaged in (content + b"more", with_gap):
        path.write_bytes(damaged)
        for mmap_mode in (None, "r"):
            with pytest.raises(ValueError, match=r"model.dtrees'"):
                dtrees.load(path, mmap_mode=mmap_mode)


@pytest.mark.parametrize("name", ["feature", "nodes", "bits", "top_slot", "top_end", "shallow", "value", "number", "roots", "leaves"])
def test_mapped_arrays_that_do_not_go_with_the_trees(name: str, small: Any, tmp_path: Path) -> None:
    """Arrays that kernels read must agree with the trees, or kernels might read out of bounds."""
    path = tmp_path / "model.dtrees"
    for change in (lambda array: array ^ 1 if array.dtype.kind != "f" else array + 1, lambda array: array[:-1], lambda array: array[None]):
        dtrees.save(small, path, mappable=True)
        rewrite(path, lambda _, arrays, change=change: arrays.update({f"packed.0.{name}": change(arrays[f"packed.0.{name}"])}))
        with pytest.raises(ValueError, match=r"model.dtrees' does not describe a valid .*: the model holds its trees twice"):
            dtrees.load(path, mmap_mode="r")
    rewrite(path, lambda _, arrays: arrays.pop(f"packed.0.{name}"))
    with pytest.raises(ValueError, match=r"model.dtrees' does not describe a valid .*: the model does not hold its trees as"):
        dtrees.load(path, mmap_mode="r")


def test_truth_values_that_are_neither(small: Any, saved: Path) -> None:
    """NumPy interprets a byte of 2 as true, compiled code uses its lowest bit."""
    rewrite(saved, lambda _, arrays: arrays["trees.missing_go_to_left"].view(np.uint8).fill(2))
    with pytest.raises(ValueError, match=r"model.dtrees' does not describe .* truth values that are neither 0 nor 1"):
        dtrees.load(saved)


# Writing


def test_a_failed_write_leaves_the_old_file(small: Any, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        dtrees.save(small, saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.skipif(os.name != "posix", reason="permissions of files are those of POSIX")
def test_permissions_follow_the_umask_and_links_are_kept(small: Any, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "model")
    old = os.umask(0o022)
    try:
        dtrees.save(small, tmp_path / "link")
    finally:
        os.umask(old)
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o644


@pytest.mark.skipif(os.name != "posix", reason="permissions of files are those of POSIX")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400])
def test_saving_again_keeps_the_permissions(mode: int, small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model"
    dtrees.save(small, path)
    path.chmod(mode)
    seen = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (seen.append(stat.S_IMODE(os.stat(descriptor).st_mode)), sync(descriptor)))
    old = os.umask(0o022)
    try:
        dtrees.save(small, path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert seen[0] == mode
    assert dtrees.load(path).predict([[2.0]]) == [4.0]


def test_nowhere_to_write(small: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        dtrees.save(small, tmp_path / "no" / "model")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        dtrees.save(small, tmp_path)


# Invalid files


@pytest.mark.parametrize("path", ["s3://bucket/model", "memory://model"])
def test_addresses(path: str, small: Any) -> None:
    for attempt in (lambda: dtrees.save(small, path), lambda: dtrees.load(path)):
        with pytest.raises(ValueError, match=f"path is the address '{path}'; wants a file on this machine"):
            attempt()


def test_what_is_no_path(small: Any) -> None:
    for attempt in (lambda: dtrees.save(small, None), lambda: dtrees.load(None)):
        with pytest.raises(TypeError, match="path is None; wants the path of a file"):
            attempt()


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        dtrees.load(tmp_path / "none")


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n1,2\n", pickle.dumps({}), bytes(100), safetensors.numpy.save({"a": np.zeros(2)}, {"format": "pt"})]
)
def test_foreign_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "foreign").write_bytes(content)
    with pytest.raises(ValueError, match=r"foreign' is not a dtrees model file.* Give a file that dtrees.save"):
        dtrees.load(tmp_path / "foreign")


def test_truncation_anywhere_is_found(saved: Path) -> None:
    content = saved.read_bytes()
    for length in range(0, len(content), 7):
        saved.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"model.dtrees' is"):
            dtrees.load(saved)
    saved.write_bytes(content + b"\0")
    with pytest.raises(ValueError, match="damaged or truncated"):
        dtrees.load(saved)


def test_a_flipped_bit_anywhere_is_found_or_harmless(small: Any, saved: Path) -> None:
    """Only bytes without meaning in JSON are harmless: the kind of white space that pads the header."""
    content = saved.read_bytes()
    arrays_start = 8 + int.from_bytes(content[:8], "little")
    loaded = []
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << (position % 8)
        saved.write_bytes(damaged)
        try:
            model = dtrees.load(saved)
        except ValueError as error:
            assert "model.dtrees'" in str(error)
        else:
            loaded.append(position)
            np.testing.assert_array_equal(model.predict([[0.0], [1.0], [2.0]]), small.predict([[0.0], [1.0], [2.0]]))
    assert all(position < arrays_start for position in loaded)
    assert len(loaded) < 10


def set_item(name: str, index: Any, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[f"trees.{name}"][index] = value

    return change


def replace_array(name: str, function: Callable[[Any], Any]) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays[f"trees.{name}"] = np.ascontiguousarray(function(arrays[f"trees.{name}"]))

    return change


def of_state(*way: Any, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(document: dict[str, Any], _: dict[str, Any]) -> None:
        holder = document["state"]
        for key in way[:-1]:
            holder = holder[key]
        holder[way[-1]] = value

    return change


def exchange_columns(schema: list[dict[str, Any]]) -> None:
    """Exchange two columns, except for their names."""
    first, second = schema
    schema[:] = [second | {"name": first["name"]}, first | {"name": second["name"]}]


def forest() -> Any:
    return fitted("RandomForestClassifier")


def boosting() -> Any:
    frame = pd.DataFrame({"c": ["a", "b", "c", "a"] * 10, "n": np.arange(40.0)})
    model = dtrees.GradientBoostingRegressor(n_estimators=3, min_samples_category=1)
    return model.fit(frame, frame["n"] + 50 * (frame["c"] == "b"))


def boosting_of_two_targets() -> Any:
    X = np.arange(40.0).reshape(-1, 1)
    return dtrees.GradientBoostingRegressor(n_estimators=2).fit(X, np.hstack([X, -X]))


BAD_PLANS = {"n_classes": [7], "max_features": [6], "columns_per_tree": [0], "criterion": [77], "class_weight": [[1.0]]}
BAD_PLANS |= {"monotonic": [[1], [2, 0, 0]], "interactions": [[[0]], [1]], "most_columns": [9, [1]]}


@pytest.mark.parametrize(
    ("make", "change"),
    [
        pytest.param(stump, set_item("children_left", 0, 1000), id="child beyond the end"),
        pytest.param(stump, set_item("children_right", 0, -7), id="child below zero"),
        pytest.param(stump, set_item("children_left", 0, 0), id="cycle"),
        pytest.param(stump, set_item("feature", 0, 1), id="column beyond the last"),
        pytest.param(stump, set_item("threshold", 0, np.nan), id="threshold not a number"),
        pytest.param(stump, set_item("value", 0, np.inf), id="infinite value"),
        pytest.param(stump, set_item("n_node_samples", 0, -1), id="fewer rows than none"),
        pytest.param(stump, set_item("node_counts", 0, 2), id="fewer nodes than there are"),
        pytest.param(stump, replace_array("value", lambda value: np.hstack([value, value])), id="too many values"),
        pytest.param(stump, replace_array("feature", lambda feature: feature.astype(np.int64)), id="other dtype"),
        pytest.param(stump, lambda document, arrays: arrays.pop("trees.threshold"), id="array missing"),
        pytest.param(stump, lambda document, arrays: document["state"].pop("schema"), id="schema missing"),
        pytest.param(stump, lambda document, arrays: document["state"]["schema"].clear(), id="no columns"),
        pytest.param(stump, lambda document, arrays: document["state"]["parameters"].update(evil=1), id="unknown parameter"),
        pytest.param(stump, of_state("attributes", "__class__", value=1), id="an attribute of all objects"),
        pytest.param(stump, lambda document, arrays: document.update(estimator="GradientBoostingClassifier"), id="another estimator"),
        pytest.param(forest, lambda document, _: document.update(estimator="DecisionTreeRegressor"), id="a regressor by name"),
        pytest.param(forest, lambda document, _: document["state"].pop("classes"), id="a classifier without classes"),
        pytest.param(forest, of_state("classes", "dtype", value="<f8"), id="text of the dtype of numbers"),
        pytest.param(forest, of_state("classes", "dtype", value=[["a", "<i4"]]), id="a dtype of fields"),
        pytest.param(forest, of_state("classes", "values", value=["low", "top", "mid"]), id="labels in another order"),
        pytest.param(forest, of_state("schema", 0, "name", value="b"), id="two columns of one name"),
        pytest.param(forest, of_state("schema", 0, "dtype", value="<M8[s]"), id="a column of dates"),
        pytest.param(forest, of_state("schema", 1, "categories", value=["x", "x"]), id="a category that comes twice"),
        pytest.param(forest, of_state("parameters", "n_jobs", value=0), id="no thread"),
        pytest.param(forest, of_state("parameters", "class_weight", value={"dict": [[["low"], 1.0]]}), id="weights by a list"),
        pytest.param(forest, of_state("parameters", "max_depth", value=nested(900)), id="a parameter nested deeply"),
        pytest.param(forest, of_state("attributes", "max_features_", value=4), id="more columns drawn than there are"),
        pytest.param(forest, of_state("seed", value=10**400), id="a seed beyond all bounds"),
        pytest.param(forest, of_state("batches", 0, 0, "max_depth", value=1.5), id="half a level"),
        pytest.param(forest, lambda document, _: document["state"].pop("batches"), id="a seed without what was grown from it"),
        pytest.param(forest, of_state("batches", 0, 0, value={}), id="a batch of no plan"),
        pytest.param(forest, of_state("batches", 0, 2, value=4), id="a batch that ends early"),
        *(
            pytest.param(forest, of_state("batches", 0, 0, name, value=value), id=f"{name} of {value}")
            for name, values in BAD_PLANS.items()
            for value in values
        ),
        pytest.param(boosting, lambda document, arrays: arrays.pop("train_score_"), id="no scores"),
        pytest.param(boosting, lambda document, arrays: arrays.update(train_score_=arrays["train_score_"][:-1]), id="too few scores"),
        pytest.param(boosting, set_item("set_words", 0, 2**31), id="a category beyond the last"),
        pytest.param(boosting, lambda document, _: exchange_columns(document["state"]["schema"]), id="sets of another column"),
        pytest.param(
            boosting,
            lambda document, _: document["state"]["schema"][1].update(kind="categorical", categories=["x", "y"], dtype=""),
            id="a threshold that divides no categories",
        ),
        pytest.param(boosting, lambda document, _: document["state"]["attributes"].pop("max_depth_"), id="no depth for auto"),
        *(
            pytest.param(boosting, of_state("attributes", name, value=value), id=f"{name} of {value}")
            for name, values in {"learning_rate_": [-1.0], "max_depth_": [0, 10**30, 6.0], "max_leaf_nodes_": [1, True]}.items()
            for value in values
        ),
        *(pytest.param(boosting_of_two_targets, of_state("targets", value=value)) for value in (0, 1, 3, -2, 10**30, True, "2", [2], None)),
    ],
)
def test_impossible_models_with_a_right_checksum(make: Callable[[], Any], change: Callable[..., None], tmp_path: Path) -> None:
    dtrees.save(make(), tmp_path / "model.dtrees")
    rewrite(tmp_path / "model.dtrees", change)
    with pytest.raises(ValueError, match=r"model.dtrees' does not describe a valid .*\. Save the model again"):
        dtrees.load(tmp_path / "model.dtrees")


def test_a_dtype_that_is_too_wide_takes_no_memory(tmp_path: Path) -> None:
    dtrees.save(fitted("RandomForestClassifier"), tmp_path / "model.dtrees")
    rewrite(tmp_path / "model.dtrees", of_state("classes", "dtype", value="<U500000000"))
    tracemalloc.start()
    try:
        assert dtrees.load(tmp_path / "model.dtrees").classes_.dtype == "<U3"
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def test_what_could_not_be_loaded_is_not_saved(small: Any, tmp_path: Path) -> None:
    """For example diverged boosting, in earlier versions."""
    diverged = copy.deepcopy(small)
    trees = diverged._trees
    trees.groups = ((replace(trees.groups[0][0], value=np.full_like(trees.groups[0][0].value, np.inf)),),)
    for model, message in (
        (diverged, "cannot be saved: trees have values that are not finite"),
        (copy.deepcopy(small).set_params(max_depth=-1), "cannot be saved: The 'max_depth' parameter .* must be an int"),
    ):
        with pytest.raises(ValueError, match=message):
            dtrees.save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "labels",
    [
        *([0, 1], [-1.0, 2.0], [False, True], ["a", "b"], np.array(["a", "b"], dtype=object), pd.array(["a", "b"])),
        *(np.array([1, 2], np.longdouble), np.array([1, 2], np.float16), np.array(["a", "b"], "<U1000")),
    ],
)
def test_labels_of_all_dtypes(labels: Any, tmp_path: Path) -> None:
    model = dtrees.DecisionTreeClassifier(class_weight={labels[0]: 2.0, labels[1]: 1.0}).fit([[0.0], [1.0]], labels)
    dtrees.save(model, tmp_path / "model")
    loaded = dtrees.load(tmp_path / "model").predict([[0.0], [1.0]])
    assert loaded.dtype == model.predict([[0.0]]).dtype
    np.testing.assert_array_equal(loaded, labels)


@pytest.mark.parametrize("name", list(earlier_models.models()))
def test_files_of_earlier_versions_predict_the_same(name: str) -> None:
    modes: list[Any] = [None, "r"] if name == earlier_models.MAPPABLE else [None]
    with np.load(earlier_models.FOLDER / "predictions.npz") as stored:
        wanted = {key.partition("/")[2]: stored[key] for key in stored.files if key.startswith(f"{name}/")}
    assert len(wanted) > 1 or name == "bag"
    for mode in modes:
        found = earlier_models.predictions(dtrees.load(earlier_models.FOLDER / f"{name}.dtrees", mmap_mode=mode))
        assert found.keys() == wanted.keys()
        for what, values in found.items():
            if what.startswith(earlier_models.BY_EXP):
                np.testing.assert_array_max_ulp(values, wanted[what], maxulp=4)
            else:
                np.testing.assert_array_equal(values, wanted[what])


def test_only_our_estimators_are_made(saved: Path) -> None:
    for name in ("LinearRegression", "__init__", "os.system", None, ["DecisionTreeRegressor"]):
        rewrite(saved, lambda document, _, name=name: document.update(estimator=name))  # type: ignore[misc]
        with pytest.raises(ValueError, match="unknown kind"):
            dtrees.load(saved)


def test_a_newer_format_asks_for_an_upgrade(saved: Path) -> None:
    rewrite(saved, lambda document, _: document.update(format_version=99, dtrees_version="7.1"))
    with pytest.raises(ValueError, match=r"written by dtrees 7.1 in format 99.*Upgrade dtrees"):
        dtrees.load(saved)


@pytest.mark.parametrize("document", ["[]", "7", "{", "null", "[" * 100_000, '{"format_version": "1"}', '{"format_version": true}'])
def test_headers_that_make_no_sense(saved: Path, document: str) -> None:
    saved.write_bytes(safetensors.numpy.save({"a": np.zeros(2)}, {"dtrees": document}))
    with pytest.raises(ValueError, match="model.dtrees' is damaged or truncated"):
        dtrees.load(saved)


# --- files that are complete or absent, and no remaining temporary files ---


def test_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Temporary files of this destination that are older than a day: another process may be writing the others."""
    names = [
        ".model.dtrees.0123456789ab.tmp",
        ".model.dtrees.ba9876543210.tmp",
        ".other.dtrees.0123456789ab.tmp",
        ".model.dtrees.notes.tmp",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    two_days_ago = time.time() - 2 * 86_400
    for name in (names[0], *names[2:]):
        os.utime(tmp_path / name, (two_days_ago, two_days_ago))
    with atomic_file(tmp_path / "model.dtrees") as file:
        file.write(b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {"model.dtrees", *names[1:]}


# --- model files that are changed at random are refused with the documented error, or are valid models ---


#: Number of files of one test.
BATCH = 100
#: Number of tests without models of several targets and by quantile, whose kernels take long to compile; the first one is quick.
QUICK = 3


@pytest.mark.parametrize("batch", slow_for(range(1, 6), range(10), thorough=range(6, 10)))
def test_changed_files_are_refused_or_sound(batch: int, tmp_path: Path) -> None:
    """The rest of the 20,000 are tried by ``python -m tests.changed_model_files``."""
    found = try_files(batch * BATCH, BATCH, tmp_path, rare=batch >= QUICK)
    assert found["refused"] > BATCH // 2
    assert found["loaded, another sound model"] > 0
