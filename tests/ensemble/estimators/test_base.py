import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dtrees
from tests.ensemble.samples import FORESTS, LABELS, SIGNAL, WEIGHT, X, assert_same_trees, every_ensemble, every_kind, make, target
from tests.slow import slow_for


def interrupt(progress):
    raise KeyboardInterrupt


@every_kind
def test_a_fit_that_is_interrupted_leaves_the_estimator_as_it_was(kind):
    model = make(kind).fit(X, target(kind))
    twin = make(kind).fit(X, target(kind))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2], np.where(SIGNAL > 0, 1, 0), WEIGHT, callbacks=[interrupt])
    assert vars(model).keys() == vars(twin).keys()
    assert model.n_features_in_ == 5
    assert_same_trees(model, twin)
    assert_array_equal(model.predict(X), twin.predict(X))
    with pytest.raises(ValueError, match="2 features"):
        model.predict(X[:, :2])


@every_kind
def test_a_first_fit_that_is_interrupted_leaves_the_estimator_unfitted(kind):
    model = make(kind)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, target(kind), callbacks=[interrupt])
    assert vars(model) == vars(make(kind))


@every_ensemble
def test_a_warm_start_that_is_interrupted_can_be_repeated(kind):
    model = make(kind, warm_start=True, n_estimators=3).fit(X, target(kind)).set_params(n_estimators=6)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, target(kind), callbacks=[interrupt])
    assert_same_trees(model.fit(X, target(kind)), make(kind, n_estimators=6).fit(X, target(kind)))
    if kind in FORESTS:
        assert [batch[1:] for batch in model._batches] == [(0, 6)]


@every_ensemble
def test_members_have_the_parameters_that_they_were_grown_by(kind):
    model = make(kind, warm_start=True, n_estimators=3, max_depth=1).fit(X, target(kind))
    model.set_params(n_estimators=5, max_depth=2)
    assert {member.max_depth for member in np.ravel(model.estimators_)} == {1}
    for one in (model, pickle.loads(pickle.dumps(model))):
        one.fit(X, target(kind)).set_params(max_depth=7)
        depths = np.array([member.max_depth for member in np.ravel(one.estimators_)])
        assert_array_equal(depths, np.repeat([1, 2], [3 * len(depths) // 5, 2 * len(depths) // 5]))
    model.set_params(warm_start=False, n_estimators=2).fit(X, target(kind))
    assert {member.max_depth for member in np.ravel(model.estimators_)} == {7}
    if kind in FORESTS:
        assert (model.estimator_.max_depth, type(model.estimator_)) == (7, type(model.estimators_[0]))


def test_a_checkpoint_of_another_fit_leaves_the_estimator_as_it_was(tmp_path):
    path = tmp_path / "checkpoint"
    make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL, checkpoint=path)
    model = make(dtrees.GradientBoostingClassifier).fit(X, LABELS)
    before = model.predict(X)
    with pytest.raises(ValueError, match="of another fit"):
        model.fit(X[:, :2], SIGNAL > 0, checkpoint=path)
    assert_array_equal(model.predict(X), before)


ONE_CLASS = [kind for kind in FORESTS if kind.__name__.endswith("Classifier")] + [dtrees.DecisionTreeClassifier, dtrees.ExtraTreeClassifier]


@pytest.mark.parametrize(
    ("kind", "criterion"),
    [*((kind, "gini") for kind in ONE_CLASS), *slow_for(ONE_CLASS, ((kind, "entropy") for kind in ONE_CLASS), ONE_CLASS[1:])],
)
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_one_class(kind, criterion, class_weight, tmp_path):
    y = np.full(len(X), "only")
    model = make(kind, criterion=criterion, class_weight=class_weight).fit(X, y, WEIGHT)
    assert_array_equal(model.predict_proba(X), np.ones((len(X), 1)))
    assert_array_equal(model.predict(X), y)
    tree = (model.estimators_[0] if kind in FORESTS else model).tree_
    assert tree.node_count == 1
    assert tree.impurity.tolist() == [0.0]
    assert tree.weighted_n_node_samples[0] > 0
    dtrees.save(model, tmp_path / "model")
    assert_array_equal(dtrees.load(tmp_path / "model").predict_proba(X), np.ones((len(X), 1)))
    if kind in FORESTS:
        model = make(kind, bootstrap=True, oob_score=True, n_estimators=30, class_weight=class_weight and "balanced_subsample").fit(X, y)
        assert model.oob_score_ == 1.0
        assert_array_equal(model.oob_decision_function_, np.ones((len(X), 1)))


@pytest.mark.filterwarnings("ignore:Number of classes in training fold")
def test_cross_validation_with_folds_of_one_class():
    from sklearn.model_selection import KFold, cross_val_predict

    y = np.repeat([0, 1], [len(X) - 100, 100])
    found = cross_val_predict(make(dtrees.RandomForestClassifier), X, y, cv=KFold(2), method="predict_proba")
    assert found.shape == (len(X), 2)


@every_kind
def test_trees_without_a_split_are_warned_of(kind):
    y = target(kind)
    for parameters, data in (({"min_samples_leaf": 200}, X), ({}, np.zeros((len(X), 3)))):
        with pytest.warns(UserWarning, match="no tree found a split, so that predictions are the same for all rows, though y varies"):
            make(kind, **parameters).fit(data, y)


@every_kind
@pytest.mark.parametrize("value", [0.0, 0.1, 1e9 / 7])
def test_a_constant_target_is_not_warned_of(kind, value):
    y = np.full(len(X), value) if not kind.__name__.endswith("Classifier") else np.full(len(X), "one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for weight in (None, WEIGHT):
            if kind is not dtrees.GradientBoostingClassifier:  # it needs two classes
                make(kind).fit(X, y, weight)


def test_six_rows_that_can_be_separated():
    X, y = np.arange(6.0).reshape(-1, 1), np.array([0, 0, 0, 1, 1, 1])
    with pytest.warns(UserWarning, match=r"min_child_weight=1.0 .* at most a quarter of it for log loss"):
        dtrees.GradientBoostingClassifier(min_child_weight=1.0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_array_equal(dtrees.GradientBoostingClassifier().fit(X, y).predict(X), y)
        assert dtrees.GradientBoostingRegressor().fit(X, y).score(X, y) > 0.9
