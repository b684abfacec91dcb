"""Rankings, survival models and isolation forests: fitted, tuned, evaluated, shown, reported and predicted with by commands."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

import dtrees
from dtrees.cli.main import _MODELS, _OTHERS
from dtrees.cli.models import FAMILIES
from dtrees.cli.target_columns import VALUES
from tests.cli.commands import fail, succeed

RANDOM = np.random.default_rng(0)
X = pd.DataFrame(RANDOM.normal(size=(600, 3)), columns=list("abc")).assign(word=RANDOM.choice(["x", "y"], 600))
#: Rows of a query are apart from each other, and its name is no number.
QUERY = np.array([f"q{k}" for k in RANDOM.integers(0, 40, 600)])
RELEVANCE = np.digitize(X["a"] + (X["word"] == "x") + RANDOM.normal(size=600), [0.5, 1.5])
LIFETIME = np.exp(-X["b"]) * RANDOM.exponential(size=600)
SEEN = LIFETIME < 2.0
STRANGE = np.arange(600) % 30 == 0
TABLES = {
    "ranking": X.assign(relevance=RELEVANCE, query=QUERY),
    "survival": X.assign(time=np.minimum(LIFETIME, 2.0), event=SEEN.astype(int)),
    "isolation": X.assign(a=X["a"] + 6 * STRANGE, strange=STRANGE.astype(int)),
}
COLUMNS = {"ranking": ("--target", "relevance", "--qid", "query"), "survival": ("--target", "time", "--event", "event"), "isolation": ()}
LABELS = ("--target", "strange")
SCORES = {"ranking": ["NDCG", "NDCG@10"], "survival": ["concordance"], "isolation": ["share of outliers"]}
QUICK = ("-p", "n_estimators=10")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables, and a model of each kind that was fitted to all rows of its table."""
    folder = tmp_path_factory.mktemp("kinds")
    for name, table in TABLES.items():
        table.to_csv(folder / f"{name}.csv", index=False)
        table.to_parquet(folder / f"{name}.parquet")
        more = COLUMNS[name] if name != "isolation" else LABELS  # which it must not learn from
        given = (folder / f"{name}.parquet", *more, "--model", name, *QUICK, "--test-size", 0)
        assert "Score" not in succeed("fit", *given, "--output", folder / name).stdout
    return folder


def expected(name: str) -> dtrees.GradientBoostingRanker | dtrees.GradientBoostingRegressor | dtrees.IsolationForest:
    if name == "ranking":
        ranker = dtrees.GradientBoostingRanker(n_estimators=10, random_state=0)
        return ranker.fit(X, RELEVANCE, qid=np.unique(QUERY, return_inverse=True)[1])
    if name == "survival":
        times = TABLES[name][["event", "time"]].astype({"event": bool})
        return dtrees.GradientBoostingRegressor(loss="cox", n_estimators=10, random_state=0).fit(X, times)
    return dtrees.IsolationForest(10, random_state=0).fit(TABLES[name][list(X)])


@pytest.mark.parametrize("name", TABLES)
def test_models_are_those_of_python(name: str, folder: Path, tmp_path: Path) -> None:
    rows, wanted = TABLES[name][list(X)], expected(name)
    found = dtrees.load(folder / name)
    predict = "score_samples" if name == "isolation" else "predict"
    np.testing.assert_array_equal(getattr(found, predict)(rows), getattr(wanted, predict)(rows))
    succeed("predict", folder / name, folder / f"{name}.csv", "--output", tmp_path / "p.csv", "--keep", "a")
    written = pd.read_csv(tmp_path / "p.csv")
    assert written.columns.tolist() == ["a", "prediction", *(["score"] if name == "isolation" else [])]
    np.testing.assert_allclose(written["prediction"], wanted.predict(rows))
    facts = json.loads(succeed("show", folder / name, "--json").stdout)
    assert facts["task"] == {"isolation": "outliers"}.get(name, name)
    shown = succeed("show", folder / name).stdout
    assert ("rows with a score below -0.5" in shown) == (name == "isolation")
    assert ("gain" in shown) == (name != "isolation")


@pytest.mark.parametrize("name", TABLES)
def test_held_out_rows_are_scored(name: str, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    given = ("fit", folder / f"{name}.parquet", *COLUMNS[name], "--model", name, *QUICK, "--report", page)
    found = json.loads(succeed(*given, "--json").stdout)
    assert list(found["scores"]) == SCORES[name]
    assert (found["n_train"] + found["n_test"], found["target"]) == (600, (*COLUMNS[name], None, None)[1])
    assert "held out" in page.read_text(encoding="utf-8")
    for score in found["scores"].values():
        assert score["model"] > (score["baseline"] or 0.0)


def test_whole_queries_are_held_out(folder: Path) -> None:
    """In whatever partitions the rows are."""
    given = ("--model", "ranking", *COLUMNS["ranking"], *QUICK, "--json")
    found = json.loads(succeed("fit", folder / "ranking.csv", *given).stdout)
    sizes = pd.Series(QUERY).value_counts()
    assert found["qid"] == "query"
    sums = {0}
    for size in sizes:
        sums |= {one + size for one in sums}
    assert found["n_test"] in sums
    folder.joinpath("parts").mkdir()
    for k in range(3):
        TABLES["ranking"][200 * k : 200 * (k + 1)].to_csv(folder / "parts" / f"{k}.csv", index=False)
    assert json.loads(succeed("fit", folder / "parts", *given).stdout)["scores"] == found["scores"]


def test_scores_are_those_of_others(folder: Path, tmp_path: Path) -> None:
    def scores(name: str, *columns: str) -> dict[str, dict[str, float]]:
        result = succeed("evaluate", folder / name, folder / f"{name}.csv", *columns, "--json", "--report", tmp_path / "page.html")
        return json.loads(result.stdout)["scores"]

    predicted, rows = dtrees.load(folder / "ranking").predict(X), TABLES["ranking"].groupby("query").indices.values()
    predicted -= 1e-9 * np.arange(600)  # of equal scores, the first row comes first
    found = scores("ranking", *COLUMNS["ranking"])
    for name, k in (("NDCG", None), ("NDCG@10", 10)):

        def mean(score: np.ndarray, k: int | None = k) -> float:
            return float(np.mean([ndcg_score([2.0 ** RELEVANCE[mine] - 1], [score[mine]], k=k) for mine in rows]))

        assert found[name]["model"] == pytest.approx(mean(predicted))
        assert found[name]["baseline"] == pytest.approx(np.mean([mean(RANDOM.random(600)) for _ in range(30)]), abs=0.01)
    times = TABLES["survival"][["event", "time"]].astype({"event": bool})
    score = dtrees.load(folder / "survival").score(X, times)
    assert scores("survival", *COLUMNS["survival"])["concordance"] == {"model": pytest.approx(score), "baseline": 0.5}
    forest, rows = dtrees.load(folder / "isolation"), TABLES["isolation"][list(X)]
    found, normal = scores("isolation", *LABELS), -forest.score_samples(rows)
    assert found["share of outliers"] == {"model": pytest.approx(np.mean(forest.predict(rows) == -1)), "baseline": None}
    assert found["ROC AUC"] == {"model": pytest.approx(roc_auc_score(STRANGE, normal)), "baseline": 0.5}
    assert found["average precision"]["model"] == pytest.approx(average_precision_score(STRANGE, normal))
    assert list(scores("isolation")) == ["share of outliers"]


def test_labels_of_scikit_learn(folder: Path, tmp_path: Path) -> None:
    table = TABLES["isolation"]
    scores = []
    for labels in (table["strange"], np.where(STRANGE, -1, 1), STRANGE):
        table.assign(strange=labels).to_csv(tmp_path / "t.csv", index=False)
        scores.append(json.loads(succeed("evaluate", folder / "isolation", tmp_path / "t.csv", *LABELS, "--json").stdout)["scores"])
    assert scores[0] == scores[1] == scores[2]
    table.assign(strange=table["strange"] + 1).to_csv(tmp_path / "t.csv", index=False)
    message = fail("evaluate", folder / "isolation", tmp_path / "t.csv", *LABELS)
    assert "The column 'strange' holds 1; wants true and false, or 0 and 1, or -1 and 1." in message


def test_times_with_their_survival(folder: Path, tmp_path: Path) -> None:
    given = ("predict", folder / "survival", folder / "survival.csv", "--output", tmp_path / "p.parquet")
    succeed(*given, "--times", "0.5,2", "--times", "1")
    written = pd.read_parquet(tmp_path / "p.parquet")
    assert written.columns.tolist() == ["prediction", "survival_0.5", "survival_2", "survival_1"]
    wanted = dtrees.load(folder / "survival").predict_survival_function(X, [0.5, 2.0, 1.0])
    np.testing.assert_allclose(written.iloc[:, 1:], wanted)
    assert "--times: could not convert string to float: 'x'; give numbers" in fail(*given, "--times", "1,x")
    assert "--times is for models with the losses cox and aft, but " in fail(
        "predict", folder / "ranking", folder / "ranking.csv", "--output", tmp_path / "p.csv", "--times", 1
    )


def test_events_and_rows_with_gaps(folder: Path, tmp_path: Path) -> None:
    """Events are flags as well as numbers; rows without one of both columns are left out."""
    table = TABLES["survival"].assign(event=SEEN.astype(object))
    table.loc[3, "event"], table.loc[[4, 5], "time"] = None, np.nan
    table.to_csv(tmp_path / "t.csv", index=False)
    given = (*COLUMNS["survival"], "--model", "survival", "--loss", "aft", *QUICK)
    result = succeed("fit", tmp_path / "t.csv", *given, "--test", folder / "survival.csv", "--output", tmp_path / "m", "--json")
    assert "left out 3 of 600 rows, in which 'time' or 'event' is missing" in result.stderr
    found = json.loads(result.stdout)
    assert (found["n_train"], found["n_test"], found["event"]) == (597, 600, "event")
    kept = pd.read_csv(tmp_path / "t.csv").dropna()
    wanted = dtrees.GradientBoostingRegressor(loss="aft", n_estimators=10, random_state=0)
    wanted.fit(kept[list(X)], kept[["event", "time"]].astype({"event": bool}))
    np.testing.assert_array_equal(dtrees.load(tmp_path / "m").predict(X), wanted.predict(X))


@pytest.mark.parametrize("name", ["ranking", "survival"])
def test_validation_data_stops_the_fit(name: str, folder: Path, tmp_path: Path) -> None:
    data = folder / f"{name}.csv"
    given = ("fit", data, *COLUMNS[name], "--model", name, "--validation", data, "-p", "early_stopping_rounds=1", *QUICK)
    result = succeed(*given, "--output", tmp_path / "m", "--test-size", 0)
    assert f"validation {'ndcg' if name == 'ranking' else 'concordance'} 0." in result.stderr
    assert dtrees.load(tmp_path / "m").best_score_ > 0.6


@pytest.mark.parametrize("name", ["ranking", "survival"])
def test_they_are_tuned(name: str, folder: Path) -> None:
    pytest.importorskip("optuna")
    given = ("tune", folder / f"{name}.csv", *COLUMNS[name], "--model", name, *QUICK, "--trials", 2, "--folds", 2)
    result = succeed(*given)
    assert f"Best mean {'ndcg' if name == 'ranking' else 'concordance'} of 2 folds" in result.stdout


def test_the_list_of_models() -> None:
    assert set(FAMILIES) == {*_MODELS, *_OTHERS}
    assert {name for name, family in FAMILIES.items() if family.kind == VALUES} == set(_MODELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "ranking"), "Missing option '--target'"),
        (("--model", "ranking", "--target", "relevance"), "a ranking model wants --qid COLUMN: the query of each row"),
        (("--model", "survival", "--target", "a"), "a survival model wants --event COLUMN: whether the event was observed"),
        (("--target", "a", "--event", "b"), "--event is for survival models; leave it out"),
        (("--model", "isolation", "--qid", "query"), "--qid is for ranking models; leave it out"),
        (("--model", "isolation", "--intervals"), "--intervals is for --model boosting, forest, extra-trees; --model is isolation"),
        (("--model", "ranking", "--intervals"), "--intervals is for --model boosting, forest, extra-trees; --model is ranking"),
        (
            ("--model", "isolation", "--validation", "x.csv"),
            "--validation is for --model boosting, ranking, survival, which are trained round by round; --model is iso",
        ),
        (("--model", "ranking", "--task", "regression"), "--task is for models that predict a number or a class; --model is ranking"),
        (("--model", "survival", "--loss", "huber"), "--model survival does not take loss='huber'; cox and aft are those of --model surv"),
        (("--target", "a", "--loss", "cox"), "--model boosting does not take loss='cox'"),
        (("--model", "forest", "--target", "a", "--loss", "cox"), "--model forest has no parameter 'loss'"),
        (("--model", "ranking", "--target", "relevance", "--qid", "quer"), "--qid: "),
        (("--model", "ranking", "--target", "relevance", "--qid", "query", "--features", "query"), "--features names the target 'query'"),
        (("--model", "ranking", "--target", "word", "--qid", "query"), "The model predicts numbers, but the target 'word' holds text"),
        (
            ("--model", "survival", "--target", "a", "--event", "relevance"),
            "The column 'relevance' holds 0; wants true and false, or 0 and 1",
        ),
    ],
)
def test_mistakes(arguments: tuple[str, ...], message: str, folder: Path) -> None:
    usage = any(word in message for word in (" is for ", "wants --", "Missing"))
    assert message in fail("fit", folder / "ranking.csv", *arguments, code=2 if usage else 1)


def test_mistakes_of_other_commands(folder: Path) -> None:
    assert "tune scores trials by a target, but --model isolation learns none" in fail(
        "tune", folder / "isolation.csv", "--model", "isolation", code=2
    )
    assert "a ranking model wants --qid COLUMN" in fail(
        "evaluate", folder / "ranking", folder / "ranking.csv", "--target", "relevance", code=2
    )
    assert "Missing option '--target'" in fail("evaluate", folder / "survival", folder / "survival.csv", "--event", "event", code=2)
    assert "'isolation' is not one of" in fail("demo", "--model", "isolation", code=2)
