"""What reports say of a model's behaviour: importances by shuffling, slices and losses are those of slow twins."""

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

import dtrees
from dtrees.effects import Sample
from dtrees.reports.behaviour import Looked, explanations, rises_by_shuffling, take_rows, worst_slices
from dtrees.reports.targets import Classes, Target
from tests.ensemble.samples import LABELS, SIGNAL, X, make

FRAME = pd.DataFrame(X[:, :4], columns=list("abcd")).assign(kind=np.where(X[:, 4] > 0, "$up", "<down>"), same=1.0)


def looked_at(model, frame, y):
    return Looked.of(model, take_rows(model, frame, y, None, None, None, 0))


def test_losses_are_scikit_learns():
    model = make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL)
    found = looked_at(model, X, SIGNAL).losses
    assert (found.name, found.mean()) == ("RMSE", pytest.approx(metrics.root_mean_squared_error(SIGNAL, model.predict(X))))
    model = make(dtrees.GradientBoostingRegressor, loss="quantile", alpha=[0.1, 0.9]).fit(X, SIGNAL)
    found = looked_at(model, X, SIGNAL).losses
    wanted = metrics.mean_pinball_loss(SIGNAL, model.predict(X)[:, 0], alpha=0.1)
    assert (found.name, found.mean()) == ("pinball loss", pytest.approx(wanted))
    model = make(dtrees.DecisionTreeRegressor, criterion="absolute_error", max_depth=3).fit(X, SIGNAL)
    found = looked_at(model, X, SIGNAL).losses
    assert (found.name, found.mean()) == ("MAE", pytest.approx(metrics.mean_absolute_error(SIGNAL, model.predict(X))))
    model = make(dtrees.RandomForestClassifier, max_depth=3).fit(X, LABELS)
    y = np.where(LABELS == "mid", "unknown", LABELS)
    found = looked_at(model, X, y).losses
    wanted = metrics.log_loss(y[y != "unknown"], model.predict_proba(X)[y != "unknown"], labels=model.classes_)
    assert (found.name, found.mean()) == ("log loss", pytest.approx(wanted))


@pytest.mark.parametrize("classify", [False, True])
def test_importances_by_shuffling_are_those_of_shuffled_tables(classify):
    y = LABELS if classify else SIGNAL
    model = make(dtrees.GradientBoostingClassifier if classify else dtrees.GradientBoostingRegressor).fit(FRAME, y)
    found = rises_by_shuffling(looked_at(model, FRAME, y))

    def loss(table):
        if classify:
            return metrics.log_loss(y, model.predict_proba(table), labels=model.classes_)
        return metrics.root_mean_squared_error(y, model.predict(table))

    random = np.random.default_rng(0)
    orders = [random.permutation(len(FRAME)) for _ in range(3)]
    wanted = [[loss(FRAME.assign(**{name: FRAME[name].to_numpy()[order]})) - loss(FRAME) for order in orders] for name in FRAME]
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    assert found[:2].min() > 0
    assert found[5].tolist() == [0.0] * 3


def test_only_the_columns_of_most_gain_are_shuffled():
    random = np.random.default_rng(0)
    wide = random.normal(size=(200, 30))
    model = dtrees.DecisionTreeRegressor(max_depth=4).fit(wide, wide[:, 7])
    found = rises_by_shuffling(looked_at(model, wide, wide[:, 7]))
    assert found[7].min() > 0.5
    assert found.min() <= 0


def predicted_by(values, y, classes=None):
    """A target whose predictions are given, and the losses of its rows."""
    if classes is None:
        target = Target("", y, values)
    else:
        target = Classes("", y, classes[values.argmax(axis=1)], probabilities=values, classes=classes)
    return target, target.losses(dtrees.DecisionTreeRegressor())


def test_the_worst_slices_are_where_errors_were_put():
    random = np.random.default_rng(0)
    n = 2000
    frame = pd.DataFrame(
        {
            "few": random.integers(0, 3, n),
            "many": random.normal(size=n),
            "kind": random.choice(["$a", "<b>", "c"], n),
            "same as kind": 0.0,
            "flag": random.random(n) < 0.5,
        }
    )
    frame["same as kind"] = (frame["kind"] == "<b>").astype(int)
    frame.loc[::7, "many"] = np.nan
    model = dtrees.DecisionTreeRegressor(max_depth=2).fit(frame, random.normal(size=n))
    sample = Sample.of(model, frame)
    for rows, name in (
        (frame["kind"] == "<b>", "kind = <b>"),
        (frame["many"].isna(), "many is missing"),
        (frame["few"] == 2, "few = 2"),
        (frame["flag"], "flag = True"),
        (frame["many"] > frame["many"].quantile(0.8, "lower"), f"many > {frame['many'].quantile(0.8, 'lower'):.3f}".rstrip("0")),
    ):
        predicted = np.where(rows, 2.0, 0.5) * random.normal(size=n)
        target, losses = predicted_by(predicted, np.zeros(n))
        worst, *others = worst_slices(sample, target, losses)
        assert (worst.name, worst.n, worst.share) == (name, rows.sum(), pytest.approx(rows.mean()))
        assert worst.loss == pytest.approx(np.sqrt(np.mean(predicted[rows] ** 2)))
        assert worst.ratio == pytest.approx(worst.loss / np.sqrt(np.mean(predicted**2)))
        assert worst.means == {"mean actual": 0.0, "mean predicted": pytest.approx(predicted[rows].mean())}
        assert len(others) <= 1
        assert not [one for one in others if one.name.startswith("same")]
    assert worst_slices(sample, *predicted_by(random.normal(size=n), np.zeros(n))) == []


def test_what_slices_say_of_classes():
    y = np.array(["no", "yes"])[(X[:, 0] > 0).astype(int)]
    model = make(dtrees.DecisionTreeClassifier, max_depth=1).fit(X, y)
    shares = np.where((X[:, 1] > 1)[:, np.newaxis], [0.5, 0.5], np.where((y == "yes")[:, np.newaxis], [0.1, 0.9], [0.9, 0.1]))
    target, losses = predicted_by(shares, y, np.array(["no", "yes"]))
    worst = worst_slices(Sample.of(model, X, names=list("abcde")), target, losses)[0]
    rows = X[:, 1] > np.nanquantile(X[:, 1], 0.8, method="lower")
    assert worst.name.startswith("b > ")
    wanted = {"share of yes": (y[rows] == "yes").mean(), "mean probability": shares[rows, 1].mean()}
    assert list(worst.means) == list(wanted)
    assert worst.means == pytest.approx(wanted)
    names = np.array(["high", "low", "mid"])
    three = Classes("", LABELS, LABELS, probabilities=np.eye(3)[np.searchsorted(names, LABELS)], classes=names)
    assert three.means(LABELS == "low") == {"accuracy": 1.0}


def test_the_row_that_is_predicted_worst_is_explained():
    model = make(dtrees.GradientBoostingRegressor).fit(FRAME, SIGNAL)
    y = SIGNAL.copy()
    y[17] += 100.0
    _, one = explanations(looked_at(model, FRAME, y))
    assert f"it is {y[17]:.3f}".rstrip("0") in one.caption
