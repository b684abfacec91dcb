"""Initial values of boosting: zero, an estimator, scores of each row."""

import functools
import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, log_softmax
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import fbeta_score
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor

import dtrees
from dtrees.ensemble.objective.registry import loss_for, registered_losses
from dtrees.split.numbers.elementary import log
from tests.ensemble.samples import LABELS, SIGNAL, WEIGHT, N, assert_same_trees, make, trees
from tests.plain import PLAIN
from tests.tree.trees import naive_leaf

RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 5))
Y = X[:, 0] - 2 * X[:, 1] + np.sin(3 * X[:, 2]) + RNG.normal(scale=0.2, size=N)
CLASS = np.array(["a", "b"])[(Y > 0.3).astype(int)]
CLASSES = np.array(["low", "mid", "high"])[np.digitize(Y, [-1, 1])]
LINEAR = LinearRegression().fit(X, Y)
Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier


@pytest.mark.parametrize(("loss", "n_classes"), [(name, n_classes) for name, n_classes, _ in registered_losses()])
def test_raw_predictions_are_those_of_predictions(loss, n_classes):
    own = loss_for(loss, n_classes)
    raw = RNG.normal(size=(50, own.n_outputs))
    found = own.raw_predictions(own.predictions(raw))
    assert_allclose(found, raw - raw.mean(axis=1, keepdims=True) if own.n_outputs > 1 else raw, rtol=1e-9, atol=1e-9)


def test_zero():
    for kind, y, n_outputs in ((Regressor, Y, 1), (Classifier, CLASS, 1), (Classifier, CLASSES, 3)):
        model = make(kind, init="zero").fit(X, y)
        assert model.init_ == "zero"
        assert_array_equal(model._trees.initial, np.zeros(n_outputs))
    # The first step is that of the mean of each leaf, not of its difference to the overall mean.
    model = make(Regressor, init="zero", n_estimators=1, learning_rate=1.0, reg_lambda=0.0, max_features=None).fit(X, Y)
    leaves = model.apply(X)[:, 0]
    assert_allclose(model.predict(X), pd.Series(Y).groupby(leaves).transform("mean"), rtol=1e-9)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    ("kind", "y", "init", "raw"),
    [
        (Regressor, Y, LinearRegression(), lambda init: init.predict(X)),
        (Classifier, CLASS, LogisticRegression(), lambda init: log(init.predict_proba(X)[:, 1] / (1.0 - init.predict_proba(X)[:, 1]))),
        (Classifier, CLASSES, GaussianNB(), lambda init: log(np.clip(init.predict_proba(X), 2**-23, 1 - 2**-23))),
    ],
    ids=["regression", "two classes", "three"],
)
def test_an_estimator_is_as_good_as_its_raw_predictions(kind, y, init, raw, weight):
    model = make(kind, init=init).fit(X, y, weight)
    fitted = init.fit(X, y, weight)
    assert type(model.init_) is type(init)
    assert model.init_ is not init
    margin = raw(fitted)
    if margin.ndim == 2:
        margin = margin - margin.mean(axis=1, keepdims=True)
    scored = make(kind).fit(X, y, weight, base_margin=margin)
    assert_same_trees(model, scored)
    assert_allclose(model.predict(X) if kind is Regressor else model.predict_proba(X), predicted(scored, margin), rtol=1e-9)
    assert_array_equal(model.predict(X), scored.predict(X, base_margin=margin))
    stages = list(model.staged_predict(X))
    assert_array_equal(stages[-1], model.predict(X))
    assert len(stages) == 8
    assert_array_equal(list(scored.staged_predict(X, base_margin=margin)), stages)
    if kind is Classifier:
        assert_allclose(model.decision_function(X), scored.decision_function(X, base_margin=margin))
        assert_allclose(list(model.staged_decision_function(X))[-1], model.decision_function(X))
        assert_allclose(list(scored.staged_predict_proba(X, margin))[-1], model.predict_proba(X))
    assert_array_equal(next(model.staged_predict(X[:3].tolist())), stages[0][:3])
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(X), model.predict(X))


def predicted(model, margin):
    """Return scores plus trees, through the link."""
    margin = margin.reshape(N, -1)
    raw = margin + np.stack(
        [sum(tree.value[[naive_leaf(tree, row) for row in X], 0] for tree in group) for group in model._trees.groups], axis=1
    )
    if isinstance(model, Regressor):
        return raw[:, 0]
    return np.exp(log_softmax(raw, axis=1)) if raw.shape[1] > 1 else np.column_stack([1 - expit(raw[:, 0]), expit(raw[:, 0])])


def test_against_scikit_learn():
    """Squared error without penalty: the trees are equal, so the initial values must be."""
    settings = {"n_estimators": 5, "max_depth": 2, "learning_rate": 0.5}
    own = {**PLAIN, "reg_lambda": 0.0, "min_child_weight": 0.0, **settings}
    for init in ("zero", LinearRegression(), KNeighborsRegressor()):
        theirs = sklearn.ensemble.GradientBoostingRegressor(init=init, **settings, random_state=0).fit(X, Y)
        assert_allclose(Regressor(init=init, **own).fit(X, Y).predict(X), theirs.predict(X), atol=1e-5)
    for init in ("zero", LogisticRegression(), DummyClassifier(strategy="prior")):
        theirs = sklearn.ensemble.GradientBoostingClassifier(init=init, **settings, random_state=0).fit(X, CLASS)
        ours = Classifier(init=init, criterion="squared_error", **own).fit(X, CLASS)
        assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


def test_held_out_rows_are_no_part_of_the_estimator():
    class Remember(RegressorMixin, BaseEstimator):
        def fit(self, X, y, sample_weight=None):
            self.rows_ = X.copy()
            return self

        def predict(self, X):
            return np.isin(X[:, 0], self.rows_[:, 0]).astype(float)

    model = make(Regressor, init=Remember(), n_iter_no_change=3, random_state=3).fit(X, Y)
    assert len(model.init_.rows_) == N - 30
    plain = make(Regressor, n_iter_no_change=3, random_state=3).fit(X, Y, base_margin=np.isin(X[:, 0], model.init_.rows_[:, 0]))
    assert_same_trees(model, plain)
    assert_array_equal(model.validation_score_, plain.validation_score_)
    frame = make(Regressor, init=LinearRegression(), n_iter_no_change=3, random_state=3).fit(pd.DataFrame(X).add_prefix("x"), Y)
    assert list(frame.init_.feature_names_in_) == ["x0", "x1", "x2", "x3", "x4"]


def test_evaluation_sets_start_where_the_rows_do():
    train, later, y, y_later = train_test_split(X, Y, random_state=0)
    fitted = LinearRegression().fit(train, y)
    model = make(Regressor, init=LinearRegression(), eval_metric="mae").fit(train, y, eval_set={"later": (later, y_later)})
    wanted = [np.abs(y_later - stage).mean() for stage in model.staged_predict(later)]
    assert_allclose(model.evals_result_["later"]["mae"], wanted, rtol=1e-9)
    sets = {"later": (later, y_later, None, fitted.predict(later))}
    scored = make(Regressor, eval_metric="mae").fit(train, y, base_margin=fitted.predict(train), eval_set=sets)
    assert_array_equal(scored.evals_result_["later"]["mae"], model.evals_result_["later"]["mae"])


def test_more_rounds_start_there_too():
    margin = LINEAR.predict(X)
    model = make(Regressor, init=LinearRegression(), warm_start=True, n_estimators=3).fit(X, Y).set_params(n_estimators=8).fit(X, Y)
    assert_same_trees(model, make(Regressor, init=LinearRegression()).fit(X, Y))
    model = make(Regressor, warm_start=True).fit(X, Y, base_margin=margin).set_params(n_estimators=9)
    with pytest.raises(ValueError, match=r"warm_start=True keeps trees that started from base_margin, not from what the loss chooses"):
        model.fit(X, Y)


def test_checkpoints_know_the_scores(tmp_path):
    margin = LINEAR.predict(X)
    make(Regressor, n_estimators=4).fit(X, Y, base_margin=margin, checkpoint=tmp_path / "kept")
    with pytest.raises(ValueError, match="is of another fit"):
        make(Regressor).fit(X, Y, base_margin=margin + 1, checkpoint=tmp_path / "kept")


def test_files_keep_what_they_can(tmp_path):
    margin = LINEAR.predict(X)
    model = make(Regressor).fit(X, Y, base_margin=margin)
    dtrees.save(model, tmp_path / "scored")
    loaded = dtrees.load(tmp_path / "scored")
    assert_array_equal(loaded.predict(X, base_margin=margin), model.predict(X, base_margin=margin))
    with pytest.raises(ValueError, match=r"fitted with base_margin, .* pass base_margin along with X"):
        loaded.predict(X)
    dtrees.save(make(Regressor, init="zero").fit(X, Y), tmp_path / "zero")
    assert dtrees.load(tmp_path / "zero").init_ == "zero"
    with pytest.raises(ValueError, match=r"init_=LinearRegression\(\), which a model file cannot hold, .* as base_margin instead"):
        dtrees.save(make(Regressor, init=LinearRegression()).fit(X, Y), tmp_path / "no")


def test_predicting_wants_scores_where_fitting_had_them():
    margin = LINEAR.predict(X)
    model = make(Regressor).fit(X, Y, base_margin=margin)
    assert_allclose(model.predict(X, base_margin=0), model.predict(X, base_margin=margin) - margin, atol=1e-12)
    for call in (model.predict, lambda X: next(model.staged_predict(X)), lambda X: model.score(X, Y)):
        with pytest.raises(ValueError, match="pass base_margin along with X"):
            call(X)
    with pytest.raises(ValueError, match=r"base_margin has the shape \(3,\).* wants raw scores of shape \(300,\)"):
        model.predict(X, base_margin=[1, 2, 3])
    with pytest.raises(ValueError, match="base_margin is given, but the model was fitted without"):
        make(Regressor).fit(X, Y).predict(X, base_margin=margin)
    refitted = model.fit(X, Y)
    assert refitted.predict(X).shape == (N,)


def test_what_cannot_be_started_from():
    margin = LINEAR.predict(X)
    for options, parameters, message in (
        ({"base_margin": margin[:-1]}, {}, r"base_margin has the shape \(299,\); wants raw scores of shape \(300,\)"),
        ({"base_margin": np.where(margin > 0, margin, np.nan)}, {}, "base_margin contains NaN or infinity"),
        ({"base_margin": ["a"] * N}, {}, "base_margin cannot be turned into numbers"),
        ({"base_margin": margin}, {"init": "zero"}, "base_margin is given, and init is 'zero'; wants one of them"),
        ({}, {"init": "mean"}, "The 'init' parameter"),
        ({}, {"init": LogisticRegression()}, r"init is LogisticRegression\(\); wants a regressor"),
        ({"base_margin": margin, "eval_set": [(X, Y)]}, {}, "eval_set 'validation_0' has no base_margin, unlike the rows"),
        ({"eval_set": [(X, Y, None, margin)]}, {}, "eval_set 'validation_0' has a base_margin, unlike the rows"),
        ({"base_margin": margin, "eval_set": [(X, Y, None, margin[1:])]}, {}, "eval_set 'validation_0': base_margin has the shape"),
        ({"sample_weight": WEIGHT}, {"init": KNeighborsRegressor()}, "KNeighborsRegressor does not support sample weights"),
        ({}, {"init": LinearRegression(), "loss": "poisson"}, "the loss wants predictions above zero"),
    ):
        with pytest.raises(ValueError, match=message):
            make(Regressor, **parameters).fit(X, np.maximum(Y, 0), **options)
    with pytest.raises(ValueError, match=r"wants raw scores of shape \(300, 3\)"):
        make(Classifier).fit(X, CLASSES, base_margin=margin)
    assert make(Regressor, init=PoissonRegressor(), loss="poisson").fit(X, np.abs(Y)).predict(X).min() > 0


def test_a_loss_without_raw_predictions():
    assert len(trees(make(Classifier, loss="exponential", init=LogisticRegression()).fit(X, CLASS))) == 8
    assert SIGNAL.shape == LABELS.shape


def test_init_may_be_a_classifier_that_does_not_call_itself_one():
    class Constant(BaseEstimator):
        def fit(self, X, y):
            self.classes_ = np.unique(y)
            return self

        def predict(self, X):
            return np.repeat(self.classes_[1], len(X))

        def predict_proba(self, X):
            return np.tile([0.25, 0.75], (len(X), 1))

    model = make(Classifier, init=Constant(), n_estimators=1, learning_rate=1e-9).fit(X, CLASS)
    assert_allclose(model.predict_proba(X), np.tile([0.25, 0.75], (len(X), 1)), rtol=1e-6)
    with pytest.raises(ValueError, match="wants a classifier with predict_proba"):
        make(Classifier, init=LinearRegression()).fit(X, CLASS)


def test_parameters_of_an_estimator_are_checked():
    """Also for metrics of scikit-learn: a fit does not disable the checks of functions that it calls."""
    for init in (Ridge(alpha=-3), dtrees.GradientBoostingRegressor(learning_rate=-1.0)):
        with pytest.raises(ValueError, match=r"The '(alpha|learning_rate)' parameter of \w+ must be"):
            make(dtrees.GradientBoostingRegressor, init=init).fit(X, SIGNAL)
    beta = functools.partial(fbeta_score, beta=-1.0)
    with pytest.raises(ValueError, match="The 'beta' parameter of fbeta_score must be"):
        make(dtrees.RandomForestClassifier, oob_score=lambda y, p: beta(y, p), n_estimators=60).fit(X, SIGNAL > 1)
