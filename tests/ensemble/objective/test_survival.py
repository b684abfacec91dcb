"""Losses of censored times, compared with plain implementations and XGBoost."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

from dtrees.ensemble.objective.survival import LAWS, Aft, Cox, baseline, concordance, log_complement, log_normal_cdf, survival
from tests.ensemble.objective.samples import derivatives, pointwise, sample

RNG = np.random.default_rng(8)


def right_censored(n=60, seed=0, ties=True):
    rng = np.random.default_rng(seed)
    time = np.round(rng.exponential(3.0, n), 0 if ties else 9) + 1.0
    return np.stack([time, np.where(rng.random(n) < 0.6, time, np.inf)])


def naive_partial_likelihood(target, raw, weight):
    """The loss as a sum over events, with complete risk sets."""
    time, seen = target[0], target[0] == target[1]
    total = 0.0
    for i in np.flatnonzero(seen):
        at_risk = time >= time[i]
        total += weight[i] * (math.log(np.sum(weight[at_risk] * np.exp(raw[at_risk]))) - raw[i])
    return total


@pytest.mark.parametrize("weighted", [False, True])
def test_cox_is_the_partial_likelihood(weighted):
    target, raw = right_censored(), RNG.normal(size=60)
    weight = RNG.integers(0, 4, 60).astype(float) if weighted else np.ones(60)
    g, h = Cox().derive(target, raw[np.newaxis], weight if weighted else None)[:, 0]
    for i in range(60):
        step = np.where(np.arange(60) == i, 1e-4, 0.0)
        low, middle, high = (naive_partial_likelihood(target, raw + k * step, weight) for k in (-1, 0, 1))
        assert_allclose(g[i], (high - low) / 2e-4, rtol=1e-6, atol=1e-6)
        assert_allclose(h[i], (high - 2 * middle + low) / 1e-8, atol=1e-4)
    seen = target[0] == target[1]
    measured = Cox().measure("loss", target, raw[np.newaxis], weight if weighted else None)
    assert_allclose(measured, naive_partial_likelihood(target, raw, weight) / weight[seen].sum())
    # Rows without weight, and a constant, have no effect.
    kept = weight > 0
    assert_allclose(Cox().derive(target[:, kept], raw[np.newaxis, kept] + 700.0, weight[kept])[:, 0], [g[kept], h[kept]], atol=1e-12)


def test_cox_survives_wild_predictions():
    target = right_censored()
    for raw in (np.linspace(-1e5, 1e5, 60), np.where(np.arange(60) == 5, 1e300, 0.0)):
        found = Cox().derive(target, raw[np.newaxis], None)
        assert np.isfinite(found).all()
        assert (found[1] >= 0.0).all()


def assert_xgboosts(target, raw, g, h, **parameters):
    """Compare with the leaves of a tree of XGBoost: negative gradients over hessians of their rows."""
    xgboost = pytest.importorskip("xgboost")
    column = np.argsort(np.argsort(-g / (h + 0.1)))[:, np.newaxis]
    data = xgboost.DMatrix(column, base_margin=raw)
    if parameters["objective"] == "survival:cox":
        data.set_label(np.where(target[0] == target[1], target[0], -target[0]))
    else:
        data.set_float_info("label_lower_bound", target[0])
        data.set_float_info("label_upper_bound", target[1])
    settings = {"tree_method": "exact", "max_depth": 12, "eta": 1.0, "lambda": 0.1, "min_child_weight": 0.0}
    model = xgboost.train({**settings, **parameters}, data, 1)
    leaf = model.predict(data, pred_leaf=True).astype(int).ravel()
    assert len(np.unique(leaf)) > 5
    wanted = -np.bincount(leaf, g) / np.maximum(np.bincount(leaf, h) + 0.1, 0.1)
    assert_allclose(model.predict(data, output_margin=True) - raw, wanted[leaf], rtol=2e-4, atol=2e-5)


def test_cox_has_the_derivatives_of_xgboost():
    """Without ties: of these, XGBoost only counts events that come before a row in the order of the table."""
    target, raw = right_censored(ties=False).astype(np.float32).astype(float), RNG.normal(size=60).astype(np.float32).astype(float)
    assert_xgboosts(target, raw, *Cox().derive(target, raw[np.newaxis], None)[:, 0], objective="survival:cox")


@pytest.mark.parametrize("distribution", LAWS)
@pytest.mark.parametrize("scale", [0.7, 2.0])
def test_aft_has_the_derivatives_of_xgboost(distribution, scale):
    loss = Aft(distribution, scale)
    target, raw, _ = sample(loss, 0, n=60)
    target, raw = target.astype(np.float32).astype(float), raw.astype(np.float32).astype(float)
    named = {"aft_loss_distribution": distribution, "aft_loss_distribution_scale": scale}
    assert_xgboosts(target, raw[0], *derivatives(loss, target, raw, 0), objective="survival:aft", **named)


BY_SCIPY = {"normal": stats.norm, "logistic": stats.logistic, "extreme": stats.gumbel_l}


@pytest.mark.parametrize("distribution", LAWS)
def test_laws(distribution):
    z, law, theirs = np.linspace(-30.0, 5.0, 301), LAWS[distribution], BY_SCIPY[distribution]
    found = law(z)
    assert_allclose(found.density, theirs.logpdf(z), rtol=1e-13, atol=1e-14)
    assert_allclose(found.below, theirs.logcdf(z), rtol=1e-12, atol=1e-15)
    assert_allclose(found.above, theirs.logsf(z), rtol=1e-12, atol=1e-15)
    step = 1e-5
    assert_allclose(found.slope, (law(z + step).density - law(z - step).density) / (2 * step), rtol=1e-6, atol=1e-6)
    assert_allclose(found.curvature + 0 * z, (law(z + step).slope - law(z - step).slope) / (2 * step), rtol=1e-6, atol=1e-6)
    ends = law(np.array([-np.inf, np.inf]))
    assert ends.below.tolist() == [-np.inf, 0.0]
    assert ends.above.tolist() == [0.0, -np.inf]


def test_functions_of_logarithms():
    x = np.array([0.0, 1e-300, 1e-12, 0.009999, 0.010001, 1.0, 50.0, np.inf])
    assert_allclose(log_complement(x)[1:], np.log(-np.expm1(-x[1:])), rtol=1e-13, atol=1e-30)
    assert log_complement(x)[0] == -np.inf
    z = np.linspace(-100.0, 8.0, 2001)
    assert_allclose(log_normal_cdf(z), special.log_ndtr(z), rtol=1e-12, atol=3e-16)


@pytest.mark.parametrize("distribution", LAWS)
def test_aft_is_the_likelihood(distribution):
    loss, scale = Aft(distribution, 0.8), 0.8
    target, raw, _ = sample(loss, 0)
    target[0, :20], target[1, :20] = 0.0, 3.0  # censored on the left
    target[1, 20:30] = target[0, 20:30] * (1 + 1e-9)  # nearly known
    lower, upper = (np.log(np.maximum(bound, 1e-300)) - raw[0] for bound in target)
    law = BY_SCIPY[distribution]
    with np.errstate(divide="ignore"):
        of_interval = -np.log(law.cdf(upper / scale) - law.cdf(lower / scale))
    known = target[0] == target[1]
    wanted = np.where(known, -law.logpdf(lower / scale) + np.log(scale * np.maximum(target[0], 1e-300)), of_interval)
    sure = np.isfinite(wanted) & (wanted < 25.0)
    sure[20:30] = False
    assert sure.sum() > 120
    assert_allclose(pointwise(loss, target, raw)[sure], wanted[sure], rtol=1e-5, atol=1e-12)
    # For a narrow interval: the density times its width.
    narrow = -law.logpdf(lower / scale)[20:30] - np.log((upper - lower)[20:30] / scale)
    assert_allclose(pointwise(loss, target, raw)[20:30], narrow, rtol=1e-6)
    for far in (-1e4, 1e4):
        for found in (*derivatives(loss, target, raw + far, 0), pointwise(loss, target, raw + far)):
            assert np.isfinite(found).all()


def naive_concordance(target, risk, weight):
    (lower, upper), total, ordered = target, 0.0, 0.0
    for i in range(len(risk)):
        for j in range(len(risk)):
            if upper[i] < lower[j] or (upper[i] == lower[j] < upper[j]):
                total += weight[i] * weight[j]
                ordered += weight[i] * weight[j] * ((risk[i] > risk[j]) + (risk[i] == risk[j]) / 2)
    return ordered / total if total else math.nan


@pytest.mark.parametrize("seed", range(8))
def test_concordance(seed):
    rng = np.random.default_rng(seed)
    n = [1, 2, 5, 40, 40, 80, 80, 80][seed]
    target = right_censored(n, seed)
    if seed % 2:
        target[1] = np.where(rng.random(n) < 0.3, target[0] + rng.integers(0, 3, n), target[1])
    risk, weight = np.round(rng.normal(size=n), 1), rng.integers(0, 3, n).astype(float)
    assert_allclose(concordance(target, risk, weight), naive_concordance(target, risk, weight))
    assert_allclose(concordance(target, risk, None), naive_concordance(target, risk, np.ones(n)))


def test_baseline_and_survival():
    target, raw, weight = right_censored(), RNG.normal(size=60), RNG.uniform(0.5, 2.0, 60)
    times, hazard = baseline(target, raw, weight)
    seen = target[0] == target[1]
    assert times.tolist() == sorted(set(target[0, seen]))
    total = 0.0
    for k, time in enumerate(times):
        total += weight[seen & (target[0] == time)].sum() / np.sum((weight * np.exp(raw))[target[0] >= time])
        assert_allclose(hazard[k], total)
    assert_allclose(survival(Cox(), times, hazard, raw[:3, np.newaxis]), np.exp(-np.outer(np.exp(raw[:3]), hazard)))
    at = np.array([0.0, 0.5, 2.0])
    for name, law in BY_SCIPY.items():
        with np.errstate(divide="ignore"):
            wanted = law.sf((np.log(at) - raw[:3, np.newaxis]) / 0.7)
        assert_allclose(survival(Aft(name, 0.7), at, None, raw[:3, np.newaxis]), wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("loss", "target", "message"),
    [
        (Cox(), [[1.0, 2.0], [1.0, 3.0]], r"known or censored on the right, but y has the bounds \[2.0, 3.0\]; use loss='aft'"),
        (Cox(), [[1.0, 2.0], [np.inf, np.inf]], "no event"),
        (Aft(), [[0.0, 2.0], [0.0, 3.0]], "times above zero"),
        (Aft(), [[1.0, 2.0], [np.inf, np.inf]], "censored on the right"),
        (Aft(), [[0.0, 0.0], [1.0, 2.0]], "censored on the left"),
    ],
)
def test_what_losses_refuse(loss, target, message):
    def begin():
        loss.check(np.array(target))
        loss.initial(np.array(target), None)

    with pytest.raises(ValueError, match=message):
        begin()
