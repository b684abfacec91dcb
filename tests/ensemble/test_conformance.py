"""All ways to a model give the same one: threads, sparse tables, files, further rounds, checkpoints, arrays of any layout."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

import dtrees
from dtrees.engine.shard import dense_runner
from dtrees.split.grow.by_criterion import METHODS
from tests import fits_to_compare
from tests.cases import CASES, HELD_OUT, RARE_IN_SPARSE, SLOW, check, fit, found
from tests.cluster.samples import numbers
from tests.slow import one_of_each, slow_for

pytestmark = pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")

every_case = pytest.mark.parametrize("name", slow_for(SLOW, CASES))
every_ensemble = pytest.mark.parametrize(
    "name", slow_for(SLOW, [name for name, case in CASES.items() if hasattr(case.estimator, "n_estimators") and not case.before])
)


@every_case
def test_four_threads(name: str) -> None:
    check(fit(CASES[name], n_jobs=4), name)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    "name", slow_for(SLOW, [name for name, case in CASES.items() if case.array and not case.is_constrained], RARE_IN_SPARSE)
)
def test_from_a_sparse_table(name: str, n_jobs: int) -> None:
    check(fit(CASES[name], n_jobs=n_jobs, sparse=True), name)


@every_case
def test_files_and_pickles(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = fit(case)
    dtrees.save(model, tmp_path / "model")
    rows, options = numbers(HELD_OUT) if case.array else HELD_OUT, {"base_margin": 0.0} if case.scored else {}
    for other in (pickle.loads(pickle.dumps(model)), dtrees.load(tmp_path / "model")):
        dtrees.save(other, tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
        assert np.asarray(other.predict(rows, **options)).tolist() == np.asarray(model.predict(rows, **options)).tolist()


@every_ensemble
def test_further_trees(name: str) -> None:
    """All trees but the first are grown by further fits, the second by an unpickled model."""
    case = CASES[name]
    if case.callbacks:
        pytest.skip("it ends by itself")
    if getattr(case.estimator, "drop_rate", 0.0):
        pytest.skip("further rounds would change those before")
    expected = found(fit(case))
    model = fit(case, n_estimators=1, warm_start=True)
    for n_estimators in (2, case.estimator.n_estimators):
        model = fit(case, of=pickle.loads(pickle.dumps(model)), n_estimators=n_estimators)
    ours = found(model.set_params(warm_start=False))
    assert [key for key in expected if ours[key] != expected[key]] == []


class Cut(BaseException):
    """Ends a fit."""


@every_ensemble
def test_going_on_from_a_checkpoint(name: str, tmp_path: Path) -> None:
    def cut(progress: Any) -> None:
        if progress.done == 2:
            raise Cut

    options = {"checkpoint": tmp_path / "checkpoint", "checkpoint_interval": 0}
    with pytest.raises(Cut):
        fit(CASES[name], callbacks=[*CASES[name].callbacks, cut], **options)
    check(fit(CASES[name], **options), name)


#: Cases whose nodes are searched by different kernels.
SEARCHED = [
    *("boosting", "boosting of classes", "tree", "tree of absolute error", "tree by entropy", "forest by Poisson deviance", "extra tree"),
    *("forest with categories", "forest, best first", "forest of balanced draws, pruned", "forest in order", "forest of medians in order"),
    *("forest of many classes, few columns a path", "forest of several targets of classes", "tree of medians of several targets"),
    *("extra trees of several targets of classes by sets", "boosting with categories", "boosting, best first", "boosting in order"),
    "boosting with an L1 penalty",
]
while_compiling = pytest.mark.parametrize("name", slow_for({*SEARCHED[3:]}, CASES, thorough={*CASES} - {*SEARCHED}))


@while_compiling
def test_while_kernels_are_compiled_elsewhere(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The first trees are grown in one block, by fewer kernels."""
    asked: list[bool] = []

    def order(*wanted: Any) -> bool:
        asked.append(True)
        return len(asked) <= 2

    monkeypatch.setattr(METHODS, "_known", {})
    monkeypatch.setattr(dense_runner, "is_compiled", lambda *wanted: False)
    monkeypatch.setattr(dense_runner.SubtreeRunner, "_order", order)
    check(fit(CASES[name], n_jobs=2), name)
    assert any(asked) or name != "boosting"


@while_compiling
def test_while_the_search_of_tiny_nodes_is_compiled_elsewhere(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """In the first trees they are searched like larger nodes."""
    plain: list[bool] = []

    def on(*arguments: Any) -> Any:
        plain.append(arguments[-1])
        return _on(*arguments)

    _on = dense_runner._on
    monkeypatch.setattr(METHODS, "_known", {})
    monkeypatch.setattr(dense_runner, "_on", on)
    monkeypatch.setattr(dense_runner, "is_compiled", lambda kernel, kinds: kernel is not dense_runner._TINY)
    monkeypatch.setattr(dense_runner, "compile_all_elsewhere", bool)
    monkeypatch.setattr(dense_runner, "are_compiled_elsewhere", lambda wanted: len(plain) < 4)
    check(fit(CASES[name], n_jobs=1), name)
    assert {*plain} == {False, True} or name != "boosting"


@pytest.mark.parametrize("name", ["boosting", "boosting with categories"])
def test_nothing_is_ordered_where_all_is_compiled(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A helper process would be started for it."""
    check(fit(CASES[name]), name)
    orders: list[Any] = []
    monkeypatch.setattr(METHODS, "_known", {})
    monkeypatch.setattr(dense_runner, "compile_elsewhere", lambda *order: orders.append(order))
    check(fit(CASES[name]), name)
    assert not orders


# --- arrays of any layout: NumPy adds unaligned numbers in buffers of 8,192 ---


X, SIGNAL, WEIGHT = fits_to_compare.rows()
MODELS = {name: (model, y) for name, model, y in fits_to_compare.cases()}
QUICK = {"means", "several", "gamma"}


def unaligned(array: NDArray[Any]) -> NDArray[Any]:
    memory = np.empty(array.nbytes + 1, np.uint8)
    found = memory[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    assert not found.flags.aligned
    return found


def strided(array: NDArray[Any]) -> NDArray[Any]:
    return np.repeat(array, 2, axis=0)[::2]


def backward(array: NDArray[Any]) -> NDArray[Any]:
    """Return the same values, each column contiguous and reversed in memory."""
    return np.array(array[::-1], order="F")[::-1]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    found = unaligned(array)
    found.flags.writeable = False
    return found


def test_numpy_means_depend_on_the_layout() -> None:
    """Otherwise the tests below would prove nothing."""
    assert unaligned(SIGNAL).mean() != SIGNAL.mean()


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("name", slow_for(MODELS.keys() - QUICK, MODELS))
def test_unaligned(name: str, weight: NDArray[Any] | None, tmp_path: Path) -> None:
    check_layout(unaligned, name, weight, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "name", "weight"), one_of_each([strided, backward, read_only], [*MODELS], [None, WEIGHT], others=pytest.mark.thorough)
)
def test_layouts(layout: Callable[[NDArray[Any]], NDArray[Any]], name: str, weight: NDArray[Any] | None, tmp_path: Path) -> None:
    check_layout(layout, name, weight, tmp_path)


def check_layout(layout: Callable[[NDArray[Any]], NDArray[Any]], name: str, weight: NDArray[Any] | None, tmp_path: Path) -> None:
    model, y = MODELS[name]
    rows = {"X": X, "y": y, **({} if weight is None else {"sample_weight": weight})}
    expected, ours = clone(model).fit(**rows), clone(model).fit(**{key: layout(array) for key, array in rows.items()})
    for fitted, file in ((ours, "found"), (expected, "expected")):
        dtrees.save(fitted, tmp_path / file)
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()
    assert ours.predict(layout(X)).tobytes() == expected.predict(X).tobytes()
    assert ours.score(**{key: layout(array) for key, array in rows.items()}) == expected.score(**rows)


@pytest.mark.parametrize("layout", [unaligned, strided, backward, read_only])
def test_layouts_of_scores_that_trees_are_added_to(layout: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    model, y = MODELS["gamma"]
    expected, ours = clone(model).fit(X, y, base_margin=X[:, 2] / 10), clone(model).fit(X, y, base_margin=layout(X[:, 2] / 10))
    assert ours._trees.groups[0][0].equals(expected._trees.groups[0][0])
    assert ours.predict(X, base_margin=layout(X[:, 2] / 10)).tobytes() == expected.predict(X, base_margin=X[:, 2] / 10).tobytes()
