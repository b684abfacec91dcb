"""Boosting of several quantiles: the trees of each are those of a model of this quantile alone, and predictions are sorted."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.inspection import partial_dependence
from sklearn.metrics import d2_pinball_score, mean_pinball_loss, r2_score

import dtrees
from dtrees import BaggingRegressor, GradientBoostingRegressor
from dtrees.ensemble.objective.regression import Quantile, quantile_loss
from tests.ensemble.estimators.test_multi_output import ALL, VARIANTS
from tests.ensemble.samples import RNG, SIGNAL, WEIGHT, N, X
from tests.slow import one_quick

ALPHA = [0.1, 0.45, 0.5, 0.9]


def make(alpha=ALPHA, **parameters):
    return GradientBoostingRegressor(**{**ALL, "loss": "quantile", "alpha": alpha, **parameters})


def singles(y=SIGNAL, weight=None, margin=None, **parameters):
    """A model of each quantile, with the same parameters."""
    columns = [None] * len(ALPHA) if margin is None else margin.T
    return [make(alpha, **parameters).fit(X, y, weight, base_margin=one) for alpha, one in zip(ALPHA, columns, strict=True)]


def side_by_side(models, X=X, **more):
    return np.column_stack([model.predict(X, **more) for model in models])


def pinball(predicted, weight=None, y=SIGNAL):
    """The mean over quantiles of scikit-learn's pinball loss."""
    each = zip(ALPHA, np.transpose(predicted), strict=True)
    return np.mean([mean_pinball_loss(y, mine, alpha=alpha, sample_weight=weight) for alpha, mine in each])


@pytest.mark.parametrize("variant", one_quick(VARIANTS))
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_each_quantile_has_the_trees_of_a_model_of_its_own(variant, weight):
    parameters = VARIANTS[variant]
    model, alone = make(**parameters).fit(X, SIGNAL, weight), singles(weight=weight, **parameters)
    for group, one in zip(model._trees.groups, alone, strict=True):
        for tree, other in zip(group, one._trees.groups[0], strict=True):
            assert all(getattr(tree, name).tobytes() == getattr(other, name).tobytes() for name in tree.ARRAYS)
    apart = side_by_side(alone)
    assert (np.diff(apart, axis=1) < 0).any()
    assert_array_equal(model.predict(X), np.sort(apart, axis=1))
    if "n_iter_no_change" not in parameters:
        assert_allclose(model.train_score_[-1], pinball(model.predict(X), weight), rtol=1e-12)
    assert model.train_score_[-1] <= np.mean([one.train_score_[-1] for one in alone]) + 1e-15


def test_putting_quantiles_in_order_never_makes_the_loss_larger():
    raw, loss = RNG.normal(size=(len(ALPHA), 5000)), quantile_loss(tuple(ALPHA))
    found, target, each = np.empty(5000), RNG.normal(size=5000), np.empty((len(ALPHA), 5000))
    loss.pointwise(target, raw, found)
    for alpha, mine, out in zip(ALPHA, raw, each, strict=True):
        Quantile(alpha).pointwise(target, mine[np.newaxis], out)
    assert (found <= each.mean(axis=0) + 1e-15).all()
    assert (found < each.mean(axis=0) - 1e-3).any()


def test_what_a_model_says_of_itself(tmp_path):
    model = make().fit(X, SIGNAL, WEIGHT)
    assert model.n_outputs_ == 1
    assert model.n_trees_per_iteration_ == len(ALPHA)
    assert model.estimators_.shape == (6, len(ALPHA))
    assert model.apply(X).shape == (N, 6, len(ALPHA))
    assert model.init_.predict(X[:1]).shape == (1, len(ALPHA))
    scores = [
        d2_pinball_score(SIGNAL, mine, alpha=alpha, sample_weight=WEIGHT) for alpha, mine in zip(ALPHA, model.predict(X).T, strict=True)
    ]
    assert_allclose(model.score(X, SIGNAL, WEIGHT), np.mean(scores))
    *_, last = model.staged_predict(X)
    assert_array_equal(last, model.predict(X))
    assert model.shap_values(X).shape == (N, X.shape[1], len(ALPHA))
    assert partial_dependence(model, X, [0], method="recursion", grid_resolution=4)["average"].shape == (len(ALPHA), 4)
    path = tmp_path / "model.dtrees"
    dtrees.save(model, path)
    for again in (dtrees.load(path), pickle.loads(pickle.dumps(model))):
        assert_array_equal(again.predict(X), model.predict(X))
        assert again.score(X, SIGNAL) == model.score(X, SIGNAL)
    with pytest.raises(ValueError, match=r"alpha=\[0.1, 0.45, 0.5, 0.9\] are several quantiles.* ONNX cannot do that"):
        dtrees.to_onnx(model)
    assert make(0.5).fit(X, SIGNAL).score(X, SIGNAL) == r2_score(SIGNAL, make(0.5).fit(X, SIGNAL).predict(X))


def test_evaluation_sets_and_early_stopping():
    def width(y, quantiles, weight):
        return float(np.mean(quantiles[:, -1] - quantiles[:, 0]))

    half, rest = slice(None, None, 2), slice(1, None, 2)
    model = make(eval_metric=[width, "loss"], n_estimators=300, learning_rate=0.5, early_stopping_rounds=3)
    model.fit(X[half], SIGNAL[half], eval_set=[(X[rest], SIGNAL[rest], WEIGHT[rest])])
    found = model.evals_result_["validation_0"]
    assert model.n_estimators_ == model.best_iteration_ + 1 == np.argmin(found["loss"]) + 1 < 200
    for number, predicted in enumerate(model.staged_predict(X[rest])):
        assert_allclose(found["loss"][number], pinball(predicted, WEIGHT[rest], SIGNAL[rest]), rtol=1e-12)
        assert_allclose(found["width"][number], width(None, predicted, None))
    held_out = make(n_estimators=300, learning_rate=0.5, n_iter_no_change=3, validation_fraction=0.3, subsample=0.7).fit(X, SIGNAL)
    assert held_out.n_estimators_ < 200
    assert held_out.oob_improvement_.sum() > 0


def test_where_trees_start_and_more_rounds():
    margin = RNG.normal(size=(N, len(ALPHA)))
    model, alone = make().fit(X, SIGNAL, base_margin=margin), singles(margin=margin)
    apart = np.column_stack([one.predict(X, base_margin=mine) for one, mine in zip(alone, margin.T, strict=True)])
    assert_array_equal(model.predict(X, base_margin=margin), np.sort(apart, axis=1))
    again = make(init=make(n_estimators=2)).fit(X, SIGNAL)
    assert_array_equal(again.init_.predict(X), make(n_estimators=2).fit(X, SIGNAL).predict(X))
    grown = make(warm_start=True, n_estimators=3).fit(X, SIGNAL).set_params(n_estimators=6).fit(X, SIGNAL)
    assert_array_equal(grown.predict(X), make().fit(X, SIGNAL).predict(X))
    with pytest.raises(ValueError, match="now it is to have"):
        grown.set_params(alpha=[0.1, 0.9], n_estimators=9).fit(X, SIGNAL)


def test_a_bag_averages_quantiles():
    bag = BaggingRegressor(make(), n_estimators=20, oob_score=True, random_state=0).fit(X, SIGNAL)
    assert_allclose(bag.predict(X), np.mean([booster.predict(X) for booster in bag.estimators_], axis=0))
    assert (np.diff(bag.predict(X), axis=1) >= 0).all()
    assert bag.oob_prediction_.shape == (N, len(ALPHA))
    assert 0 < bag.oob_score_ < bag.score(X, SIGNAL)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": [0.5]}, r"alpha is \[0.5\]; wants a number between 0 and 1, or at least two of them in ascending order"),
        ({"alpha": [0.9, 0.1]}, "ascending order"),
        ({"alpha": [0.0, 0.1]}, "between 0 and 1"),
        ({"alpha": [[0.1, 0.9]]}, r"alpha is \[\[0.1, 0.9\]\]; wants a number, or numbers in one dimension"),
        ({"alpha": ["a", None]}, r"alpha is \['a', None\]; wants a number, or numbers in one dimension"),
        ({"loss": "huber"}, "wants one number with loss='huber'"),
        ({"eval_metric": "rmse"}, "eval_metric has 'rmse', which is of one prediction a row, but alpha has several quantiles"),
        ({"scoring": "r2", "n_iter_no_change": 3}, "scoring has 'r2_score'"),
    ],
)
def test_refusals(parameters, message):
    with pytest.raises(ValueError, match=message):
        make(**parameters).fit(X, SIGNAL)


def test_several_quantiles_are_of_one_target():
    with pytest.raises(ValueError, match="alpha has 4 quantiles, and y 2 columns; wants one quantile, or one target"):
        make().fit(X, np.column_stack([SIGNAL, SIGNAL]))
    with pytest.warns(UserWarning, match=r"alpha=\[0.1, 0.9\] has no effect"):
        GradientBoostingRegressor(alpha=[0.1, 0.9], **ALL).fit(X, SIGNAL)
