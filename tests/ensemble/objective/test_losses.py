"""Losses compared with scikit-learn's, leaf values, limits of steps, and exact sums of floats."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn._loss.loss import ExponentialLoss, HalfGammaLoss, HalfPoissonLoss, HalfTweedieLoss
from sklearn.metrics import log_loss, mean_squared_error

import dtrees
from dtrees.ensemble.objective.classification import BinaryLogLoss, MultinomialLogLoss
from dtrees.ensemble.objective.kernels import exact_sum, leaf_quantiles, ratio, residual_quantile
from dtrees.ensemble.objective.registry import loss_for
from dtrees.ensemble.objective.regression import Gamma, Huber, Poisson, SquaredError, Tweedie
from tests.ensemble.objective.samples import derivatives, pointwise, sample
from tests.ensemble.samples import SIGNAL, WEIGHT, X, make, trees
from tests.examples import examples

# --- losses other than squared error and log loss: values, leaf values, and the same result for every way to grow trees ---


AMOUNTS = np.exp(SIGNAL / 4)
MEASURED = [("absolute_error", {}), ("quantile", {"alpha": 0.3}), ("quantile", {"alpha": 0.5}), ("huber", {"alpha": 0.7})]
measured = pytest.mark.parametrize(("loss", "parameters"), MEASURED, ids=str)


def naive_quantile(values, weights, q):
    """The least value up to which the share q of the weight lies, or the midpoint to the next if that is exact."""
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
    """The kernels, for all rows and for leaves, compared with sorted rows."""
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
    """Exponentials out of range become infinite or zero, without other effects."""
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
            weight[3] = 0.0  # no effect
            assert np.isfinite(fit(y=y, loss=loss, weight=weight).predict(X)).all()
    with pytest.raises(ValueError, match=r"loss='poisson' is for targets that are not negative"):
        fit(loss="poisson", eval_set=[(X, low)])
    with pytest.raises(ValueError, match="The 'alpha' parameter of GradientBoostingRegressor must be a float in the range"):
        fit(loss="quantile", alpha=1.0)
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


def test_squared_error_is_sklearns():
    target, raw, _ = sample(SquaredError(), 0)
    assert pointwise(SquaredError(), target, raw).mean() == pytest.approx(mean_squared_error(target, raw[0]), rel=1e-14)


def test_the_mean_is_compensated():
    target = np.array([1e16, 1.0, -1e16, 1.0] * 1000)
    assert SquaredError().initial(target, None)[0] == 0.5


LOG_LOSSES = [BinaryLogLoss(), MultinomialLogLoss(3), MultinomialLogLoss(2)]


def test_hessians_of_several_classes_are_scaled():
    for loss in LOG_LOSSES[1:]:
        n = loss.n_outputs
        target, raw, _ = sample(loss, n)
        share = loss.predictions(raw.T)[:, 1]
        np.testing.assert_allclose(derivatives(loss, target, raw, 1)[1], n / (n - 1) * share * (1 - share), rtol=1e-12)


@pytest.mark.parametrize("loss", LOG_LOSSES, ids=repr)
def test_log_loss_is_sklearns(loss):
    target, raw, _ = sample(loss, max(2, loss.n_outputs))
    expected = log_loss(target, loss.predictions(raw.T))
    assert pointwise(loss, target, raw).mean() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(loss.predictions(raw.T).sum(axis=1), 1.0, rtol=1e-14)


def test_binary_is_multinomial_of_two():
    target, raw, _ = sample(BinaryLogLoss(), 2)
    two = np.vstack([-raw[0] / 2, raw[0] / 2])
    g, h = derivatives(BinaryLogLoss(), target, raw, 0)
    g2, h2 = derivatives(MultinomialLogLoss(2), target, two, 1)
    np.testing.assert_allclose(g2, g, rtol=1e-12)
    np.testing.assert_allclose(h2, 2 * h, rtol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.floats(-800, 800), st.integers(0, 1))
def test_sure_predictions_stay_finite(raw, label):
    target = np.array([label], dtype=np.int32)
    for loss, raws in ((BinaryLogLoss(), np.array([[raw]])), (MultinomialLogLoss(3), np.array([[raw], [0.0], [-raw]]))):
        g, h = derivatives(loss, target, raws, 0)
        assert np.isfinite(g).all()
        assert np.isfinite(h).all()
        assert (h >= 0).all()
        assert np.isfinite(pointwise(loss, target, raws)).all()
        assert np.isfinite(loss.predictions(raws.T)).all()


def test_a_class_without_weight_has_a_finite_start():
    assert np.isfinite(BinaryLogLoss().initial(np.array([0, 1], dtype=np.int32), np.array([1.0, 0.0]))).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.floats(-800, 800), st.floats(-5, 5)), min_size=1, max_size=40))
def test_binary_loss_is_precise(margins):
    """Also if the loss is tiny, and if it is nearly the margin."""
    raw = np.array(margins)
    for label, sign in ((0, 1.0), (1, -1.0)):
        target = np.full(raw.size, label, np.int32)
        wanted = [max(sign * x, 0.0) + math.log1p(math.exp(-abs(x))) for x in margins]
        np.testing.assert_allclose(pointwise(BinaryLogLoss(), target, raw[None]), wanted, rtol=1e-15, atol=1e-322)


# --- Newton steps of losses with a log link: none leads beyond the smallest loss of its leaf, for any targets ---


LINKED_LOSSES = [Poisson(), Gamma(), Tweedie(1.1), Tweedie(1.5), Tweedie(1.9)]


@examples(50)
@given(st.sampled_from(LINKED_LOSSES), st.lists(st.tuples(st.floats(1e-4, 1e4), st.floats(-5.0, 5.0)), min_size=1, max_size=5))
def test_no_step_leads_past_the_smallest_loss(loss: Any, rows: list[tuple[float, float]]) -> None:
    """The derivative of a leaf's loss by the step has not changed its sign at the end of the step."""
    target, raw = (np.array(values) for values in zip(*rows, strict=True))
    g, h = np.empty(target.shape[0]), np.empty(target.shape[0])

    def slope(step: float) -> float:
        loss.gradients(target, raw[None] + step, 0, g, h)
        return math.fsum(g)

    before = slope(0.0)
    newton = -before / math.fsum(h)
    steps = np.array([[0.1 * newton]])
    loss.limit_steps(steps, 0.1)
    step = 10.0 * steps[0, 0]
    assert abs(step) <= abs(newton) * (1.0 + 1e-12)
    assert step * newton >= 0.0
    rounding = 1e-9 * math.fsum(np.abs(g) + target + np.exp(raw))
    after = slope(step)
    assert after * math.copysign(1.0, before) >= -rounding or abs(step) < 1e-6
    assert abs(step) > 0.0 or abs(before) <= rounding


@pytest.mark.parametrize(("loss", "outlier"), [("poisson", 1e4), ("poisson", 1e8), ("gamma", 1e4), ("gamma", 1e-6), ("tweedie", 1e6)])
def test_predictions_stay_with_the_data(loss: str, outlier: float) -> None:
    """One row is an extreme outlier; the loss decreases in every round."""
    y = np.ones(2_000)
    y[7] = outlier
    X = np.random.default_rng(0).normal(size=(y.shape[0], 2))
    booster = dtrees.GradientBoostingRegressor(loss=loss, n_estimators=50, learning_rate=0.3, min_samples_leaf=1).fit(X, y)
    predicted = booster.predict(X)
    assert y.min() / 1.1 <= predicted.min() <= predicted.max() <= 1.1 * y.max()
    assert np.all(np.diff(booster.train_score_) <= 0.0)


def test_rising_losses_are_an_error() -> None:
    """A learning rate that is too large is reported long before numbers overflow."""
    X, y = np.arange(100.0)[:, None], np.arange(100.0)
    message = r"boosting has diverged: the mean loss of the training rows was .* after round 1 and is .*; lower learning_rate \(now 2.5\)"
    with pytest.raises(ValueError, match=message):
        dtrees.GradientBoostingRegressor(learning_rate=2.5, reg_lambda=0.0, n_estimators=20).fit(X, y)


floats = st.floats(-1e300, 1e300, allow_subnormal=True)


@given(st.lists(floats, max_size=30))
def test_sums_are_exact(values):
    total = exact_sum(np.array(values, dtype=np.float64))
    assert total == sum((Fraction(value) for value in values), Fraction(0))
    assert float(total) == math.fsum(values)


def test_sums_of_many_do_not_overflow():
    for value in (np.nextafter(1.0, 0.0), -np.nextafter(1.0, 0.0)):
        assert exact_sum(np.full(2_000_000, value)) == 2_000_000 * Fraction(value)


def test_what_has_no_sum():
    assert exact_sum(np.array([1.0, np.inf, -3.0])) == math.inf
    assert exact_sum(np.array([1.0, -np.inf])) == -math.inf
    assert math.isnan(exact_sum(np.array([np.inf, -np.inf])))
    assert math.isnan(exact_sum(np.array([1.0, np.nan])))
    assert exact_sum(np.array([1e308] * 4)) == 4 * Fraction(1e308)


def test_any_memory_will_do():
    values = np.arange(10.0)
    values.flags.writeable = False
    assert exact_sum(values) == 45
    assert exact_sum(values[::3]) == 18


def test_ratios():
    assert ratio(4 * Fraction(1e308), Fraction(1)) == math.inf
    assert ratio(-4 * Fraction(1e308), Fraction(1)) == -math.inf
    assert ratio(math.inf, Fraction(2)) == math.inf
    assert math.isnan(ratio(Fraction(1), 0))
