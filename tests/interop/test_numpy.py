"""The module that predicts from a model file with NumPy alone: the same bits for every kind of model, and valid files only."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dtrees
from dtrees.ensemble.objective.registry import registered_losses
from dtrees.interop import dtrees_numpy
from tests import earlier_models
from tests.changed_model_files import rewrite
from tests.interop.cases import BAGS, BEYOND, BOOSTING, FULL, LABELS, PEOPLE, SIGNAL, TREES, WAGE, Case, X, fit_sets, parametrized
from tests.slow import slow_for


def same(found: Any, wanted: Any) -> bool:
    """Compare bits, except for the width of text."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if wanted.dtype.kind in "UO":
        return np.array_equal(found, wanted)
    return found.dtype == wanted.dtype and found.shape == wanted.shape and found.tobytes() == wanted.tobytes()


def check(model: Any, folder: Path, table: Any, given: Any = None) -> Any:
    """Compare all methods on a table, or on ``given`` for the same table; return the loaded model."""
    dtrees.save(model, folder / "model", mappable=np.shape(table)[1] % 2 == 1)
    plain = dtrees_numpy.load(folder / "model")
    given = table if given is None else given
    assert same(plain.predict(given), model.predict(table))
    if hasattr(model, "classes_"):
        found, wanted = plain.predict_proba(given), model.predict_proba(table)
        assert all(map(same, found, wanted)) if isinstance(wanted, list) else same(found, wanted)
    for method in ("decision_function", "score_samples"):
        if hasattr(model, method):
            assert same(getattr(plain, method)(given), getattr(model, method)(table))
    return plain


@parametrized(TREES + BOOSTING + BAGS + BEYOND)
def test_predictions_are_equal(case: Case, tmp_path: Path) -> None:
    wild = np.random.default_rng(1).choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e308, -1e308], (40, X.shape[1]))
    check(case.fit(), tmp_path, np.concatenate([X, wild]))


@pytest.mark.parametrize("kind", slow_for({"RandomForest"}, ["DecisionTree", "RandomForest", "GradientBoosting"]))
@pytest.mark.parametrize("task", slow_for({"several"}, ["Regressor", "Classifier", "several"]))
def test_sets_of_categories(kind: str, task: str, tmp_path: Path) -> None:
    table = pd.concat([PEOPLE, PEOPLE.assign(job="unseen", town=None)], ignore_index=True)
    plain = check(fit_sets(kind, task), tmp_path, table)
    by_column = {name: table[name].to_numpy() for name in table}
    rows = [[None if pd.isna(value) else value for value in row] for row in table.to_numpy(object).tolist()]
    for given in (by_column, table.to_numpy(object), rows, table[["town", "age", "job"]]):
        assert same(plain.predict(given), plain.predict(table))
    with pytest.raises(ValueError, match="X column 'job' holds 3; wants categories such as 'job 00'"):
        plain.predict(table.assign(job=3))
    with pytest.raises(ValueError, match="X column 'age' wants numbers"):
        plain.predict(table.assign(age="old"))


@pytest.mark.parametrize("path", sorted(earlier_models.FOLDER.glob("*.dtrees")), ids=lambda path: path.stem)
def test_earlier_files(path: Path, tmp_path: Path) -> None:
    """Tables with all kinds of columns, and all kinds of models, including several targets with classes and bags of classifiers."""
    check(dtrees.load(path), tmp_path, earlier_models.rows())


@pytest.mark.filterwarnings("ignore:no tree found a split")
def test_shapes_of_trees(tmp_path: Path) -> None:
    """No splits, one class, splits by whether a value is missing, and trees of the compact layout."""
    one = np.where(np.isnan(X[:, :1]), np.nan, 1.0)
    check(dtrees.DecisionTreeRegressor().fit(one, SIGNAL), tmp_path, np.concatenate([one, [[np.inf], [-np.inf]]]))
    check(dtrees.RandomForestClassifier(3).fit(X, np.zeros(len(X), int)), tmp_path, X)
    many = np.random.default_rng(0).normal(size=(2000, 3))
    forest = dtrees.RandomForestRegressor(5, random_state=0).fit(many, many[:, 0] * many[:, 1])
    assert "trees.children_left" not in forest._to_state()[1]
    check(forest, tmp_path, many)
    assert dtrees_numpy.load(tmp_path / "model").predict(many[:0]).shape == (0,)


def test_the_links_of_huge_sums(tmp_path: Path) -> None:
    for n, size in ((2, 250.0), (2, 900.0), (3, 400.0)):
        model = dtrees.GradientBoostingClassifier(n_estimators=5, min_samples_leaf=1).fit(FULL, np.arange(300) % n)
        for group in model._trees.groups:
            for tree in group:
                tree.value[:] *= size * 100
        check(model, tmp_path, X)


def test_forms_of_tables(tmp_path: Path) -> None:
    model = dtrees.ExtraTreesRegressor(3, random_state=0).fit(FULL, SIGNAL)
    for table in (FULL.astype(np.float32), FULL.astype(int), FULL > 0, FULL.tolist(), np.ma.masked_less(FULL, 0.0), pd.DataFrame(FULL)):
        check(model, tmp_path, table)
    check(model, tmp_path, sparse.csr_array(FULL))
    frame = pd.DataFrame({"a": pd.array([1, None, 3] * 50, "Int64"), "b": pd.Categorical([7, 9, None] * 50)})
    model = dtrees.DecisionTreeRegressor(categorical_features=["b"], min_samples_category=1).fit(frame, np.arange(150) % 3)
    plain = check(model, tmp_path, frame)
    check(model, tmp_path, frame, np.array([(1.0, 7), (np.nan, 9), (3.0, -1)] * 50, [("a", "f8"), ("b", "i8")]))
    with pytest.raises(ValueError, match=r"X has the shape \(2, 3\); wants \(n, 2\)"):
        plain.predict(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"X column 'a' contains integers beyond 2\*\*53"):
        plain.predict({"a": [2**60], "b": [7]})
    with pytest.raises(TypeError, match="the model is a DecisionTreeRegressor, which has no classes"):
        plain.predict_proba(frame)
    with pytest.raises(AttributeError, match="'predict_quantiles' needs dtrees .dtrees.load.; without it, there are predict"):
        plain.predict_quantiles(frame, 0.5)


def test_base_margin(tmp_path: Path) -> None:
    margin = np.column_stack([SIGNAL, -SIGNAL, 0 * SIGNAL])
    model = dtrees.GradientBoostingClassifier(n_estimators=3).fit(FULL, LABELS, base_margin=margin)
    dtrees.save(model, tmp_path / "model")
    plain = dtrees_numpy.load(tmp_path / "model")
    assert same(plain.predict_proba(X, margin), model.predict_proba(X, margin))
    with pytest.raises(ValueError, match="base_margin is to be given"):
        plain.predict(X)
    with pytest.raises(ValueError, match=r"base_margin has the shape \(300,\); wants \(300, 3\)"):
        plain.predict(X, SIGNAL)


def test_objectives_and_all_losses(tmp_path: Path) -> None:
    def squares(y: Any, raw: Any, weight: Any) -> Any:
        return raw - y, np.ones_like(raw)

    check(dtrees.GradientBoostingRegressor(loss=squares, n_estimators=3).fit(FULL, SIGNAL), tmp_path, X)
    known = dtrees_numpy._IDENTITY | dtrees_numpy._EXPONENTIAL | set(dtrees_numpy._SLOPES)
    assert {name for name, _, loss in registered_losses() if type(loss).__module__.startswith("dtrees")} <= known


def test_nothing_but_numpy_is_wanted(tmp_path: Path) -> None:
    """A copy of the file predicts where dtrees and its other dependencies cannot be imported."""
    model = fit_sets("GradientBoosting", "Classifier")
    dtrees.save(model, tmp_path / "m.dtrees")
    (tmp_path / "dtrees_numpy.py").write_bytes(Path(dtrees_numpy.__file__).read_bytes())
    script = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('dtrees', 'numba', 'sklearn', 'scipy', 'pandas', 'safetensors', 'dask')))\n"
        "from dtrees_numpy import load\n"
        "print(load('m.dtrees').predict_proba([['job 01', 30, 'Bonn'], [None, None, None]]).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    wanted = model.predict_proba(pd.DataFrame({"job": ["job 01", None], "age": [30, np.nan], "town": ["Bonn", None]}))
    assert done.stdout == f"{wanted.tolist()}\n"


SETS = ("counts", "nodes", "sizes", "words")


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "model"
    dtrees.save(dtrees.GradientBoostingRegressor(n_estimators=2).fit(FULL, WAGE), path)
    sound = path.read_bytes()
    for content in (b"", b"text", sound[:-1], sound + b"0", sound[:50], sound.replace(b"GradientBoosting", b"gradientBoosting")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="model' is not a sound model file of dtrees"):
            dtrees_numpy.load(path)
    changes: dict[str, Any] = {
        "of format 3": lambda document, _: document.update(format_version=3),
        "loss='theirs' mean is not known": lambda document, _: document["state"]["parameters"].update(loss="theirs"),
        "split columns that there are not": lambda _, arrays: arrays["trees.feature"].__setitem__(0, 99),
        "do not form whole trees": lambda _, arrays: arrays["trees.feature"].__setitem__(-1, 0),
        "do not have the nodes": lambda _, arrays: arrays["trees.node_counts"].__setitem__((0, 0), 2**40),
        "do not have the sets": lambda _, arrays: arrays.update({f"trees.set_{name}": np.array([2**40, 0]) for name in SETS}),
        "have not the values": lambda _, arrays: arrays.update(initial=np.zeros(2)),
        "KeyError: 'schema'": lambda document, _: document["state"].pop("schema"),
    }
    for message, change in changes.items():
        path.write_bytes(sound)
        rewrite(path, change)
        with pytest.raises(ValueError, match=message):
            dtrees_numpy.load(path)
    with pytest.raises(FileNotFoundError):
        dtrees_numpy.load(tmp_path / "absent")


def test_labels_are_of_plain_kinds() -> None:
    with pytest.raises(ValueError, match="labels are of dtype 'V8'"):
        dtrees_numpy._label_dtype({"dtype": "V8"})
