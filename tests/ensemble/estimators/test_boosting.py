"""Boosting: models, ends of fits, the least gain of splits, losses of rows that rounds do not draw."""

import re
import warnings

import numpy as np
import pytest
import sklearn.ensemble
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees.ensemble.objective.registry import loss_for
from dtrees.split.numbers import hashing
from tests.ensemble.objective.samples import pointwise
from tests.ensemble.samples import BOOSTING, LABELS, SIGNAL, WEIGHT, N, X, assert_same_trees, is_classifier, make, target, trees


def test_shapes_of_leaves_of_boosting():
    assert make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL).apply(X).shape == (N, 8)
    assert make(dtrees.GradientBoostingClassifier).fit(X, SIGNAL > 0).apply(X).shape == (N, 8, 1)
    model = make(dtrees.GradientBoostingClassifier).fit(X, LABELS)
    leaves = model.apply(X)
    assert leaves.shape == (N, 8, 3)
    for i, j in ((0, 0), (3, 1), (7, 2)):
        assert_array_equal(leaves[:, i, j], model.estimators_[i, j].apply(X))


@pytest.mark.parametrize("kind", BOOSTING, ids=lambda kind: kind.__name__)
def test_boosting_is_the_sum_of_its_trees(kind):
    model = make(kind).fit(X, target(kind))
    raw = model.decision_function(X) if is_classifier(kind) else model.predict(X)[:, np.newaxis]
    steps = [[tree.predict(X) for tree in round_] for round_ in model.estimators_]
    if is_classifier(kind):
        start = np.log(model.init_.predict_proba(X))
        assert_allclose(start, np.tile(model._trees.initial, (N, 1)))
    else:
        start = model.init_.predict(X)[:, np.newaxis]
    assert_allclose(start + model.learning_rate * np.sum(steps, axis=0).T, raw)


def test_members_of_boosting_are_scikit_learns():
    ours = make(dtrees.GradientBoostingRegressor, learning_rate=0.25, reg_lambda=0.0, max_features=None, max_depth=2)
    theirs = sklearn.ensemble.GradientBoostingRegressor(learning_rate=0.25, n_estimators=8, max_depth=2)
    filled = np.nan_to_num(X)
    ours, theirs = ours.fit(filled, SIGNAL), theirs.fit(filled, SIGNAL)
    for one, other in zip(ours.estimators_.ravel(), theirs.estimators_.ravel(), strict=True):
        assert one.tree_.value.shape == other.tree_.value.shape
        assert_allclose(one.predict(filled), other.predict(filled), atol=1e-9)
    assert_allclose(ours.init_.predict(X), theirs.init_.predict(filled))
    model = make(dtrees.GradientBoostingRegressor, learning_rate=0.0).fit(X, SIGNAL)
    assert not np.any([tree.predict(X) for tree in model.estimators_.ravel()])


@pytest.mark.parametrize("kind", BOOSTING, ids=lambda kind: kind.__name__)
def test_members_of_boosting_cannot_be_assigned(kind):
    model = make(kind).fit(X, target(kind))
    with pytest.raises(AttributeError, match="estimators_ of boosting cannot be assigned"):
        model.estimators_ = model.estimators_[:3]
    with pytest.raises(ValueError, match="read-only"):
        model.estimators_[0, 0] = model.estimators_[1, 0]
    assert model.estimators_[1, 0] is model.estimators_[1, 0]
    before = model.estimators_[1, 0].predict(X)
    assert_allclose(model.set_params(learning_rate=0.3).estimators_[1, 0].predict(X), before / 2)


def test_boosting_with_two_classes():
    model = make(dtrees.GradientBoostingClassifier).fit(X, SIGNAL > 0)
    assert model.estimators_.shape == (8, 1)
    odds = model.decision_function(X)
    assert odds.shape == (N,)
    assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-odds)))


@pytest.mark.parametrize("y", [SIGNAL, SIGNAL > 0, LABELS], ids=["regression", "binary", "multinomial"])
def test_staged_predictions_end_in_the_prediction(y):
    kind = dtrees.GradientBoostingClassifier if y.dtype.kind in "bU" else dtrees.GradientBoostingRegressor
    model = make(kind).fit(X, y)
    methods = ["predict"] + (["predict_proba", "decision_function"] if is_classifier(kind) else [])
    for method in methods:
        stages = list(getattr(model, f"staged_{method}")(X))
        assert len(stages) == 8
        assert_array_equal(stages[-1], getattr(model, method)(X))
        for n_estimators in (1, 5):
            assert_array_equal(stages[n_estimators - 1], getattr(make(kind, n_estimators=n_estimators).fit(X, y), method)(X))


def test_training_scores_are_mean_losses():
    model = make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL, WEIGHT)
    losses = [np.average((stage - SIGNAL) ** 2, weights=WEIGHT) for stage in model.staged_predict(X)]
    assert_allclose(model.train_score_, losses, rtol=1e-9)


@pytest.mark.parametrize("kind", BOOSTING, ids=lambda kind: kind.__name__)
def test_early_stopping(kind):
    model = make(kind, n_estimators=500, n_iter_no_change=3, learning_rate=0.5, tol=0.0).fit(X, target(kind))
    assert model.n_estimators_ < 500
    assert len(model.estimators_) == len(model.train_score_) == len(model.validation_score_) == model.n_estimators_
    assert model.validation_score_.argmin() == model.n_estimators_ - 4
    assert not hasattr(make(kind).fit(X, target(kind)), "validation_score_")


@pytest.mark.parametrize(
    ("y", "learning_rate"), [(SIGNAL, 1000.0), (SIGNAL, 1e300), (SIGNAL > 0, 1e307), (LABELS, 1e307)], ids=lambda case: str(case)[:10]
)
def test_a_fit_that_diverges_ends_with_an_error_that_names_the_cause(y, learning_rate):
    kind = dtrees.GradientBoostingRegressor if y is SIGNAL else dtrees.GradientBoostingClassifier
    message = rf"boosting has diverged: .*after round \d+; lower learning_rate \(now {re.escape(str(learning_rate))}\)"
    model = make(kind, learning_rate=learning_rate, n_estimators=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, eval_set=[(X, y)])
    assert not hasattr(model, "train_score_")


@pytest.mark.filterwarnings("ignore:no tree found a split")
def test_a_leaf_that_is_to_weigh_more_than_any_can():
    for weight in (None, WEIGHT):
        for y, kind in ((SIGNAL, dtrees.GradientBoostingRegressor), (LABELS, dtrees.GradientBoostingClassifier)):
            model = make(kind, min_child_weight=1e300).fit(X, y, weight)
            assert all(tree.tree_.node_count == 1 for tree in model.estimators_.ravel())


def test_a_penalty_that_leaves_no_room_for_hessians():
    for weight in (None, WEIGHT):
        total = len(X) if weight is None else weight.sum()
        model = make(dtrees.GradientBoostingRegressor, max_depth=2, reg_lambda=1e15 * total).fit(X, SIGNAL, weight)
        like = make(dtrees.GradientBoostingRegressor, max_depth=2, reg_lambda=1e9).fit(X, SIGNAL, weight)
        tree, twin = model.estimators_[0, 0].tree_, like.estimators_[0, 0].tree_
        assert_array_equal(tree.threshold, twin.threshold)
        assert_array_equal(tree.weighted_n_node_samples, twin.weighted_n_node_samples)
        with pytest.raises(ValueError, match=r"reg_lambda is 1e\+140, but all rows together weigh .*; wants at most 1e\+15 times"):
            model.set_params(reg_lambda=1e140).fit(X, SIGNAL, weight)
    with pytest.raises(ValueError, match="reg_lambda is 5, but all rows together weigh 3e-20"):
        make(dtrees.GradientBoostingClassifier, class_weight=dict.fromkeys(np.unique(LABELS), 1e-22)).fit(X, LABELS)


@pytest.mark.parametrize("max_leaf_nodes", [None, 20])
def test_columns_of_a_level_are_drawn_once(max_leaf_nodes):
    """Two of six, of the eight that a tree sees; another two on the next level, and in the next tree."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(2000, 8))
    model = dtrees.GradientBoostingRegressor(
        n_estimators=12, max_leaf_nodes=max_leaf_nodes, colsample_bytree=0.75, colsample_bylevel=0.4, random_state=1
    ).fit(columns, np.sin(columns).sum(axis=1))
    seen = set()
    for (member,) in model:
        tree, inner = member.tree_, member.tree_.feature >= 0
        used = [frozenset(tree.feature[inner & (tree.node_depth == depth)]) for depth in range(1, 6)]
        assert max(map(len, used)) <= 2
        assert len(set(used)) > 2
        assert len(frozenset.union(*used)) <= 6
        seen |= set(used)
    assert len(seen) > 10
    assert model.max_features_ == 2
    by_node = dtrees.GradientBoostingRegressor(n_estimators=1, max_features=2, random_state=1).fit(columns, columns.sum(axis=1))
    tree = by_node.estimators_[0, 0].tree_
    assert len(set(tree.feature[(tree.node_depth == 4) & (tree.feature >= 0)])) > 2


def test_columns_are_drawn_for_levels_or_for_nodes():
    with pytest.raises(ValueError, match="max_features=3 draws columns for each node, colsample_bylevel=0.5 for each level"):
        make(dtrees.GradientBoostingRegressor, colsample_bylevel=0.5).fit(X, SIGNAL)
    with pytest.raises(ValueError, match="'colsample_bylevel' parameter of .* must be a float in the range"):
        make(dtrees.GradientBoostingClassifier, colsample_bylevel=0.0).fit(X, LABELS)


# --- ``min_split_gain`` and ``reg_alpha`` of the boosting estimators ---


Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier


def kept(tree, least):
    """Return what remains of a tree without splits of less gain: columns and thresholds, -2 for leaves, in preorder."""

    def walk(node):
        if tree.feature[node] < 0 or tree.gain[node] < least:
            return [(-2, -2.0)]
        own = (int(tree.feature[node]), float(tree.threshold[node]))
        return [own, *walk(tree.children_left[node]), *walk(tree.children_right[node])]

    return walk(0)


@pytest.mark.parametrize("least", [0.5, 3.0, 20.0, 1e6])
@pytest.mark.parametrize(("kind", "y"), [(Regressor, SIGNAL), (Classifier, LABELS)], ids=["values", "classes"])
@pytest.mark.filterwarnings("ignore:no tree found a split")
def test_splits_of_less_gain_are_not_made(kind, y, least):
    """The best split of a node does not depend on the least gain: the tree is the top of the tree without a least gain."""
    free = make(kind, n_estimators=1, max_features=None).fit(X, y, WEIGHT)
    bound = make(kind, n_estimators=1, max_features=None, min_split_gain=least).fit(X, y, WEIGHT)
    for tree, whole in zip(trees(bound), trees(free), strict=True):
        assert list(zip(tree.feature.tolist(), tree.threshold.tolist(), strict=True)) == kept(whole, least)
    several = make(kind, min_split_gain=least).fit(X, y, WEIGHT)
    gains = np.concatenate([tree.gain[tree.feature >= 0] for tree in trees(several)])
    assert (gains >= least * (1 - 1e-12)).all()


def test_the_larger_of_two_bounds_counts():
    weight = float(len(X))
    for absolute, relative in ((8.0, 1.0 / weight), (1.0, 8.0 / weight)):
        both = make(Regressor, min_split_gain=absolute, min_impurity_decrease=relative).fit(X, SIGNAL)
        assert_same_trees(both, make(Regressor, min_split_gain=8.0).fit(X, SIGNAL))


def test_no_penalty_is_no_other_criterion():
    plain = make(Regressor).fit(X, SIGNAL)
    assert_same_trees(make(Regressor, reg_alpha=0.0, min_split_gain=0.0, min_weight_fraction_leaf=0.0).fit(X, SIGNAL), plain)
    for name in ("reg_alpha", "min_split_gain"):
        with pytest.raises(ValueError, match=f"The '{name}' parameter"):
            make(Regressor, **{name: -1.0}).fit(X, SIGNAL)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "y"), [(Regressor, SIGNAL), (Classifier, LABELS)], ids=["values", "classes"])
def test_values_are_moved_towards_zero(kind, y):
    model = make(kind, reg_alpha=5.0, reg_lambda=1.0, n_estimators=1, learning_rate=1.0, max_features=None).fit(X, y)
    free = make(kind, reg_alpha=1e9, n_estimators=2)
    with pytest.warns(UserWarning, match="no tree found a split"):
        free.fit(X, y)
    assert all(tree.node_count == 1 and tree.value[0, 0] == 0.0 for tree in trees(free))
    if kind is Regressor:
        (tree,) = trees(model)
        at = model.apply(X)[:, 0]
        for leaf in np.unique(at):
            g = (SIGNAL.mean() - SIGNAL)[at == leaf].sum()
            wanted = -np.sign(g) * max(abs(g) - 5.0, 0.0) / ((at == leaf).sum() + 1.0)
            assert tree.value[leaf, 0] == pytest.approx(wanted, rel=1e-9, abs=1e-12)


# --- losses of the rows that rounds of boosting do not draw ---


def drawn(model, eligible, n_outputs):
    """Return the rows that each round draws."""
    for round_ in range(model.n_estimators_):
        chosen = np.empty(N, np.bool_)
        n_wanted = max(1, int(model.subsample * eligible.sum()))
        hashing.subsample(hashing.as_seed(model._seed), hashing.STREAM_SUBSAMPLE, round_ * n_outputs, n_wanted, eligible, chosen)
        yield chosen


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize(("kind", "y", "loss"), [(Regressor, SIGNAL, "squared_error"), (Classifier, LABELS, "log_loss")])
def test_losses_out_of_bag_by_the_book(kind, y, loss, weight):
    model = make(kind, loss=loss, subsample=0.6).fit(X, y, weight)
    n_classes = getattr(model, "n_classes_", 0)
    own = loss_for(loss, n_classes)
    target = np.searchsorted(model.classes_, y).astype(np.int32) if n_classes else y
    w = np.ones(N) if weight is None else weight
    initial = np.repeat(model._trees.initial[:, np.newaxis], N, axis=1)
    stages = model.staged_decision_function(X) if n_classes else (stage[:, np.newaxis] for stage in model.staged_predict(X))
    losses = [pointwise(own, target, np.ascontiguousarray(stage.T)) for stage in stages]
    outside = [(w > 0) & ~chosen for chosen in drawn(model, w > 0, own.n_outputs)]
    scores = [np.average(loss[rows], weights=w[rows]) for loss, rows in zip(losses, outside, strict=True)]
    before = [np.average(pointwise(own, target, initial)[outside[0]], weights=w[outside[0]]), *scores[:-1]]
    assert_allclose(model.oob_scores_, scores, rtol=1e-9)
    assert_allclose(model.oob_improvement_, np.subtract(before, scores), rtol=1e-6, atol=1e-9)
    assert model.oob_score_ == model.oob_scores_[-1]


def test_scikit_learn_has_the_same_attributes():
    theirs = sklearn.ensemble.GradientBoostingRegressor(n_estimators=8, subsample=0.6, random_state=0).fit(np.nan_to_num(X), SIGNAL)
    ours = make(Regressor, subsample=0.6).fit(X, SIGNAL)
    for name in ("oob_scores_", "oob_improvement_"):
        assert getattr(ours, name).shape == getattr(theirs, name).shape == (8,)
    scores = ours.oob_scores_.copy()
    assert_array_equal(ours.set_params(warm_start=True).fit(X, SIGNAL).oob_scores_, scores)  # no further rounds
    whole = ours.set_params(subsample=1.0, warm_start=False).fit(X, SIGNAL)
    assert not any(hasattr(whole, name) for name in ("oob_scores_", "oob_improvement_", "oob_score_"))


@pytest.mark.parametrize("kind", [Regressor, Classifier])
def test_rows_drawn_by_gradients_have_no_losses_out_of_bag(kind, tmp_path):
    y, some = (SIGNAL if kind is Regressor else LABELS), {"subsample": 0.4, "subsample_by": "gradient"}
    model = make(kind, **some).fit(X, y)
    assert not any(hasattr(model, name) for name in ("oob_scores_", "oob_improvement_", "oob_score_"))
    assert model.train_score_[-1] < 0.9 * model.train_score_[0]
    half = make(kind, **some | {"n_estimators": model.n_estimators // 2, "warm_start": True}).fit(X, y)
    assert_array_equal(half.set_params(n_estimators=model.n_estimators).fit(X, y).predict(X), model.predict(X))
    checkpointed = make(kind, **some).fit(X, y, checkpoint=str(tmp_path / "checkpoint"))
    assert_array_equal(make(kind, **some).fit(X, y, checkpoint=str(tmp_path / "checkpoint")).predict(X), checkpointed.predict(X))


@pytest.mark.parametrize(
    ("some", "message"),
    [({}, "subsample=1.0 draws all rows"), *(({"subsample": 0.5, "loss": loss}, "quantiles") for loss in ("absolute_error", "huber"))],
)
def test_what_rows_drawn_by_gradients_do_not_go_with(some, message):
    with pytest.raises(ValueError, match=message):
        make(Regressor, subsample_by="gradient", **some).fit(X, SIGNAL)


def test_files_and_early_stopping(tmp_path):
    once = make(Regressor, subsample=0.6).fit(X, SIGNAL)
    dtrees.save(once, tmp_path / "model")
    for name in ("oob_scores_", "oob_improvement_", "oob_score_"):
        assert_allclose(getattr(dtrees.load(tmp_path / "model"), name), getattr(once, name), rtol=1e-12)
    stopped = make(Regressor, subsample=0.6, early_stopping_rounds=1, learning_rate=1.5)
    stopped.fit(X, SIGNAL, eval_set=[(X[:50], SIGNAL[::-1][:50])])
    assert len(stopped.oob_scores_) == len(stopped.oob_improvement_) == stopped.n_estimators_
    assert stopped.oob_score_ == stopped.oob_scores_[-1]
