"""Splits by gradients alone, with Newton steps in leaves: scikit-learn's gradient boosting."""

import numpy as np
import pytest
import sklearn.datasets
import sklearn.ensemble
import sklearn.metrics
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import train_test_split

import dtrees
from dtrees.ensemble.objective.registry import loss_for
from tests.ensemble.objective.samples import derivatives
from tests.ensemble.samples import SIGNAL, WEIGHT, X, assert_same_trees, make, trees
from tests.plain import PLAIN
from tests.tree.trees import naive_leaf

Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier
AS_SKLEARN = {**PLAIN, "criterion": "squared_error", "reg_lambda": 0.0, "min_child_weight": 0.0}
AMOUNTS = np.exp(SIGNAL / 4)
BINARY = (SIGNAL > 1).astype(int)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    ("kind", "y", "loss"),
    [(Regressor, AMOUNTS, "poisson"), (Regressor, AMOUNTS, "gamma"), (Classifier, BINARY, "log_loss"), (Classifier, BINARY, "exponential")],
)
def test_trees_by_the_book(kind, y, loss, weight):
    """Each tree is one of squared error on the negative gradients; its leaves hold Newton steps."""
    settings = {"criterion": "squared_error", "max_features": None, "max_depth": 3, "reg_lambda": 0.0, "min_child_weight": 0.0}
    model = make(kind, loss=loss, **settings, learning_rate=0.5).fit(X, y, weight)
    own = loss_for(loss, 2 if kind is Classifier else 0)
    w = np.ones(len(X)) if weight is None else weight
    raw = np.repeat(model._trees.initial[:, np.newaxis], len(X), axis=1)
    for tree in trees(model):
        g, h = derivatives(own, y.astype(np.int32) if kind is Classifier else y, raw, 0)
        book = dtrees.DecisionTreeRegressor(max_depth=3).fit(X, -g, weight)
        assert_array_equal(book.tree_.feature[book.tree_.feature >= 0][:1], tree.feature[tree.feature >= 0][:1])
        at = find(tree)
        for leaf in np.unique(at[w > 0]):
            here = at == leaf
            step = -(w * g)[here].sum() / (w * h)[here].sum()
            if loss == "poisson":  # no step leads beyond the smallest loss
                step = np.log1p(max(step, 0.0)) + min(step, 0.0)
            elif loss == "gamma":
                step = max(step, 0.0) - np.log1p(-min(step, 0.0))
            assert tree.value[leaf, 0] == pytest.approx(0.5 * step, rel=1e-9)
        gains = tree.gain[tree.feature >= 0]
        impurity = np.average((g - np.average(g, weights=w)) ** 2, weights=w) * w.sum()
        left = w * (X[:, tree.feature[0]] <= tree.threshold[0])
        if not np.isnan(X[:, tree.feature[0]]).any() and tree.node_count > 1:
            sides = [v for v in (left, w - left) if v.sum()]
            after = sum(np.average((g - np.average(g, weights=v)) ** 2, weights=v) * v.sum() for v in sides)
            assert gains[0] == pytest.approx(impurity - after, rel=1e-6)
        raw = raw + tree.value[at, 0]


def find(tree):
    return np.array([naive_leaf(tree, row) for row in X])


def test_where_hessians_are_one_it_is_the_same():
    for loss in ("squared_error", "absolute_error", "quantile", "huber"):
        one, other = (make(Regressor, loss=loss, criterion=criterion).fit(X, SIGNAL, WEIGHT) for criterion in ("newton", "squared_error"))
        assert_same_trees(one, other)


def continuous(n_classes):
    X, y = sklearn.datasets.make_classification(
        600, 8, n_informative=5, n_classes=n_classes, n_clusters_per_class=2, flip_y=0.1, random_state=n_classes
    )
    return X.astype(np.float32), y


@pytest.mark.parametrize(
    ("loss", "n_classes"), [("log_loss", 2), ("exponential", 2), ("log_loss", 3)], ids=["two classes", "exponential", "three classes"]
)
def test_trees_are_scikit_learns(loss, n_classes):
    """The same splits and leaves; with continuous columns and leaves of several rows splits hardly ever tie."""
    X, y = continuous(n_classes)
    settings = {"loss": loss, "n_estimators": 6, "max_depth": 3, "learning_rate": 0.3, "min_samples_leaf": 10}
    # If splits tie, as some do in the first round, it chooses by chance.
    theirs = sklearn.ensemble.GradientBoostingClassifier(**settings, random_state=1).fit(X, y)
    ours = Classifier(**{**AS_SKLEARN, **settings}).fit(X, y)
    factor = 2 if loss == "log_loss" and n_classes == 2 else 1  # its loss is the deviance then
    assert_allclose(factor * ours.train_score_, theirs.train_score_, rtol=1e-6)
    assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    for mine, other in zip(ours.estimators_.ravel(), theirs.estimators_.ravel(), strict=True):
        assert_array_equal(mine.tree_.feature, other.tree_.feature)
        assert_allclose(mine.tree_.threshold, other.tree_.threshold, atol=1e-6)
        leaf = mine.tree_.feature < 0
        assert_allclose(mine.tree_.value[leaf], other.tree_.value[leaf], rtol=1e-5)


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(lambda: sklearn.datasets.load_breast_cancer(return_X_y=True), marks=pytest.mark.slow, id="breast cancer"),
        pytest.param(lambda: continuous(3), id="synthetic"),
    ],
)
def test_as_good_as_scikit_learn_on_later_rows(load):
    X, y = load()
    settings = {"n_estimators": 60, "max_depth": 3, "learning_rate": 0.1}
    reached = np.empty((5, 2))
    for seed, row in enumerate(reached):
        train, later, y_train, y_later = train_test_split(X, y, random_state=seed, stratify=y)
        ours, theirs = Classifier(**{**AS_SKLEARN, **settings}), sklearn.ensemble.GradientBoostingClassifier(**settings, random_state=0)
        row[:] = [sklearn.metrics.log_loss(y_later, model.fit(train, y_train).predict_proba(later)) for model in (ours, theirs)]
    assert reached[:, 0].mean() < 1.05 * reached[:, 1].mean(), reached


@pytest.mark.slow
def test_penalties_apply_to_the_steps():
    model = make(Classifier, criterion="squared_error", reg_lambda=3.0, reg_alpha=2.0, n_estimators=1, learning_rate=1.0).fit(X, BINARY)
    (tree,) = trees(model)
    g, h = derivatives(loss_for("log_loss", 2), BINARY.astype(np.int32), np.repeat(model._trees.initial[:, np.newaxis], len(X), axis=1), 0)
    at = find(tree)
    for leaf in np.unique(at):
        total = g[at == leaf].sum()
        wanted = -np.sign(total) * max(abs(total) - 2.0, 0.0) / (h[at == leaf].sum() + 3.0)
        assert tree.value[leaf, 0] == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_weights_of_leaves():
    """If each row has a hessian of 1, a leaf's share is that of the weight, as scikit-learn's is."""
    X, y = continuous(2)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    for kind, criterion in ((Regressor, "newton"), (Classifier, "squared_error")):
        model = kind(n_estimators=3, criterion=criterion, min_weight_fraction_leaf=0.15, min_child_weight=0).fit(X, y, weight)
        for column in model.apply(X).reshape(len(X), -1).T:
            shares = np.bincount(column, weights=weight)
            assert shares[shares > 0].min() >= 0.15 * weight.sum() * (1 - 1e-9)
            assert (shares > 0).sum() > 1
    with pytest.raises(ValueError, match="min_weight_fraction_leaf"):
        make(Regressor, min_weight_fraction_leaf=0.6).fit(X, y)
