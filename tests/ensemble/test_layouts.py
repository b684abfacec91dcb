"""Arrays of any layout give the same model: NumPy adds up those that are not aligned by buffers of 8,192 numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

import dtrees
from tests.cluster.samples import assert_same_model
from tests.slow import one_of_each, slow_for

N = 9_000
RNG = np.random.default_rng(2)
X = np.round(RNG.random((N, 3)), 2)
SIGNAL = X[:, 0] * X[:, 1] + RNG.random(N)
CLASSES = np.digitize(SIGNAL, [0.5, 1.0])
WEIGHT = 0.5 + RNG.random(N)
MARGIN = 0.1 * X[:, 2]

FEW: dict[str, Any] = {"n_estimators": 2, "max_depth": 3, "random_state": 0}
MODELS: dict[str, tuple[Any, NDArray[Any]]] = {
    "forest": (dtrees.RandomForestRegressor(oob_score=True, **FEW), SIGNAL),
    "forest of several": (dtrees.RandomForestRegressor(oob_score=True, **FEW), np.column_stack([SIGNAL, 100.0 - SIGNAL])),
    "boosting": (dtrees.GradientBoostingRegressor(loss="gamma", n_iter_no_change=2, **FEW), SIGNAL),
    "boosting of several": (dtrees.GradientBoostingRegressor(**FEW), np.column_stack([SIGNAL, 100.0 - SIGNAL])),
    "boosting of classes": (dtrees.GradientBoostingClassifier(**FEW), CLASSES),
    "extra trees": (dtrees.ExtraTreesRegressor(bootstrap=True, oob_score=True, **FEW), SIGNAL),
    "forest of classes": (dtrees.RandomForestClassifier(oob_score=True, **FEW), CLASSES),
    "extra trees of classes": (dtrees.ExtraTreesClassifier(criterion="entropy", **FEW), np.column_stack([CLASSES, CLASSES > 0])),
    "tree": (dtrees.DecisionTreeRegressor(max_depth=3), SIGNAL),
    "tree by order": (dtrees.DecisionTreeRegressor(criterion="absolute_error", max_depth=3), SIGNAL),
    "tree by deviance": (dtrees.DecisionTreeRegressor(criterion="poisson", max_depth=3), SIGNAL),
    "tree of classes": (dtrees.DecisionTreeClassifier(max_depth=3), CLASSES),
    "extra tree": (dtrees.ExtraTreeRegressor(max_depth=3, random_state=0), SIGNAL),
    "extra tree of classes": (dtrees.ExtraTreeClassifier(max_depth=3, random_state=0), CLASSES),
    "bag": (dtrees.BaggingRegressor(dtrees.GradientBoostingRegressor(**FEW), 2, oob_score=True, random_state=0), SIGNAL),
    "bag of classes": (dtrees.BaggingClassifier(dtrees.GradientBoostingClassifier(**FEW), 2, oob_score=True, random_state=0), CLASSES),
}
QUICK = {"forest", "forest of several", "boosting"}


def unaligned(array: NDArray[Any]) -> NDArray[Any]:
    memory = np.empty(array.nbytes + 1, np.uint8)
    found = memory[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    assert not found.flags.aligned
    return found


def strided(array: NDArray[Any]) -> NDArray[Any]:
    return np.repeat(array, 2, axis=0)[::2]


def backward(array: NDArray[Any]) -> NDArray[Any]:
    """Return the same, each column side by side and from its end."""
    return np.array(array[::-1], order="F")[::-1]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    found = unaligned(array)
    found.flags.writeable = False
    return found


def test_numpy_means_depend_on_the_layout() -> None:
    """Otherwise the tests below would show nothing."""
    assert unaligned(SIGNAL).mean() != SIGNAL.mean()


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("name", slow_for(MODELS.keys() - QUICK, MODELS))
def test_unaligned(name: str, weight: NDArray[Any] | None, tmp_path: Path) -> None:
    check(unaligned, name, weight, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
@pytest.mark.parametrize(("layout", "name"), one_of_each([strided, backward, read_only], [*MODELS], others=pytest.mark.thorough))
def test_layouts(layout: Callable[[NDArray[Any]], NDArray[Any]], name: str, weight: NDArray[Any] | None, tmp_path: Path) -> None:
    check(layout, name, weight, tmp_path)


def check(layout: Callable[[NDArray[Any]], NDArray[Any]], name: str, weight: NDArray[Any] | None, tmp_path: Path) -> None:
    model, y = MODELS[name]
    rows = {"X": X, "y": y, **({} if weight is None else {"sample_weight": weight})}
    expected, found = clone(model).fit(**rows), clone(model).fit(**{key: layout(array) for key, array in rows.items()})
    for fitted, file in ((found, "found"), (expected, "expected")):
        dtrees.save(fitted, tmp_path / file)
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()
    assert found.predict(layout(X)).tobytes() == expected.predict(X).tobytes()
    assert found.score(**{key: layout(array) for key, array in rows.items()}) == expected.score(**rows)


@pytest.mark.parametrize("layout", [unaligned, strided, backward, read_only])
def test_layouts_of_scores_that_trees_are_added_to(layout: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    model, y = MODELS["boosting"]
    expected, found = clone(model).fit(X, y, base_margin=MARGIN), clone(model).fit(X, y, base_margin=layout(MARGIN))
    assert_same_model(found, expected)
    assert found.predict(X, base_margin=layout(MARGIN)).tobytes() == expected.predict(X, base_margin=MARGIN).tobytes()
