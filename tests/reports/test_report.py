"""Reports: what the page says is so, it needs nothing from elsewhere, and names are text."""

import base64
import pickle
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

import dtrees
from dtrees.reports.facts import parameters_of, summarise_columns, times_of
from dtrees.reports.targets import Classes, Target
from tests.ensemble.samples import KINDS, LABELS, SIGNAL, SLOW_KINDS, WEIGHT, X, make, target
from tests.slow import thorough_for

#: Numbers of pictures of importances, of dependence and of Shapley values, for a model of five numeric columns.
BEHAVIOUR = 3 + 6 + 2


class Page(HTMLParser):
    """The elements and the text of a page; raises if one is not closed."""

    EMPTY = ("meta", "img", "rect", "br", "link")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.EMPTY:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self._open.pop() == tag

    def handle_data(self, data):
        if "style" not in self._open:
            self.text += data
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += data


def headings(page):
    return re.findall(r"<h2 id=\"\w+\">(.*?)</h2>", page)


def assert_self_contained(page, pictures):
    """Check that there is no script and no address except in namespaces, and that all pictures are well-formed."""
    found = Page(page)
    images = [attributes for tag, attributes in found.elements if tag == "img"]
    assert len(images) == pictures
    for image in images:
        kind, _, data = image["src"].partition(",")
        assert kind == "data:image/svg+xml;base64"
        svg = base64.b64decode(data)
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert image["alt"]
        assert b"<script" not in svg
    assert not {tag for tag, _ in found.elements} & {"script", "link", "iframe", "object", "embed"}
    for _, attributes in found.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert "http" not in (value or "") or name == "http-equiv"
    return found


@pytest.fixture
def text_only(monkeypatch):
    """Leave pictures out of pages: writing one takes a fifth of a second."""
    monkeypatch.setattr("dtrees.reports.figures._uri", lambda figure: "data:,")


def row(page, first):
    """Return the row of a table that begins with a cell."""
    return next(cells for cells in page.rows if cells and cells[0] == first)


def test_a_report(tmp_path):
    frame = pd.DataFrame({"<script>alert(1)</script>": X[:, 0], '$x$ & "y"': X[:, 1], "<b>": X[:, 2]})
    model = dtrees.DecisionTreeClassifier(max_depth=3, random_state=7).fit(frame[:200], LABELS[:200])
    path = tmp_path / "page.html"
    report = dtrees.report(model, frame[200:], LABELS[200:], path, rows="held <out>", title="A & B", max_rows=90)
    assert path.read_text(encoding="utf-8") == report.html
    page = assert_self_contained(report.html, pictures=4 + 3 + 4 + 2 + 1)
    behaviour = ["Where it is worst", "Importance of columns", "What predictions depend on", "What predictions are made of"]
    assert headings(report.html) == ["Scores", "Predictions", *behaviour, "Columns", "The first trees", "Model"]
    assert "<script>alert(1)</script>" in page.text
    assert "<script" not in report.html
    assert "90 of 100 rows (held <out>), drawn at random" in page.text
    assert "A & B" in page.text
    assert row(page, "max_depth") == ["max_depth", "3", "None"]
    assert row(page, "random_state") == ["random_state", "7", "None"]
    assert row(page, '$x$ & "y"')[1] == "float64"
    assert f'srcdoc="{report.html[:9].replace("<", "&lt;")}' in report._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("kind", thorough_for(SLOW_KINDS, KINDS), ids=lambda kind: kind.__name__)
def test_every_estimator(kind):
    model = make(kind).fit(X, target(kind))
    report = dtrees.report(model, X, target(kind), sample_weight=WEIGHT, max_depth=1)
    boosting = "GradientBoosting" in kind.__name__
    assert_self_contained(
        report.html, pictures=boosting + 3 + hasattr(model, "classes_") + BEHAVIOUR + (2 if hasattr(model, "n_estimators") else 1)
    )
    page = Page(report.html)
    score = model.score(X, target(kind), WEIGHT)
    assert float(row(page, "accuracy" if hasattr(model, "classes_") else "R²")[1]) == pytest.approx(score, abs=1e-4)
    assert "by their weights" in page.text


@pytest.mark.slow
def test_boosting_of_every_shape():
    margin = np.full(len(X), 0.5)
    two = dtrees.GradientBoostingClassifier(n_estimators=3).fit(
        X, LABELS == "low", base_margin=margin, eval_set={"<i>": (X, LABELS == "low", None, margin)}
    )
    report = dtrees.report(two, X, LABELS == "low", base_margin=margin, n_trees=1)
    assert_self_contained(report.html, pictures=1 + 4 + BEHAVIOUR + 1)
    y = pd.DataFrame({"<u>": SIGNAL, "b": np.nan_to_num(X[:, 2])})
    several = dtrees.GradientBoostingRegressor(n_estimators=3, n_iter_no_change=2, scoring="r2").fit(X, y)
    report = dtrees.report(several, X, y, n_trees=2)
    page = assert_self_contained(report.html, pictures=2 + 2 * 3 + BEHAVIOUR + 2)
    assert "RMSE of <u> is above" in page.text
    assert "<u>" in page.text
    assert "Tree 1 (round 1, target 1)" in page.text
    assert "6: 3 rounds of 2" in page.text


@pytest.mark.slow
@pytest.mark.usefixtures("text_only")
def test_boosting_of_classes_quantiles_and_other_losses():
    labels = np.column_stack([SIGNAL > 0, np.digitize(X[:, 2], [-0.5, 0.5])]).astype(int)
    few = X[:, :2]
    classes = dtrees.GradientBoostingClassifier(n_estimators=2).fit(few, labels)
    report = dtrees.report(classes, few, labels, n_trees=2)
    assert "Tree 0 (round 1, target 0)" in report.html
    assert "Tree 1 (round 1, target 1, class 0)" in report.html
    quantiles = dtrees.GradientBoostingRegressor(n_estimators=2, loss="quantile", alpha=[0.1, 0.9]).fit(few, SIGNAL)
    page = Page(dtrees.report(quantiles, few, SIGNAL, n_trees=2).html)
    assert "Tree 1 (round 1, 0.9 quantile)" in page.text
    assert "of the 0.1 quantile" in page.text
    for loss in ("quantile", "poisson", "gamma", "tweedie", "absolute_error"):
        positive = SIGNAL - SIGNAL.min() + 1
        model = dtrees.GradientBoostingRegressor(n_estimators=3, loss=loss).fit(few, positive)
        name = {"quantile": "pinball loss", "poisson": "Poisson deviance", "gamma": "gamma deviance", "tweedie": "Tweedie deviance"}.get(
            loss
        )
        page = Page(dtrees.report(model, few, positive, n_trees=0).html)
        assert name is None or row(page, name)[3] == "smaller"


@pytest.mark.slow
@pytest.mark.usefixtures("text_only")
def test_many_classes_and_unknown_ones():
    y = np.arange(len(X)) % 30
    model = dtrees.RandomForestClassifier(5, random_state=0).fit(X, y)
    page = Page(dtrees.report(model, X, np.where(y == 3, 99, y), n_trees=0).html)
    assert "10 rows are of classes that the model does not know" in page.text
    assert "The 20 most frequent of 30 classes." in page.text
    with pytest.raises(ValueError, match="y has none of the model's classes, such as"):
        dtrees.report(model, X, y + 100)


@pytest.mark.slow
@pytest.mark.usefixtures("text_only")
def test_sparse_and_polars_tables():
    import polars as pl
    import scipy.sparse

    table = scipy.sparse.random(200, 150, 0.1, format="csr", random_state=0)
    model = dtrees.GradientBoostingRegressor(n_estimators=3).fit(table, SIGNAL[:200])
    page = Page(dtrees.report(model, table, SIGNAL[:200], n_trees=0, max_rows=150).html)
    assert "100 of 150 columns" in page.text
    frame = pl.DataFrame({"a": X[:, 0], "b": ["x", "y", "z"] * 100})
    tree = dtrees.DecisionTreeRegressor(max_depth=2).fit(frame, pl.Series(SIGNAL))
    assert row(Page(dtrees.report(tree, frame, pl.Series(SIGNAL), n_trees=0, max_rows=100).html), "b")[1] == "categories"


@pytest.mark.usefixtures("text_only")
def test_pipelines_and_bags():
    frame = pd.DataFrame(X, columns=list("abcde"))
    steps = make_pipeline(SimpleImputer().set_output(transform="pandas"), make(dtrees.DecisionTreeRegressor, max_depth=2))
    page = Page(dtrees.report(steps.fit(frame, SIGNAL), frame, SIGNAL, n_trees=1).html)
    assert float(row(page, "R²")[1]) == pytest.approx(steps.score(frame, SIGNAL), rel=1e-3)
    assert row(page, "c")[1] == "float64"
    bag = dtrees.BaggingClassifier(make(dtrees.GradientBoostingClassifier), 3, random_state=0, oob_score=True).fit(frame, LABELS)
    page = Page(dtrees.report(bag, frame, LABELS, n_trees=1).html)
    assert float(row(page, "accuracy")[1]) == pytest.approx(bag.score(frame, LABELS), rel=1e-3)
    assert row(page, "boosters")[1] == "3"
    assert row(page, "trees")[1] == "72: 24 rounds of 3"
    found, _ = summarise_columns(bag, frame, 5)
    wanted = np.mean([booster.feature_importances_ for booster in bag.estimators_], axis=0)
    assert {column.name: column.importance for column in found} == pytest.approx(dict(zip("abcde", wanted, strict=True)))
    with pytest.raises(NotFittedError):
        dtrees.report(dtrees.BaggingRegressor(), X, SIGNAL)


@pytest.mark.parametrize("n", [5, 14, 100])
def test_histograms_of_integers_have_no_gaps(n):
    numbers = np.repeat(np.arange(n), 3)[:, np.newaxis]
    model = dtrees.DecisionTreeRegressor(max_depth=1).fit(numbers, numbers[:, 0])
    bars = summarise_columns(model, numbers, 1)[0][0].bars
    assert min(bars) > 0
    assert len(bars) <= min(n, 25)


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_precision_and_recall_are_scikit_learns(weight):
    for y, average in ((LABELS, "macro"), (SIGNAL > 1, "binary")):
        model = make(dtrees.RandomForestClassifier, max_depth=2).fit(X, y)
        shares = model.predict_proba(X)
        target = Classes("", y, model.predict(X), weight, probabilities=shares, classes=model.classes_)
        by_name = {score.name: score for score in target.scores(model)[1]}
        for name, metric in (("precision", metrics.precision_score), ("recall", metrics.recall_score), ("F1", metrics.f1_score)):
            assert by_name[name].model == pytest.approx(metric(y, model.predict(X), sample_weight=weight, average=average))
        if average == "binary":
            wanted = metrics.average_precision_score(y, shares[:, 1], sample_weight=weight)
            assert by_name["average precision"].model == pytest.approx(wanted)


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_scores_are_scikit_learns(weight):
    model = make(dtrees.RandomForestClassifier).fit(X, LABELS)
    shares = model.predict_proba(X)
    _, found = Classes("", LABELS, model.predict(X), weight, probabilities=shares, classes=model.classes_).scores(model)
    by_name = {score.name: score for score in found}
    constant = np.tile([np.average(c == LABELS, weights=weight) for c in model.classes_], (len(X), 1))
    for name, one, other in (
        ("accuracy", model.predict(X), model.classes_[constant.argmax(axis=1)]),
        ("balanced accuracy", model.predict(X), model.classes_[constant.argmax(axis=1)]),
        ("log loss", shares, constant),
    ):
        metric = {"accuracy": metrics.accuracy_score, "balanced accuracy": metrics.balanced_accuracy_score, "log loss": metrics.log_loss}[
            name
        ]
        assert by_name[name].model == pytest.approx(metric(LABELS, one, sample_weight=weight))
        assert by_name[name].baseline == pytest.approx(metric(LABELS, other, sample_weight=weight))
        assert by_name[name].verdict == "good"
    assert by_name["ROC AUC"].baseline == pytest.approx(0.5)
    mean = np.average(SIGNAL, weights=weight)
    regressor = make(dtrees.DecisionTreeRegressor).fit(X, SIGNAL)
    words, found = Target("", SIGNAL, np.zeros(len(X)), weight).scores(regressor)
    assert words == f"the mean of the target, {mean:.6g}"
    assert [score.name for score in found] == ["R²", "RMSE", "MAE", "median error"]
    assert found[0].baseline == pytest.approx(0, abs=1e-12)
    assert found[2].model == pytest.approx(np.average(np.abs(SIGNAL), weights=weight))


def test_columns_are_told_as_they_are():
    frame = pd.DataFrame({"n": [1.0, 2.0, np.nan, 100.0] * 25, "c": ["u", "u", None, "v"] * 25, "one": 7, "text": ["a"] * 100})
    tree = dtrees.DecisionTreeRegressor().fit(frame, np.arange(100) % 4)
    found, n_columns = summarise_columns(tree, frame.assign(text="never seen"), 10)
    assert n_columns == 4
    by_name = {column.name: column for column in found}
    assert [column.importance for column in found] == sorted(tree.feature_importances_, reverse=True)
    n, c, one, text = (by_name[name] for name in frame.columns)
    assert (n.kind, n.missing, n.distinct, n.values) == ("float64", 0.25, 3, "1 · 2 · 100")
    assert (c.kind, c.missing, c.distinct, c.values) == ("categories", 0.25, 2, "u (67%), v (33%)")
    assert (one.distinct, one.bars, one.kind) == (1, [1.0], "int64")
    assert (text.missing, text.distinct, text.values) == (1.0, 0, "")
    assert max(n.bars) == max(c.bars) == 1


def test_histograms_are_of_finite_values():
    X = np.array([[1.0], [2.0], [np.inf], [-np.inf], [3.0]] * 20, np.float32)
    tree = dtrees.DecisionTreeRegressor().fit(X, np.arange(100) % 5)
    (column,), _ = summarise_columns(tree, X, 10)
    assert (column.values, column.distinct) == ("-inf · 2 · inf", 5)
    assert sum(bar > 0 for bar in column.bars) == 3


def test_parameters_that_were_changed_come_first():
    model = dtrees.GradientBoostingRegressor(loss="huber", n_estimators=100, max_depth=2)
    found = parameters_of(model)
    assert {parameter.name for parameter in found} == set(model.get_params())
    changed = {name for name, value in model.get_params().items() if value != dtrees.GradientBoostingRegressor().get_params()[name]}
    assert {parameter.name for parameter in found if parameter.changed} == changed
    assert all(parameter.changed for parameter in found[: len(changed)])


def test_what_cannot_be_reported(tmp_path):
    model = dtrees.DecisionTreeRegressor(max_depth=1).fit(X, SIGNAL)
    path = tmp_path / "page.html"
    for arguments, options, error, message in (
        (("model", X, SIGNAL), {}, TypeError, "model is of type str; wants an estimator of dtrees"),
        ((model, X, SIGNAL[:9]), {}, ValueError, "X has 300 rows but y"),
        ((model, X[:, :2], SIGNAL), {}, ValueError, "2 features"),
        ((model, X, None), {}, ValueError, "requires y to be passed, but the target y is None"),
        ((model, X, SIGNAL), {"qid": LABELS}, ValueError, "qid is given, but a DecisionTreeRegressor knows no queries; leave it out"),
        ((model, X, SIGNAL), {"max_rows": 0}, ValueError, "max_rows is 0; wants at least 1"),
        ((model, X, SIGNAL), {"seed": -1}, ValueError, "seed is -1"),
        ((model, X, SIGNAL), {"n_trees": 1.5}, TypeError, "n_trees is 1.5; wants an integer"),
    ):
        with pytest.raises(error, match=message):
            dtrees.report(*arguments, path, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_dask_collections_are_drawn_from():
    """The page equals that of the same rows in memory, except for the time."""
    import dask.dataframe as dd

    frame, y = pd.DataFrame(X, columns=list("abcde")), pd.Series(SIGNAL)
    model = dtrees.DecisionTreeRegressor(max_depth=2).fit(frame, y)
    options = {"n_trees": 0, "max_rows": 50, "rows": "new"}
    here = Page(dtrees.report(model, frame, y, **options).html)
    lazy = Page(dtrees.report(model, dd.from_pandas(frame, npartitions=3), dd.from_pandas(y, npartitions=3), **options).html)
    assert "50 of 300 rows (new), drawn at random" in lazy.text
    for first in ("R²", "MAE", "a", "b"):
        assert row(lazy, first) == row(here, first)
    images = [[attributes["src"] for tag, attributes in page.elements if tag == "img"] for page in (here, lazy)]
    assert images[0] == images[1]


def test_times_of_the_fit(tmp_path):
    """They are of the last fit, and are not saved: equal models give equal files."""
    X, y = np.arange(40.0).reshape(-1, 1), np.arange(40.0) ** 2
    model = dtrees.GradientBoostingRegressor(n_estimators=4, warm_start=True).fit(X, y)
    model._loading_seconds, model._growing_seconds = 0.25, 2.0
    assert times_of(model) == [("fit", "0.25 s to check and sort the table, 2 s to grow 4 rounds, 500 ms each")]
    assert "500 ms each" in dtrees.report(model, X, y).html
    model.set_params(n_estimators=7).fit(X, y)
    assert model._growing_seconds != 2.0
    assert " to grow 3 rounds, " in times_of(model)[0][1]
    assert times_of(pickle.loads(pickle.dumps(model))) == []
    equal = dtrees.GradientBoostingRegressor(n_estimators=4, warm_start=True).fit(X, y).set_params(n_estimators=7).fit(X, y)
    assert pickle.dumps(equal) == pickle.dumps(model)
    equal.send_times()  # as on the worker that coordinated a fit
    came = pickle.loads(pickle.dumps(equal))
    assert times_of(came) == times_of(equal) != []
    assert times_of(pickle.loads(pickle.dumps(came))) == []
    dtrees.save(model, tmp_path / "model")
    assert times_of(dtrees.load(tmp_path / "model")) == []
    assert times_of(dtrees.DecisionTreeRegressor().fit(X, y))[0][1].endswith(" s to grow a tree")
    model = dtrees.RandomForestRegressor(3).fit(X, y, checkpoint=tmp_path / "trees")
    assert times_of(model)[0][1].endswith(" s to grow trees")
