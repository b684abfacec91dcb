"""Every registered loss is tested here, and a user-defined loss or objective works with all features."""

import pickle
from dataclasses import dataclass

import cloudpickle
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, softmax

import dtrees
from dtrees.ensemble.objective import registry
from dtrees.ensemble.objective.loss import PARTS, LinkedLoss, OneOutput
from dtrees.ensemble.objective.registry import loss_for, register_loss, registered_losses
from tests.ensemble.objective.samples import derivatives, pointwise, sample
from tests.ensemble.samples import LABELS, SIGNAL, WEIGHT, N, X, assert_same_trees, make

# --- every registered loss, and a user-defined loss that works with all features ---


@dataclass(frozen=True)
class Poisson(OneOutput):
    """A toy: half the Poisson deviance up to a constant, with a logarithmic link."""

    n_outputs: int = 1
    constant_hessian: bool = False

    def initial(self, target, weight):
        return np.log([np.average(target, weights=weight)])

    def gradients(self, target, opened, output, g, h):
        np.exp(opened[output], out=h)
        np.subtract(h, target, out=g)

    def pointwise(self, target, raw, out):
        np.exp(raw[0], out=out)
        out -= target * raw[0]

    def predictions(self, raw):
        return np.exp(raw[:, 0])


@pytest.fixture
def poisson():
    register_loss("own", lambda n_classes: Poisson(), classify=False)
    yield Poisson()
    del registry._entries["own"]
    registry.REGRESSION.discard("own")


COUNTS = np.random.default_rng(4).poisson(np.exp(SIGNAL / 4)).astype(float)
REGISTERED = [*registered_losses(), ("own", 0, Poisson())]
#: Losses with a value for each row; others have separate tests.
by_row = pytest.mark.parametrize(
    ("name", "n_classes", "loss"), [case for case in REGISTERED if not case[2].takes_all_rows], ids=lambda case: str(case)
)
every_loss = pytest.mark.parametrize(("name", "n_classes", "loss"), REGISTERED, ids=lambda case: str(case))


@by_row
def test_gradients_are_differences_of_the_loss(name, n_classes, loss):
    target, raw, _ = sample(loss, n_classes)
    factor = 0.5 if name in ("squared_error", "poisson", "gamma", "tweedie") else 1.0  # derivatives of these are of half the loss
    for output in range(loss.n_outputs):
        g, h = derivatives(loss, target, raw, output)
        up, down = raw.copy(), raw.copy()
        up[output] += 1e-4
        down[output] -= 1e-4
        middle = pointwise(loss, target, raw)
        slope = factor * (pointwise(loss, target, up) - pointwise(loss, target, down)) / 2e-4
        assert_allclose(slope, g, rtol=1e-7, atol=1e-7)
        if loss.measures_leaves:
            assert (h == 1.0).all()
            continue
        curvature = factor * (pointwise(loss, target, up) - 2 * middle + pointwise(loss, target, down)) / 1e-8
        scale = loss.n_outputs / (loss.n_outputs - 1) if loss.n_outputs > 1 else 1.0  # the trees of a round move all outputs
        assert_allclose(scale * curvature, h, rtol=1e-5, atol=1e-5)


@by_row
@pytest.mark.parametrize("weighted", [False, True])
def test_the_initial_prediction_is_the_best_constant(name, n_classes, loss, weighted):
    target, raw, weight = sample(loss, n_classes)
    weight = weight if weighted else None
    initial = loss.initial(target, weight)
    assert initial.shape == (loss.n_outputs,)
    raw = np.repeat(initial[:, np.newaxis], target.shape[-1], axis=1)
    if loss.measures_leaves:
        near = [np.average(pointwise(loss, target, raw + step), weights=weight) for step in (-1e-3, 0.0, 1e-3)]
        assert near[1] <= min(near) + 1e-12 or name == "huber"  # huber starts from the median
        return
    for output in range(loss.n_outputs):
        g, _ = derivatives(loss, target, raw, output)
        assert abs(np.average(g, weights=weight)) < 1e-12


@every_loss
def test_losses_are_values(name, n_classes, loss):
    assert pickle.loads(pickle.dumps(loss)) == loss
    assert len({loss, pickle.loads(pickle.dumps(loss))}) == 1
    assert type(loss).__name__ in repr(loss)
    if name != "own":
        assert loss_for(name, n_classes) == loss


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("inherits", [True, False])
def test_a_loss_that_lacks_a_part_is_refused(part, inherits):
    parts = {name: getattr(Poisson, name) for name in PARTS if name != part}
    lacking = type("Lacking", (LinkedLoss,) if inherits else (), parts)()
    with pytest.raises(TypeError, match=f"the loss 'lacking' has no {part}; wants all of n_outputs, "):
        register_loss("lacking", lambda n_classes: lacking, classify=False)
    with pytest.raises(ValueError, match="The 'loss' parameter of GradientBoostingRegressor must be a str among"):
        dtrees.GradientBoostingRegressor(loss="lacking").fit(X, SIGNAL)


def test_no_two_losses_of_a_name():
    with pytest.raises(ValueError, match="there is a loss 'log_loss' already"):
        register_loss("log_loss", lambda n_classes: Poisson(), classify=False)


def test_a_loss_of_ones_own(poisson, tmp_path):
    """All features of the estimator work with a registered loss."""
    settings = {"loss": "own", "n_estimators": 30, "min_child_weight": 0.1, "max_features": None}
    model = make(dtrees.GradientBoostingRegressor, **settings, eval_metric="mae")
    model = model.fit(X, COUNTS, WEIGHT, eval_set=[(X, COUNTS, WEIGHT)], checkpoint=tmp_path / "checkpoint")
    predicted = model.predict(X)
    raw = np.log(model.init_.predict(X)) + model.learning_rate * np.sum([tree.predict(X) for tree in model.estimators_.ravel()], axis=0)
    assert_allclose(predicted, np.exp(raw))
    assert_allclose(model.train_score_[-1], np.average(pointwise(poisson, COUNTS, raw[np.newaxis]), weights=WEIGHT))
    assert np.all(np.diff(model.train_score_) < 0)
    assert_allclose(model.evals_result_["validation_0"]["mae"][-1], np.average(np.abs(predicted - COUNTS), weights=WEIGHT))
    assert_array_equal(list(model.staged_predict(X))[-1], predicted)
    for others in ({"n_jobs": 4}, {"warm_start": True, "n_estimators": 10}):
        other = make(dtrees.GradientBoostingRegressor, **{**settings, **others}).fit(X, COUNTS, WEIGHT)
        assert_same_trees(other.set_params(n_estimators=30).fit(X, COUNTS, WEIGHT), model)
    with pytest.raises(ValueError, match="warm_start=True keeps the trees of the loss 'own', but loss is 'squared_error'"):
        other.set_params(loss="squared_error").fit(X, COUNTS, WEIGHT)
    assert_array_equal(other.predict(X), predicted)
    dtrees.save(other, tmp_path / "model")
    assert_array_equal(dtrees.load(tmp_path / "model").predict(X), predicted)
    going_on = make(dtrees.GradientBoostingRegressor, **settings).fit(X, COUNTS, WEIGHT, checkpoint=tmp_path / "checkpoint")
    assert_same_trees(going_on, model)


def test_a_loss_of_ones_own_on_a_cluster(poisson):
    """If workers have registered it, too, as threads of this process have."""
    model = make(dtrees.GradientBoostingRegressor, loss="own", max_features=None)
    frame = pd.DataFrame(X, columns=list("abcde"))
    here = make(dtrees.GradientBoostingRegressor, loss="own", max_features=None).fit(frame, COUNTS)
    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None):
        parts, target = dd.from_pandas(frame, npartitions=3), dd.from_pandas(pd.Series(COUNTS), npartitions=3)
        model.fit(parts, target)
        assert_same_trees(model, here)
        assert_array_equal(model.predict(parts).compute(), here.predict(frame))


# --- user-defined objectives ---


Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier
BINARY = (SIGNAL > 1).astype(int)


def squared(y, raw, weight):
    w = np.ones(len(y)) if weight is None else weight
    return w * (raw - y), w


def logistic(y, raw, weight):
    w, p = np.ones(len(y)) if weight is None else weight, expit(raw)
    return w * (p - y), w * p * (1 - p)


def multinomial(y, raw, weight):
    w, p = np.ones(len(y)) if weight is None else weight, softmax(raw, axis=1)
    return w[:, np.newaxis] * (p - np.eye(raw.shape[1])[y]), w[:, np.newaxis] * p * (1 - p) * raw.shape[1] / (raw.shape[1] - 1)


CASES = [
    (Regressor, SIGNAL, squared, "squared_error"),
    (Classifier, BINARY, logistic, "log_loss"),
    (Classifier, LABELS, multinomial, "log_loss"),
]
every_case = pytest.mark.parametrize(("kind", "y", "objective", "loss"), CASES, ids=["values", "two classes", "three classes"])


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@every_case
def test_the_losses_there_are(kind, y, objective, loss, weight):
    """An objective with the derivatives of a loss gives its trees, up to rounding; both start from zero."""
    settings = {"subsample": 0.8, "max_depth": 3, "min_child_weight": 0.9, "n_estimators": 3}
    own = make(kind, loss=objective, **settings).fit(X, y, weight)
    theirs = make(kind, loss=loss, init="zero", **settings).fit(X, y, weight)
    predict = "predict" if kind is Regressor else "predict_proba"
    assert_allclose(getattr(own, predict)(X), getattr(theirs, predict)(X), rtol=1e-6)
    assert_array_equal(own.predict(X), own.predict(X))
    assert own.init_.predict(X[:1]).shape == (1,)
    assert np.isnan(own.train_score_).all()
    assert not hasattr(own, "oob_score_")


def test_arrays_are_whole_and_in_order():
    seen = []

    def objective(y, raw, weight):
        seen.append((y, raw, weight))
        return raw - y, np.ones(len(y))

    seen_scores = []
    model = make(Regressor, loss=objective, n_jobs=4, n_iter_no_change=2, scoring="r2", n_estimators=3)
    model.fit(X, SIGNAL, WEIGHT, callbacks=[lambda progress: seen_scores.append((progress.train_score, progress.validation_score))])
    assert seen_scores == [(None, score) for score in model.validation_score_]
    assert len(seen) == 3
    held_out = seen[0][2] == 0
    assert 0 < held_out.sum() < N // 2
    for round_, (y, raw, weight) in enumerate(seen):
        assert_array_equal(y, SIGNAL)
        assert_array_equal(weight, np.where(held_out, 0.0, WEIGHT))
        assert_allclose(raw, np.zeros(N) if round_ == 0 else list(model.staged_predict(X))[round_ - 1], atol=1e-12)

    # The function cannot change its arguments for others.
    def spoil(y, raw, weight):
        result = raw - y, np.ones(len(y))
        y[:] = raw[:] = np.nan
        return result

    assert_same_trees(make(Regressor, loss=spoil).fit(X, SIGNAL), make(Regressor, loss=squared).fit(X, SIGNAL))


def test_predictions_are_by_the_loss_that_was_fitted(tmp_path):
    """Whatever the parameter is set to afterwards; the same holds for files and copies."""
    for kind, y, fitted, other in (
        (Regressor, np.exp(SIGNAL), "poisson", "squared_error"),
        (Regressor, SIGNAL, squared, "poisson"),
        (Regressor, np.exp(SIGNAL), "poisson", squared),
        (Classifier, BINARY, "log_loss", "exponential"),
        (Classifier, BINARY, logistic, "exponential"),
    ):
        model = make(kind, loss=fitted).fit(X, y)
        method = "predict" if kind is Regressor else "predict_proba"
        wanted = getattr(model, method)(X)
        model.set_params(loss=other)
        assert_array_equal(getattr(model, method)(X), wanted)
        assert_array_equal(list(getattr(model, f"staged_{method}")(X))[-1], wanted)
        assert_array_equal(getattr(pickle.loads(pickle.dumps(model)), method)(X), wanted)
        dtrees.save(model, tmp_path / "model")
        loaded = dtrees.load(tmp_path / "model")
        assert_array_equal(getattr(loaded, method)(X), wanted)
        assert loaded.loss == (fitted if isinstance(fitted, str) else "custom")
    with pytest.raises(ValueError, match="loss='custom' is the name of a function that a model file cannot hold"):
        dtrees.load(tmp_path / "model").fit(X, BINARY)
    with pytest.raises(ValueError, match="'loss' parameter of GradientBoostingRegressor must be"):
        Regressor(loss="unheard of").fit(X, SIGNAL)


def test_more_rounds_and_checkpoints(tmp_path):
    model = make(Regressor, loss=squared, warm_start=True).fit(X, SIGNAL, checkpoint=tmp_path / "kept")
    with pytest.raises(ValueError, match=r"is of another fit \(loss was CustomObje.*, is CustomObje"):
        make(Regressor, loss=lambda y, raw, weight: (raw - y, np.ones(len(y)))).fit(X, SIGNAL, checkpoint=tmp_path / "kept")
    with pytest.raises(ValueError, match="keeps the trees of the loss 'custom', but loss is 'squared_error'"):
        model.set_params(loss="squared_error", n_estimators=9).fit(X, SIGNAL)


def test_evaluation_and_early_stopping():
    model = make(Regressor, loss=squared, early_stopping_rounds=3).fit(X, SIGNAL, eval_set=[(X, SIGNAL)])
    assert list(model.evals_result_["validation_0"]) == ["rmse"]
    assert cloudpickle.loads(cloudpickle.dumps(make(Regressor, loss=lambda y, raw, w: (raw - y, 1 + 0 * y)))).fit(X, SIGNAL)


def returns(*found):
    return lambda y, raw, weight: tuple(one(y) if callable(one) else one for one in found)


@pytest.mark.parametrize(
    ("objective", "parameters", "message"),
    [
        (lambda y, raw, weight: raw - y, {}, r"returned ndarray; wants a tuple \(gradient, hessian\)"),
        (returns(lambda y: y[1:], np.ones_like), {}, r"returned a gradient of shape \(299,\); wants that of raw, \(300,\)"),
        (returns(np.zeros_like, 1.0), {}, r"returned a hessian of shape \(\)"),
        (returns(lambda y: y * np.nan, np.ones_like), {}, "returned a gradient with NaN or infinity"),
        (returns(np.zeros_like, lambda y: -np.ones_like(y)), {}, "returned the hessian -1.0; wants numbers of at least 0"),
        (returns(lambda y: ["a"] * len(y), np.ones_like), {}, "is not an array of numbers"),
        (squared, {"n_iter_no_change": 3}, "n_iter_no_change=3 with scoring='loss' wants the value of the loss"),
        (squared, {"eval_metric": "loss"}, "eval_metric has 'loss', but loss is a function of derivatives"),
    ],
)
def test_what_is_no_objective(objective, parameters, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(Regressor, loss=objective, **parameters).fit(X, SIGNAL)
