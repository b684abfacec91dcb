"""Models as C: compiled without a warning, their predictions equal the original's to the last bit."""

import ctypes
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import dtrees
from dtrees import to_c, to_numbers
from tests.interop.cases import (
    BAGS,
    BEYOND,
    BOOSTING,
    FULL,
    LABELS,
    PEOPLE,
    SIGNAL,
    TARGETS,
    TREES,
    TWO,
    WAGE,
    Case,
    X,
    fit_sets,
    parametrized,
    predictions,
)

COMPILER = shutil.which("cc") or shutil.which("gcc") or ""
pytestmark = pytest.mark.skipif(not COMPILER, reason="wants a C compiler")
FLAGS = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-ffp-contract=off"]
#: Extreme values of numeric columns, in addition to values of tables, thresholds and their neighbours.
WILD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308, 1e-300, 2.0**53 + 2, 3e38, -3e38]


class Compiled:
    """The functions of a model's file, applied to each row of a numeric table."""

    def __init__(self, model: Any, folder: Path, name: str = "model", flags: tuple[str, ...] = ()) -> None:
        folder = Path(tempfile.mkdtemp(dir=folder))  # a library with the same path as an earlier one is not loaded again
        source, self.name = folder / f"{name}.c", name
        source.write_text(to_c(model, name=name), encoding="ascii")
        subprocess.run([COMPILER, *FLAGS, *flags, "-fPIC", "-shared", "-o", folder / name, source], check=True)
        self._library = ctypes.CDLL(str(folder / name))

    def places(self, *rows: np.ndarray) -> np.ndarray:
        """Return what the function ``predict`` of classes or outliers returns for each row."""
        function = getattr(self._library, f"{self.name}_predict")
        return np.array([function(*map(pointer, row)) for row in zip(*rows, strict=True)])

    def fill(self, method: str, *rows: np.ndarray, like: np.ndarray) -> np.ndarray:
        """Return the numbers that a function writes for each row; the number after them must not change."""
        function = getattr(self._library, f"{self.name}_{method}")
        function.restype = None
        found = np.full((len(like), int(np.prod(like.shape[1:])) + 1), 7, like.dtype)
        for row in zip(*rows, found, strict=True):
            function(*map(pointer, row))
        assert (found[:, -1] == 7).all()
        return found[:, :-1].reshape(like.shape)


def pointer(row: np.ndarray) -> ctypes.c_void_p:
    assert row.flags.c_contiguous
    return row.ctypes.data_as(ctypes.c_void_p)


def check(model: Any, folder: Path, table: Any, numbers: np.ndarray | None = None) -> Compiled:
    """Compare bytes, and return the functions; ``numbers`` replace the result of :func:`to_numbers` for the table."""
    compiled = Compiled(model, folder)
    numbers = to_numbers(model, table) if numbers is None else numbers
    wanted, found = predictions(model, table), model.predict(table)
    isolates, classes = hasattr(model, "score_samples"), getattr(model, "classes_", None)
    method = "score_samples" if isolates else "predict" if classes is None else "predict_proba"
    assert compiled.fill(method, numbers, like=wanted).tobytes() == wanted.tobytes()
    if isinstance(classes, list):
        places = compiled.fill("predict", numbers, like=np.zeros(found.shape, np.intc))
        assert all(np.array_equal(own[mine], one) for own, mine, one in zip(classes, places.T, found.T, strict=True))
    elif isolates or classes is not None:
        places = compiled.places(numbers)
        assert np.array_equal(places if isolates else classes[places], found)
    if hasattr(model, "decision_function"):
        raw = model.decision_function(table)
        assert compiled.fill("decision_function", numbers, like=raw).tobytes() == raw.tobytes()
    return compiled


def wild_rows(model: Any) -> np.ndarray:
    """Return rows of the table, extreme ones, and rows of thresholds and their neighbours."""
    rng = np.random.default_rng(1)
    boosters = getattr(model, "estimators_", None) if isinstance(model, dtrees.BaggingRegressor | dtrees.BaggingClassifier) else None
    trees = [tree for one in boosters or [model] for group in one._trees.groups for tree in group]
    thresholds = np.unique(np.concatenate([tree.threshold[tree.feature >= 0] for tree in trees]))
    near = rng.choice(thresholds, (100, X.shape[1]))
    return np.concatenate([X, rng.choice(WILD, (60, X.shape[1])), near, np.nextafter(near, np.inf), near.astype(np.float32)])


@parametrized(TREES + BOOSTING + BAGS + BEYOND)
def test_predictions_are_equal(case: Case, tmp_path: Path) -> None:
    model = case.fit()
    check(model, tmp_path, wild_rows(model))


@pytest.mark.parametrize(("labels", "loss"), [(TWO, "log_loss"), (TWO, "exponential"), (LABELS, "log_loss")])
def test_bags_of_classifiers(labels: np.ndarray, loss: str, tmp_path: Path) -> None:
    booster = dtrees.GradientBoostingClassifier(n_estimators=4, min_samples_leaf=2, loss=loss)
    model = dtrees.BaggingClassifier(booster, n_estimators=3, random_state=0).fit(X, labels)
    check(model, tmp_path, wild_rows(model))


@pytest.mark.parametrize("case", [Case("GradientBoostingRegressor", {}, "positive"), Case("GradientBoostingClassifier", {}, "three")])
def test_scores_of_rows_to_start_from(case: Case, tmp_path: Path) -> None:
    y = TARGETS[case.target]
    margin = np.stack([SIGNAL, -SIGNAL, 0 * SIGNAL], axis=1)[:, : 3 if case.target == "three" else 1].copy()
    model = getattr(dtrees, case.name)(n_estimators=4, loss="log_loss" if case.target == "three" else "poisson").fit(
        X, y, base_margin=margin
    )
    compiled, found = Compiled(model, tmp_path), model.predict(X, margin)
    if case.target != "three":
        assert compiled.fill("predict", X, margin, like=found).tobytes() == found.tobytes()
        return
    assert np.array_equal(model.classes_[compiled.places(X, margin)], found)
    for method in ("predict_proba", "decision_function"):
        found = getattr(model, method)(X, margin)
        assert compiled.fill(method, X, margin, like=found).tobytes() == found.tobytes()
    assert "base_margin holds the 3 raw score(s)" in to_c(model)


@pytest.mark.parametrize("kind", ["DecisionTree", pytest.param("RandomForest", marks=pytest.mark.slow), "GradientBoosting"])
@pytest.mark.parametrize("task", ["Regressor", "Classifier", pytest.param("several", marks=pytest.mark.slow)])
def test_sets_of_categories(kind: str, task: str, tmp_path: Path) -> None:
    model = fit_sets(kind, task)
    unseen = PEOPLE.assign(job="none such", town=None)
    table = pd.concat([PEOPLE, unseen], ignore_index=True)
    check(model, tmp_path, table)
    for foreign in (1e6, 40.0, -1.0, 0.5, np.inf, -np.inf, 2.0**40):
        numbers = to_numbers(model, unseen)
        numbers[:, 0] = foreign
        check(model, tmp_path, unseen, numbers)


def test_categories_without_sets(tmp_path: Path) -> None:
    """Ordered categories are split by thresholds; an unseen one is missing, not the last."""
    sizes = pd.DataFrame({"size": pd.Categorical(["s", "m", None] * 50, ["s", "m", "l"], ordered=True), "x": np.arange(150.0)})
    model = dtrees.DecisionTreeRegressor(categorical_features=None).fit(sizes, sizes["size"].cat.codes.to_numpy() * 2.0)
    unseen = sizes.assign(size=pd.Categorical(["l"] * 150, ["s", "m", "l"]))
    numbers = to_numbers(model, unseen)
    numbers[:, 0] = 7
    check(model, tmp_path, unseen, numbers)


@pytest.mark.filterwarnings("ignore:no tree found a split")
def test_splits_by_whether_a_value_is_missing_one_class_and_no_splits(tmp_path: Path) -> None:
    one = np.where(np.isnan(X[:, :1]), np.nan, 1.0)
    check(dtrees.DecisionTreeRegressor().fit(one, SIGNAL), tmp_path, np.concatenate([one, [[np.inf], [-np.inf]]]))
    check(dtrees.DecisionTreeRegressor(max_depth=1, min_samples_leaf=150).fit(X[:200], SIGNAL[:200]), tmp_path, X)
    check(dtrees.RandomForestClassifier(3).fit(X, np.zeros(len(X), int)), tmp_path, X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_infinities_and_precisions(dtype: type, tmp_path: Path) -> None:
    table = np.where(X > 1, np.inf, np.where(X < -1, -np.inf, np.nextafter(X, 1))).astype(dtype)
    check(dtrees.RandomForestRegressor(3, random_state=0).fit(table, SIGNAL), tmp_path, table)


def test_the_links_of_huge_sums(tmp_path: Path) -> None:
    """Raw predictions of hundreds, whose exponentials are subnormal, and of thousands, whose exponentials underflow."""
    for n, scale in ((3, 1.0), (2, 250.0), (2, 900.0)):
        labels = np.arange(300) % n
        model = dtrees.GradientBoostingClassifier(n_estimators=5, min_samples_leaf=1).fit(FULL, labels)
        groups = [[scale_values(tree, 400.0 * scale) for tree in group] for group in model._trees.groups]
        model._trees = type(model._trees)(groups, model._trees.initial)
        check(model, tmp_path, X)
    model = dtrees.GradientBoostingRegressor(loss="poisson", n_estimators=5, min_samples_leaf=1).fit(FULL, np.exp(SIGNAL))
    model._trees = type(model._trees)([[scale_values(tree, 5000.0) for tree in model._trees.groups[0]]], model._trees.initial)
    found = model.predict(X)
    assert np.isinf(found).any()
    assert (found < np.finfo(float).tiny).any()
    check(model, tmp_path, X)


def scale_values(tree: Any, factor: float) -> Any:
    """Return a tree with multiples of its leaf values."""
    return replace(tree, value=tree.value * factor)


def test_two_models_in_one_program_and_names_that_would_end_a_comment(tmp_path: Path) -> None:
    table = pd.DataFrame({"*/ #error /*": ["a */", "??/", '"\\', "ä\n", "$x"] * 60, "${name}": np.arange(300.0)})
    model = dtrees.DecisionTreeClassifier(min_samples_category=1, cat_smooth=0).fit(table, np.array(["/*", "*/"])[np.arange(300) % 5 // 3])
    assert model._trees.groups[0][0].categories.node.size
    check(model, tmp_path, table)
    other = dtrees.GradientBoostingRegressor(loss="poisson", n_estimators=3).fit(FULL, np.exp(SIGNAL))
    both = "".join(to_c(one, name=name) for one, name in ((model, "kind"), (other, "size"), (other, "again")))
    assert both.isascii()
    (tmp_path / "both.c").write_text(both)
    subprocess.run([COMPILER, *FLAGS, "-c", "-o", tmp_path / "both.o", tmp_path / "both.c"], check=True)


def test_the_comment_says_what_to_pass() -> None:
    model = fit_sets("GradientBoosting", "Classifier")
    text = to_c(model, name="wage")
    about = text[: text.index("*/")]
    for line in (
        f"GradientBoostingClassifier of dtrees {dtrees.__version__} as C: 15 tree(s).",
        "void wage_predict_proba(const double *x, double *out)\n       Writes what predict_proba returns for a row: 3 number(s).",
        "among the classes: [0, 1, 2].",
        'x[0] "job" ["job 00", "job 01",',
        'x[1] "age"\n',
        'x[2] "town" ["Aachen", "Bonn", "Celle"]\n',
        "double x[3] = {0}, out[3];\n       wage_predict_proba(x, out);",
        "-ffp-contract=off -c wage.c",
    ):
        assert line in about
    assert to_c(model, name="wage") == text


def test_fast_mathematics_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.c").write_text(to_c(dtrees.DecisionTreeRegressor().fit(FULL, SIGNAL)))
    command = [COMPILER, "-ffast-math", "-c", "-o", tmp_path / "model.o", tmp_path / "model.c"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "NaN stands for missing values" in done.stderr


def test_what_cannot_be_carried_is_refused() -> None:
    model = dtrees.GradientBoostingRegressor(n_estimators=2, init=LinearRegression()).fit(FULL, SIGNAL)
    with pytest.raises(ValueError, match=r"starts from an estimator \(init=LinearRegression\), which C cannot carry"):
        to_c(model)


@pytest.mark.parametrize("name", ["", "2nd", "a-b", "ä", "a b", 3])
def test_names_that_are_none(name: Any) -> None:
    with pytest.raises(ValueError, match=f"name is {name!r}; wants an identifier of C"):
        to_c(dtrees.DecisionTreeRegressor(max_depth=1).fit(PEOPLE, WAGE), name=name)
