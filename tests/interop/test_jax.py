"""Models as functions of JAX."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees import to_jax, to_numbers
from tests.interop.cases import FULL, PEOPLE, SIGNAL, X, fit_sets, predictions
from tests.interop.test_predictions import x64

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("jax")]


@pytest.fixture(scope="module")
def jax() -> Any:
    """Return JAX, whose import takes long and would slow down other tests."""
    return pytest.importorskip("jax")


@x64()
@pytest.mark.parametrize(("n_rows", "max_depth"), [(0, 2), (1, None), pytest.param(1024, None, marks=pytest.mark.thorough), (5000, 6)])
def test_any_number_of_rows_compiled_and_mapped(jax: Any, n_rows: int, max_depth: int | None) -> None:
    model = dtrees.RandomForestRegressor(3, random_state=0, max_depth=max_depth).fit(X, SIGNAL)
    rows = np.random.default_rng(1).normal(size=(n_rows, 5))
    rows[::7, 2] = np.nan
    function = to_jax(model)
    wanted = model.predict(rows) if n_rows else np.empty(0)
    for form in (function, jax.jit(function), *([jax.vmap(function)] if n_rows else []), jax.jit(lambda some: 2 * function(some) / 2)):
        assert_allclose(form(rows), wanted, rtol=1e-13)
    if n_rows:
        assert float(function(rows[0])) == pytest.approx(wanted[0], rel=1e-13)


def test_float32_where_that_is_all_that_jax_has(jax: Any) -> None:
    assert not jax.config.jax_enable_x64
    for model in (
        dtrees.GradientBoostingClassifier(n_estimators=5).fit(FULL, SIGNAL > 0),
        dtrees.RandomForestRegressor(5, random_state=0).fit(X, SIGNAL),
    ):
        found = to_jax(model)(X)
        assert found.dtype == np.float32
        assert_allclose(found, predictions(model, X), rtol=1e-5, atol=1e-6)
    assert not jax.config.jax_enable_x64
    rng = np.random.default_rng(0)
    near = 1.0 + rng.permutation(1000)[:60, np.newaxis] * 2.0**-23 + rng.uniform(-0.49, 0.49, (60, 1)) * 2.0**-23
    tree = dtrees.DecisionTreeRegressor().fit(near, np.arange(60.0))
    assert_array_equal(to_jax(tree, X=near)(near), tree.predict(near))


@x64()
def test_float32_rows_are_decided_as_they_are() -> None:
    model = dtrees.RandomForestRegressor(5, random_state=0).fit(np.nextafter(X, 1), SIGNAL)
    rows = X.astype(np.float32)
    assert_allclose(to_jax(model)(rows), model.predict(rows), rtol=1e-13)


@x64()
def test_categories_that_there_are_not() -> None:
    model, missing = fit_sets("RandomForest", "Regressor"), PEOPLE.assign(job="none such")
    foreign = to_numbers(model, missing)
    foreign[:, 0] = 1e6
    assert_allclose(to_jax(model)(foreign), predictions(model, missing), rtol=1e-13)


def test_errors() -> None:
    function = to_jax(dtrees.DecisionTreeRegressor().fit(X, SIGNAL))
    with pytest.raises(ValueError, match=r"the table has the shape \(3, 4\); wants \(n, 5\)"):
        function(np.zeros((3, 4)))


@x64()
def test_deep_trees(jax: Any) -> None:
    """Few rows go far deeper than all others, and continue separately."""
    X = np.arange(300.0)[:, np.newaxis]
    y = np.where(X[:, 0] < 260, X[:, 0] % 2, np.exp2(np.maximum(X[:, 0] - 260, 0)))
    model = dtrees.RandomForestRegressor(3, random_state=0).fit(X, y)
    assert max(tree.max_depth for tree in model._trees.groups[0]) > 20
    rows = np.concatenate([X, [[np.nan], [-1.0], [1e9]], X[::-1]])
    for some in (rows, rows[-50:], rows[:1]):
        assert_allclose(jax.jit(to_jax(model))(some), model.predict(some), rtol=1e-12)
