"""Losses beside squared error and log loss: what they are, what leaves hold, and that every way to grow trees gives the same."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn._loss.loss import ExponentialLoss, HalfGammaLoss, HalfPoissonLoss, HalfTweedieLoss

import dtrees
from dtrees.ensemble.objective.arithmetic.residual_kernels import leaf_quantiles, residual_quantile
from dtrees.ensemble.objective.registry import loss_for
from dtrees.ensemble.objective.regression import Huber
from tests.ensemble.objective.samples import derivatives, pointwise, sample
from tests.ensemble.samples import SIGNAL, WEIGHT, X, assert_same_trees, make, trees

AMOUNTS = np.exp(SIGNAL / 4)
MEASURED = [("absolute_error", {}), ("quantile", {"alpha": 0.3}), ("quantile", {"alpha": 0.5}), ("huber", {"alpha": 0.7})]
SMOOTH = [("poisson", {}), ("gamma", {}), ("tweedie", {"tweedie_variance_power": 1.2})]
every_loss = pytest.mark.parametrize(("loss", "parameters"), MEASURED + SMOOTH, ids=str)
measured = pytest.mark.parametrize(("loss", "parameters"), MEASURED, ids=str)


def naive_quantile(values, weights, q):
    """The least value up to which the rows weigh q of all, halfway to the next where they weigh just that."""
    rows = sorted((value, weight) for value, weight in zip(values, weights, strict=True) if weight > 0)
    wanted, below = q * float(sum(weight for _, weight in rows)), 0
    for i, (value, weight) in enumerate(rows):
        below += weight
        if below >= wanted:
            return value / 2 + rows[i + 1][0] / 2 if below == wanted and i + 1 < len(rows) else value
    raise AssertionError


def naive_value(residuals, weights, loss, parameters, delta):
    if loss != "huber":
        return naive_quantile(residuals, weights, parameters.get("alpha", 0.5))
    middle = naive_quantile(residuals, weights, 0.5)
    return middle + np.average(np.clip(residuals - middle, -delta, delta), weights=weights)


@given(
    st.lists(
        st.tuples(st.one_of(st.integers(-3, 3).map(float), st.floats(-1e300, 1e300)), st.integers(0, 3)), min_size=1, max_size=40
    ).filter(lambda rows: any(weight for _, weight in rows)),
    st.sampled_from([0.5, 0.25, 0.125, 0.75, 0.9, 0.01]),
    st.booleans(),
)
def test_quantiles(rows, q, weighted):
    """The kernels, of all rows and of leaves, against sorted rows."""
    values, weight = np.array([value for value, _ in rows]), np.array([weight for _, weight in rows], np.int64)
    count = weight if weighted else np.ones(len(rows), np.int64)
    given_weight = weight if weighted else weight[:0]
    zeros = np.zeros(len(rows))
    found = residual_quantile(values, zeros, given_weight, q, False)
    assert found == naive_quantile(values, count.tolist(), q)
    assert str(found) != "-0.0"
    assert residual_quantile(values, zeros, given_weight, q, True) == naive_quantile(abs(values), count.tolist(), q)
    middle = len(rows) // 2
    order, found = np.random.default_rng(0).permutation(len(rows)).astype(np.uint32), np.empty(2)
    parts = [order[:middle], order[middle:]]
    if all(count[part].any() for part in parts):
        kept = [part[count[part] > 0] for part in parts]
        bounds = np.cumsum([0] + [len(part) for part in kept])
        leaf_quantiles(values, zeros, given_weight, np.concatenate(kept), bounds[:-1], bounds[1:], q, found)
        assert found.tolist() == [naive_quantile(values[part], count[part].tolist(), q) for part in parts]


@pytest.mark.parametrize("weighted", [False, True])
@measured
def test_leaves_hold_what_is_measured(loss, parameters, weighted):
    weight = WEIGHT if weighted else np.ones(len(X))
    model = make(dtrees.GradientBoostingRegressor, loss=loss, **parameters, max_depth=3, max_features=None)
    model.fit(X, SIGNAL, WEIGHT if weighted else None)
    rated = weight > 0
    before = np.full(len(X), naive_quantile(SIGNAL, weight, parameters["alpha"] if loss == "quantile" else 0.5))
    assert_array_equal(model.init_.predict(X), before)
    leaves = model.apply(X)
    for number, tree in enumerate(trees(model)):
        residuals = SIGNAL - before
        delta = naive_quantile(abs(residuals), weight, parameters["alpha"]) if loss == "huber" else 0.0
        for leaf in np.unique(leaves[rated, number]):
            here = rated & (leaves[:, number] == leaf)
            wanted = naive_value(residuals[here], weight[here], loss, parameters, delta)
            assert tree.value[leaf, 0] == pytest.approx(model.learning_rate * wanted, rel=1e-12, abs=1e-15)
        before = before + tree.value[leaves[:, number], 0]
        expected = Huber(0.7, delta) if loss == "huber" else loss_for(loss, 0, parameters)
        assert model.train_score_[number] == pytest.approx(np.average(pointwise(expected, SIGNAL, before[np.newaxis]), weights=weight))
    assert_allclose(model.predict(X), before, rtol=1e-12)


@every_loss
def test_every_way_gives_the_same(loss, parameters, tmp_path):
    settings = {"loss": loss, **parameters, "subsample": 0.8, "max_features": None, "min_child_weight": 0.1}
    model = make(dtrees.GradientBoostingRegressor, **settings, n_iter_no_change=50).fit(X, AMOUNTS, WEIGHT)
    assert model.train_score_[-1] < model.train_score_[0]
    many = make(dtrees.GradientBoostingRegressor, **settings, n_iter_no_change=50, n_jobs=4).fit(X, AMOUNTS, WEIGHT)
    assert_same_trees(many, model)
    plain = make(dtrees.GradientBoostingRegressor, **settings).fit(X, AMOUNTS)
    repeated = make(dtrees.GradientBoostingRegressor, **settings, warm_start=True).set_params(n_estimators=3).fit(X, AMOUNTS)
    assert_same_trees(repeated.set_params(n_estimators=8).fit(X, AMOUNTS), plain)
    dtrees.save(plain, tmp_path / "model")
    loaded = dtrees.load(tmp_path / "model")
    assert_array_equal(loaded.predict(X), plain.predict(X))
    assert_same_trees(
        loaded.set_params(warm_start=True, n_estimators=9).fit(X, AMOUNTS), repeated.set_params(n_estimators=9).fit(X, AMOUNTS)
    )


@pytest.mark.parametrize(
    ("loss", "parameters", "theirs", "metric"),
    [
        ("poisson", {}, HalfPoissonLoss(), sklearn.metrics.mean_poisson_deviance),
        ("gamma", {}, HalfGammaLoss(), sklearn.metrics.mean_gamma_deviance),
        (
            "tweedie",
            {"tweedie_variance_power": 1.3},
            HalfTweedieLoss(power=1.3),
            lambda y, p: sklearn.metrics.mean_tweedie_deviance(y, p, power=1.3),
        ),
    ],
)
def test_deviances_are_scikit_learns(loss, parameters, theirs, metric):
    own = loss_for(loss, 0, parameters)
    target, raw, _ = sample(own, 0)
    if loss != "gamma":
        target[:50] = 0.0
    g, h = derivatives(own, target, raw, 0)
    wanted_g, wanted_h = theirs.gradient_hessian(target, np.ascontiguousarray(raw[0]))
    assert_allclose(g, wanted_g, rtol=1e-12, atol=1e-13)
    assert_allclose(h, wanted_h, rtol=1e-12)
    assert pointwise(own, target, raw).mean() == pytest.approx(metric(target, own.predictions(raw.T)), rel=1e-12)
    assert pointwise(own, target[60:], np.log(target[60:])[np.newaxis]).max() < 1e-13


def test_exponential_loss_is_scikit_learns():
    own = loss_for("exponential", 2)
    target, raw, _ = sample(own, 2)
    wanted_g, wanted_h = ExponentialLoss().gradient_hessian(target.astype(float), np.ascontiguousarray(raw[0]))
    g, h = derivatives(own, target, raw, 0)
    assert_allclose(g, wanted_g, rtol=1e-13)
    assert_allclose(h, wanted_h, rtol=1e-13)
    labels = np.where(SIGNAL > 1, "high", "low")
    model = make(dtrees.GradientBoostingClassifier, loss="exponential", max_features=None, eval_metric=["loss", "auc"])
    model.fit(X, labels, eval_set=[(X, labels)])
    assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-2 * model.decision_function(X))))
    assert_allclose(model.evals_result_["validation_0"]["loss"], model.train_score_)
    assert model.score(X, labels) > 0.9


def test_extreme_raw_predictions():
    """Exponentials out of range become infinite or zero, and nothing else."""
    raw = np.array([[-1e308, -800.0, 0.0, 800.0, 1e308]])
    target = np.ones(5)
    g, h = derivatives(loss_for("poisson", 0), target, raw, 0)
    assert h.tolist() == [0.0, 0.0, 1.0, np.inf, np.inf]
    assert g.tolist() == [-1.0, -1.0, 0.0, np.inf, np.inf]
    assert not np.isnan(derivatives(loss_for("gamma", 0), target, raw, 0)[1]).any()


@pytest.mark.parametrize(
    ("loss", "parameters", "metric"),
    [
        ("absolute_error", {}, "mae"),
        ("quantile", {"alpha": 0.2}, "loss"),
        ("huber", {}, "mae"),
        ("poisson", {}, "loss"),
        ("squared_error", {}, "rmse"),
    ],
)
def test_the_metric_where_none_is_asked_for(loss, parameters, metric):
    model = make(dtrees.GradientBoostingRegressor, loss=loss, **parameters, early_stopping_rounds=5)
    model.fit(X, AMOUNTS, eval_set=[(X, AMOUNTS)])
    (found,) = model.evals_result_["validation_0"].items()
    assert found[0] == metric
    if metric != "rmse" and loss != "huber":
        assert_allclose(found[1], model.train_score_)


def test_what_makes_no_sense_is_refused():
    def fit(kind=dtrees.GradientBoostingRegressor, y=AMOUNTS, weight=None, eval_set=None, **parameters):
        return make(kind, **parameters).fit(X, y, weight, eval_set=eval_set)

    low, zero = AMOUNTS.copy(), AMOUNTS.copy()
    low[3], zero[3] = -2.0, 0.0
    for y, loss, message in (
        (low, "poisson", r"loss='poisson' is for targets that are not negative, but y contains -2.0"),
        (low, "tweedie", r"loss='tweedie' is for targets that are not negative, but y contains -2.0"),
        (zero, "gamma", r"loss='gamma' is for targets above zero, but y contains 0.0"),
        (0 * zero, "poisson", "y is zero wherever a row has a weight; a loss of positive predictions wants a mean above zero"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(y=y, loss=loss)
        if loss != "poisson" or y[3]:
            weight = np.ones(len(y))
            weight[3] = 0.0  # as good as absent
            assert np.isfinite(fit(y=y, loss=loss, weight=weight).predict(X)).all()
    with pytest.raises(ValueError, match=r"loss='poisson' is for targets that are not negative"):
        fit(loss="poisson", eval_set=[(X, low)])
    with pytest.warns(
        UserWarning, match=r"alpha=0.5 has no effect: it is for loss='huber' or loss='quantile', but loss is 'squared_error'"
    ):
        fit(alpha=0.5)
    with pytest.warns(UserWarning, match=r"tweedie_variance_power=1.1 has no effect: it is for loss='tweedie', but loss is 'poisson'"):
        fit(loss="poisson", tweedie_variance_power=1.1)
    with pytest.raises(ValueError, match="The 'alpha' parameter of GradientBoostingRegressor must be a float in the range"):
        fit(loss="quantile", alpha=1.0)
    with pytest.raises(ValueError, match="eval_metric has 'loss', but loss='huber' is another one in each round"):
        fit(loss="huber", eval_metric="loss", eval_set=[(X, AMOUNTS)])
    with pytest.raises(ValueError, match="loss='exponential' is for two classes, but y has 3; use loss='log_loss'"):
        fit(dtrees.GradientBoostingClassifier, np.arange(len(X)) % 3, loss="exponential")
    model = fit(loss="quantile", alpha=0.5, warm_start=True)
    with pytest.raises(
        ValueError, match=r"warm_start=True keeps the trees of the loss 'quantile' with {'alpha': 0.5}, but now it is to have"
    ):
        model.set_params(alpha=0.6).fit(X, AMOUNTS)


@pytest.mark.parametrize("loss", ["absolute_error", "quantile", "huber", "poisson", "gamma", "tweedie"])
def test_a_target_that_never_varies(loss, recwarn):
    model = make(dtrees.GradientBoostingRegressor, loss=loss).fit(X, np.full(len(X), 7.3))
    assert_allclose(model.predict(X), 7.3, rtol=1e-12)
    assert not recwarn.list
